"""Fits which pairs fit one device: logistic regression on the memory sum, with one shrunken effect a workload.

Law: a table without any pair that failed to fit teaches nothing; the memory sum decides there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.feasibility import Feasibility
from interfere.protocols import PairEncoder
from interfere.records import PairStatus
from training.dataset import Dataset, build_dataset
from training.evaluation.scores import auc
from training.evaluation.splits import folds

SHARE = "memory_device_frac_sum"  # pair column: both peaks ÷ the device's memory
# An effect seen once moves the log odds by a fraction of a unit. Start of the slope: odds 20:1 at 10 % below capacity.
SHRINKAGE = 1.0
PRIOR_SLOPE, SLOPE_SD = -30.0, 15.0
MIN_EITHER = 5  # pairs that fit, and that do not
STEPS = 100
TOLERANCE = 1e-9

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Ordered pairs that were tried, whether they fit or not: rows as every split reads them."""

    dataset: Dataset
    feasible: NDArray[np.bool_]  # bool[p]

    @property
    def share(self) -> Floats:
        """Both peaks ÷ the device's memory, float64[p]."""
        column = self.dataset.pair_names.index(SHARE)
        return self.dataset.rows.pairs[:, column].astype(np.float64)

    def take(self, index: NDArray[np.int64]) -> "Tried":
        """The rows of an index."""
        return Tried(dataset=self.dataset.take(index), feasible=self.feasible[index])


def tried(tables: Sequence[Table], encoder: PairEncoder, *, metric: str) -> Tried:
    """All pairs of the tables that ran, or could not for want of memory."""
    dataset = build_dataset(tables, encoder, metric=metric, statuses=(PairStatus.OK, PairStatus.INFEASIBLE))
    return Tried(dataset=dataset, feasible=~np.isnan(dataset.log_slowdown))


def fit_feasibility(rows: Tried) -> Feasibility | None:
    """Newton's method on the penalised likelihood; None where too few pairs fit or failed to."""
    known = np.isfinite(rows.share) & (rows.share > 0)
    y = rows.feasible[known].astype(np.float64)
    if min(y.sum(), (1 - y).sum()) < MIN_EITHER:
        return None
    count = len(rows.dataset.workloads) + 1
    victim, neighbour = rows.dataset.rows.victim[known], rows.dataset.rows.neighbour[known]
    design = np.zeros((len(y), 2 + count))
    design[:, 0], design[:, 1] = 1.0, np.log(rows.share[known])
    at = np.arange(len(y))
    np.add.at(design, (at, 2 + victim), 1.0)
    np.add.at(design, (at, 2 + neighbour), 1.0)
    penalty = np.concatenate([[1e-6, 1.0 / SLOPE_SD**2], np.full(count, SHRINKAGE)])
    prior = np.zeros(2 + count)
    prior[1] = PRIOR_SLOPE
    weights = prior.copy()

    def loss(w: Floats) -> float:
        score = design @ w
        return float((np.logaddexp(0.0, score) - y * score).sum() + 0.5 * (penalty * (w - prior) ** 2).sum())

    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -500.0, 500.0)))
        gradient = design.T @ (chance - y) + penalty * (weights - prior)
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(penalty)
        step, size = np.linalg.solve(curvature, gradient), 1.0
        while loss(weights - size * step) > loss(weights) and size > TOLERANCE:
            size /= 2
        weights = weights - size * step
        if float(np.abs(size * step).max()) < TOLERANCE:
            break
    effect = weights[2:]
    effect[0] = 0.0
    return Feasibility(level=float(weights[0]), slope=min(float(weights[1]), 0.0), effect=effect)


def out_of_fold_auc(rows: Tried, split: str, seed: int, count: int | None = None) -> tuple[float, float]:
    """(AUC of the fitted model, AUC of the memory sum alone), pooled over the folds of a split; NaN without misfits."""
    if rows.feasible.all() or not np.isfinite(rows.share).any():
        return math.nan, math.nan
    chance, by_sum, truth = [], [], []
    for part in folds(rows.dataset, split, seed, count):
        seen, asked = rows.take(part.train), rows.take(part.test)
        share = asked.share
        fitted = fit_feasibility(seen)
        victim, neighbour = asked.dataset.rows.victim, asked.dataset.rows.neighbour
        guess = -share if fitted is None else fitted.probability(share, victim, neighbour)
        known = np.isfinite(share)
        chance.append(guess[known])
        by_sum.append(-share[known])
        truth.append(asked.feasible[known])
    feasible = np.concatenate(truth)
    return auc(np.concatenate(chance), feasible), auc(np.concatenate(by_sum), feasible)
