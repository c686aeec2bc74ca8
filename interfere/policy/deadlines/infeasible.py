"""Infeasible deadlines: those a job misses even alone on its best device of the scope, were every device free.

They count no more. The end of a job is taken at the quantile `risk` of its remaining time, so that no deadline is given
up for an uncertain estimate. A job with an infeasible deadline is declined where that is allowed; else it is planned as
if it had no deadline, demoted where that is allowed, and its reason says so. A resident's deadline is judged on the
device where it runs.
Law: jobs without a deadline are not changed; a partial snapshot makes no deadline infeasible for what it leaves out.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClassMembers
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.runtime import TICK_S, remaining_quantile_s
from interfere.policy.rules.text import render
from interfere.records import NAN, Action, ActionKind, Job, Rule, RuleKind, Snapshot
from interfere.records.cluster import spans


@dataclass(frozen=True, slots=True, kw_only=True)
class InfeasibleDeadlines:
    """The snapshot without its infeasible deadlines, and the rule for each pending job that lost its own."""

    snapshot: Snapshot
    rules: Mapping[str, Rule]  # by job id

    def declined_jobs(self, promised_jobs: Collection[str]) -> tuple[str, ...]:
        """Pending jobs that are declined: every one with an infeasible deadline, unless its start is promised."""
        if ActionKind.DECLINE not in self.snapshot.limits.allowed:
            return ()
        return tuple(job_id for job_id in self.rules if job_id not in promised_jobs)

    def annotate(self, actions: Sequence[Action], promised_jobs: Collection[str]) -> tuple[Action, ...]:
        """Return the actions, with jobs declined or demoted and reasons that name the infeasible deadline."""
        declined = self.declined_jobs(promised_jobs)
        return tuple(
            self._annotate(action, is_declined=action.job_id in declined) if action.job_id in self.rules else action
            for action in actions
        )

    def _annotate(self, action: Action, *, is_declined: bool) -> Action:
        rule = self.rules[action.job_id]
        reason = render(rule)
        if is_declined:
            return Action(kind=ActionKind.DECLINE, job_id=action.job_id, reason=reason, rule=rule)
        if action.kind is not ActionKind.WAIT:
            return replace(action, reason=f"{action.reason}; {reason}")
        if ActionKind.DEMOTE in self.snapshot.limits.allowed:
            return replace(action, kind=ActionKind.DEMOTE, reason=f"{reason}; {action.reason}", rule=rule)
        return replace(action, reason=f"{reason}; {action.reason}")


def find_infeasible_deadlines(context: PlanningContext) -> InfeasibleDeadlines:
    """Return the infeasible deadlines of a valid snapshot, those of residents included."""
    snapshot = context.snapshot
    rules = {
        job.id: rule
        for job in snapshot.pending
        if not math.isnan(job.deadline_s) and (rule := _infeasible_rule(job, context)) is not None
    }
    late_residents = {
        job.id
        for device in snapshot.devices
        for job in device.residents
        if not math.isnan(job.deadline_s) and _optimistic_s(job, device.type, context) > _slack_s(job, context)
    }
    if not rules and not late_residents:
        return InfeasibleDeadlines(snapshot=snapshot, rules={})
    pending = tuple(replace(job, deadline_s=NAN) if job.id in rules else job for job in snapshot.pending)
    devices = tuple(
        replace(
            device,
            residents=tuple(
                replace(job, deadline_s=NAN) if job.id in late_residents else job for job in device.residents
            ),
        )
        for device in snapshot.devices
    )
    return InfeasibleDeadlines(snapshot=replace(snapshot, pending=pending, devices=devices), rules=rules)


def _infeasible_rule(job: Job, context: PlanningContext) -> Rule | None:
    """Return why the deadline of a pending job is infeasible; None where it is not."""
    rule = Rule(kind=RuleKind.INFEASIBLE_DEADLINE, job_id=job.id, time_left_s=job.deadline_s - context.now_s)
    if context.snapshot.partial:  # a device that is left out may be of the fastest type
        earliest_s, place = remaining_quantile_s(job, context.limits.slowdown.risk), ("", "")
    else:
        ends = [
            (end_s, (members.device_class.pool, members.device_class.type))
            for members in context.device_classes
            if len(members.device_ids) >= job.gpus and (end_s := _earliest_end_s(job, members, context)) < math.inf
        ]
        if not ends:
            return rule
        earliest_s, place = min(ends)
    if earliest_s <= _slack_s(job, context):
        return None
    return replace(rule, runtime_s=earliest_s, pool=place[0], device_type=place[1])


def _slack_s(job: Job, context: PlanningContext) -> float:
    """Seconds to the deadline, and a rounding error."""
    return job.deadline_s - context.now_s + TICK_S


def _earliest_end_s(job: Job, members: DeviceClassMembers, context: PlanningContext) -> float:
    """Seconds from now to the end of a job alone on such a device, started once it opens; inf where it never ends."""
    device_class = members.device_class
    if job.pools and device_class.pool not in job.pools:
        return math.inf
    if solo_memory_rule(job.id, context.demand(job, device_class), device_class.memory) is not None:
        return math.inf
    needed_s = _optimistic_s(job, device_class.type, context)
    can_be_checkpointed = job.preemptible and not math.isnan(job.checkpoint_s)
    for from_s, until_s in spans(members.windows):
        start_s = max(context.now_s, from_s)
        if start_s + needed_s <= until_s + TICK_S:
            return start_s + needed_s - context.now_s
        needed_s -= max(0.0, until_s - start_s) if can_be_checkpointed else 0.0
    return math.inf


def _optimistic_s(job: Job, device_type: str, context: PlanningContext) -> float:
    """Remaining seconds alone on a device type, at the quantile `risk`."""
    tau = float(context.relative_times_on(device_type, [job])[0])
    return remaining_quantile_s(job, context.limits.slowdown.risk) * tau
