"""From a schedule to the answer: the starts of this moment as actions, and what is planned for the jobs that wait.

Of exchangeable devices a gang gets those that span the fewest nodes, and a single job those of the node that has the
fewest free ones left, so that whole nodes stay free.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from interfere.policy.answer.starts import group_costs, pairings, start_alone, start_beside
from interfere.policy.context import PlanningContext
from interfere.policy.rules.text import render
from interfere.policy.schedule.from_context import SchedulingInstance
from interfere.policy.schedule.problem import Schedule
from interfere.policy.slowdowns import Domain, predicted_pairs
from interfere.policy.solve.gangs import device_sets
from interfere.records import Action, ActionKind, Device, Job, Plan, Rule, RuleKind, SolveStatus
from interfere.records.plans import LevelKind, PlanLevel


def serve_schedule(
    moment: Plan, schedule: Schedule, instance: SchedulingInstance, context: PlanningContext, *, overdue: str = ""
) -> Plan:
    """Return the plan that makes the schedule's starts of this moment; all other jobs wait.

    `moment` is the optimal matching of this moment: its refusals and its reasons to wait are kept, and its bound. The
    plan is OPTIMAL only where its starts have the value of the moment's optimum. `overdue`: the job for which devices
    are kept free; empty where the schedule is about the ends of all jobs.
    """
    starts = {action.job_id: action for action in start_actions(schedule, instance, moment, context)}
    number_of = {job.id: k for k, job in enumerate(instance.pending)}
    now_s = 0.0 if math.isnan(context.now_s) else context.now_s
    actions = []
    for action in moment.actions:
        k = number_of[action.job_id]
        chosen = starts.get(action.job_id) or _waiting(action, k, schedule, instance, context, overdue)
        if not instance.is_estimated and not overdue and math.isfinite(schedule.start_s[k]):
            chosen = replace(
                chosen,
                planned_start_s=now_s + float(schedule.start_s[k]),
                planned_end_s=now_s + float(schedule.end_s[k]),
            )
        actions.append(chosen)
    if _same_starts(actions, moment.actions):
        return replace(moment, actions=tuple(map(_with_planned_times, moment.actions, actions)))
    return _valued(moment, actions, context)


def _with_planned_times(action: Action, planned: Action) -> Action:
    """Return the action with the planned times of another one about the same job."""
    return replace(action, planned_start_s=planned.planned_start_s, planned_end_s=planned.planned_end_s)


def _same_starts(actions: Sequence[Action], others: Sequence[Action]) -> bool:
    """Return whether two plans start the same jobs on the same devices."""
    return [(action.job_id, action.places) for action in actions] == [
        (action.job_id, action.places) for action in others
    ]


def start_actions(
    schedule: Schedule, instance: SchedulingInstance, moment: Plan, context: PlanningContext
) -> list[Action]:
    """The starts of this moment on devices: those kept from the moment's matching, then the largest jobs first."""
    jobs, problem = instance.jobs, instance.problem
    is_now = np.flatnonzero(schedule.start_s <= 0).tolist()
    joined = {int(schedule.host[k]) for k in is_now if k not in schedule.kept_starts}
    kept_ids = {jobs[k].id: k for k in schedule.kept_starts}
    kept = [action for action in moment.actions if action.job_id in kept_ids]
    taken = {device_id for action in kept for device_id in action.places}
    # A kept start that another job joins is made anew on the same devices.
    devices_of = {
        k: tuple(context.devices[name] for name in action.places)
        for action in kept
        if (k := kept_ids[action.job_id]) in joined
    }
    starting = [k for k in is_now if k not in schedule.kept_starts or k in joined]
    starting.sort(key=lambda k: (-int(problem.gpus[k]), k))
    partner_of: dict[int, int] = {}
    empty = [
        [
            context.devices[device_id]
            for device_id in members.device_ids
            if device_id not in taken and not context.devices[device_id].residents
        ]
        for members in instance.classes
    ]
    for k in starting:
        host = int(schedule.host[k])
        if host >= 0:
            partner_of[k] = host
            if host < problem.pending:
                partner_of[host] = k
            continue
        if k in devices_of:
            continue
        free = empty[int(schedule.device_class[k])]
        devices_of[k] = _take_devices(free, jobs[k].gpus)
    for k, host in partner_of.items():
        if k not in devices_of:
            devices_of[k] = devices_of[host] if host < problem.pending else context.resident_devices[jobs[host].id]
    pairs_on: dict[Domain, list[tuple[Job, Job]]] = {}
    for k, host in partner_of.items():
        device_class = context.device_class(devices_of[k][0])
        pairs = pairs_on.setdefault((device_class.type, device_class.mode), [])
        pairs += [(jobs[k], jobs[host]), (jobs[host], jobs[k])]
    slowdowns = predicted_pairs(pairs_on, context)
    starts = [action for action in kept if kept_ids[action.job_id] not in joined]
    for k in starting:
        if k not in partner_of:
            starts.append(start_alone(jobs[k], devices_of[k], context))
            continue
        job, partner = jobs[k], jobs[partner_of[k]]
        own, other = slowdowns[job.id, partner.id], slowdowns[partner.id, job.id]
        of_both = own.median, other.median
        starts.append(start_beside(job, devices_of[k], partner, of_both, context, interval=(own.lower, own.upper)))
    return starts


