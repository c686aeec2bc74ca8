"""Grant overuse: jobs that hold more memory than granted, for how long, and which of them are to end.

The limit of a grant is grant · (1 + tolerance). A usage window shows overuse throughout if its least memory exceeds the
limit; without a least memory, only if the window is at most `MAX_MOMENT_S` long and its peak exceeds the limit, because
a peak is one moment. A window that was within the limit at any moment is a dip. The run of a job is its windows of
overuse that end after its last dip. A job certainly overuses its grant if the windows of its run cover
`grant_patience_s`. Only a certain overuse ends a job, so the length of a reporter's windows alone ends no job.

A job possibly overuses its grant, and gets a warning, if windows with a peak above the limit cover `grant_patience_s`
since the last window with a peak within the limit, and no single moment lies in all of these windows. Law 1: only the
set of windows matters, not their order, number or time of arrival. Law 2: a larger grant, tolerance or patience never
adds an overuse. Law 3: only windows of the job itself on this device since the grant count. Law 4: at most one job of a
device ends in a decision: the one of lowest priority, then of largest excess. Law 5: a job whose last window is older
than the patience overuses nothing.

A resident that does not leave its device is kept, with its memory grant and a warning of its overuse. Law 6: every
resident gets exactly one of keep, move, preempt and end.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.context import PlanningContext
from interfere.policy.ledger.grants import running_grants
from interfere.policy.rules.text import render
from interfere.policy.slowdowns import DEPARTURES, SlowdownOfJob
from interfere.records import (
    NAN,
    Action,
    ActionKind,
    Device,
    Grant,
    Job,
    Limits,
    MemoryUsage,
    Rule,
    RuleKind,
    ScopeLedger,
)

MAX_MOMENT_S = 10.0  # longest window whose peak alone shows overuse: spikes of jobs come every 30 s and more

UsageLookup = Callable[[Grant], Iterable[MemoryUsage]]
"""Returns the usage windows of a grant's job, in descending order of their end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantOveruse:
    """The memory that a job holds on a device beyond its grant."""

    job: Job
    device: Device
    granted_bytes: float
    used_bytes: float  # in the job's last window
    covered_s: float  # seconds covered by the windows of the job's run
    is_certain: bool = True  # False: only peaks exceed the limit, possibly spikes; the job does not end
    device_used_bytes: float = 0.0  # by all jobs with a grant on the device, in their last windows

    @property
    def excess_bytes(self) -> float:
        """Return the memory in use beyond the grant, in bytes."""
        return self.used_bytes - self.granted_bytes

    @property
    def rule(self) -> Rule:
        """Return the rule by which the job ends or gets a warning."""
        is_device_full = self.device_used_bytes > self.device.memory_bytes
        return Rule(
            kind=RuleKind.GRANT_EXCEEDED,
            job_id=self.job.id,
            used_bytes=self.used_bytes,
            granted_bytes=self.granted_bytes,
            duration_s=self.covered_s,
            device_used_bytes=self.device_used_bytes if is_device_full else NAN,
            device_memory_bytes=self.device.memory_bytes if is_device_full else NAN,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OveruseReview:
    """The grants of residents that stay, all overuses of these grants, and the jobs that end for overuse."""

    grants: Mapping[str, Grant]  # by job id
    overuses: tuple[GrantOveruse, ...]
    ending: Mapping[str, GrantOveruse]  # the overuse for which a job ends, by job id

    @property
    def ending_devices(self) -> frozenset[str]:
        """Return the ids of devices with a job that ends for overuse; no job starts on these devices."""
        return frozenset(overuse.device.id for overuse in self.overuses if overuse.job.id in self.ending)

    def of_job(self, job_id: str) -> GrantOveruse | None:
        """Return the first overuse of a job; None where the job stays within its grant."""
        return next((overuse for overuse in self.overuses if overuse.job.id == job_id), None)


def review_overuse(
    context: PlanningContext, ledger: ScopeLedger, leaving_jobs: frozenset[str], usages: UsageLookup
) -> OveruseReview:
    """Return the overuses of residents that stay, and the jobs that end if `end` is allowed.

    `leaving_jobs`: ids of residents that do not stay.
    """
    grants = {job_id: grant for job_id, grant in running_grants(ledger).items() if job_id not in leaving_jobs}
    overuses = find_overuses(context.snapshot.devices, grants, usages, context.limits, context.now_s)
    ending = jobs_to_end(overuses) if ActionKind.END in context.limits.allowed else {}
    return OveruseReview(grants=grants, overuses=overuses, ending=ending)


def is_of_grant(window: MemoryUsage, grant: Grant, device_id: str, device_type: str) -> bool:
    """Return whether a window measures the job of a grant on a device since the grant began.

    Windows of a gang have to name their device.
    """
    is_on_device = window.device_id == device_id or (not window.device_id and len(grant.device_ids) == 1)
    is_of_job = (window.job_id, window.workload, window.device_type) == (grant.job_id, grant.workload, device_type)
    return is_on_device and is_of_job and window.end_s > grant.since_s


def find_overuse(
    job: Job, device: Device, grant: Grant, windows: Iterable[MemoryUsage], limits: Limits, now_s: float
) -> GrantOveruse | None:
    """Return the overuse of a job's grant on a device, or None. `windows`: in descending order of their end."""
    max_bytes = grant.bytes * (1.0 + limits.memory.grant_tolerance)
    patience_s = limits.memory.grant_patience_s
    # 1. The windows since the last window that was within the limit throughout; earlier ones do not count.
    over: list[MemoryUsage] = []
    since_s = grant.since_s
    for window in windows:
        if not is_of_grant(window, grant, device.id, device.type):
            continue
        if window.bytes <= max_bytes:
            since_s = window.end_s
            break
        over.append(window)
    # 2. Among these, the certain run since the last dip; otherwise the run of peaks.
    dips = [window.end_s for window in over if window.min_bytes <= max_bytes]
    certain_since_s = max([since_s, *dips])
    certain = [window for window in over if _is_throughout(window, max_bytes) and window.end_s > certain_since_s]
    peaks = [window for window in over if window.end_s > since_s]
    for run, run_since_s, is_certain in ((certain, certain_since_s, True), (peaks, since_s, False)):
        covered_s = _covered_s([(max(window.start_s, run_since_s), window.end_s) for window in run])
        if covered_s < patience_s or _is_one_moment(run, max_bytes):
            continue
        last = max(run, key=lambda window: (window.end_s, window.start_s, window.bytes))
        if last.end_s >= now_s - patience_s:
            return GrantOveruse(
                job=job,
                device=device,
                granted_bytes=grant.bytes,
                used_bytes=last.bytes,
                covered_s=covered_s,
                is_certain=is_certain,
            )
    return None


def _is_one_moment(run: Sequence[MemoryUsage], max_bytes: float) -> bool:
    """Return whether at most one moment of overuse could explain all windows of a run."""
    if any(window.min_bytes > max_bytes for window in run):
        return False
    return not run or max(window.start_s for window in run) < min(window.end_s for window in run)


def _is_throughout(window: MemoryUsage, max_bytes: float) -> bool:
    """Return whether more than `max_bytes` were in use at every moment of the window."""
    if math.isnan(window.min_bytes):
        return window.end_s - window.start_s <= MAX_MOMENT_S
    return window.min_bytes > max_bytes


def _covered_s(intervals: Sequence[tuple[float, float]]) -> float:
    """Return the length in seconds of the union of intervals (start, end)."""
    covered_s, covered_until_s = 0.0, -math.inf
    for start_s, end_s in sorted(intervals):
        covered_s += max(0.0, end_s - max(start_s, covered_until_s))
        covered_until_s = max(covered_until_s, end_s)
    return covered_s


def find_overuses(
    devices: Sequence[Device], grants: Mapping[str, Grant], usages: UsageLookup, limits: Limits, now_s: float
) -> tuple[GrantOveruse, ...]:
    """Return every overuse of a resident's grant, by device. `grants`: by job id."""
    overuses: list[GrantOveruse] = []
    for device in devices:
        granted = [(job, grants[job.id]) for job in device.residents if job.id in grants]
        on_device = [
            overuse
            for job, grant in granted
            if (overuse := find_overuse(job, device, grant, usages(grant), limits, now_s))
        ]
        used_bytes = sum(_last_used_bytes(grant, device, usages) for _, grant in granted) if on_device else 0.0
        overuses += [replace(overuse, device_used_bytes=used_bytes) for overuse in on_device]
    return tuple(overuses)


def _last_used_bytes(grant: Grant, device: Device, usages: UsageLookup) -> float:
    """Return the bytes in the last window of a grant's job on a device; 0 without a window."""
    windows = (window for window in usages(grant) if is_of_grant(window, grant, device.id, device.type))
    return next((window.bytes for window in windows), 0.0)


def jobs_to_end(overuses: Sequence[GrantOveruse]) -> dict[str, GrantOveruse]:
    """Return the jobs that end, by id, with their largest certain overuse; at most one job for each device."""
    devices_of: dict[str, set[str]] = {}
    largest: dict[str, GrantOveruse] = {}
    for overuse in overuses:
        if not overuse.is_certain:
            continue
        job_id = overuse.job.id
        devices_of.setdefault(job_id, set()).add(overuse.device.id)
        if job_id not in largest or overuse.excess_bytes > largest[job_id].excess_bytes:
            largest[job_id] = overuse
    ending: dict[str, GrantOveruse] = {}
    freed_devices: set[str] = set()
    for overuse in sorted(largest.values(), key=lambda o: (o.job.priority, -o.excess_bytes, o.job.id)):
        if not devices_of[overuse.job.id] & freed_devices:
            freed_devices |= devices_of[overuse.job.id]
            ending[overuse.job.id] = overuse
    return ending


def end_actions(overuse: OveruseReview) -> tuple[Action, ...]:
    """Return one `end` action, on all devices of the job, for each job that ends for overuse of its memory grant."""
    actions = []
    for job_id, largest in overuse.ending.items():
        device_ids = overuse.grants[job_id].device_ids
        other_devices = (device_id for device_id in device_ids if device_id != largest.device.id)
        actions.append(
            Action(
                kind=ActionKind.END,
                job_id=job_id,
                device_id=largest.device.id,
                reason=render(largest.rule),
                rule=largest.rule,
                device_ids=(largest.device.id, *other_devices) if largest.job.gpus > 1 else (),
                grant_bytes=largest.granted_bytes,
                slots=overuse.grants[job_id].slots,
            )
        )
    return tuple(actions)


def keep_actions(
    context: PlanningContext, changes: Sequence[Action], overuse: OveruseReview, slowdown_of: SlowdownOfJob
) -> tuple[Action, ...]:
    """Return one `keep` action, with the memory grant and a warning of its overuse, for every resident that stays.

    `changes`: all other actions of the decision.
    """
    if ActionKind.KEEP not in context.limits.allowed:
        return ()
    leaving = {action.job_id for action in changes if action.kind in DEPARTURES}
    newcomers_of: dict[str, list[str]] = {}
    for action in changes:
        for partner_id in action.partners:
            newcomers_of.setdefault(partner_id, []).append(action.job_id)
    kept = (
        _keep(context.residents[job_id], context, leaving, newcomers_of.get(job_id, []))
        for job_id in context.resident_devices
        if job_id not in leaving
    )
    return tuple(
        _with_grant_and_warning(replace(action, slowdown=slowdown_of.get(action.job_id, math.nan)), overuse)
        for action in kept
    )


def _keep(job: Job, context: PlanningContext, leaving: Collection[str], newcomers: Sequence[str]) -> Action:
    devices = context.resident_devices[job.id]
    rule = Rule(kind=RuleKind.RESIDENT_STAYS, job_id=job.id)
    partners = [other.id for other in devices[0].residents if other.id != job.id and other.id not in leaving]
    partners += newcomers
    return Action(
        kind=ActionKind.KEEP,
        job_id=job.id,
        device_id=devices[0].id,
        partner_id=partners[0] if len(partners) == 1 else "",
        device_ids=tuple(device.id for device in devices) if job.gpus > 1 else (),
        reason=render(rule),
        rule=rule,
    )


def _with_grant_and_warning(keep: Action, overuse: OveruseReview) -> Action:
    grant = overuse.grants.get(keep.job_id)
    if grant is None:
        return keep
    own_overuse = overuse.of_job(keep.job_id)
    warning = f"; warning: it {render(own_overuse.rule)}" if own_overuse else ""
    return replace(keep, grant_bytes=grant.bytes, slots=grant.slots, reason=keep.reason + warning)
