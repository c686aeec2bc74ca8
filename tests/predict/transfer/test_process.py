"""The process over pairs: what members of one family tell of one another, and pairs without added time."""

import numpy as np
import pytest
from scipy.stats import truncnorm

from interfere.predict.transfer.pair_belief import pair_belief
from interfere.predict.transfer.process import (
    CENSORED_ROUNDS,
    LEAST_CENSORED,
    PairSource,
    PairSpace,
    mean_below,
    pair_space,
    source_of_model,
    to_excess_scale,
    to_slowdown,
)

JOBS = ("resnet 16", "resnet 64", "resnet 256", "lm 5", "lm 20", "lm 80")
FAMILIES = ("resnet",) * 3 + ("lm",) * 3
UNKNOWN = np.full(len(JOBS), np.nan)


def source(slowdown: float = 1.3) -> PairSource:
    """A model that predicts one slowdown for all pairs."""
    return source_of_model("mean", np.full((len(JOBS), len(JOBS)), np.log(slowdown)))


def space(families: tuple[str, ...]) -> PairSpace:
    """Jobs that differ much in step time and one fact."""
    facts = np.array([[0.0, 5.0, 10.0, 1.0, 6.0, 11.0]]).T
    return pair_space(JOBS, (source(),), UNKNOWN, facts, families)


def neighbour_effects(families: tuple[str, ...]) -> np.ndarray:
    """float64[n]: how much slower `lm 5` is expected to run beside each job, after `resnet 16` took much."""
    known = pair_belief(space(families), {("lm 80", "resnet 16"): 3.0, ("lm 20", "resnet 16"): 3.0})
    return known.slowdowns[3]


def test_a_measured_job_tells_more_of_its_family_than_of_others() -> None:
    with_families, without = neighbour_effects(FAMILIES), neighbour_effects(("",) * len(JOBS))
    assert with_families[2] > 1.02 * with_families[5], "of another batch size of its own architecture"
    assert with_families[2] - with_families[5] > without[2] - without[5] + 0.01


def test_without_a_family_for_every_job_none_counts() -> None:
    some = (*FAMILIES[:-1], "")
    np.testing.assert_array_equal(space(some).alike, space(()).alike)
    assert np.linalg.eigvalsh(space(FAMILIES).alike).min() > 0
    np.testing.assert_allclose(np.diag(space(FAMILIES).alike), 1.0)


def test_the_mean_below_a_bound_is_that_of_a_truncated_normal_variable() -> None:
    mean, deviation, bound = np.array([-3.0, -1.0, 0.0, 2.0, 0.4]), np.array([1.0, 0.3, 2.0, 0.1, 0.02]), -0.5
    expected = truncnorm.mean(-np.inf, (bound - mean) / deviation, loc=mean, scale=deviation)
    np.testing.assert_allclose(mean_below(bound, mean, deviation), expected, rtol=1e-4)


def test_pairs_without_added_time_say_that_no_more_is_added_than_that() -> None:
    """Slowdowns that were cut at 1 belong to effects below it: no other value is changed."""
    rng = np.random.default_rng(0)
    suffers, takes = rng.normal(0.0, 0.8, len(JOBS)), rng.normal(0.0, 0.8, len(JOBS))
    z = to_excess_scale(np.array(1.05)) + suffers[:, None] + takes[None, :]
    bound = float(to_excess_scale(np.array(1.0)))
    truth = {(a, b): float(to_slowdown(np.array(z[i, j]))) for i, a in enumerate(JOBS) for j, b in enumerate(JOBS)}
    cut = [pair for pair, slowdown in truth.items() if slowdown <= 1.0]
    assert 5 <= len(cut) <= 30
    measured = {pair: slowdown for k, (pair, slowdown) in enumerate(truth.items()) if k % 2}
    known = pair_belief(space(()), measured)
    fitted = known.posterior
    values = fitted.space.mean(*fitted.measured) + np.linalg.solve(fitted.inverse, fitted.weights)
    was_cut = np.array([pair in cut for pair in measured])
    assert np.all(values[was_cut] <= bound + 1e-9)
    assert values[was_cut].min() < bound - 0.05
    assert values.min() >= bound - LEAST_CENSORED - 1e-9
    np.testing.assert_allclose(values[~was_cut], to_excess_scale(np.array(list(measured.values())))[~was_cut])
    assert CENSORED_ROUNDS >= 1


def test_a_distant_bound_stays_finite() -> None:
    assert mean_below(-100.0, np.zeros(1), np.ones(1))[0] == pytest.approx(-100.01, abs=1e-4)
