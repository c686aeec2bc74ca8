"""The posterior mean of the Gaussian process, as the arrays that predictions and exported graphs read.

With i beside j on domain d, M and P the kernels of two job spaces against the `m` training jobs:

    log ŝ = level[d] + M(i) · victim + M(j) · neighbour + P(i) · both · P(j) + own[d, i] + from_neighbour[d, j]
        + u[d, i] · w[d, j]

The last term is a low-rank correction by the rows beyond the sample that the process was fitted on. With r the residual
of victim i beside neighbour j, each numbered by identity and domain, it is fitted by alternating ridge regressions
(Koren, Bell and Volinsky 2009, "Matrix factorization techniques for recommender systems", IEEE Computer 42 (8)):

    r ≈ own[i] + harm[j] + u[i] · w[j]

Rank and shrinkage minimise the error on a held-out tenth of the rows; no correction is one of the choices.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.field.gaussian import condition
from interfere.predict.field.terms import Rows, Term
from interfere.predict.novelty import JobSpace, pair_novelty
from interfere.training.dataset import PairRows, RowColumns
from interfere.training.models.completed import distinct_jobs

Floats = NDArray[np.float64]

CHUNK_ROWS = 16_384  # rows predicted at once: four kernel rows of 700 known jobs each take 370 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class GpPosterior:
    """Sums of the solved system over the training rows. `m` distinct encoded jobs, `D` domains, `N` workloads."""

    job_columns: int  # F
    pair_columns: int  # f
    main_space: JobSpace  # of M, the kernel of the effects of one job by itself
    interaction_space: JobSpace  # of P, the kernel of the interaction of two jobs
    level: Floats  # float64[D + 1]: mean log slowdown of each domain; 0 is a domain that training never saw
    victim: Floats  # float64[m]
    neighbour: Floats  # float64[m]
    both: Floats  # float64[m, m]
    own: Floats  # float64[D + 1, N + 1]: effect of a workload's identity as victim
    from_neighbour: Floats  # float64[D + 1, N + 1]: effect of a workload's identity as neighbour
    u: Floats  # float64[D + 1, N + 1, R]: factors of its identity as the victim (`fit_low_rank`); R is 0 without them
    w: Floats  # float64[D + 1, N + 1, R]: factors of its identity as the neighbour

    def novelty(self, rows: PairRows) -> Floats:
        """Return the novelty of each pair, float64[p] in [0, 1]."""
        distinct = distinct_jobs(rows)
        novelty = self.interaction_space.novelty(distinct.jobs)
        return pair_novelty(novelty[distinct.victim], novelty[distinct.neighbour])

    def predict(self, rows: PairRows) -> Floats:
        """Return the predicted log slowdowns of the rows, float64[p], computed in chunks to bound memory."""
        starts = range(0, len(rows), CHUNK_ROWS)
        chunks = [self._predict(rows.take(np.arange(k, min(k + CHUNK_ROWS, len(rows))))) for k in starts]
        return np.concatenate([np.zeros(0), *chunks])

    def _predict(self, rows: PairRows) -> Floats:
        """Return the predictions for the rows of one chunk, float64[p]."""
        distinct = distinct_jobs(rows)
        victims, neighbours = distinct.victim, distinct.neighbour
        main, interaction = self.main_space.kernel(distinct.jobs), self.interaction_space.kernel(distinct.jobs)
        interactions = np.einsum("pm,pm->p", (interaction @ self.both)[victims], interaction[neighbours])
        identities = self.own[rows.domain, rows.victim] + self.from_neighbour[rows.domain, rows.neighbour]
        main_effects = (main @ self.victim)[victims] + (main @ self.neighbour)[neighbours]
        interplay = (self.u[rows.domain, rows.victim] * self.w[rows.domain, rows.neighbour]).sum(axis=1)
        return np.asarray(self.level[rows.domain] + main_effects + interactions + identities + interplay)


# Picked once, for both public tables, on unseen pairs and jobs.
KNOWN, NOVEL = 0.9, 1 / 3
NOVELTY_START, NOVELTY_END = 0.05, 0.2  # held-out jobs of known families lie mostly below, of new families above


def gp_weight(novelty: Any) -> Any:
    """Return the weight of the Gaussian process in the ensemble, elementwise for an array or a tensor of novelties.

    The trees get 1 - weight. Beside known jobs the Gaussian process predicts better than the trees. For jobs far from
    all known ones it falls back to the overall mean, while the trees fall back to the nearest known case, which errs
    less. So its weight falls with the pair's novelty:

        KNOWN - (KNOWN - NOVEL) · clip((novelty - NOVELTY_START) / (NOVELTY_END - NOVELTY_START), 0, 1)
    """
    return KNOWN - (KNOWN - NOVEL) * ((novelty - NOVELTY_START) / (NOVELTY_END - NOVELTY_START)).clip(0.0, 1.0)


Ints = NDArray[np.int64]

# On 45,000 generated rows with six planted factors on the excess scale, ranks 6, 10 and 14 err .034, .028 and .025.
RANKS = (2, 6, 12, 20)
SHRINKAGES = (0.5, 2.0, 8.0)  # in rows: an effect measured in so many rows keeps half of its measured size
SWEEPS = 12  # alternations
VALIDATION_SHARE = 0.1
START_SPREAD = 0.3  # standard deviation of the first factors, in those of the residuals


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualRows(RowColumns):
    """Rows with their residuals under the Gaussian process."""

    victim: Ints  # int64[p]
    neighbour: Ints  # int64[p]
    residual: Floats  # float64[p]
    weight: Floats  # float64[p]


def fit_low_rank(rows: ResidualRows, identities: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the effect and the R factors of each of K identities, as victim and as neighbour: float64[K, 1 + R] each.

    Column 0 is the effect; R is 0, and every effect too, where no correction lowers the held-out error.
    """
    # 1. Score each rank and shrinkage on held-out rows.
    held_out = rng.random(len(rows.residual)) < VALIDATION_SHARE
    fitted, tested = rows.take(~held_out), rows.take(held_out)
    none = np.zeros((identities, 1)), np.zeros((identities, 1))
    if held_out.all() or not held_out.any():
        return none
    errors = {(0, 0.0): _squared_error(none, tested)}
    for choice in product(RANKS, SHRINKAGES):
        errors[choice] = _squared_error(_alternate(fitted, identities, *choice, rng), tested)
    # 2. Fit the best one on all rows.
    rank, shrinkage = min(errors, key=lambda choice: errors[choice])
    return _alternate(rows, identities, rank, shrinkage, rng) if rank else none


