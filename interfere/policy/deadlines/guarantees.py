"""Deadlines of a decision: those that are infeasible, those that are accepted, and the starts that would break one.

An infeasible deadline is missed even alone on the best device of the scope, with all devices free. Planning ignores it.
The end of a job is taken at the quantile `risk` of its remaining time, so that no deadline is given up because of an
uncertain estimate. A pending job with an infeasible deadline is declined if that is allowed; otherwise it is planned
without a deadline (demoted, if allowed), and its reason says so. The deadline of a resident is checked on the device on
which the resident runs. Law: jobs without a deadline are not changed; a device missing from a partial snapshot makes no
deadline infeasible.

A deadline is accepted if its job can be scheduled (`admission`) in free device time, together with every job accepted
earlier and every job of higher priority. The runtime is that of the job alone, at the quantile 1 - risk of the
remaining time. The ledger keeps the deadline until the job is over. `Limits.promise_deadlines` turns guarantees off;
tests/bench/test_deadlines.py measures their cost. Law 1: no job of equal or lower priority starts on a device that an
accepted deadline needs. Law 2: an accepted deadline ends exactly once, as met, broken, unknown or withdrawn; a job that
moves its deadline to an earlier time withdraws the accepted one.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.context import PlanningContext
from interfere.policy.deadlines.admission import CapacityProfile, DeadlineDemand, reserve_earliest, schedule_all
from interfere.policy.device_class import DeviceClassMembers
from interfere.policy.rules.jobs_on_class import seconds_alone
from interfere.policy.rules.runtime import TICK_S, remaining_quantile_s, start_weights
from interfere.policy.rules.text import render
from interfere.policy.slowdowns import SlowdownOfJob
from interfere.records import NAN, AcceptedDeadline, Action, ActionKind, Job, Plan, Rule, RuleKind, Snapshot
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


MAX_RESCHEDULED_JOBS = 100  # most jobs rescheduled to fit another job, 10 ms; beyond, only free capacity is used


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineReview:
    """The state of each accepted deadline of a scope; withdrawn deadlines are left out."""

    standing: tuple[AcceptedDeadline, ...]
    met: tuple[AcceptedDeadline, ...]  # the job ended before the deadline
    broken: tuple[AcceptedDeadline, ...]  # the job is pending or running, and the deadline is infeasible now
    unknown: tuple[AcceptedDeadline, ...] = ()  # the job was last seen before the deadline


def review_deadlines(accepted_deadlines: Sequence[AcceptedDeadline], context: PlanningContext) -> DeadlineReview:
    """Return the state of accepted deadlines; `context`: without the infeasible ones (`find_infeasible_deadlines`)."""
    standing, met, broken = list[AcceptedDeadline](), list[AcceptedDeadline](), list[AcceptedDeadline]()
    unknown: list[AcceptedDeadline] = []
    for accepted in accepted_deadlines:
        job = context.jobs.get(accepted.job_id)
        if job is None:
            in_time = context.now_s <= accepted.deadline_s + TICK_S
            may_be_unseen = context.snapshot.partial
            (unknown if not in_time else standing if may_be_unseen else met).append(accepted)
        elif math.isnan(job.deadline_s):  # deadline infeasible, or removed by the caller
            broken.append(accepted)
        elif job.deadline_s >= accepted.deadline_s - TICK_S:
            standing.append(accepted)
    return DeadlineReview(standing=tuple(standing), met=tuple(met), broken=tuple(broken), unknown=tuple(unknown))


def starts_breaking_deadlines(
    plan: Plan, context: PlanningContext, accepted_jobs: Collection[str], promised_starts: Sequence[Action]
) -> dict[str, Rule]:
    """Return the rule that holds back each start of the plan that would break an accepted deadline, by job id.

    `accepted_jobs` have an accepted deadline; `promised_starts` of earlier decisions are made in any case.
    """
    promised_jobs = {action.job_id for action in promised_starts}
    waiting = [job for job in context.snapshot.pending if job.id in accepted_jobs and job.id not in promised_jobs]
    if not waiting:
        return {}
    demands = _DeadlineDemands(context)
    # 1. Reserve capacity for starts that are made in any case: promised starts, and starts beside a resident.
    starts = [action for action in plan.actions if action.places]
    certain_starts = [*promised_starts, *(start for start in starts if context.devices[start.places[0]].residents)]
    decided_jobs = promised_jobs | {start.job_id for start in certain_starts}
    capacity = _FreeCapacity.of(demands, {}).after(certain_starts)
    # 2. Keep the accepted jobs that can still be scheduled: no start can break a deadline that is already lost.
    waiting = _schedulable([job for job in waiting if job.id not in decided_jobs], capacity.profiles, demands)
    # 3. Allow each start that keeps every waiting job of equal or higher priority schedulable.
    pending = context.pending
    weights = start_weights(context.snapshot.pending, context.now_s, context.limits.timing.ageing_s).tolist()
    weight_of = dict(zip(pending, weights, strict=True))
    rules: dict[str, Rule] = {}
    for start in sorted(starts, key=lambda start: (start.job_id not in accepted_jobs, -weight_of[start.job_id])):
        if start.job_id in decided_jobs:
            continue
        capacity_after = capacity.after([start])
        still_waiting = [job for job in waiting if job.id != start.job_id]
        protected = [job for job in still_waiting if job.priority >= pending[start.job_id].priority]
        on_time = {job.id for job in _schedulable(protected, capacity_after.profiles, demands)}
        late_jobs = [job.id for job in protected if job.id not in on_time]
        if late_jobs:
            kind = RuleKind.ACCEPTED_DEADLINE
            rules[start.job_id] = Rule(kind=kind, job_id=start.job_id, partner_id=late_jobs[0])
        else:
            capacity, waiting = capacity_after, still_waiting
    return rules


def accept_deadlines(
    context: PlanningContext,
    actions: Sequence[Action],
    standing: Sequence[AcceptedDeadline],
    slowdown_of: SlowdownOfJob,
) -> tuple[AcceptedDeadline, ...]:
    """Return the deadlines of pending jobs that this decision accepts, in addition to the standing ones.

    The deadline of a starting job is accepted if the job ends in time; that of a waiting job, if it can be scheduled
    together with all standing ones.
    """
    with_deadline = [job for job in context.snapshot.pending if not math.isnan(job.deadline_s)]
    accepted_jobs = {accepted.job_id for accepted in standing}
    applicants = [job for job in with_deadline if job.id not in accepted_jobs]
    if not applicants or not context.limits.promise_deadlines:
        return ()
    starts = {action.job_id: action for action in actions if action.places}
    demands = _DeadlineDemands(context)
    capacity = _FreeCapacity.of(demands, slowdown_of).after(list(starts.values()))
    waiting = [job for job in with_deadline if job.id not in starts]
    waiting.sort(key=lambda job: (-job.priority, job.id not in accepted_jobs))
    on_time = {job.id for job in _schedulable(waiting, capacity.profiles, demands)}
    on_time |= {job_id for job_id, start in starts.items() if demands.ends_in_time(start)}
    return tuple(
        AcceptedDeadline(job_id=job.id, deadline_s=job.deadline_s, decision_ids=(context.decision_id,))
        for job in applicants
        if job.id in on_time
    )


def mark_accepted(actions: Sequence[Action], accepted_deadlines: Sequence[AcceptedDeadline]) -> tuple[Action, ...]:
    """Return the actions with `accepted` set for jobs with an accepted deadline."""
    accepted_jobs = {accepted.job_id for accepted in accepted_deadlines}
    return tuple(replace(action, accepted=True) if action.job_id in accepted_jobs else action for action in actions)


def _schedulable(jobs: Sequence[Job], profiles: Sequence[CapacityProfile], demands: "_DeadlineDemands") -> list[Job]:
    """Return a subset of the jobs that can all be scheduled; a job that does not fit with earlier ones is left out."""
    capacity, scheduled = [profile.copy() for profile in profiles], list[Job]()
    for job in jobs:
        if reserve_earliest(demands.of(job), capacity):
            scheduled.append(job)
        elif len(scheduled) < MAX_RESCHEDULED_JOBS:
            schedule = schedule_all([*map(demands.of, scheduled), demands.of(job)], profiles)
            if schedule is not None:
                capacity = [profile.copy() for profile in profiles]
                for slot in schedule:
                    capacity[slot.profile].reserve(slot.from_s, slot.until_s, slot.gpus)
                scheduled.append(job)
    return scheduled


class _DeadlineDemands:
    """The device time that pending jobs need of each capacity profile, at the quantile 1 - risk of the remaining time.

    There is one profile for each set of devices that stay interchangeable.
    """

    def __init__(self, context: PlanningContext) -> None:
        self.context = context
        self.classes: tuple[DeviceClassMembers, ...] = context.device_classes
        self.profile_of = {device_id: k for k, members in enumerate(self.classes) for device_id in members.device_ids}
        self._demand_of: dict[str, DeadlineDemand] = {}

    def of(self, job: Job) -> DeadlineDemand:
        """Return the device time that a waiting job needs."""
        if job.id not in self._demand_of:
            level = 1 - self.context.limits.slowdown.risk
            self._demand_of[job.id] = DeadlineDemand(
                job_id=job.id,
                gpus=job.gpus,
                deadline_s=job.deadline_s + TICK_S,
                runtime_s=tuple(
                    seconds_alone(job, members.device_class, level, self.context) for members in self.classes
                ),
                checkpoint_s=job.checkpoint_s if job.preemptible else NAN,
            )
        return self._demand_of[job.id]

    def end_s(self, job: Job, device_type: str, slowdown: float) -> float:
        """Return the end of a job that starts now on a device type; inf where its remaining time is unknown."""
        tau = float(self.context.relative_times_on(device_type, [job])[0])
        runtime_s = remaining_quantile_s(job, 1 - self.context.limits.slowdown.risk) * tau * max(1.0, slowdown)
        return math.inf if math.isnan(runtime_s) else self.context.now_s + runtime_s

    def ends_in_time(self, start: Action) -> bool:
        """Return whether a pending job that starts meets its deadline at the upper bound of its slowdown interval."""
        slowdown = start.slowdown_upper if start.slowdown_upper > 0 else 1.0
        job, profile = self.context.pending.get(start.job_id), self.profile_of.get(start.places[0])
        if job is None or profile is None:
            return False
        return self.end_s(job, self.classes[profile].device_class.type, slowdown) <= job.deadline_s + TICK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _FreeCapacity:
    """The capacity left by residents and starts, and the end of occupation of each device."""

    demands: _DeadlineDemands
    profiles: list[CapacityProfile]  # one profile for each class of `demands`
    occupied_until_s: dict[str, float]  # by device id

    @classmethod
    def of(cls, demands: _DeadlineDemands, slowdown_of: SlowdownOfJob) -> "_FreeCapacity":
        """Return the capacity left by residents; a resident without a predicted slowdown counts as running alone."""
        now_s = demands.context.now_s
        profiles = [
            CapacityProfile(now_s, spans(members.windows), len(members.device_ids)) for members in demands.classes
        ]
        occupied_until_s: dict[str, float] = {}
        for device in demands.context.snapshot.devices:
            ends_s = [demands.end_s(job, device.type, slowdown_of.get(job.id, 1.0)) for job in device.residents]
            occupied_until_s[device.id] = max([now_s, *ends_s])
        free = cls(demands=demands, profiles=profiles, occupied_until_s=occupied_until_s)
        for device_id, until_s in occupied_until_s.items():
            free._occupy(device_id, now_s, until_s)
        return free

    def after(self, starts: Sequence[Action]) -> "_FreeCapacity":
        """Return the capacity left after further starts; this record does not change."""
        demands = self.demands
        free = _FreeCapacity(
            demands=demands,
            profiles=[profile.copy() for profile in self.profiles],
            occupied_until_s=dict(self.occupied_until_s),
        )
        for start in starts:
            job = demands.context.pending.get(start.job_id)
            for device_id in start.places:
                if device_id not in demands.profile_of:
                    continue
                device_type = demands.classes[demands.profile_of[device_id]].device_class.type
                end_s = demands.end_s(job, device_type, start.slowdown) if job else math.inf
                free._occupy(device_id, free.occupied_until_s[device_id], end_s)
                free.occupied_until_s[device_id] = max(free.occupied_until_s[device_id], end_s)
        return free

    def _occupy(self, device_id: str, from_s: float, until_s: float) -> None:
        """Reserve one device in its profile for the part of an interval in which the device is open."""
        profile = self.demands.profile_of[device_id]
        for open_s, close_s in spans(self.demands.classes[profile].windows):
            if max(open_s, from_s) < min(close_s, until_s):
                self.profiles[profile].reserve(max(open_s, from_s), min(close_s, until_s), 1)
