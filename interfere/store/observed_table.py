"""A table of measurements made of the stored observations, for training.

The table has one row for each victim, company, device type and mode: a pair where the company is one job, else a group.
The passes of a row are the slowdowns of the newest windows that agree with one another (the present level). The source
of a row is `observed`, its campaign the range of the log, its time that of the newest window.

Left out are windows of an earlier level, outliers that no other window supports, windows of muted reporters, windows
that were rolled back, and windows of a job without a solo rate to compare with. A job without a profile gets a profile
that holds only the step time from its solo rate. Where the software stack of a device type and mode changed, the
windows before and after the change belong to two campaigns.

Law: equal logs, profiles and changes give equal tables.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from interfere.data.facts import combine_profiles
from interfere.data.tables import Table
from interfere.profiling.schedule import t_quantile_975
from interfere.records import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    GroupMeasurement,
    JobProfile,
    LogEntry,
    ObservationResult,
    PairMeasurement,
    PairStatus,
    Progress,
    ReporterWeight,
)
from interfere.records.solo_rates import SoloKey, SoloRate, solo_rates, window_slowdown
from interfere.sharing_modes import SharingMode
from interfere.store.store import Store

SOURCE = "observed"
UNNAMED_CAMPAIGN = "log "  # begins the campaign of rows whose windows named none: the range of the log
MAX_PASSES = 200  # newest windows of one row: more of them would not shrink the interval of its mean noticeably
UNSTABLE_SD = 0.25  # of log slowdown between windows: above it, no single number describes the row
LEVEL_WINDOWS = 9  # newest windows whose median is the present level
LEVEL_DEVIATIONS, MIN_LEVEL_DISTANCE = 4.0, 0.1  # of a window that still belongs to it: robust deviations; log slowdown
MAX_OTHER_LEVEL = 3  # consecutive windows off on one side: what is older belongs to another level


class _RowKey(NamedTuple):
    """The key of a row of the table."""

    victim: str
    company: tuple[str, ...]  # sorted
    device_type: str
    mode: SharingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainChange:
    """The newest change of the software stack of a device type and mode, as the windows of a log show it."""

    device_type: str
    mode: SharingMode
    sequence: int  # of the log entry with the first window after the change

    def campaign(self, sequence: int) -> str:
        """Return the campaign of the windows on this side of the change as the log entry `sequence`."""
        side = "since" if sequence >= self.sequence else "before"
        return f"{self.device_type}/{self.mode} {side} entry {self.sequence}"


class LoggedWindow(NamedTuple):
    """One window of the log that counts."""

    sequence: int
    window: Progress
    is_outlier: bool  # it was told to be one when it came
    slowdown: float  # as reported, or from the job's solo rate; NaN where both are unknown, and of a job alone


@dataclass(slots=True)
class WindowSlowdowns:
    """The slowdowns that the windows of one job beside one set of neighbours report, oldest first."""

    log_slowdowns: list[float] = field(default_factory=list)
    contradicting: list[bool] = field(default_factory=list)  # told to be outliers when they came
    campaigns: list[str] = field(default_factory=list)
    newest_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTable:
    """A table of observed slowdowns, and the workloads that are left out because nothing is known of them alone."""

    table: Table
    without_facts: tuple[str, ...]
    windows: int  # number of windows that became passes
    held_windows: int = 0  # windows of known pairs and groups that became none: outliers, and those of earlier levels


def observed_table(
    store: Store,
    profiles: Iterable[JobProfile] = (),
    *,
    name: str = SOURCE,
    up_to: int | None = None,
    changes: Iterable[DomainChange] = (),
) -> ObservedTable:
    """Return the table of all log entries up to `up_to`.

    `profiles` are further facts, oldest first, such as those a model was trained on. The store's own facts come after
    them. `changes` name the campaigns of windows that name none themselves.
    """
    # 1. Read the windows that count, and the steps per second of each job alone.
    windows, last_sequence = logged_windows(store, up_to)
    rates = solo_rates(logged.window for logged in windows)
    # 2. Group the slowdowns by victim and company.
    slowdowns_by_row = _slowdowns_by_row(windows, {(change.device_type, change.mode): change for change in changes})
    # 3. Keep the rows whose jobs all have a profile.
    combined = combine_profiles((*profiles, *store.profiles.all()))
    known_profiles = {(job.workload, job.device_type): job for job in combined.jobs}
    jobs: dict[SoloKey, JobProfile] = {}
    without_facts: set[str] = set()
    rows: list[PairMeasurement | GroupMeasurement] = []
    held_windows = 0
    for key, reported in slowdowns_by_row.items():
        slowdowns = present_level(reported)
        held_windows += len(reported.log_slowdowns) - len(slowdowns)
        if not slowdowns:
            continue
        profile_of = {
            workload: _profile(workload, key.device_type, known_profiles, rates)
            for workload in (key.victim, *key.company)
        }
        known_jobs = [job for job in profile_of.values() if job is not None]
        without_facts |= {workload for workload, job in profile_of.items() if job is None}
        if len(known_jobs) == len(profile_of):
            jobs.update({(job.workload, job.device_type): job for job in known_jobs})
            campaign = reported.campaigns[-1] or f"{UNNAMED_CAMPAIGN}1-{last_sequence}"
            rows.append(_measurement(key, slowdowns, reported.newest_s, campaign))
    return ObservedTable(
        table=Table(
            name=name,
            jobs=tuple(jobs.values()),
            pairs=tuple(row for row in rows if isinstance(row, PairMeasurement)),
            groups=tuple(row for row in rows if isinstance(row, GroupMeasurement)),
            sources=tuple(source for source in combined.sources if (source.workload, source.device_type) in jobs),
        ),
        without_facts=tuple(sorted(without_facts)),
        windows=sum(len(row.passes) for row in rows),
        held_windows=held_windows,
    )


class PairLoss(NamedTuple):
    """What running beside its company has cost a workload."""

    victim: str
    company: tuple[str, ...]
    device_type: str
    mode: SharingMode
    windows: int
    hours: float  # of the victim's jobs, side by side with the company
    slowdown: float  # geometric mean over these hours
    lost_hours: float  # hours in which the same work takes no time alone


def pair_losses(logged: Iterable[LoggedWindow], *, within_s: float = math.inf) -> list[PairLoss]:
    """Return what each pair and group has cost its victim by these windows, the largest loss first.

    `within_s`: only windows that ended so many seconds before the newest one, or later.
    """
    shared = [each for each in logged if is_in_company(each)]
    newest_s = max((each.window.end_s for each in shared), default=0.0)
    found: dict[_RowKey, list[tuple[float, float]]] = {}
    for each in shared:
        if (window := each.window).end_s >= newest_s - within_s:
            key = _RowKey(window.workload, tuple(sorted(window.company)), window.device_type, window.mode)
            found.setdefault(key, []).append(((window.end_s - window.start_s) / 3600, each.slowdown))
    losses = []
    for key, of_key in found.items():
        hours, slowdowns = np.array(of_key).T
        mean = float(np.exp(np.average(np.log(slowdowns), weights=hours)))
        lost_hours = float(np.sum(hours * (1 - 1 / slowdowns)))
        losses.append(PairLoss(*key, len(of_key), float(hours.sum()), mean, lost_hours))
    return sorted(losses, key=lambda loss: -loss.lost_hours)


def present_level(passes: WindowSlowdowns) -> list[float]:
    """Return the slowdowns of the newest windows that agree with one another, oldest first.

    Empty where the only such window is an outlier.
    """
    newest_campaign = passes.campaigns[-1]
    of_campaign = [k for k, campaign in enumerate(passes.campaigns) if campaign == newest_campaign]
    logs = np.array([passes.log_slowdowns[k] for k in of_campaign])
    # 1. The present level, and how far its windows usually lie from it.
    newest = logs[-LEVEL_WINDOWS:]
    trusted = ~np.array([passes.contradicting[k] for k in of_campaign])[-LEVEL_WINDOWS:]
    if 2 * trusted.sum() >= len(newest):
        newest = newest[trusted]
    level = float(np.median(newest))
    deviation = 1.4826 * float(np.median(np.abs(newest - level)))
    distance = max(LEVEL_DEVIATIONS * deviation, MIN_LEVEL_DISTANCE)
    # 2. Go back from the newest window until several in a row lie off on one side.
    kept: list[int] = []
    off: list[float] = []
    for k in range(len(logs) - 1, -1, -1):
        difference = float(logs[k]) - level
        if abs(difference) <= distance:
            kept.append(k)
            off = []
            continue
        off = [*off, difference] if off and off[-1] * difference > 0 else [difference]
        if len(off) >= MAX_OTHER_LEVEL:
            break
    # 3. A single window that contradicted what was believed proves nothing.
    if len(kept) == 1 and passes.contradicting[of_campaign[kept[0]]]:
        return []
    return [math.exp(logs[k]) for k in reversed(kept)]


def _slowdowns_by_row(
    windows: Iterable[LoggedWindow], changes: Mapping[tuple[str, SharingMode], DomainChange]
) -> dict[_RowKey, WindowSlowdowns]:
    """Return the slowdowns that windows with neighbours report, by the row of the table that they belong to."""
    by_row: dict[_RowKey, WindowSlowdowns] = {}
    for logged in windows:
        sequence, window, is_outlier, slowdown = logged
        if is_in_company(logged):
            key = _RowKey(window.workload, tuple(sorted(window.company)), window.device_type, window.mode)
            change = changes.get((window.device_type, window.mode))
            reported = by_row.setdefault(key, WindowSlowdowns())
            reported.log_slowdowns.append(math.log(slowdown))
            reported.contradicting.append(is_outlier)
            reported.campaigns.append(window.campaign or (change.campaign(sequence) if change else ""))
            reported.newest_s = max(reported.newest_s, window.end_s)
    return by_row


def logged_windows(store: Store, up_to: int | None = None) -> tuple[list[LoggedWindow], int]:
    """Return the windows of the log that count, oldest first, and the sequence number of its last entry."""
    rollbacks = store.observations.rollbacks(up_to=up_to)
    entries = list(store.observations.entries(up_to=up_to))
    kept = (each for each in entries if not any(undone.covers(each.sequence, each.observation) for undone in rollbacks))
    return counted_windows(kept), entries[-1].sequence if entries else 0


def counted_windows(entries: Iterable[LogEntry]) -> list[LoggedWindow]:
    """Return the windows of log entries that count. The entries and the windows are oldest first.

    Windows that were rolled back, and those of reporters who are muted when they come, do not count.
    """
    windows: list[tuple[int, Progress, bool]] = []
    muted: set[str] = set()
    for entry in entries:
        observation = entry.observation
        if entry.rolled_back:
            continue
        if isinstance(observation, ReporterWeight):
            (muted.discard if observation.weight > 0 else muted.add)(observation.reporter)
        elif isinstance(observation, Progress) and observation.reporter not in muted:
            windows.append((entry.sequence, observation, entry.result is ObservationResult.QUARANTINED))
    rates = solo_rates(window for _, window, _ in windows)
    return [
        LoggedWindow(*each, window_slowdown(each[1], rates.get((each[1].workload, each[1].device_type))))
        for each in windows
    ]


def is_in_company(logged: LoggedWindow) -> bool:
    """Return whether a window tells the slowdown of a job beside others."""
    return bool(logged.window.company) and MIN_SLOWDOWN <= logged.slowdown <= MAX_SLOWDOWN


def _profile(
    workload: str, device_type: str, known_profiles: dict[SoloKey, JobProfile], rates: Mapping[SoloKey, SoloRate]
) -> JobProfile | None:
    """Return the known profile, or else a profile with the step time alone; None where both are unknown."""
    profile = known_profiles.get((workload, device_type))
    rate = rates.get((workload, device_type))
    if profile is not None or rate is None:
        return profile
    return JobProfile(workload=workload, device_type=device_type, step_time_s=1 / rate.steps_per_s, source=SOURCE)


def _measurement(
    key: _RowKey, all_slowdowns: list[float], newest_s: float, campaign: str
) -> PairMeasurement | GroupMeasurement:
    """Return a row of the table: the geometric mean of the slowdowns with its 95 % interval, marked unstable where
    they disagree."""
    slowdowns = all_slowdowns[-MAX_PASSES:]
    logs = np.log(slowdowns)
    mean, n = float(logs.mean()), len(slowdowns)
    sd = float(logs.std(ddof=1)) if n > 1 else math.nan
    half_width = t_quantile_975(n - 1) * sd / math.sqrt(n) if n > 1 else math.nan
    unstable = sd > UNSTABLE_SD
    columns: dict[str, Any] = {
        "victim": key.victim,
        "device_type": key.device_type,
        "mode": key.mode,
        "slowdown": math.exp(mean),
        "lower": math.exp(mean - half_width),
        "upper": math.exp(mean + half_width),
        "passes": tuple(slowdowns),
        "status": PairStatus.UNSTABLE if unstable else PairStatus.OK,
        "reason": f"its windows disagree: standard deviation {sd:.2f} of log slowdown" if unstable else "",
        "source": SOURCE,
        "campaign": campaign,
        "measured_at_s": newest_s,
    }
    if len(key.company) == 1:
        return PairMeasurement(neighbour=key.company[0], **columns)
    return GroupMeasurement(company=key.company, **columns)