def low_rank_residual(correction: tuple[Floats, Floats], victim: Ints, neighbour: Ints) -> Floats:
    """Return the residuals that a correction predicts, float64[p]."""
    as_victim, as_neighbour = correction[0][victim], correction[1][neighbour]
    interplay = (as_victim[:, 1:] * as_neighbour[:, 1:]).sum(axis=1)
    return np.asarray(as_victim[:, 0] + as_neighbour[:, 0] + interplay)


def _squared_error(correction: tuple[Floats, Floats], rows: ResidualRows) -> float:
    """Return the weighted mean squared error of the corrected residuals."""
    error = rows.residual - low_rank_residual(correction, rows.victim, rows.neighbour)
    return float(np.average(error**2, weights=rows.weight))


def _alternate(
    rows: ResidualRows, identities: int, rank: int, shrinkage: float, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the effects and factors after `SWEEPS` alternations of ridge regressions."""
    spread = float(rows.residual.std()) or 1.0
    target, victim, neighbour = rows.residual / spread, rows.victim, rows.neighbour
    as_neighbour = np.hstack([np.zeros((identities, 1)), rng.normal(scale=START_SPREAD, size=(identities, rank))])
    for _ in range(SWEEPS):
        others = as_neighbour[neighbour]
        as_victim = _ridge(victim, others, target - others[:, 0], rows.weight, identities, shrinkage)
        others = as_victim[victim]
        as_neighbour = _ridge(neighbour, others, target - others[:, 0], rows.weight, identities, shrinkage)
    as_neighbour[:, 0] *= spread
    return spread * as_victim, as_neighbour


def _ridge(group: Ints, others: Floats, target: Floats, weight: Floats, groups: int, shrinkage: float) -> Floats:
    """Return the coefficients of each group, float64[K, 1 + R]: an intercept, and one for each factor in `others`.

    A group without rows gets zeros.
    """
    width = others.shape[1]
    coefficients = Term(
        name="coefficients",
        groups=group,
        loadings=np.hstack([np.ones((len(group), 1)), others[:, 1:]]),
        covariance=np.tile(np.eye(width) / shrinkage, (groups, 1, 1)),
    )
    rows = Rows(values=target, noise_var=np.ones(len(target)), weights=weight)
    return condition(rows, [coefficients]).effects(coefficients.name)[0]
