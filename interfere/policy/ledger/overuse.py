"""Who uses more memory than was granted, for how long, and who is to end for it.

A window says the most that its job held at any time of it; it is over a grant with more than grant · (1 + tolerance).
The run of a job are its windows over the grant that end after the last one that was not. A job is past its grant when
the windows of its run cover `grant_patience_s`, and no single moment lies in all of them: a spike, however often it was
reported, ends nobody.

Law 1: what counts is the set of windows: their order, their number and when they came do not matter. Law 2: a larger
grant, more tolerance or more patience puts nobody past a grant. Law 3: only windows of the job itself count, on this
device, since it was granted. Law 4: at most one job of a device ends in a decision: of the lowest priority, then the
furthest past its grant. Law 5: who has not been watched for as long as the patience is past nothing any more.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.rules.text import format_bytes
from interfere.records import Device, Grant, Job, Limits, MemoryUsage

Usages = Callable[[Grant], Iterable[MemoryUsage]]
"""Windows of the job of a grant, those that end last first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overuse:
    """A job past its grant on a device."""

    job: Job
    device: Device
    granted_bytes: float
    used_bytes: float  # in its last window
    covered_s: float
    device_used_bytes: float = 0.0  # by all on it that hold a grant, each in its last window

    @property
    def past_bytes(self) -> float:
        """How far."""
        return self.used_bytes - self.granted_bytes

    def __str__(self) -> str:
        used, granted = format_bytes(self.used_bytes), format_bytes(self.granted_bytes)
        said = f"held {used} of {granted} granted for {self.covered_s:.4g} s"
        if self.device_used_bytes > self.device.memory_bytes:
            device_bytes = format_bytes(self.device.memory_bytes)
            said += f", and all on its device {format_bytes(self.device_used_bytes)} of {device_bytes}"
        return said


def in_order(windows: Iterable[MemoryUsage]) -> list[MemoryUsage]:
    """Those that end last first."""
    return sorted(windows, key=lambda window: -window.end_s)


def of_grant(window: MemoryUsage, grant: Grant, device_id: str, device_type: str) -> bool:
    """Is it about this grant on this device? A gang's windows have to name theirs."""
    here = window.device_id == device_id or (not window.device_id and len(grant.device_ids) == 1)
    same = (window.job_id, window.workload, window.device_type) == (grant.job_id, grant.workload, device_type)
    return here and same and window.end_s > grant.since_s


def overuse(
    job: Job, device: Device, grant: Grant, windows: Iterable[MemoryUsage], limits: Limits, now_s: float
) -> Overuse | None:
    """How far a job is past its grant there; None where it is not. `windows`: those that end last first."""
    most_bytes = grant.bytes * (1.0 + limits.memory.grant_tolerance)
    run: list[MemoryUsage] = []
    since_s = grant.since_s
    for window in windows:
        if not of_grant(window, grant, device.id, device.type):
            continue
        if window.bytes <= most_bytes:
            since_s = window.end_s
            break
        run.append(window)
    run = [window for window in run if window.end_s > since_s]
    if not run or max(window.start_s for window in run) < min(window.end_s for window in run):
        return None
    covered_s = _covered_s([(max(window.start_s, since_s), window.end_s) for window in run])
    if covered_s < limits.memory.grant_patience_s:
        return None
    last = max(run, key=lambda window: (window.end_s, window.start_s, window.bytes))
    if last.end_s < now_s - limits.memory.grant_patience_s:
        return None
    return Overuse(job=job, device=device, granted_bytes=grant.bytes, used_bytes=last.bytes, covered_s=covered_s)


def _covered_s(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds that lie in any of them."""
    covered_s, upto_s = 0.0, -math.inf
    for start_s, end_s in sorted(spans):
        covered_s += max(0.0, end_s - max(start_s, upto_s))
        upto_s = max(upto_s, end_s)
    return covered_s


def past_grants(
    devices: Sequence[Device], grants: Mapping[str, Grant], usages: Usages, limits: Limits, now_s: float
) -> tuple[Overuse, ...]:
    """Every resident past its grant, on every device where it is."""
    found: list[Overuse] = []
    for device in devices:
        here = [(job, grants[job.id]) for job in device.residents if job.id in grants]
        past = [one for job, grant in here if (one := overuse(job, device, grant, usages(grant), limits, now_s))]
        used_bytes = sum(_last_bytes(grant, device, usages) for _, grant in here) if past else 0.0
        found += [replace(one, device_used_bytes=used_bytes) for one in past]
    return tuple(found)


def _last_bytes(grant: Grant, device: Device, usages: Usages) -> float:
    mine = (window.bytes for window in usages(grant) if of_grant(window, grant, device.id, device.type))
    return next(mine, 0.0)


def to_end(past: Sequence[Overuse]) -> dict[str, Overuse]:
    """Who ends, by job: at most one on each device."""
    places: dict[str, set[str]] = {}
    worst: dict[str, Overuse] = {}
    for one in past:
        places.setdefault(one.job.id, set()).add(one.device.id)
        if one.job.id not in worst or one.past_bytes > worst[one.job.id].past_bytes:
            worst[one.job.id] = one
    taken: set[str] = set()
    ends = {}
    for one in sorted(worst.values(), key=lambda one: (one.job.priority, -one.past_bytes, one.job.id)):
        if not places[one.job.id] & taken:
            taken |= places[one.job.id]
            ends[one.job.id] = one
    return ends
