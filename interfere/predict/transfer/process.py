"""The prior over slowdowns given what sources say of them: a Gaussian process over ordered pairs.

Slowdowns of different device types are alike on the excess scale, the log of the time that a neighbour adds:
z = log(max(slowdown - 1, 0) + OFFSET). There the effects of victim and neighbour add: the added time is the product of
how much a job suffers and how much the other one takes. An additive fit of each of Gavel's three device types has a
mean error of speed of .017 (K80), .050 (P100) and .042 (V100) on it, and of .020, .069 and .054 on the log of the
slowdown itself.

On this scale, with x_d the value of source d (D of them), the z of a new device type or site has mean
x̄ = Σ x_d / D and ::

    LEVEL² + SLOPE² Σ (x_d - REST)(x_d' - REST) / D + INTERACTION² Σ r_d r_d'
      + VICTIM² K(v, v') + NEIGHBOUR² K(n, n') + BOTH² K(v, v') K(n, n')

LEVEL and SLOPE are the affine map of the sources' answers, r_d what effects do not explain there. K(i, j) says
how alike two jobs are: SIMILARITY · exp(-|c_i - c_j|² / 2) + (1 - SIMILARITY) [i = j], of coordinates c: the jobs'
effects on the sources, how much slower or faster each runs alone than there, and its facts. Where all jobs name their
family, the architecture, a share FAMILY of the similarity is that of its members, whatever their batch size:
[family i = family j] · exp(-|c_i - c_j|² / 8). Small deviations are shrunk towards what the sources say. How far off
the sources are is learned: standard deviations are multiplied by what leave-one-out errors of measured pairs ask for.

A pair without added time tells only that its z is at most that of none (Tobin 1958, "Estimation of relationships for
limited dependent variables"): such a value is replaced by its mean below that bound, given the other pairs.

The constants were chosen on Gavel's three device types, each held out in turn: `tests/bench/test_transfer.py`.

Law: a job that no table measured has the mean effect of its source; its facts then say how far to trust that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.data.tables import Table
from interfere.predict.field.gaussian import additive_effects

OFFSET = 0.1  # of .02 to 1: between .05 and .2 the fits above change by at most .003
RIDGE = 0.5  # in rows: the weight of the mean beside the rows of a job
LEVEL, SLOPE, INTERACTION = 0.8, 0.4, 0.25
VICTIM, NEIGHBOUR, BOTH = 0.4, 0.4, 0.3
SIMILARITY, FAMILY = 0.95, 0.2
REST = -1.5  # z of a slowdown of 1.12: where the slope turns
EFFECT_SCALE, SPEEDUP_SCALE, FACT_SCALE = 1.0, 2.0, 0.5  # weights of the coordinates
COORDINATE_SCALE = 2.0
NOISE = 0.07  # of z, beyond that of the slowdown itself
SLOWDOWN_NOISE = 0.01  # of a measured slowdown: where little time is added, z is uncertain
CENSORED_ROUNDS = 3  # of the means of values without added time; further ones change predictions by under .001
LEAST_CENSORED = 1.0  # how far below the bound such a mean may lie
PRIOR_ROWS = 4.0  # how many rows the prior variances count for beside leave-one-out errors

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def to_excess_scale(slowdown: Floats) -> Floats:
    """Return slowdowns on the excess scale Z. Slowdowns below 1 count as 1."""
    return np.asarray(np.log(np.maximum(slowdown - 1.0, 0.0) + OFFSET))


def to_slowdown(z: Floats) -> Floats:
    """The slowdown of z, at least 1: a neighbour adds no negative time."""
    return np.asarray(np.maximum(1.0 + np.exp(z) - OFFSET, 1.0))


def speed_slope(z: Floats) -> Floats:
    """|d speed / d z|: how much an error of z matters for the speed 1 / slowdown."""
    return np.asarray(np.exp(z) / to_slowdown(z) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSource:
    """One source on the excess scale, for `n` jobs in the order asked for."""

    title: str
    z: Floats  # float64[n, n], victim by neighbour, without gaps
    victim_effects: Floats  # float64[n], from the mean
    neighbour_effects: Floats  # float64[n]
    interaction: Floats  # float64[n, n]: what the effects do not explain; 0 where nothing was measured
    log_step_time_s: Floats  # float64[n]; NaN where unknown
    is_measured: NDArray[np.bool_]  # bool[n]: jobs with a measured pair there


def source_of_table(title: str, table: Table, jobs: Sequence[str]) -> PairSource:
    """The source of one device type's rows and profiles: measured where it was, else additive."""
    index = {name: k for k, name in enumerate(jobs)}
    # 1. Measured cells.
    z = np.full((len(jobs), len(jobs)), np.nan)
    rows = [pair for pair in table.ok_pairs if pair.victim in index and pair.neighbour in index]
    victims = np.array([index[pair.victim] for pair in rows], dtype=np.int64)
    neighbours = np.array([index[pair.neighbour] for pair in rows], dtype=np.int64)
    values = to_excess_scale(np.array([pair.slowdown for pair in rows], dtype=np.float64))
    z[victims, neighbours] = values
    # 2. Additive effects by ridge regression.
    mean = float(values.mean()) if rows else 0.0
    _, own, others = additive_effects(values, victims, neighbours, jobs=len(jobs), shrinkage=RIDGE, level=mean)
    additive = mean + own[:, None] + others[None, :]
    # 3. Step times alone.
    log_step_time_s = np.full(len(jobs), np.nan)
    for job in table.jobs:
        if job.workload in index and job.step_time_s > 0:
            log_step_time_s[index[job.workload]] = np.log(job.step_time_s)
    measured = np.isfinite(z)
    return PairSource(
        title=title,
        z=np.where(measured, z, additive),
        victim_effects=own,
        neighbour_effects=others,
        interaction=np.where(measured, z - additive, 0.0),
        log_step_time_s=log_step_time_s,
        is_measured=measured.any(axis=0) | measured.any(axis=1),
    )


