"""The plan over time of one decision: the search, the promises of ends, and the starts that are served.

A job is promised an end when it is first seen: that of a plan in order of submission, twice the time and ten minutes
more. The bound is kept in the ledger and never widened; plans that keep all bounds go before plans that do not.

Where the objective is not about ends, or nobody says how long jobs take, the optimal matching of this moment is served
as it is, with one exception: an overdue job gets the place where it ends first, and no start delays it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.schedule.answer import serve_schedule
from interfere.policy.schedule.from_context import SchedulingInstance, has_planned_objective, scheduling_instance
from interfere.policy.schedule.heuristics import ALONE, GREEDY_JOINT_THROUGHPUT, JobOrder, jobs_in_order
from interfere.policy.schedule.list_scheduler import place_cheapest, schedule_in_order
from interfere.policy.schedule.problem import Deadlines, Schedule, ScheduleProblem
from interfere.policy.schedule.search import MAX_WORK_UNITS, search
from interfere.policy.schedule.timeline import GroupStart, Timeline
from interfere.records import Action, EndPromise, HeuristicValue, Plan, ScopeLedger

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
    latest_s = problem.latest_end_s.copy()
    added: dict[str, EndPromise] = {}
    for k in new:
        bound_s = PROMISE_FACTOR * float(fifo.end_s[k]) + PROMISE_SLACK_S
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
