"""Interval grids: by evidence, by domain, wider for novel pairs."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.features.pair import FeatureEncoder
from interfere.predict.intervals import ABSTAINED, MAX_NOVELTY, WIDENING, Intervals, abstention_score
from interfere.training.dataset import Dataset, build_dataset
from interfere.training.evaluation.cross_validation import Evaluation, evaluate_models
from interfere.training.evaluation.interval_calibration import (
    LEVELS,
    MIN_RESIDUALS,
    calibrate_intervals,
    fit_intervals,
    partner_counts,
    selectivity,
)
from interfere.training.models.catalogue import select_models
from tests.training.worlds import table_of

RNG = np.random.default_rng(0)


def grids(residual: np.ndarray, **given: np.ndarray | int) -> Intervals:
    zero = np.zeros(len(residual))
    values = {"novelty": zero, "partners": zero.astype(int) + 9, "domain": zero.astype(int) + 1, "domains": 1} | given
    return fit_intervals(residual, **values)


def asked(made: Intervals, level: float, novelty: float = 0.0, partners: int = 9, domain: int = 1) -> float:
    one = {"novelty": np.array([novelty]), "partners": np.array([partners]), "domain": np.array([domain])}
    return float(made.quantile(level, **one)[0])


def test_a_grid_is_the_quantiles_in_ascending_order() -> None:
    made = grids(np.linspace(-1, 1, 20_001))
    assert [asked(made, level) for level in LEVELS] == pytest.approx([2 * level - 1 for level in LEVELS], abs=1e-3)
    assert asked(made, 0.075) == pytest.approx(-0.85, abs=1e-3)  # between two levels
    assert asked(made, 0.001) == asked(made, LEVELS[0])  # outside of them
    assert {0.05, 0.5, 0.95} <= set(LEVELS)


def test_ninety_per_cent_of_new_residuals_of_the_same_kind_lie_inside() -> None:
    novelty = RNG.random(40_000) ** 4
    residual = RNG.standard_t(4, size=40_000) * 0.05 * np.sqrt(1 + WIDENING * novelty)
    learn, test = np.arange(1000), np.arange(1000, 40_000)
    made = grids(residual[learn], novelty=novelty[learn])
    given = {"novelty": novelty[test], "partners": np.full(len(test), 9), "domain": np.ones(len(test), dtype=int)}
    inside = (residual[test] >= made.quantile(0.05, **given)) & (residual[test] <= made.quantile(0.95, **given))
    assert inside.mean() == pytest.approx(0.9, abs=0.02)
    novel = novelty[test] > 0.3
    assert inside[novel].mean() == pytest.approx(0.9, abs=0.03)  # and among the novel ones alone


def test_less_evidence_has_its_own_wider_grid_and_few_lies_between() -> None:
    residual = np.concatenate([RNG.normal(0, 0.2, 500), RNG.normal(0, 0.05, 500)])
    made = grids(residual, partners=np.repeat([0, 6], 500))
    assert made.calibrated
    new, few, known = (asked(made, 0.95, partners=k) for k in (0, 2, 6))
    assert new > 2 * known > 0
    assert few == pytest.approx((new + known) / 2)
    learned = grids(np.concatenate([residual, np.full(500, 7.0)]), partners=np.repeat([0, 6, 3], 500))
    assert asked(learned, 0.95, partners=1) == pytest.approx(7.0)  # its own, where there are enough


def test_a_domain_with_too_few_residuals_takes_those_of_all() -> None:
    residual = np.concatenate([RNG.normal(0, 0.05, 500), RNG.normal(3, 0.05, MIN_RESIDUALS - 1)])
    domain = np.repeat([1, 2], [500, MIN_RESIDUALS - 1])
    made = grids(residual, domain=domain, domains=2)
    assert asked(made, 0.5, domain=2) == asked(made, 0.5, domain=0)
    more = grids(np.append(residual, 3.0), domain=np.append(domain, 2), domains=2)
    assert asked(more, 0.5, domain=2) == pytest.approx(3.0, abs=0.05)
    assert not made.calibrated  # no job was held out


def test_partners_are_counted_once_in_either_role_and_by_domain(encoder: FeatureEncoder) -> None:
    made = build_dataset([table_of({("a", "b"): 1.2, ("b", "a"): 1.1, ("a", "a"): 1.5, ("c", "b"): 1.3})], encoder)
    assert partner_counts(made).tolist() == [[0, 2, 2, 1]] * 2  # a: a and b; b: a and c; c: b


def on_families(dataset: Dataset, novelty: np.ndarray, error: np.ndarray) -> Evaluation:
    """Tests on unseen families with this novelty, of predictions that are off by `error` in log slowdown."""
    (found,) = evaluate_models(dataset, select_models("mean"), splits=("family",))
    predicted = dataset.log_slowdown[found.index] + np.resize(error, len(found.index))
    return replace(found, predicted_log=predicted, novelty=np.resize(novelty, len(found.index)))


def test_the_model_abstains_from_the_tenth_of_unseen_families_on_which_it_errs_most(dataset: Dataset) -> None:
    novelty = 0.9 * RNG.random(1000)
    family = on_families(dataset, novelty, novelty**4)
    made = calibrate_intervals(dataset, [family])
    abstains = made.abstains(family.novelty, family.predicted_log)
    assert abstains.mean() == pytest.approx(ABSTAINED, abs=0.02)
    error = np.abs(family.residual(dataset))
    assert error[abstains].mean() > 1.5 * error[~abstains].mean()
    assert not made.abstains(np.zeros(1), np.full(1, 3.0))[0]  # a known pair, however slow
    assert made.abstains(np.full(1, 0.99), np.zeros(1))[0]  # a pair unlike all others, whatever is predicted


def test_a_score_that_tells_no_larger_errors_silences_nothing(dataset: Dataset) -> None:
    novelty = 0.9 * RNG.random(1000)
    made = calibrate_intervals(dataset, [on_families(dataset, novelty, 0.3 * (1 - novelty))])
    assert made.abstains_above == np.inf
    assert not made.abstains(np.array([0.9 * MAX_NOVELTY]), np.array([2.0]))[0]
    assert calibrate_intervals(dataset, evaluate_models(dataset, select_models("mean"))).abstains_above == np.inf


def test_selectivity_compares_the_tenth_with_the_largest_scores_with_the_rest() -> None:
    score = np.arange(100.0)
    assert selectivity(score, np.where(score >= 90, 3.0, 1.0)) == pytest.approx(3.0)
    assert np.isnan(selectivity(np.ones(100), np.ones(100)))
    assert abstention_score(np.array([0.25, 0.25]), np.array([0.4, -0.4])).tolist() == [0.2, 0.0]