def _take_devices(free: list[Device], gpus: int) -> tuple[Device, ...]:
    """Take devices out of the free ones of a class."""
    if gpus > 1:
        (taken,) = device_sets(free, gpus, 1)
    else:
        on_node: dict[str, int] = {}
        for device in free:
            on_node[device.node] = on_node.get(device.node, 0) + 1
        taken = (min(free, key=lambda device: on_node[device.node]),)
    names = {device.id for device in taken}
    free[:] = [device for device in free if device.id not in names]
    return taken


def _waiting(
    action: Action,
    k: int,
    schedule: Schedule,
    instance: SchedulingInstance,
    context: PlanningContext,
    overdue: str,
) -> Action:
    """Return the action of a job that waits: the moment's own where it waits there too, else why the plan holds it."""
    if not action.places:
        return action
    if overdue:
        rule = Rule(kind=RuleKind.DEVICES_RESERVED, job_id=action.job_id, partner_id=overdue)
        return Action(kind=ActionKind.WAIT, job_id=action.job_id, reason=render(rule), rule=rule)
    start_s, place, host = float(schedule.start_s[k]), int(schedule.device_class[k]), int(schedule.host[k])
    types = [members.device_class.type for members in instance.classes]
    now_type = context.devices[action.places[0]].type
    end_if_started_now_s = float(instance.problem.work_s[k, types.index(now_type)]) * action.slowdown
    rule = Rule(
        kind=RuleKind.PLANNED_LATER,
        job_id=action.job_id,
        device_type=types[place] if place >= 0 else "",
        pool=now_type,
        partner_id=instance.jobs[host].id if host >= 0 else "",
        start_in_s=start_s if math.isfinite(start_s) else math.nan,
        saved_s=end_if_started_now_s - float(schedule.end_s[k]) if math.isfinite(start_s) else math.nan,
    )
    return Action(kind=ActionKind.WAIT, job_id=action.job_id, reason=render(rule), rule=rule)


def _valued(moment: Plan, actions: Sequence[Action], context: PlanningContext) -> Plan:
    """Return the moment's plan with other actions, valued at this moment: its bound still holds for what is started."""
    starts = [action for action in actions if action.places]
    costs = group_costs(starts)
    cost = math.fsum(costs.values())
    value = max(costs.values(), default=0.0) if context.objective.is_min_max else cost
    lower_bound = min(value, moment.lower_bound)
    waiting = {action.job_id for action in actions if not action.places}
    return replace(
        moment,
        actions=tuple(actions),
        pairs=pairings(starts),
        cost=cost,
        objective_value=value,
        lower_bound=lower_bound,
        gap=(value - lower_bound) / max(abs(value), 1e-12),
        status=SolveStatus.BOUNDED,
        levels=tuple(_level(level, waiting, costs, context) for level in moment.levels),
    )


def _level(
    level: PlanLevel, waiting: set[str], costs: Mapping[frozenset[str], float], context: PlanningContext
) -> PlanLevel:
    """Return one level of the moment, valued for other starts."""
    if level.kind is LevelKind.WAITING_WEIGHT:
        jobs = (context.pending[job_id] for job_id in waiting)
        value = math.fsum(job.weight for job in jobs if job.priority == level.priority)
    elif level.kind is LevelKind.MAX_COST:
        value = max(costs.values(), default=0.0)
    else:
        members = (
            cost
            for group, cost in costs.items()
            if level.priority is None or max(context.jobs[job_id].priority for job_id in group) == level.priority
        )
        value = math.fsum(members)
    return replace(level, value=value, lower_bound=min(level.lower_bound, value))
