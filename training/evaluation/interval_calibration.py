"""Calibrates prediction intervals on out-of-fold residuals: the quantile grids that `predict.intervals` reads.

A grid is chosen by evidence, the number of measured partners of the less known job of a pair. The grid `known` (four
partners and more) stands on residuals of the `pair` split, `new` (none) on those of the splits `job` and `family`, in
which a job is held out altogether, and `few` (one to three) on residuals of any; where these are too few, `few` is the
mean of the other two.

The threshold of abstention is learned on the `family` split: the tenth of its tests with the largest scores lies above,
where that tenth errs clearly more than the rest; where it does not, the score tells nothing and there is no threshold.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from interfere.predict.acceptance.score import speed
from interfere.predict.intervals import ABSTAINED, EVIDENCE_CLASSES, Intervals, abstention_score, evidence_class, spread
from interfere.training.dataset import Dataset
from interfere.training.evaluation.splits import Fold

if TYPE_CHECKING:
    from interfere.training.evaluation.cross_validation import Evaluation

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
LOW, HIGH = 0.05, 0.95  # ends of the 90 % interval
MIN_SELECTIVITY = 1.5  # times the error of the rest that the silenced tests must have
MIN_RESIDUALS = 100  # of a group with a grid of its own: five of them lie outside each end

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def calibrate_intervals(dataset: Dataset, predictions: Sequence["Evaluation"]) -> Intervals:
    """Fit the grids on the tests of several splits together, and the threshold of abstention on unseen families."""
    intervals = fit_intervals(
        np.concatenate([split.residual(dataset) for split in predictions]),
        novelty=np.concatenate([split.novelty for split in predictions]),
        partners=np.concatenate([split.partners for split in predictions]),
        domain=np.concatenate([dataset.domain[split.index] + 1 for split in predictions]),
        domains=len(dataset.domains),
    )
    family = [split for split in predictions if split.split == "family"]
    return replace(intervals, abstains_above=abstention_threshold(dataset, family[0]) if family else math.inf)


def abstention_threshold(dataset: Dataset, family: "Evaluation") -> float:
    """Return the abstention score above which the model abstains.

    The threshold is infinite where larger scores do not go with larger errors.
    """
    score = abstention_score(family.novelty, family.predicted_log)
    threshold = float(np.quantile(score, 1.0 - ABSTAINED))
    error = np.abs(speed(dataset.log_slowdown[family.index]) - speed(family.predicted_log))
    return threshold if selectivity(score, error) >= MIN_SELECTIVITY else math.inf


def selectivity(score: Floats, error: Floats) -> float:
    """Return how many times larger the mean error of the tests with the largest scores is than that of the other tests.

    The largest scores are a share `ABSTAINED` of all. NaN where either part is empty or the other tests have no error.
    """
    silenced = score > np.quantile(score, 1.0 - ABSTAINED)
    if silenced.all() or not silenced.any() or not error[~silenced].any():
        return math.nan
    return float(error[silenced].mean() / error[~silenced].mean())


def fit_intervals(residual: Floats, *, novelty: Floats, partners: Ints, domain: Ints, domains: int) -> Intervals:
    """Fit one grid of quantiles for each class of evidence and each domain, float64[3, D + 1, q].

    Domain k of the dataset has identity k + 1; identity 0 stands for any domain. Residuals are scaled by the spread
    that their novelty implies. A group with too few residuals takes the grid of all domains, and that one, for want of
    residuals of its evidence, the grid of all residuals.
    """
    # 1. Fit the grids over all domains.
    scaled, class_of_row = residual / spread(novelty), evidence_class(partners)
    all_residuals = _quantiles(scaled)
    new, few, known = (_group_quantiles(scaled[class_of_row == k]) for k in range(len(EVIDENCE_CLASSES)))
    calibrated = new is not None and known is not None
    new, known = new if new is not None else all_residuals, known if known is not None else all_residuals
    overall = [new, few if few is not None else (new + known) / 2, known]
    # 2. Replace them in each domain that has enough residuals of its own.
    grids = np.empty((len(EVIDENCE_CLASSES), domains + 1, len(LEVELS)))
    for k, overall_grid in enumerate(overall):
        grids[k] = overall_grid
        for d in range(1, domains + 1):
            domain_grid = _group_quantiles(scaled[(class_of_row == k) & (domain == d)])
            grids[k, d] = grids[k, 0] if domain_grid is None else domain_grid
    return Intervals(calibrated=calibrated, levels=np.array(LEVELS), grids=grids)


def partner_counts(dataset: Dataset) -> Ints:
    """Return with how many partners each workload was measured in each domain, int64[D + 1, N + 1]; row 0 is any
    domain.
    """
    counts = np.zeros((len(dataset.domains) + 1, len(dataset.workloads) + 1), dtype=np.int64)
    workload = np.concatenate([dataset.rows.victim, dataset.rows.neighbour])
    partner = np.concatenate([dataset.rows.neighbour, dataset.rows.victim])
    domain = np.concatenate([dataset.rows.domain, dataset.rows.domain])
    measured = np.unique(np.stack([domain, workload, partner], axis=1), axis=0)
    np.add.at(counts, (measured[:, 0], measured[:, 1]), 1)
    measured_anywhere = np.unique(measured[:, 1:], axis=0)
    np.add.at(counts[0], measured_anywhere[:, 0], 1)
    return counts


def partners_of_tests(dataset: Dataset, fold: Fold) -> Ints:
    """Return int64[t]: measured partners, in the training rows of a fold, of the less known job of each test."""
    rows, counts = dataset.rows.take(fold.test), partner_counts(dataset.take(fold.train))
    return np.minimum(counts[rows.domain, rows.victim], counts[rows.domain, rows.neighbour])


def _group_quantiles(scaled: Floats) -> Floats | None:
    """Return the quantiles of a group of residuals; None where the group is too small."""
    return _quantiles(scaled) if len(scaled) >= MIN_RESIDUALS else None


def _quantiles(scaled: Floats) -> Floats:
    """Return the quantiles of residuals at `LEVELS`, float64[q].

    Each level is moved outwards by the share that one further residual may take.
    """
    outwards = 0.5 + (np.array(LEVELS) - 0.5) * (len(scaled) + 1) / len(scaled)
    return np.quantile(scaled, np.clip(outwards, 0.0, 1.0))
