"""Deadlines that cannot be met even alone, on the best device of the scope, were all of them free: they count no more.

The end is that at the quantile `risk` of what remains, so that no deadline is given up for noise. Such a job is
declined where that is allowed, else demoted where that is; where it is not declined it is planned as if it had no
deadline, and is told why. A resident's deadline is given up on the device where it runs.
Law: whoever has no deadline is left as it is; nothing is given up of jobs and devices that a partial snapshot left out.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.memory import Room, too_large
from interfere.policy.rules.runtime import TICK_S, remaining_s, said
from interfere.records import NAN, Action, ActionKind, Device, Job, Snapshot
from interfere.records.windows import spans

GIVEN_UP = (ActionKind.DECLINE, ActionKind.DEMOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A snapshot without the deadlines that nothing can meet, and why each pending job lost its own."""

    snapshot: Snapshot
    reasons: Mapping[str, str]

    def declined(self, kept: Collection[str]) -> tuple[str, ...]:
        """Jobs that are not to be planned at all; not those whose start is promised, `kept`."""
        allowed = ActionKind.DECLINE in self.snapshot.limits.allowed
        return tuple(name for name in self.reasons if name not in kept) if allowed else ()

    def told(self, actions: Sequence[Action], kept: Collection[str]) -> tuple[Action, ...]:
        """The actions with what became of the deadlines."""
        declined = self.declined(kept)
        return tuple(self._told(one, one.job_id in declined) if one.job_id in self.reasons else one for one in actions)

    def _told(self, action: Action, declined: bool) -> Action:
        why = self.reasons[action.job_id]
        if declined:
            return Action(kind=ActionKind.DECLINE, job_id=action.job_id, reason=why)
        if action.kind is not ActionKind.WAIT:
            return replace(action, reason=f"{action.reason}; {why}")
        demote = ActionKind.DEMOTE in self.snapshot.limits.allowed
        return replace(action, kind=ActionKind.DEMOTE if demote else action.kind, reason=f"{why}; {action.reason}")


def settle(context: PlanningContext) -> Settled:
    """For a snapshot that does not contradict itself."""
    snapshot = context.snapshot
    reasons = {
        job.id: why for job in snapshot.pending if not math.isnan(job.deadline_s) and (why := _hopeless(job, context))
    }
    late = {
        job.id
        for device in snapshot.devices
        for job in device.residents
        if not math.isnan(job.deadline_s) and _least_s(job, device.type, context) > _left_s(job, snapshot)
    }
    if not reasons and not late:
        return Settled(snapshot=snapshot, reasons={})
    pending = tuple(replace(job, deadline_s=NAN) if job.id in reasons else job for job in snapshot.pending)
    devices = tuple(
        replace(d, residents=tuple(replace(r, deadline_s=NAN) if r.id in late else r for r in d.residents))
        for d in snapshot.devices
    )
    return Settled(snapshot=replace(snapshot, pending=pending, devices=devices), reasons=reasons)


def _hopeless(job: Job, context: PlanningContext) -> str:
    """Why the deadline cannot be met; empty while it may."""
    snapshot = context.snapshot
    left_s = _left_s(job, snapshot)
    gone = f"deadline: {said(snapshot.now_s - job.deadline_s)} ago" if job.deadline_s < snapshot.now_s else ""
    if snapshot.partial:  # a device that is left out may be of the fastest type
        best_s, where = remaining_s(job, snapshot.limits.slowdown.risk), "the fastest type"
    else:
        ends = [
            (end_s, kind.name)
            for kind, device, names in kinds_of(snapshot)
            if len(names) >= job.gpus and (end_s := _end_s(job, kind, device, context)) < math.inf
        ]
        if not ends:
            return gone or f"deadline: no device can run it before, {said(job.deadline_s - snapshot.now_s)} are left"
        best_s, where = min(ends)
    if best_s <= left_s:
        return ""
    return gone or (
        f"deadline: {said(job.deadline_s - snapshot.now_s)} are left, alone it ends in {said(best_s)} at the earliest, "
        f"on {where}"
    )


def _left_s(job: Job, snapshot: Snapshot) -> float:
    """To its deadline, and a rounding error."""
    return job.deadline_s - snapshot.now_s + TICK_S


def kinds_of(snapshot: Snapshot) -> list[tuple[DeviceClass, Device, list[str]]]:
    """Devices that are alike, also in when they are open: class, one of them, the names of all."""
    found: dict[object, tuple[DeviceClass, Device, list[str]]] = {}
    for device in snapshot.devices:
        key = (device.type, device.mode, Room.of(device), device.pool, device.windows)
        if key not in found:
            found[key] = (DeviceClass.of(device, snapshot.now_s), device, [])
        found[key][2].append(device.id)
    return list(found.values())


def _end_s(job: Job, kind: DeviceClass, device: Device, context: PlanningContext) -> float:
    """From now, alone on such a device as soon as it is open; inf where it never ends there."""
    if (job.pools and kind.pool not in job.pools) or too_large(context.demand(job, kind), kind.room):
        return math.inf
    snapshot = context.snapshot
    least_s = _least_s(job, device.type, context)
    pieces = job.preemptible and not math.isnan(job.checkpoint_s)
    for from_s, until_s in spans(device.windows):
        start_s = max(snapshot.now_s, from_s)
        if start_s + least_s <= until_s + TICK_S:
            return start_s + least_s - snapshot.now_s
        least_s -= max(0.0, until_s - start_s) if pieces else 0.0
    return math.inf


def _least_s(job: Job, kind: str, context: PlanningContext) -> float:
    return remaining_s(job, context.limits.slowdown.risk) * float(context.relative_times_on(kind, [job])[0])
