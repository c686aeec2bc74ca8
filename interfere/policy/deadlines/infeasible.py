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
from interfere.policy.rules.memory import DeviceMemory, solo_memory_rule
from interfere.policy.rules.runtime import TICK_S, remaining_quantile_s
from interfere.policy.rules.text import render
from interfere.records import NAN, Action, ActionKind, Device, Job, Rule, RuleKind, Snapshot
from interfere.records.windows import spans

GIVEN_UP = (ActionKind.DECLINE, ActionKind.DEMOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A snapshot without the deadlines that nothing can meet, and why each pending job lost its own."""

    snapshot: Snapshot
    reasons: Mapping[str, Rule]

    def declined(self, kept: Collection[str]) -> tuple[str, ...]:
        """Jobs that are not to be planned at all; not those whose start is promised, `kept`."""
        allowed = ActionKind.DECLINE in self.snapshot.limits.allowed
        return tuple(name for name in self.reasons if name not in kept) if allowed else ()

    def told(self, actions: Sequence[Action], kept: Collection[str]) -> tuple[Action, ...]:
        """The actions with what became of the deadlines."""
        declined = self.declined(kept)
        return tuple(self._told(one, one.job_id in declined) if one.job_id in self.reasons else one for one in actions)

    def _told(self, action: Action, declined: bool) -> Action:
        rule = self.reasons[action.job_id]
        why = render(rule)
        if declined:
            return Action(kind=ActionKind.DECLINE, job_id=action.job_id, reason=why, rule=rule)
        if action.kind is not ActionKind.WAIT:
            return replace(action, reason=f"{action.reason}; {why}")
        reason = f"{why}; {action.reason}"
        if ActionKind.DEMOTE in self.snapshot.limits.allowed:
            return replace(action, kind=ActionKind.DEMOTE, reason=reason, rule=rule)
        return replace(action, reason=reason)


def settle(context: PlanningContext) -> Settled:
    """For a snapshot that does not contradict itself."""
    snapshot = context.snapshot
    reasons = {
        job.id: rule
        for job in snapshot.pending
        if not math.isnan(job.deadline_s) and (rule := _hopeless(job, context)) is not None
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


def _hopeless(job: Job, context: PlanningContext) -> Rule | None:
    """Why the deadline cannot be met; None while it may."""
    snapshot = context.snapshot
    left_s = _left_s(job, snapshot)
    rule = Rule(kind=RuleKind.INFEASIBLE_DEADLINE, job_id=job.id, time_left_s=job.deadline_s - snapshot.now_s)
    if snapshot.partial:  # a device that is left out may be of the fastest type
        best_s, place = remaining_quantile_s(job, snapshot.limits.slowdown.risk), ("", "")
    else:
        ends = [
            (end_s, (kind.pool, kind.type))
            for kind, device, names in kinds_of(snapshot)
            if len(names) >= job.gpus and (end_s := _end_s(job, kind, device, context)) < math.inf
        ]
        if not ends:
            return rule
        best_s, place = min(ends)
    return None if best_s <= left_s else replace(rule, runtime_s=best_s, pool=place[0], device_type=place[1])


def _left_s(job: Job, snapshot: Snapshot) -> float:
    """To its deadline, and a rounding error."""
    return job.deadline_s - snapshot.now_s + TICK_S


def kinds_of(snapshot: Snapshot) -> list[tuple[DeviceClass, Device, list[str]]]:
    """Devices that are alike, also in when they are open: class, one of them, the names of all."""
    found: dict[object, tuple[DeviceClass, Device, list[str]]] = {}
    for device in snapshot.devices:
        key = (device.type, device.mode, DeviceMemory.of(device), device.pool, device.windows)
        if key not in found:
            found[key] = (DeviceClass.of(device, snapshot.now_s), device, [])
        found[key][2].append(device.id)
    return list(found.values())


def _end_s(job: Job, kind: DeviceClass, device: Device, context: PlanningContext) -> float:
    """From now, alone on such a device as soon as it is open; inf where it never ends there."""
    if (job.pools and kind.pool not in job.pools) or solo_memory_rule(job.id, context.demand(job, kind), kind.memory):
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
    return remaining_quantile_s(job, context.limits.slowdown.risk) * float(context.relative_times_on(kind, [job])[0])
