"""Calibrates prediction intervals on out-of-fold residuals: the quantile grids that `predict.intervals` reads.

A grid is chosen by evidence, the number of measured partners of the less known job of a pair. The grid `known` (four
partners and more) stands on residuals of the `pair` split, `new` (none) on those of the `job` split, in which a job is
held out altogether, and `few` (one to three) on residuals of either; where these are too few, `few` is the mean of the
other two.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.predict.intervals import EVIDENCE_CLASSES, Intervals, evidence_class, spread
from training.dataset import Dataset

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
LOW, HIGH = 0.05, 0.95  # ends of the 90 % interval
MIN_RESIDUALS = 100  # of a group with a grid of its own: five of them lie outside each end

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class OutOfFoldPredictions(Protocol):
    """Out-of-fold predictions of one model on one split; `t` tests."""

    @property
    def novelty(self) -> Floats:
        """Novelty of each tested pair, float64[t]."""

    @property
    def partners(self) -> Ints:
        """int64[t]: measured partners, in the training rows, of the less known job."""

    @property
    def index(self) -> Ints:
        """int64[t]: rows of the dataset."""

    def residual(self, dataset: Dataset) -> Floats:
        """log s - log ŝ, float64[t]."""


def calibrate_intervals(dataset: Dataset, predictions: Sequence[OutOfFoldPredictions]) -> Intervals:
    """Fit the grids on the tests of several splits together."""
    return fit_intervals(
        np.concatenate([split.residual(dataset) for split in predictions]),
        novelty=np.concatenate([split.novelty for split in predictions]),
        partners=np.concatenate([split.partners for split in predictions]),
        domain=np.concatenate([dataset.domain[split.index] + 1 for split in predictions]),
        domains=len(dataset.domains),
    )


def fit_intervals(residual: Floats, *, novelty: Floats, partners: Ints, domain: Ints, domains: int) -> Intervals:
    """One grid per evidence and domain, float64[3, D + 1, q]; domain k of the dataset has identity k + 1, 0 is any.

    Residuals are scaled by the spread that their novelty implies. A group with too few residuals takes the grid of all
    domains, and that one, for want of residuals of its evidence, the grid of all residuals.
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
    """int64[D + 1, N + 1]: number of partners that each workload was measured with, by domain; row 0 is any domain."""
    counts = np.zeros((len(dataset.domains) + 1, len(dataset.workloads) + 1), dtype=np.int64)
    workload = np.concatenate([dataset.rows.victim, dataset.rows.neighbour])
    partner = np.concatenate([dataset.rows.neighbour, dataset.rows.victim])
    domain = np.concatenate([dataset.rows.domain, dataset.rows.domain])
    measured = np.unique(np.stack([domain, workload, partner], axis=1), axis=0)
    np.add.at(counts, (measured[:, 0], measured[:, 1]), 1)
    measured_anywhere = np.unique(measured[:, 1:], axis=0)
    np.add.at(counts[0], measured_anywhere[:, 0], 1)
    return counts


def _group_quantiles(scaled: Floats) -> Floats | None:
    """The quantiles of a group of residuals; None where it is too small."""
    return _quantiles(scaled) if len(scaled) >= MIN_RESIDUALS else None


def _quantiles(scaled: Floats) -> Floats:
    """float64[q] at `LEVELS`, each moved outwards by the share that one further residual may take."""
    outwards = 0.5 + (np.array(LEVELS) - 0.5) * (len(scaled) + 1) / len(scaled)
    return np.quantile(scaled, np.clip(outwards, 0.0, 1.0))
