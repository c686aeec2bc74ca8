"""What is believed of all pairs of some jobs after few were measured: predictions, their errors, what to measure next.

Law 1: without a measured pair the intervals are as wide as the differences between device types that were ever seen.
Law 2: the order of jobs, pairs and sources changes nothing but the last digits.
Law 3: an answer is no measurement: nothing here is written into a table.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from interfere.predict.teaching import MEAN_OF_ABSOLUTE
from interfere.predict.transfer.excess_scale import Floats, speed_slope, to_excess_scale, to_slowdown
from interfere.predict.transfer.pair_sources import PairSource
from interfere.predict.transfer.process import (
    Indices,
    PairSpace,
    Posterior,
    all_pairs,
    condition,
    noise_variance,
    pair_space,
)
from interfere.predict.transfer.suggestions import Suggestion, suggest
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus

LOWER, UPPER = 0.05, 0.95  # ends of the 90 % interval
Z90 = NormalDist().inv_cdf(UPPER)  # its half-width in standard deviations
NOISE_PAD = 0.02  # of the slowdown, at either end of it: the noise of one measurement where no time is added
MIN_PAIRS = 3  # unordered: below, an error of hidden pairs says nothing
FACTS = (
    "busy_frac",
    "flops_per_step",
    "bytes_per_step",
    "expected_peak_bytes",
    "gpu_util_frac",
    "memory_util_frac",
)

OrderedPair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSlowdown:
    """The slowdown of one victim beside one neighbour, with its 90 % interval."""

    victim: str
    neighbour: str
    slowdown: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenPairScore:
    """The errors on measured pairs when each is predicted from all the others. NaN below `MIN_PAIRS`."""

    pairs: int  # unordered
    speed_error: float  # mean absolute error of 1 / slowdown
    coverage: float  # share of slowdowns inside their 90 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBelief:
    """The belief about all pairs of `n` jobs on one device type and sharing mode."""

    posterior: Posterior
    measured: dict[OrderedPair, float]  # slowdowns
    tried: frozenset[frozenset[str]]  # unordered pairs with a row, unstable ones included

    @property
    def jobs(self) -> tuple[str, ...]:
        """Names of the jobs, in order."""
        return self.posterior.space.jobs

    @property
    def source_titles(self) -> tuple[str, ...]:
        """The titles of the sources that give the prior mean."""
        return tuple(source.title for source in self.posterior.space.sources)

    @property
    def slowdowns(self) -> Floats:
        """float64[n, n]: the expected slowdown of the row's job beside the column's."""
        n = len(self.jobs)
        return to_slowdown(self.posterior.expected(all_pairs(n))[0]).reshape(n, n)

    @property
    def expected_errors(self) -> Floats:
        """float64[n, n]: the absolute error of every pair's speed that the belief expects of itself."""
        n = len(self.jobs)
        mean, sd = self.posterior.expected(all_pairs(n))
        return np.asarray(speed_slope(mean) * sd * MEAN_OF_ABSOLUTE).reshape(n, n)

    def predict(self, pairs: Sequence[OrderedPair]) -> tuple[PredictedSlowdown, ...]:
        """The slowdown of each (victim, neighbour). Raises KeyError for a job that is not among `jobs`."""
        index = {name: k for k, name in enumerate(self.jobs)}
        victims = np.array([index[victim] for victim, _ in pairs], dtype=np.int64)
        neighbours = np.array([index[neighbour] for _, neighbour in pairs], dtype=np.int64)
        lower, median, upper = self._quantiles((LOWER, 0.5, UPPER), (victims, neighbours))
        return tuple(
            PredictedSlowdown(
                victim=victim,
                neighbour=neighbour,
                slowdown=float(median[k]),
                lower=float(lower[k]),
                upper=float(upper[k]),
            )
            for k, (victim, neighbour) in enumerate(pairs)
        )

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """float64[q, n, n]: the slowdown of the row's job beside the column's at each level."""
        n = len(self.jobs)
        return self._quantiles(levels, all_pairs(n)).reshape(len(levels), n, n)

    def _quantiles(self, levels: Sequence[float], pairs: tuple[Indices, Indices]) -> Floats:
        """float64[q, p]: the slowdown of pairs of job indices at each level."""
        mean, sd = self.posterior.expected(pairs)
        deviations = [NormalDist().inv_cdf(level) for level in levels]
        return np.array([to_slowdown(mean + z * sd) + NOISE_PAD * z / Z90 for z in deviations])

    def suggest(
        self,
        count: int,
        *,
        among: Collection[OrderedPair] | None = None,
        seed: int = 0,
        weights: Floats | None = None,
    ) -> tuple[Suggestion, ...]:
        """The unordered pairs to measure next, the most telling first; `among` are those that can be run, both ways.
        `weights`: as in `suggestions.suggest`."""
        allowed = None if among is None else {frozenset(pair) for pair in among}
        candidates = [
            (a, b)
            for a, first in enumerate(self.jobs)
            for b, second in enumerate(self.jobs[a:], start=a)
            if (pair := frozenset((first, second))) not in self.tried and (allowed is None or pair in allowed)
        ]
        return suggest(self.posterior, candidates, count, np.random.default_rng(seed), weights=weights)

    def hidden_pair_score(self) -> HiddenPairScore:
        """Hide each measured unordered pair in turn, both directions at once, and predict it from the others."""
        unordered = {frozenset(pair) for pair in self.measured}
        if len(unordered) < MIN_PAIRS:
            return HiddenPairScore(pairs=len(unordered), speed_error=NAN, coverage=NAN)
        errors, inside = [], []
        for hidden in unordered:
            others = {pair: slowdown for pair, slowdown in self.measured.items() if frozenset(pair) != hidden}
            belief = pair_belief(self.posterior.space, others)
            for answer in belief.predict([pair for pair in self.measured if frozenset(pair) == hidden]):
                slowdown = self.measured[answer.victim, answer.neighbour]
                errors.append(abs(1.0 / answer.slowdown - 1.0 / slowdown))
                inside.append(answer.lower <= slowdown <= answer.upper)
        return HiddenPairScore(
            pairs=len(unordered), speed_error=math.fsum(errors) / len(errors), coverage=float(np.mean(inside))
        )


