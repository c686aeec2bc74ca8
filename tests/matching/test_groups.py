"""Groups of three and four: allowed, equal sizes, a bound that holds, and close to the best where that is known."""

import itertools

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.matching.exact import match_pairs
from interfere.matching.groups import match_groups
from interfere.records import SolveStatus
from tests.matching.families import real


def best(cost: np.ndarray, k: int) -> float:
    """The cheapest grouping with sizes as equal as can be, by trying all."""
    n = len(cost)
    sizes = [n // -(-n // k) + (g < n % -(-n // k)) for g in range(-(-n // k))]

    def search(left: frozenset[int], sizes: tuple[int, ...]) -> float:
        if not left:
            return 0.0
        first, found = min(left), np.inf
        for size in set(sizes):
            rest = list(sizes)
            rest.remove(size)
            for others in itertools.combinations(sorted(left - {first}), size - 1):
                group = (first, *others)
                here = sum(cost[a, b] for a, b in itertools.combinations(group, 2))
                if here < found:
                    found = min(found, here + search(left - set(group), tuple(rest)))
        return found

    return search(frozenset(range(n)), tuple(sizes))


@pytest.mark.parametrize(("n", "k"), [(6, 3), (7, 3), (8, 3), (9, 3), (8, 4), (9, 4), (10, 4)])
def test_close_to_the_best_of_all(n: int, k: int) -> None:
    apart = []
    for seed in range(6):
        cost = real(n, 100 * n + seed)
        found = match_groups(cost, k, seed=seed)
        least = best(cost, k)
        assert found.status is SolveStatus.HEURISTIC
        assert found.lower_bound <= least + 1e-9 <= found.cost + 2e-9
        assert sorted(np.bincount(found.group)) == sorted(
            n // -(-n // k) + (g < n % -(-n // k)) for g in range(-(-n // k))
        )
        apart.append(found.cost / least - 1)
    assert np.mean(apart) < 0.02


def test_groups_of_two_come_close_to_the_exact_matching() -> None:
    cost = real(80, 3)
    assert match_groups(cost, 2).cost <= match_pairs(cost).cost * 1.05


def test_forbidden_pairs_never_share_and_an_impossible_grouping_is_infeasible() -> None:
    cost = real(30, 4)
    away = np.triu(np.random.default_rng(0).random((30, 30)) < 0.3, 1)
    cost[away | away.T] = np.inf
    found = match_groups(cost, 3)
    assert np.isfinite(found.cost)
    together = (found.group[:, None] == found.group) & ~np.eye(30, dtype=bool)
    assert np.isfinite(cost[together]).all()
    assert match_groups(np.full((6, 6), np.inf), 3).status is SolveStatus.INFEASIBLE


def test_a_budget_is_kept_and_a_seed_repeats_itself() -> None:
    cost = real(120, 5)
    quick = match_groups(cost, 4, time_limit_s=1e-6)
    full = match_groups(cost, 4, seed=1)
    assert full.cost <= quick.cost
    assert (match_groups(cost, 4, seed=1).group == full.group).all()
    assert match_groups(np.zeros((0, 0)), 3).cost == 0.0


@pytest.mark.parametrize(("cost", "k"), [(np.zeros((3, 3)), 1), (np.full((2, 2), np.nan), 3), (np.zeros(3), 3)])
def test_bad_input_is_refused(cost: np.ndarray, k: int) -> None:
    with pytest.raises(InvalidInputError):
        match_groups(cost, k)
