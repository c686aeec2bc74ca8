"""What is believed of all pairs of some jobs after few were measured: predictions, their errors, what to measure next.

`fit_transfer` starts from the tables of other device types, `site_belief` from a published model.

Law 1: without a measured pair the intervals are as wide as the differences between device types that were ever seen.
Law 2: the order of jobs, pairs and sources changes nothing but the last digits.
Law 3: an answer is no measurement: nothing here is written into a table.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from interfere.data.quality import domain_tables
from interfere.data.tables import Table
from interfere.errors import InvalidInputError, UnfitError
from interfere.predict.teaching import MEAN_OF_ABSOLUTE
from interfere.predict.transfer.first_predictions import FirstPredictions, predict_first
from interfere.predict.transfer.process import (
    Floats,
    Indices,
    PairSource,
    PairSpace,
    Posterior,
    all_pairs,
    condition,
    noise_variance,
    pair_space,
    source_of_table,
    speed_slope,
    to_excess_scale,
    to_slowdown,
)
from interfere.predict.transfer.suggestions import Suggestion, suggest
from interfere.protocols import Predictor
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus
from interfere.records.checks import METRICS
from interfere.sharing_modes import SharingMode

LOWER, UPPER = 0.05, 0.95  # ends of the 90 % interval
Z90 = NormalDist().inv_cdf(UPPER)  # its half-width in standard deviations
NOISE_PAD = 0.02  # of the slowdown, at either end of it: the noise of one measurement where no time is added
MIN_SHARED_JOBS = 3  # with the jobs of a device type, by a table of another one
MAX_JOBS = 48  # 2,304 ordered pairs: a covariance of 42 MB
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


# --- from the tables of other device types, and from a published model


def fit_transfer(
    sources: Iterable[Table], profiles: Sequence[JobProfile], measured: Sequence[PairMeasurement]
) -> PairBelief:
    """Fit the belief about the device type of `profiles` from other device types' tables and the pairs measured on it.

    Raises UnfitError where no table shares at least `MIN_SHARED_JOBS` jobs with the profiles.
    """
    by_name = {profile.workload: profile for profile in profiles}
    jobs = tuple(sorted(by_name))
    device_types = {profile.device_type for profile in profiles}
    # 1. The domains of other device types that know enough of the jobs.
    devices = []
    for table in sources:
        for title, domain in domain_tables(table):
            names = {name for pair in domain.ok_pairs for name in (pair.victim, pair.neighbour)}
            if len(names & set(jobs)) >= MIN_SHARED_JOBS and not {p.device_type for p in domain.pairs} & device_types:
                devices.append(source_of_table(title, domain, jobs))
    if not devices:
        raise UnfitError(
            "no table of another device type measured these jobs",
            value=", ".join(jobs[:8]),
            remedy=f"give one with at least {MIN_SHARED_JOBS} of them, under the same names: --data gavel",
        )
    # 2. The jobs' step times and facts on the new device type, and its measured pairs.
    space = space_of_profiles([by_name[name] for name in jobs], devices)
    rows = [pair for pair in measured if pair.device_type in device_types]
    return pair_belief(space, *measured_rows(rows, jobs))


def site_belief(
    table: Table,
    model: Predictor,
    *,
    device_type: str,
    mode: SharingMode,
    jobs: Sequence[str] = (),
    first: FirstPredictions | None = None,
) -> PairBelief:
    """The belief about the table's jobs on a device type; `jobs`: only these.

    `first`: what was predicted of them before they were measured; the model predicts what is not among it.
    Raises UnfitError where fewer than two jobs are profiled there, InvalidInputError for more than `MAX_JOBS`.
    """
    profiles = site_profiles(table, device_type, jobs)
    first = predict_first(first, model, profiles, device_type, mode)
    space = site_space(profiles, first)
    key = (device_type, mode, METRICS[0])
    rows = [pair for pair in table.pairs if (pair.device_type, pair.mode, pair.metric) == key]
    return pair_belief(space, *measured_rows(rows, space.jobs))


def site_space(profiles: Sequence[JobProfile], first: FirstPredictions) -> PairSpace:
    """The space of a site's jobs. Raises KeyError for a job without first predictions."""
    return space_of_profiles(profiles, [first.source([profile.workload for profile in profiles])])


def site_profiles(table: Table, device_type: str, jobs: Sequence[str] = ()) -> list[JobProfile]:
    """The profiles of the table's jobs on a device type, by name; `jobs`: only these. Raises as `site_belief`."""
    profiles = [job for job in table.jobs if job.device_type == device_type and (not jobs or job.workload in jobs)]
    if len(profiles) < 2:
        known = sorted({job.device_type for job in table.jobs})
        raise UnfitError(
            f"fewer than two jobs are profiled on {device_type}",
            value=f"{table.name} has {', '.join(known) or 'no jobs'}",
            remedy="profile the jobs alone first, or choose another --device-type",
        )
    if len(profiles) > MAX_JOBS:
        raise InvalidInputError(
            f"pairs are suggested among at most {MAX_JOBS} jobs", value=len(profiles), remedy="name some with --job"
        )
    return sorted(profiles, key=lambda profile: profile.workload)


def _log(value: float) -> float:
    """The logarithm of a fact; NaN where it is unknown or zero."""
    return math.log(value) if value > 0 else math.nan
