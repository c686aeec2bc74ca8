"""Stored observations as a table: what schedulers measured, ready to be trained on.

One row per (victim, neighbour, device type, mode) with every window as a pass, and provenance: source `observed`,
campaign = the part of the log, time of the newest window. Windows that were quarantined, rolled back, or without a
solo rate to be compared with are no passes. A job without a profile gets one from its solo rate: its step time is all
that is known of it. Law: the same log and profiles give the same table.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from interfere.data.tables import Table
from interfere.records import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    JobProfile,
    ObservationResult,
    PairMeasurement,
    PairStatus,
    Progress,
)
from interfere.store.protocols import Store

SOURCE = "observed"
MOST_PASSES = 200  # newest windows of one row: the interval of its mean no longer shrinks by anything that matters
UNSTABLE_SD = 0.25  # of log slowdown between windows: no one number describes such a pair
# Student's t, 97.5 %, by degrees of freedom (any table); beyond, the normal value is within 2 %.
_T975 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 15: 2.13, 20: 2.09}

_Pair = tuple[str, str, str, str]  # victim, neighbour, device type, mode
_Job = tuple[str, str]  # workload, device type


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The table, and which jobs had no facts at all, so that their rows are not in it."""

    table: Table
    without_facts: tuple[str, ...]
    windows: int  # that became passes


@dataclass(slots=True)
class _Row:
    passes: list[float] = field(default_factory=list)
    newest_s: float = 0.0


def observed_table(
    store: Store, profiles: Iterable[JobProfile] = (), *, name: str = SOURCE, upto: int | None = None
) -> Observed:
    """`profiles`: further facts, oldest first, e.g. those a model was trained on; the store's own are newer."""
    windows, last = _windows(store, upto)
    rates = _solo_rates(windows)
    rows: dict[_Pair, _Row] = {}
    for window in windows:
        slowdown = _slowdown(window, rates)
        if len(window.company) == 1 and MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
            row = rows.setdefault((window.workload, window.company[0], window.device_type, window.mode), _Row())
            row.passes.append(slowdown)
            row.newest_s = max(row.newest_s, window.end_s)
    facts = {(job.workload, job.device_type): job for job in (*profiles, *store.profiles.all())}
    jobs: dict[_Job, JobProfile] = {}
    lost: set[str] = set()
    pairs = []
    for (victim, neighbour, device_type, mode), row in rows.items():
        both = [_facts(who, device_type, facts, rates) for who in (victim, neighbour)]
        lost |= {who for who, job in zip((victim, neighbour), both, strict=True) if job is None}
        found = [job for job in both if job is not None]
        if len(found) == 2:
            jobs.update({(job.workload, job.device_type): job for job in found})
            pairs.append(_measurement(victim, neighbour, device_type, mode, row, f"log 1-{last}"))
    return Observed(
        table=Table(name=name, jobs=tuple(jobs.values()), pairs=tuple(pairs)),
        without_facts=tuple(sorted(lost)),
        windows=sum(len(pair.passes) for pair in pairs),
    )


def _windows(store: Store, upto: int | None) -> tuple[list[Progress], int]:
    """What still counts of the log, and its last sequence number."""
    gone = store.observations.rollbacks(upto=upto)
    kept, last = [], 0
    for entry in store.observations.entries(upto=upto):
        last = entry.sequence
        counts = entry.result is not ObservationResult.QUARANTINED
        if counts and isinstance(entry.observation, Progress) and not any(to < last < at for at, to in gone):
            kept.append(entry.observation)
    return kept, last


def _solo_rates(windows: Iterable[Progress]) -> dict[_Job, float]:
    """Steps per second alone, over all windows alone."""
    sums: dict[_Job, tuple[float, float]] = {}
    for window in windows:
        if not window.company and window.steps > 0:
            steps, seconds = sums.get((window.workload, window.device_type), (0.0, 0.0))
            sums[window.workload, window.device_type] = (steps + window.steps, seconds + window.end_s - window.start_s)
    return {job: steps / seconds for job, (steps, seconds) in sums.items()}


def _slowdown(window: Progress, rates: dict[_Job, float]) -> float:
    """NaN where there is nothing to compare with, or no step."""
    if not math.isnan(window.slowdown):
        return window.slowdown
    rate = rates.get((window.workload, window.device_type), math.nan)
    return rate * (window.end_s - window.start_s) / window.steps if window.steps > 0 else math.nan


def _facts(
    workload: str, device_type: str, facts: dict[_Job, JobProfile], rates: dict[_Job, float]
) -> JobProfile | None:
    known = facts.get((workload, device_type))
    rate = rates.get((workload, device_type))
    if known is not None or rate is None:
        return known
    return JobProfile(workload=workload, device_type=device_type, step_time_s=1 / rate, source=SOURCE)


def _measurement(victim: str, neighbour: str, device_type: str, mode: str, row: _Row, campaign: str) -> PairMeasurement:
    """Geometric mean of the windows with its 95 % interval; windows that disagree are kept, and marked unstable."""
    passes = row.passes[-MOST_PASSES:]
    logs = np.log(passes)
    mean, n = float(logs.mean()), len(passes)
    sd = float(logs.std(ddof=1)) if n > 1 else math.nan
    half = _t975(n - 1) * sd / math.sqrt(n) if n > 1 else math.nan
    unstable = sd > UNSTABLE_SD
    return PairMeasurement(
        victim=victim,
        neighbour=neighbour,
        device_type=device_type,
        mode=mode,
        slowdown=math.exp(mean),
        lower=math.exp(mean - half),
        upper=math.exp(mean + half),
        passes=tuple(passes),
        status=PairStatus.UNSTABLE if unstable else PairStatus.OK,
        reason=f"its windows disagree: standard deviation {sd:.2f} of log slowdown" if unstable else "",
        source=SOURCE,
        campaign=campaign,
        measured_at_s=row.newest_s,
    )


def _t975(freedom: int) -> float:
    """The value at the next smaller tabulated number of degrees of freedom: never too narrow."""
    return _T975[max(n for n in _T975 if n <= freedom)]
