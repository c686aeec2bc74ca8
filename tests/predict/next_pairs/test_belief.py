"""The joint belief about all pairs: what conditioning must do, whatever the numbers."""

import numpy as np
import pytest

from interfere.predict.next_pairs.belief import ERROR_SCALES, PairBelief, fitted_belief, prior_belief
from interfere.predict.online.prior import default_prior

NAMES = ("a", "b", "c", "d", "e")


def truth(seed: int, spread: float = 0.1) -> dict[tuple[str, str], float]:
    """Log slowdowns that are a mean plus what a job suffers and causes."""
    rng = np.random.default_rng(seed)
    suffered, caused = rng.normal(0, spread, (2, len(NAMES)))
    return {(v, n): 0.4 + float(suffered[i] + caused[k]) for i, v in enumerate(NAMES) for k, n in enumerate(NAMES)}


def belief(scale: float = 1.0) -> PairBelief:
    return prior_belief(NAMES, np.full((5, 5), 0.4), default_prior(), scale)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_measurements_does_not_matter(seed: int) -> None:
    values = truth(seed)
    rng = np.random.default_rng(seed)
    pairs = [tuple(pair) for pair in rng.permutation(list(values))[:6].tolist()]
    at_once = belief().given({pair: values[pair] for pair in pairs})
    one_by_one = belief()
    for pair in pairs[::-1]:
        one_by_one = one_by_one.given({pair: values[pair]})
    np.testing.assert_allclose(one_by_one.mean, at_once.mean, atol=1e-9)
    np.testing.assert_allclose(one_by_one.covariance, at_once.covariance, atol=1e-9)


def test_measuring_never_makes_a_pair_less_certain() -> None:
    before = belief()
    after = before.given({("a", "b"): 0.9, ("b", "a"): 0.2})
    assert (after.variance <= before.variance + 1e-12).all()
    assert after.variance[0, 1] < before.noise_var[before.rows([("a", "b")])[0]]


def test_what_a_job_suffers_moves_its_other_pairs_more_than_those_of_strangers() -> None:
    moved = belief().given({("a", "b"): 1.2}).matrix - belief().matrix
    assert moved[0, 1] > moved[0, 2] > moved[3, 4] > 0
    assert moved[0, 2] > 1.5 * moved[3, 4]


def test_a_measured_pair_left_out_is_predicted_from_the_others_alone() -> None:
    values = {pair: value for pair, value in truth(1).items() if "e" not in pair}
    known = belief()
    left_out = known.left_out(values)
    wrong = values | {("a", "b"): 3.0, ("b", "a"): -1.0}
    again = known.left_out(wrong)
    assert again["a", "b"] == pytest.approx(left_out["a", "b"])
    assert again["b", "a"] == pytest.approx(left_out["b", "a"])
    assert again["a", "c"] != pytest.approx(left_out["a", "c"])


@pytest.mark.parametrize(("spread", "expected"), [(0.02, ERROR_SCALES[0]), (0.35, 4.0)])
def test_the_size_of_errors_is_learned(spread: float, expected: float) -> None:
    chosen = [
        fitted_belief(NAMES, np.full((5, 5), 0.4), default_prior(), truth(seed, spread)).covariance[0, 0]
        for seed in range(20)
    ]
    middle = belief(expected).covariance[0, 0]
    assert np.median(chosen) <= middle if spread < 0.1 else np.median(chosen) >= middle


def test_intervals_cover_what_was_not_measured() -> None:
    covered = total = 0
    for seed in range(40):
        values = truth(seed)
        some = {pair: value for k, (pair, value) in enumerate(values.items()) if k % 4 == 0}
        known = fitted_belief(NAMES, np.full((5, 5), 0.4), default_prior(), some).given(some)
        deviation = np.sqrt(np.diag(known.covariance))
        for pair, value in values.items():
            (row,) = known.rows([pair])
            if pair not in some:
                covered += abs(value - known.mean[row]) <= 1.645 * deviation[row]
                total += 1
    assert covered / total > 0.85
