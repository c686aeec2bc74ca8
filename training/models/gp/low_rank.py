"""A low-rank correction of the Gaussian process by the rows beyond the sample that the process was fitted on.

With r the residual of victim i beside neighbour j, each numbered by identity and domain:

    r ≈ own[i] + harm[j] + u[i] · w[j]

fitted by alternating ridge regressions (Koren, Bell and Volinsky 2009, "Matrix factorization techniques for recommender
systems", IEEE Computer 42 (8)). Rank and shrinkage have the least error on a tenth of the rows, of which nothing was
fitted; no correction is one of the choices.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.training.dataset import RowColumns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RANKS = (1, 3, 6)
SHRINKAGES = (2.0, 8.0, 32.0)  # in rows: an effect measured in so many rows keeps half of its measured size
SWEEPS = 12  # alternations; the error on held-out rows of the benchmark stops falling after 8 to 10
VALIDATION_SHARE = 0.1
START_SPREAD = 0.3  # standard deviation of the first factors, in those of the residuals


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """The effects of `K` identities and their factors of rank R; 0 for an identity without rows."""

    own: Floats  # float64[K]
    harm: Floats  # float64[K]
    u: Floats  # float64[K, R]: factors as the victim
    w: Floats  # float64[K, R]: factors as the neighbour

    def predict(self, victim: Ints, neighbour: Ints) -> Floats:
        """Return the predicted residuals, float64[p]."""
        interplay = (self.u[victim] * self.w[neighbour]).sum(axis=1)
        return np.asarray(self.own[victim] + self.harm[neighbour] + interplay)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualRows(RowColumns):
    """Rows with the residuals that the Gaussian process leaves."""

    victim: Ints  # int64[p]
    neighbour: Ints  # int64[p]
    residual: Floats  # float64[p]
    weight: Floats  # float64[p]


def fit_low_rank(rows: ResidualRows, identities: int, rng: np.random.Generator) -> LowRank:
    """Return the correction with the least held-out error, fitted on all rows; its rank is 0 if none lowers the error.

    `identities` is K.
    """
    # 1. Score each rank and shrinkage on held-out rows.
    held_out = rng.random(len(rows.residual)) < VALIDATION_SHARE
    fitted, tested = rows.take(~held_out), rows.take(held_out)
    none = LowRank(
        own=np.zeros(identities),
        harm=np.zeros(identities),
        u=np.zeros((identities, 0)),
        w=np.zeros((identities, 0)),
    )
    if not (len(tested.residual) and len(fitted.residual)):
        return none
    errors = {(0, 0.0): _squared_error(none, tested)}
    for rank in RANKS:
        for shrinkage in SHRINKAGES:
            correction = _alternate(fitted, identities, rank, shrinkage, rng)
            errors[rank, shrinkage] = _squared_error(correction, tested)
    # 2. Fit the best one on all rows.
    rank, shrinkage = min(errors, key=lambda choice: errors[choice])
    return _alternate(rows, identities, rank, shrinkage, rng) if rank else none


def _squared_error(correction: LowRank, rows: ResidualRows) -> float:
    """Return the weighted mean squared error of the corrected residuals."""
    error = rows.residual - correction.predict(rows.victim, rows.neighbour)
    return float(np.average(error**2, weights=rows.weight))


def _alternate(rows: ResidualRows, identities: int, rank: int, shrinkage: float, rng: np.random.Generator) -> LowRank:
    """Return the effects and factors after `SWEEPS` alternations of ridge regressions."""
    spread = float(rows.residual.std()) or 1.0
    target, victim, neighbour = rows.residual / spread, rows.victim, rows.neighbour
    as_victim = np.zeros((identities, 1 + rank))  # the effect, then the factors
    as_neighbour = np.hstack([np.zeros((identities, 1)), rng.normal(scale=START_SPREAD, size=(identities, rank))])
    for _ in range(SWEEPS):
        others = as_neighbour[neighbour]
        as_victim = _ridge(victim, others, target - others[:, 0], rows.weight, identities, shrinkage)
        others = as_victim[victim]
        as_neighbour = _ridge(neighbour, others, target - others[:, 0], rows.weight, identities, shrinkage)
    return LowRank(
        own=spread * as_victim[:, 0],
        harm=spread * as_neighbour[:, 0],
        u=spread * as_victim[:, 1:],
        w=as_neighbour[:, 1:],
    )


def _ridge(
    group: Ints, others: Floats, target: Floats, weight: Floats, groups: int, shrinkage: float
) -> NDArray[np.float64]:
    """Return the coefficients of each group, float64[K, 1 + R]: an intercept, and one for each factor in `others`.

    A group without rows gets zeros.
    """
    design = np.hstack([np.ones((len(group), 1)), others[:, 1:]])
    order = np.argsort(group, kind="stable")
    present, start = np.unique(group[order], return_index=True)
    weighted = design[order] * weight[order, None]
    gram = np.add.reduceat(weighted[:, :, None] * design[order][:, None, :], start, axis=0)
    moments = np.add.reduceat(weighted * target[order, None], start, axis=0)
    coefficients = np.zeros((groups, design.shape[1]))
    regular = gram + shrinkage * np.eye(design.shape[1])
    coefficients[present] = np.linalg.solve(regular, moments[:, :, None])[:, :, 0]
    return coefficients