def pair_belief(
    space: PairSpace, measured: dict[OrderedPair, float], tried: Collection[frozenset[str]] = ()
) -> PairBelief:
    """The belief after these slowdowns were measured; `tried` are unordered pairs without a usable measurement."""
    index = {name: k for k, name in enumerate(space.jobs)}
    slowdowns: Floats = np.array(list(measured.values()), dtype=np.float64)
    victims = np.array([index[victim] for victim, _ in measured], dtype=np.int64)
    neighbours = np.array([index[neighbour] for _, neighbour in measured], dtype=np.int64)
    posterior = condition(space, (victims, neighbours), to_excess_scale(slowdowns), noise_variance(slowdowns))
    return PairBelief(
        posterior=posterior, measured=measured, tried=frozenset(tried) | {frozenset(pair) for pair in measured}
    )


def space_of_profiles(profiles: Sequence[JobProfile], sources: Sequence[PairSource]) -> PairSpace:
    """The space of profiled jobs, one profile each; the sources list the jobs in the same order."""
    log_step_time_s = np.array([_log(profile.step_time_s) for profile in profiles])
    facts = np.array([[_log(getattr(profile, fact)) for fact in FACTS] for profile in profiles])
    jobs = tuple(profile.workload for profile in profiles)
    families = tuple(profile.family for profile in profiles)
    return pair_space(jobs, tuple(sources), log_step_time_s, np.column_stack([log_step_time_s, facts]), families)


def measured_rows(
    rows: Sequence[PairMeasurement], jobs: Collection[str]
) -> tuple[dict[OrderedPair, float], frozenset[frozenset[str]]]:
    """(slowdowns by ordered pair, unordered pairs with any row) of the rows between these jobs."""
    between = [row for row in rows if {row.victim, row.neighbour} <= set(jobs)]
    measured = {(row.victim, row.neighbour): row.slowdown for row in between if row.status is PairStatus.OK}
    return measured, frozenset(frozenset((row.victim, row.neighbour)) for row in between)


def _log(value: float) -> float:
    """The logarithm of a fact; NaN where it is unknown or zero."""
    return math.log(value) if value > 0 else math.nan
