"""Laws of novelty: how far a job lies from the known ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.predict.novelty import JobSpace, pair_novelty
from interfere.training.models.gp.model import standardised_space, weighted_space

JOBS = np.array([[0.0, 1.0, 5.0, np.nan], [1.0, 3.0, 5.0, 2.0], [2.0, 2.0, 5.0, np.nan]], dtype=np.float32)


@pytest.fixture(scope="module")
def space() -> JobSpace:
    made = standardised_space(JOBS)
    return weighted_space(made, np.ones(len(made.columns)))


def test_a_column_that_never_varies_is_left_out(space: JobSpace) -> None:
    assert space.columns.tolist() == [0, 1]


def test_known_jobs_are_hardly_novel_and_far_ones_are(space: JobSpace) -> None:
    assert space.novelty(JOBS).max() < 0.02
    far = np.array([[99.0, -99.0, 5.0, 0.0]], dtype=np.float32)
    assert space.novelty(far)[0] > 0.9
    further = far * np.float32(100)
    np.testing.assert_array_equal(space.novelty(further), space.novelty(far))  # the edge is the edge


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4), st.integers(0, 15))
def test_novelty_is_a_share_whatever_is_asked(values: list[float], absent: int) -> None:
    made = weighted_space(standardised_space(JOBS), np.array([0.5, 2.0]))
    job = np.array([[np.nan if absent >> k & 1 else v for k, v in enumerate(values)]], dtype=np.float32)
    assert 0.0 <= made.novelty(job)[0] <= 1.0


def test_a_table_of_equal_jobs_has_one_point() -> None:
    same = np.ones((3, 4), dtype=np.float32)
    made = weighted_space(standardised_space(same), np.ones(1))
    assert made.novelty(np.full((1, 4), 7.0, dtype=np.float32))[0] < 0.02  # nothing is known to tell them apart


def test_a_pair_is_at_least_as_novel_as_either_job() -> None:
    assert pair_novelty(np.array([0.0, 0.5, 0.2]), np.array([0.0, 0.0, 0.4])).tolist() == pytest.approx([0, 0.5, 0.52])
