"""Absent facts are estimated from known jobs; present ones stay; an estimate is uncertain, and makes a job novel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from interfere.predict.completion import FactCompletion, fit_completion
from interfere.predict.novelty import JobSpace
from interfere.training.models.gp.model import standardised_space, weighted_space

NAN = np.nan
# Two kinds of jobs: of the first fact near 0 and near 10, which the other two facts follow.
KNOWN = np.array([[0.0, 1.0, 5.0], [0.1, 1.1, 5.2], [10.0, 3.0, 9.0], [10.2, 3.2, 9.4]], dtype=np.float32)
WORKLOADS = np.arange(4)


@pytest.fixture(scope="module")
def completion() -> FactCompletion:
    return fit_completion(KNOWN, WORKLOADS)


@pytest.fixture(scope="module")
def space() -> JobSpace:
    return weighted_space(standardised_space(KNOWN), np.ones(3))


def test_an_absent_fact_is_that_of_the_jobs_which_agree_in_the_others(completion: FactCompletion) -> None:
    completed, variance = completion.complete(np.array([[10.1, NAN, 9.2], [0.05, NAN, NAN]], dtype=np.float32))
    assert completed[0] == pytest.approx([10.1, 3.1, 9.2], abs=0.05)
    assert completed[1] == pytest.approx([0.05, 1.05, 5.1], abs=0.05)
    assert variance[0, 1] < 0.05 * KNOWN[:, 1].var()
    assert variance[0, 0] == variance[0, 2] == 0.0


def test_a_job_without_any_fact_is_the_mean_with_all_of_its_variance(completion: FactCompletion) -> None:
    completed, variance = completion.complete(np.full((1, 3), NAN, dtype=np.float32))
    assert completed[0] == pytest.approx(KNOWN.mean(0), rel=1e-5)
    assert variance[0] == pytest.approx(KNOWN.var(0), rel=1e-4)


def test_a_job_unlike_the_known_ones_is_less_certain_than_one_like_them(completion: FactCompletion) -> None:
    _, variance = completion.complete(np.array([[0.05, NAN, NAN], [5.0, NAN, NAN]], dtype=np.float32))
    assert (variance[1, 1:] > 5 * variance[0, 1:]).all()


def test_a_fact_that_no_known_job_has_stays_absent() -> None:
    completed, variance = fit_completion(np.array([[1.0, NAN], [2.0, NAN]], dtype=np.float32), np.arange(2)).complete(
        np.array([[NAN, NAN], [1.5, 7.0]], dtype=np.float32)
    )
    assert np.isnan(completed[0, 1])
    assert completed[1, 1] == 7.0
    assert variance[:, 1].tolist() == [0.0, 0.0]


def test_known_jobs_that_lack_a_fact_still_tell_the_others() -> None:
    known = np.array([[0.0, 1.0, NAN], [10.0, 3.0, NAN], [0.0, NAN, 5.0], [10.0, NAN, 9.0]], dtype=np.float32)
    completed, _ = fit_completion(known, WORKLOADS).complete(np.array([[10.0, NAN, NAN]], dtype=np.float32))
    assert completed[0] == pytest.approx([10.0, 3.0, 9.0], abs=0.05)


@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.just(3)),
        elements=st.one_of(st.just(NAN), st.floats(-(2.0**90), 2.0**90, width=32)),
    )
)
def test_present_facts_stay_and_a_job_is_completed_alone_as_among_others(jobs: np.ndarray) -> None:
    made = fit_completion(KNOWN, WORKLOADS)
    completed, variance = made.complete(jobs)
    present = ~np.isnan(jobs)
    assert np.array_equal(completed[present], jobs[present])
    assert np.isfinite(completed).all()
    assert (variance[present] == 0).all()
    assert ((variance >= 0) & (variance <= made.spread**2 + 1e-12)).all()
    for k, job in enumerate(jobs):
        alone, _ = made.complete(job[None])
        np.testing.assert_allclose(alone[0], completed[k], rtol=1e-5, atol=1e-5)


def test_the_less_is_known_of_a_job_the_more_novel_it_is(completion: FactCompletion, space: JobSpace) -> None:
    rows = np.array([[0.05, 1.05, 5.1], [0.05, NAN, NAN], [NAN, NAN, NAN]], dtype=np.float32)
    full, poor, nothing = space.novelty(*completion.complete(rows)).tolist()
    assert full < 0.05
    assert full < poor < nothing
    assert nothing > 0.3
    in_the_middle = space.novelty(np.full((1, 3), NAN, dtype=np.float32))[0]
    assert nothing > in_the_middle or in_the_middle > 0.3


def test_without_variance_the_expected_kernel_is_the_kernel(space: JobSpace) -> None:
    rows = np.array([[3.0, 2.0, 7.0], [NAN, 1.0, 5.0]], dtype=np.float32)
    np.testing.assert_allclose(space.expected_kernel(rows, np.zeros((2, 3))), space.kernel(rows), rtol=1e-12)


def test_the_expected_kernel_is_the_mean_over_draws_of_the_uncertain_facts(space: JobSpace) -> None:
    rng = np.random.default_rng(0)
    row, variance = np.array([[4.0, 2.0, 7.0]], dtype=np.float32), np.array([[9.0, 0.0, 1.0]])
    draws = (row + rng.normal(size=(200_000, 3)) * np.sqrt(variance)).astype(np.float32)
    np.testing.assert_allclose(space.expected_kernel(row, variance)[0], space.kernel(draws).mean(0), atol=2e-3)
