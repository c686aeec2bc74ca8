"""The plan over time of one decision: the search, the promises of ends, and the starts that are served.

A job is promised an end when it is first seen: that of a plan in order of submission, twice the time and ten minutes
more. Where jobs say how uncertain their times are, that plan takes as long as in one of ten cases. The bound is kept in
the ledger and never widened; plans that keep all bounds go before plans that do not.

Where the objective is not about ends, or nobody says how long jobs take, the optimal matching of this moment is served
as it is, with one exception: an overdue job gets the place where it ends first, and no start delays it.

Of exchangeable devices a gang gets those that span the fewest nodes, and a single job those of the node that has the
fewest free ones left, so that whole nodes stay free.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.answer.starts import group_costs, pairings, start_alone, start_beside
from interfere.policy.context import PlanningContext
from interfere.policy.rules.runtime import P90_Z
from interfere.policy.rules.text import render
from interfere.policy.schedule.from_context import SchedulingInstance, has_planned_objective, scheduling_instance
from interfere.policy.schedule.heuristics import (
    ALONE,
    GREEDY_JOINT_THROUGHPUT,
    JobOrder,
    jobs_in_order,
    place_cheapest,
    schedule_in_order,
)
from interfere.policy.schedule.problem import Deadlines, Schedule, ScheduleProblem
from interfere.policy.schedule.search import MAX_WORK_UNITS, search
from interfere.policy.schedule.timeline import GroupStart, Timeline
from interfere.policy.slowdowns import Domain, predicted_pairs
from interfere.policy.solve.decision_problem import device_sets
from interfere.records import (
    Action,
    ActionKind,
    Device,
    EndPromise,
    HeuristicValue,
    Job,
    LevelKind,
    Plan,
    PlanLevel,
    Rule,
    RuleKind,
    ScopeLedger,
    SolveStatus,
)

PROMISE_FACTOR = 2.0  # times the time to the end that a plan in order of submission gives
PROMISE_SLACK_S = 600.0
SHARE_OF_BUDGET = 0.6  # of the CPU time that is left, after which the search of schedules stops


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPlan:
    """A plan with the state that the next decision needs: promised ends, and the order in which jobs are to start."""

    plan: Plan
    end_promises: tuple[EndPromise, ...]
    planned_order: tuple[str, ...]


def plan_over_time(moment: Plan, context: PlanningContext, ledger: ScopeLedger) -> TimedPlan:
    """Return the plan that is served: starts of the best schedule found, or the optimal matching of this moment.

    The matching is served as it is where all pending jobs start. It is served except for the starts that an overdue job
    holds back where the objective is not about ends, or nobody says how long jobs take. `context`: of the jobs and
    devices that are planned. `ledger`: with the promises and the order of the last round.
    """
    known = {promise.job_id: promise for promise in ledger.end_promises if promise.job_id in context.jobs}
    as_it_is = TimedPlan(plan=moment, end_promises=tuple(known.values()), planned_order=())
    if not context.snapshot.pending or not context.snapshot.devices:
        return as_it_is
    searches = has_planned_objective(context)
    if not searches and (math.isnan(context.now_s) or all(action.places for action in moment.actions)):
        return as_it_is
    bounds_s = {name: promise.latest_end_s for name, promise in known.items()}
    instance = scheduling_instance(context, bounds_s, shares=True) if searches else None
    searches = instance is not None
    if instance is None:
        instance = scheduling_instance(context, bounds_s, shares=False)
    assert instance is not None
    # 1. Promise an end to the jobs that were not seen before.
    problem, added = _with_promises(instance, known, context)
    instance = replace(instance, problem=problem)
    promises = known | added
    # 2. Search the best schedule, and serve its starts of now.
    if searches:
        plan, order = _searched(moment, instance, context, ledger)
    else:
        plan, order = _with_overdue_protected(moment, instance, context), ()
    promised = {name: promise.latest_end_s for name, promise in promises.items()}
    actions = tuple(replace(action, promised_end_s=promised.get(action.job_id, math.nan)) for action in plan.actions)
    return TimedPlan(
        plan=replace(plan, actions=actions),
        end_promises=tuple(promises.values()),
        planned_order=order,
    )


def _searched(
    moment: Plan, instance: SchedulingInstance, context: PlanningContext, ledger: ScopeLedger
) -> tuple[Plan, tuple[str, ...]]:
    """Return the starts of now of the best schedule found, and all pending jobs in the order in which it starts them.

    Planned values are told only where all jobs say how long they take.
    """
    problem = instance.problem
    number_of = {job.id: k for k, job in enumerate(instance.pending)}
    budget = context.budget.share(SHARE_OF_BUDGET)
    found = search(
        problem,
        last_order=[number_of[name] for name in ledger.planned_order if name in number_of],
        moment_starts=_moment_starts(moment, instance, context),
        max_units=int(min(MAX_WORK_UNITS, budget.remaining_units)),
        expired=lambda: budget.expired,
    )
    budget.spend(found.work_units)
    plan = serve_schedule(moment, found.schedule, instance, context)
    plan = replace(plan, chosen_because=found.chosen_because)
    if not instance.is_estimated:
        values = sorted(found.heuristic_values.items())
        plan = replace(
            plan,
            planned_value=found.objective_value(problem),
            heuristic_values=tuple(HeuristicValue(name=name, value=value) for name, value in values),
        )
    return plan, tuple(instance.pending[k].id for k in found.order)


def _with_overdue_protected(moment: Plan, instance: SchedulingInstance, context: PlanningContext) -> Plan:
    """Return the optimal matching of this moment without the starts that would delay an overdue job."""
    protecting = _schedule_protecting_overdue(instance.problem, _moment_starts(moment, instance, context))
    if protecting is None:
        return moment
    schedule, overdue = protecting
    return serve_schedule(moment, schedule, instance, context, overdue=instance.pending[overdue].id)


def _moment_starts(moment: Plan, instance: SchedulingInstance, context: PlanningContext) -> tuple[GroupStart, ...]:
    """Return the starts of the optimal matching of this moment, one for each group of jobs that start together."""
    number_of = {job.id: k for k, job in enumerate(instance.jobs)}
    class_of = {device_id: k for k, members in enumerate(instance.classes) for device_id in members.device_ids}
    groups: dict[frozenset[str], list[Action]] = {}
    for action in moment.actions:
        if action.places:
            groups.setdefault(frozenset(action.places), []).append(action)
    starts = []
    for actions in groups.values():
        hosts = [name for name in actions[0].partners if name in context.residents]
        slowdown_of = actions[0].slowdown_of_partners
        starts.append(
            GroupStart(
                jobs=tuple(number_of[action.job_id] for action in actions),
                device_class=class_of[actions[0].places[0]],
                gpus=len(actions[0].places),
                slowdowns=(
                    *(max(1.0, action.slowdown) for action in actions),
                    *(max(1.0, slowdown_of[name]) for name in hosts),
                ),
                hosts=tuple(number_of[name] for name in hosts),
            )
        )
    return tuple(starts)


def _schedule_protecting_overdue(problem: ScheduleProblem, starts: Sequence[GroupStart]) -> tuple[Schedule, int] | None:
    """The schedule in which an overdue job gets its place before the starts of this moment, and the number of that job.

    Overdue is the first waiting job in order of promised ends, of the highest priority, where its planned end is past
    its promised end although only the starts of this moment are placed before it. Starts of a higher priority are never
    held back. None where no job is overdue.
    """
    starting = {job for group in starts for job in group.jobs}
    may_run = set(np.flatnonzero(problem.may_run_alone.any(axis=1)).tolist())
    waiting = [job for job in jobs_in_order(problem, JobOrder.FIRST_DUE) if job not in starting and job in may_run]
    if not waiting:
        return None
    overdue = waiting[0]
    timeline = Timeline(problem)
    for group in starts:
        timeline.start_group(group)
    place_cheapest(timeline, overdue, ALONE)
    if not timeline.end_s[overdue] > problem.latest_end_s[overdue]:
        return None
    # 1. Starts of a higher priority, then the overdue job.
    priority = problem.objective.priority
    is_before = [max(int(priority[job]) for job in group.jobs) > priority[overdue] for group in starts]
    timeline = Timeline(problem)
    for group, before in zip(starts, is_before, strict=True):
        if before:
            timeline.start_group(group)
    place_cheapest(timeline, overdue, ALONE)
    if not math.isfinite(timeline.end_s[overdue]):
        return None
    # 2. The other starts of this moment, except those that would delay it; then the jobs that they leave.
    for group, before in zip(starts, is_before, strict=True):
        if not before and _leaves_room(timeline, group, overdue):
            timeline.start_group(group)
    for job in jobs_in_order(problem, JobOrder.FIFO):
        if job != overdue and job not in timeline.kept_starts:
            place_cheapest(timeline, job, ALONE)
    return timeline.schedule(), overdue


def _leaves_room(timeline: Timeline, group: GroupStart, placed: int) -> bool:
    """Whether a start leaves a job that is placed its devices for the whole of its time, and takes few enough."""
    problem = timeline.problem
    if not group.hosts and timeline.new_devices + group.gpus > problem.max_new_devices:
        return False
    if group.device_class != timeline.place[placed]:
        return True
    from_s, until_s = timeline.occupation_s(group)
    from_s = max(from_s, float(timeline.start_s[placed]))
    until_s = min(until_s, float(timeline.end_s[placed]))
    return from_s >= until_s or timeline.profiles[group.device_class].is_free(from_s, until_s, group.gpus)


def _with_promises(
    instance: SchedulingInstance, known: dict[str, EndPromise], context: PlanningContext
) -> tuple[ScheduleProblem, dict[str, EndPromise]]:
    """The problem with bounds for the pending jobs that have none yet, and their promises; none without a clock."""
    problem = instance.problem
    new = [k for k, job in enumerate(instance.pending) if job.id not in known]
    if not new or math.isnan(context.now_s):
        return problem, {}
    unbounded = problem.bounded_by(np.full(problem.jobs, np.inf), Deadlines.none(problem.jobs))
    fifo = schedule_in_order(unbounded, jobs_in_order(problem, JobOrder.FIFO), GREEDY_JOINT_THROUGHPUT)
    # If every job takes a factor longer, so does the plan.
    factor = PROMISE_FACTOR * math.exp(P90_Z * float(instance.spread.mean()))
    latest_s = problem.latest_end_s.copy()
    added: dict[str, EndPromise] = {}
    for k in new:
        bound_s = factor * float(fifo.end_s[k]) + PROMISE_SLACK_S
        if math.isfinite(bound_s):
            name = instance.pending[k].id
            added[name] = EndPromise(job_id=name, latest_end_s=context.now_s + bound_s)
            latest_s[k] = min(float(latest_s[k]), bound_s)
    return problem.bounded_by(latest_s), added


def forget_promises(promises: Sequence[EndPromise], context: PlanningContext) -> tuple[EndPromise, ...]:
    """Return the promises of jobs that are still in the snapshot. A partial snapshot keeps all promises."""
    if context.snapshot.partial:
        return tuple(promises)
    return tuple(promise for promise in promises if promise.job_id in context.jobs)


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