def source_of_model(title: str, log_slowdown: Floats) -> PairSource:
    """The source of a model's log slowdowns, float64[n, n]: no step times, as it predicts from those of the jobs."""
    z = to_excess_scale(np.exp(log_slowdown))
    mean = z.mean()
    own, others = z.mean(axis=1) - mean, z.mean(axis=0) - mean
    return PairSource(
        title=title,
        z=z,
        victim_effects=own,
        neighbour_effects=others,
        interaction=z - mean - own[:, None] - others[None, :],
        log_step_time_s=np.full(len(z), np.nan),
        is_measured=np.zeros(len(z), dtype=bool),
    )


@dataclass(frozen=True, slots=True)
class PairSpace:
    """The jobs of a new device type or site, and what the sources say of their pairs."""

    jobs: tuple[str, ...]
    sources: tuple[PairSource, ...]
    alike: Floats  # float64[n, n]: K

    def mean(self, victims: Indices, neighbours: Indices) -> Floats:
        """The prior mean (float64[p]): the average over the sources."""
        return np.asarray(np.mean([source.z[victims, neighbours] for source in self.sources], axis=0))

    def covariance(self, first: tuple[Indices, Indices], second: tuple[Indices, Indices]) -> Floats:
        """float64[p, q]: prior covariance of two lists of pairs (victims, neighbours)."""
        found = np.full((len(first[0]), len(second[0])), LEVEL**2)
        for source in self.sources:
            slopes = (source.z[pairs] - REST for pairs in (first, second))
            found += SLOPE**2 / len(self.sources) * np.outer(*slopes)
            found += INTERACTION**2 * np.outer(*(source.interaction[pairs] for pairs in (first, second)))
        victims = self.alike[np.ix_(first[0], second[0])]
        neighbours = self.alike[np.ix_(first[1], second[1])]
        return np.asarray(found + VICTIM**2 * victims + NEIGHBOUR**2 * neighbours + BOTH**2 * victims * neighbours)

    def variance(self, pairs: tuple[Indices, Indices]) -> Floats:
        """float64[p]: the diagonal of `covariance`."""
        found = np.full(len(pairs[0]), LEVEL**2 + VICTIM**2 + NEIGHBOUR**2 + BOTH**2)
        for source in self.sources:
            found += SLOPE**2 / len(self.sources) * (source.z[pairs] - REST) ** 2
            found += INTERACTION**2 * source.interaction[pairs] ** 2
        return found


def pair_space(
    jobs: tuple[str, ...],
    sources: tuple[PairSource, ...],
    log_step_time_s: Floats,
    facts: Floats,
    families: tuple[str, ...] = (),
) -> PairSpace:
    """The space of `n` jobs with float64[n] step times where they are measured, float64[n, f] facts, NaN unknown, and
    their families, "" for one that names none."""
    columns = [effects for each in sources for effects in (each.victim_effects, each.neighbour_effects)]
    columns = [EFFECT_SCALE * column for column in columns]
    columns += [SPEEDUP_SCALE * (log_step_time_s - each.log_step_time_s) for each in sources]
    columns += [FACT_SCALE * _standardised(column) for column in facts.T]
    coordinates = np.nan_to_num(np.stack(columns, axis=1)) / COORDINATE_SCALE
    squared = ((coordinates[:, None, :] - coordinates[None, :, :]) ** 2).sum(axis=-1)
    similar = np.exp(-0.5 * squared)
    if families and all(families):
        same_family = np.array([[first == second for second in families] for first in families])
        similar = similar + FAMILY / SIMILARITY * (same_family * np.exp(-squared / 8.0) - similar)
    alike = SIMILARITY * similar + (1.0 - SIMILARITY) * np.eye(len(coordinates))
    return PairSpace(jobs, sources, np.asarray(alike))


