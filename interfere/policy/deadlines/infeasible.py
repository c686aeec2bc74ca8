"""Infeasible deadlines: deadlines that a job misses even alone on the best device of the scope, with all devices free.

Planning ignores an infeasible deadline. The end of a job is taken at the quantile `risk` of its remaining time, so that
no deadline is given up because of an uncertain estimate. A pending job with an infeasible deadline is declined if that
is allowed; otherwise it is planned without a deadline (demoted, if allowed), and its reason says so. The deadline of a
resident is checked on the device on which the resident runs.
Law: jobs without a deadline are not changed; a device missing from a partial snapshot makes no deadline infeasible.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClassMembers
from interfere.policy.rules.jobs_on_class import seconds_alone
from interfere.policy.rules.runtime import TICK_S, remaining_quantile_s
from interfere.policy.rules.text import render
from interfere.records import NAN, Action, ActionKind, Job, Rule, RuleKind, Snapshot
from interfere.records.cluster import spans


@dataclass(frozen=True, slots=True, kw_only=True)
class InfeasibleDeadlines:
    """The snapshot without infeasible deadlines, and the rule for each pending job with an infeasible deadline."""

    snapshot: Snapshot
    rules: Mapping[str, Rule]  # by job id

    def declined_jobs(self, promised_jobs: Collection[str]) -> tuple[str, ...]:
        """Return the ids of declined jobs: pending jobs with an infeasible deadline and without a promised start."""
        if ActionKind.DECLINE not in self.snapshot.limits.allowed:
            return ()
        return tuple(job_id for job_id in self.rules if job_id not in promised_jobs)

    def annotate(self, actions: Sequence[Action], promised_jobs: Collection[str]) -> tuple[Action, ...]:
        """Return the actions with jobs declined or demoted, and with reasons that name the infeasible deadline."""
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
    """Return the infeasible deadlines of pending and running jobs in a valid snapshot."""
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
    """Return the rule why the deadline of a pending job is infeasible; None where the deadline is feasible."""
    rule = Rule(kind=RuleKind.INFEASIBLE_DEADLINE, job_id=job.id, time_left_s=job.deadline_s - context.now_s)
    if context.snapshot.partial:  # a device missing from the snapshot may be of the fastest type
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
    """Return the seconds to the deadline, plus a tolerance for rounding errors."""
    return job.deadline_s - context.now_s + TICK_S


def _earliest_end_s(job: Job, members: DeviceClassMembers, context: PlanningContext) -> float:
    """Return seconds from now to the end of a job alone on a device of the class; inf where the job cannot finish
    there.
    """
    needed_s = seconds_alone(job, members.device_class, context.limits.slowdown.risk, context)
    can_be_checkpointed = job.preemptible and not math.isnan(job.checkpoint_s)
    for from_s, until_s in spans(members.windows):
        start_s = max(context.now_s, from_s)
        if start_s + needed_s <= until_s + TICK_S:
            return start_s + needed_s - context.now_s
        needed_s -= max(0.0, until_s - start_s) if can_be_checkpointed else 0.0
    return math.inf


def _optimistic_s(job: Job, device_type: str, context: PlanningContext) -> float:
    """Return the remaining seconds of a job alone on a device type, at the quantile `risk`."""
    tau = float(context.relative_times_on(device_type, [job])[0])
    return remaining_quantile_s(job, context.limits.slowdown.risk) * tau
