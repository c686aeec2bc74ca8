"""Groups of a campaign are distinct, balanced and reproducible."""

from collections import Counter
from itertools import combinations

import pytest

from interfere.errors import InvalidInputError
from interfere.profiling.schedule import balanced_groups

JOBS = tuple(f"job-{k}" for k in range(16))


@pytest.mark.parametrize(("size", "count"), [(3, 120), (4, 60), (5, 40)])
def test_every_job_and_every_pair_is_measured_alike_often(size: int, count: int) -> None:
    groups = balanced_groups(JOBS, size=size, count=count, seed=3)
    assert len({tuple(sorted(members)) for members in groups}) == count
    jobs = Counter(name for members in groups for name in members)
    assert max(jobs.values()) - min(jobs.values()) <= 2
    assert len(jobs) == len(JOBS)
    pairs = Counter(tuple(sorted(pair)) for members in groups for pair in combinations(members, 2))
    assert len(pairs) >= 0.97 * len(JOBS) * (len(JOBS) + 1) / 2, "hardly a pair, self pairs included, is never measured"
    assert max(pairs.values()) <= 2.5 * sum(pairs.values()) / len(pairs)


def test_all_groups_there_are(tmp_path: object) -> None:
    groups = balanced_groups(("a", "b", "c"), size=3, count=10, seed=0)
    assert sorted(groups) == sorted({tuple(sorted(members)) for members in groups})
    assert ("a", "a", "a") in groups


def test_of_very_many_possible_groups_a_sample_is_compared() -> None:
    groups = balanced_groups(tuple(map(str, range(60))), size=4, count=30, seed=0)
    assert max(Counter(name for members in groups for name in members).values()) <= 3


def test_equal_seeds_give_equal_groups() -> None:
    first, again, other = (balanced_groups(JOBS, size=3, count=20, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(("size", "count", "said"), [(2, 5, "three jobs"), (3, 0, "groups of 3"), (3, 817, "make 816")])
def test_a_design_that_cannot_be_is_refused(size: int, count: int, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        balanced_groups(JOBS, size=size, count=count, seed=0)