def all_pairs(jobs: int) -> tuple[Indices, Indices]:
    """(victims, neighbours) of all ordered pairs of n jobs, int64[n²] each, row by row."""
    return np.repeat(np.arange(jobs), jobs), np.tile(np.arange(jobs), jobs)


def _standardised(column: Floats) -> Floats:
    """Return the values scaled to zero mean and unit variance over known entries; NaN stays."""
    known = column[np.isfinite(column)]
    spread = float(known.std()) if len(known) else 0.0
    return (column - known.mean()) / spread if spread > 0 else np.zeros_like(column)


@dataclass(frozen=True, slots=True)
class Posterior:
    """The process given measured pairs."""

    space: PairSpace
    measured: tuple[Indices, Indices]
    inverse: Floats  # float64[m, m], of the covariance of the measured values
    weights: Floats  # float64[m]
    scale: float  # what leave-one-out errors multiply standard deviations by

    def covariance(self, first: tuple[Indices, Indices], second: tuple[Indices, Indices]) -> Floats:
        """float64[p, q]: posterior covariance of z of two lists of pairs, without noise."""
        left, right = (self.space.covariance(pairs, self.measured) for pairs in (first, second))
        return np.asarray(self.space.covariance(first, second) - left @ self.inverse @ right.T)

    def expected(self, pairs: tuple[Indices, Indices]) -> tuple[Floats, Floats]:
        """(mean, standard deviation) of z of pairs, float64[p] each."""
        cross = self.space.covariance(pairs, self.measured)
        mean = self.space.mean(*pairs) + cross @ self.weights
        variance = self.space.variance(pairs) - np.einsum("pm,mk,pk->p", cross, self.inverse, cross)
        return mean, self.scale * np.sqrt(np.maximum(variance, 0.0) + NOISE**2)


def noise_variance(slowdown: Floats) -> Floats:
    """Variance of z of measured slowdowns: large where hardly any time is added."""
    return np.asarray(NOISE**2 + (SLOWDOWN_NOISE / (np.maximum(slowdown - 1.0, 0.0) + OFFSET)) ** 2)


def condition(space: PairSpace, pairs: tuple[Indices, Indices], z: Floats, variance: Floats) -> Posterior:
    """The posterior after measured values z of pairs with these noise variances; with none, the prior itself."""
    inverse: Floats = np.zeros((0, 0))
    if len(z):
        inverse = np.asarray(np.linalg.inv(space.covariance(pairs, pairs) + np.diag(variance)), dtype=np.float64)
    mean = space.mean(*pairs) if len(z) else np.zeros(0)
    weights = inverse @ (_without_bound(z, mean, inverse) - mean)
    # Leave-one-out errors in units of their standard deviation: Rasmussen & Williams 2006, equation 5.12.
    standardised = weights / np.sqrt(np.diag(inverse))
    scale = float(np.sqrt((PRIOR_ROWS + (standardised**2).sum()) / (PRIOR_ROWS + len(z))))
    return Posterior(space, pairs, inverse, weights, max(scale, 1.0))


def _without_bound(z: Floats, mean: Floats, inverse: Floats) -> Floats:
    """The values, those of pairs without added time replaced by their means below the bound, given all other values."""
    bound = to_excess_scale(np.ones(1))[0]
    censored = z <= bound
    if not censored.any():
        return z
    variance, values = 1.0 / np.diag(inverse), z
    for _ in range(CENSORED_ROUNDS):
        # Mean and deviation of each value given the others: Rasmussen & Williams 2006, equation 5.12.
        expected = values - variance * (inverse @ (values - mean))
        below = mean_below(bound, expected, np.sqrt(variance))
        values = np.where(censored, np.maximum(below, bound - LEAST_CENSORED), z)
    return values


def mean_below(bound: float, mean: Floats, deviation: Floats) -> Floats:
    """The mean of normal variables that are known to be at most the bound, elementwise."""
    distances = ((bound - mean) / deviation).tolist()
    return np.asarray(mean - deviation * np.array([_inverse_mills(distance) for distance in distances]))


def _inverse_mills(x: float) -> float:
    """Return φ(x) / Φ(x).

    Far below zero two terms of its asymptotic series stand in (Abramowitz & Stegun 1964, 26.2.12).
    """
    if x < -20.0:
        return -x - 1.0 / x
    return math.exp(-0.5 * x * x) / (math.sqrt(0.5 * math.pi) * math.erfc(-x / math.sqrt(2.0)))
