"""Fits the probability that a pair fits in a device's memory: logistic regression on the memory sum and workload
effects.

Law: a dataset in which too few pairs failed to fit gives no model; the server then decides by the memory sum alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.feasibility import Feasibility
from interfere.predict.field.gaussian import condition
from interfere.predict.field.terms import FLAT_VARIANCE, Rows, Term
from interfere.protocols import PairEncoder
from interfere.records import PairStatus
from interfere.training.dataset import Dataset, RowColumns, build_dataset

MEMORY_SUM_COLUMN = "memory_device_frac_sum"  # pair column: sum of both peaks ÷ the device's memory
SHRINKAGE = 1.0  # prior precision of an effect: a single observation moves the log odds by less than 1
PRIOR_SLOPE, PRIOR_SLOPE_SD = -30.0, 15.0  # per log memory sum: odds of 20:1 at 10 % below capacity
MIN_EITHER = 5  # least number of pairs that fit, and least number of pairs that do not fit
MAX_STEPS = 100
TOLERANCE = 1e-9
MAX_LOG_ODDS = 30.0  # beyond which a pair weighs nothing: probabilities of 1e-13

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeasibilityRows(RowColumns):
    """Ordered pairs that ran or failed for lack of memory, as a dataset that can be split like the slowdown data."""

    dataset: Dataset
    feasible: NDArray[np.bool_]  # bool[p]

    @property
    def memory_sum(self) -> Floats:
        """Return float64[p]: the sum of both peaks ÷ the device's memory; NaN where a peak is unknown."""
        column = self.dataset.pair_columns.index(MEMORY_SUM_COLUMN)
        return self.dataset.rows.pairs[:, column].astype(np.float64)


def feasibility_rows(tables: Sequence[Table], encoder: PairEncoder, *, metric: str) -> FeasibilityRows:
    """Return all pairs of the tables that ran or failed for lack of memory. Raises the errors of `build_dataset`."""
    dataset = build_dataset(tables, encoder, metric=metric, statuses=(PairStatus.OK, PairStatus.INFEASIBLE))
    return FeasibilityRows(dataset=dataset, feasible=~np.isnan(dataset.log_slowdown))


def fit_feasibility(rows: FeasibilityRows) -> Feasibility | None:
    """Return the model of maximal penalised likelihood (Newton's method); None with too few pairs of either kind."""
    # 1. Build the design matrix: intercept, log memory sum, one indicator a workload.
    known = np.isfinite(rows.memory_sum) & (rows.memory_sum > 0)
    fits = rows.feasible[known].astype(np.float64)
    if min(fits.sum(), (1 - fits).sum()) < MIN_EITHER:
        return None
    identities = len(rows.dataset.workloads) + 1
    victim, neighbour = rows.dataset.rows.victim[known], rows.dataset.rows.neighbour[known]
    design = np.zeros((len(fits), 2 + identities))
    design[:, 0], design[:, 1] = 1.0, np.log(rows.memory_sum[known])
    row = np.arange(len(fits))
    np.add.at(design, (row, 2 + victim), 1.0)
    np.add.at(design, (row, 2 + neighbour), 1.0)

    # 2. Set the Gaussian prior of the coefficients.
    variance = np.concatenate([[FLAT_VARIANCE, PRIOR_SLOPE_SD**2], np.full(identities, 1.0 / SHRINKAGE)])
    prior_mean = np.zeros(2 + identities)
    prior_mean[1] = PRIOR_SLOPE
    coefficients = prior_mean.copy()

    def loss(candidate: Floats) -> float:
        log_odds = design @ candidate
        penalty = 0.5 * ((candidate - prior_mean) ** 2 / variance).sum()
        return float((np.logaddexp(0.0, log_odds) - fits * log_odds).sum() + penalty)

    # 3. Take Newton steps, halved until the loss falls. A step is a least squares fit to working values (iteratively
    # reweighted least squares: McCullagh & Nelder 1989, section 2.5).
    effects = Term(
        name="coefficients",
        groups=np.zeros(len(fits), dtype=np.int64),
        loadings=design,
        covariance=np.diag(variance)[None],
        mean=prior_mean[None],
    )
    for _ in range(MAX_STEPS):
        log_odds = np.clip(design @ coefficients, -MAX_LOG_ODDS, MAX_LOG_ODDS)
        probability = 1.0 / (1.0 + np.exp(-log_odds))
        noise_var = 1.0 / (probability * (1.0 - probability))
        working = Rows(
            values=log_odds + noise_var * (fits - probability), noise_var=noise_var, weights=np.ones(len(fits))
        )
        step, scale = coefficients - condition(working, [effects]).effects(effects.name)[0][0], 1.0
        while loss(coefficients - scale * step) > loss(coefficients) and scale > TOLERANCE:
            scale /= 2
        coefficients = coefficients - scale * step
        if float(np.abs(scale * step).max()) < TOLERANCE:
            break

    effect = coefficients[2:]
    effect[0] = 0.0  # of the unknown workload
    return Feasibility(level=float(coefficients[0]), slope=min(float(coefficients[1]), 0.0), effect=effect)
