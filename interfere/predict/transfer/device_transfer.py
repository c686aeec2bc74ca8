"""Predicts the slowdowns of a device type from few of its own pairs and the tables of other device types.

Law 1: without a measured pair the intervals are as wide as the differences between device types that were ever seen.
Law 2: the order of jobs, pairs and tables changes nothing but the last digits.
Law 3: an answer is no measurement: nothing here is written into a table.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.data.quality import domain_tables
from interfere.data.tables import Table
from interfere.errors import UnfitError
from interfere.predict.transfer.excess_scale import Floats, to_excess_scale, to_slowdown
from interfere.predict.transfer.process import Posterior, condition, noise_variance, pair_space
from interfere.predict.transfer.source_devices import source_device
from interfere.predict.transfer.suggestions import suggest
from interfere.records import JobProfile, PairMeasurement, PairStatus

Z90 = 1.6449  # half-width of a 90 % interval in standard deviations
NOISE_PAD = 0.02  # of the slowdown, at either end: the noise of one measurement where no time is added
MIN_SHARED_JOBS = 3
FACTS = ("flops_per_step", "bytes_per_step", "expected_peak_bytes", "gpu_util_frac", "memory_util_frac")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredSlowdown:
    """The slowdown of one victim beside one neighbour on the new device type, with its 90 % interval."""

    victim: str
    neighbour: str
    slowdown: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class DeviceTransfer:
    """What is believed of one device type and sharing mode."""

    jobs: tuple[str, ...]
    posterior: Posterior
    measured: frozenset[tuple[str, str]]  # ordered pairs
    source_titles: tuple[str, ...]

    def predict(self, pairs: Sequence[tuple[str, str]]) -> tuple[TransferredSlowdown, ...]:
        """The slowdown of each (victim, neighbour). Raises KeyError for a job that is not among `jobs`."""
        index = {name: k for k, name in enumerate(self.jobs)}
        victims = np.array([index[victim] for victim, _ in pairs], dtype=np.int64)
        neighbours = np.array([index[neighbour] for _, neighbour in pairs], dtype=np.int64)
        mean, sd = self.posterior.expected((victims, neighbours))
        median, lower, upper = (to_slowdown(mean + shift * sd) for shift in (0.0, -Z90, Z90))
        return tuple(
            TransferredSlowdown(
                victim=victim,
                neighbour=neighbour,
                slowdown=float(median[k]),
                lower=float(lower[k]) - NOISE_PAD,
                upper=float(upper[k]) + NOISE_PAD,
            )
            for k, (victim, neighbour) in enumerate(pairs)
        )

    def suggest(
        self, count: int, *, among: Collection[tuple[str, str]] | None = None, seed: int = 0
    ) -> tuple[tuple[str, str], ...]:
        """The unordered pairs to measure next, the most telling first; `among` are those that can be run, both ways."""
        allowed = None if among is None else frozenset(among)
        candidates = [
            (a, b)
            for a, first in enumerate(self.jobs)
            for b, second in enumerate(self.jobs[a:], start=a)
            if not {(first, second), (second, first)} & self.measured
            and (allowed is None or {(first, second), (second, first)} & allowed)
        ]
        found = suggest(self.posterior, candidates, count, np.random.default_rng(seed))
        return tuple((self.jobs[a], self.jobs[b]) for a, b in found)


def fit_transfer(
    sources: Iterable[Table], profiles: Sequence[JobProfile], measured: Sequence[PairMeasurement]
) -> DeviceTransfer:
    """Fit the belief about the device type of `profiles` from other device types' tables and the pairs measured on it.

    Raises UnfitError where no table shares at least `MIN_SHARED_JOBS` jobs with the profiles.
    """
    jobs = tuple(sorted({profile.workload for profile in profiles}))
    device_types = {profile.device_type for profile in profiles}
    # 1. The domains of other device types that know enough of the jobs.
    devices = []
    for table in sources:
        for title, domain in domain_tables(table):
            names = {name for pair in domain.ok_pairs for name in (pair.victim, pair.neighbour)}
            if len(names & set(jobs)) >= MIN_SHARED_JOBS and not {p.device_type for p in domain.pairs} & device_types:
                devices.append(source_device(title, domain, jobs))
    if not devices:
        raise UnfitError(
            "no table of another device type measured these jobs",
            value=", ".join(jobs[:8]),
            remedy=f"give one with at least {MIN_SHARED_JOBS} of them, under the same names: --from gavel",
        )
    # 2. Step times and facts of the jobs on the new device type.
    by_name = {profile.workload: profile for profile in profiles}
    log_step_time_s = np.array([_log(by_name[name].step_time_s) for name in jobs])
    facts = np.array([[_log(getattr(by_name[name], fact)) for fact in FACTS] for name in jobs])
    space = pair_space(tuple(devices), log_step_time_s, np.column_stack([log_step_time_s, facts]))
    # 3. The measured pairs.
    index = {name: k for k, name in enumerate(jobs)}
    rows = [
        pair
        for pair in measured
        if pair.status is PairStatus.OK
        and pair.device_type in device_types
        and {pair.victim, pair.neighbour} <= set(jobs)
    ]
    slowdowns: Floats = np.array([pair.slowdown for pair in rows], dtype=np.float64)
    victims = np.array([index[pair.victim] for pair in rows], dtype=np.int64)
    neighbours = np.array([index[pair.neighbour] for pair in rows], dtype=np.int64)
    posterior = condition(space, (victims, neighbours), to_excess_scale(slowdowns), noise_variance(slowdowns))
    known = frozenset((pair.victim, pair.neighbour) for pair in rows)
    return DeviceTransfer(jobs, posterior, known, tuple(device.title for device in devices))


def _log(value: float) -> float:
    """The logarithm of a fact; NaN where it is unknown or zero."""
    return math.log(value) if value > 0 else math.nan
