"""The plan over time of one decision: the search, the promises of ends, and the starts that are served.

A job is promised an end when it is first seen: that of a plan in order of submission, twice the time and ten minutes
more. The bound is kept in the ledger and never widened; plans that keep all bounds go before plans that do not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.schedule.answer import serve_schedule
from interfere.policy.schedule.from_context import SchedulingInstance, has_planned_objective, scheduling_instance
from interfere.policy.schedule.heuristics import GREEDY_JOINT_THROUGHPUT, JobOrder, jobs_in_order
from interfere.policy.schedule.list_scheduler import schedule_in_order
from interfere.policy.schedule.moment import moment_starts, schedule_protecting_overdue
from interfere.policy.schedule.problem import ScheduleProblem
from interfere.policy.schedule.search import search
from interfere.records import EndPromise, HeuristicValue, Plan, ScopeLedger

PROMISE_FACTOR = 2.0  # times the time to the end that a plan in order of submission gives
PROMISE_SLACK_S = 600.0
SHARE_OF_BUDGET = 0.6  # of the CPU time that is left, after which the search of schedules stops


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPlan:
    """A plan with what is remembered of it: promised ends, and the order in which jobs are to start."""

    plan: Plan
    end_promises: tuple[EndPromise, ...]
    planned_order: tuple[str, ...]


def plan_over_time(moment: Plan, context: PlanningContext, ledger: ScopeLedger) -> TimedPlan:
    """The plan that is served: starts of the best schedule found, or the optimal matching of this moment.

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
    """The starts of now of the best schedule found, and all pending jobs in the order in which it starts them.

    Planned values are told only where all jobs say how long they take.
    """
    problem = instance.problem
    number_of = {job.id: k for k, job in enumerate(instance.pending)}
    budget = context.budget.share(SHARE_OF_BUDGET)
    found = search(
        problem,
        last_order=[number_of[name] for name in ledger.planned_order if name in number_of],
        moment_starts=moment_starts(moment, instance, context),
        expired=lambda: budget.expired,
    )
    plan = replace(
        serve_schedule(moment, found.schedule, instance, context),
        chosen_because=found.chosen_because,
        work_units=float(found.work_units),
        stopped_by="time budget" if found.stopped else "",
    )
    if not instance.is_estimated:
        values = sorted(found.heuristic_values.items())
        plan = replace(
            plan,
            planned_value=found.objective_value(problem),
            heuristic_values=tuple(HeuristicValue(name=name, value=value) for name, value in values),
        )
    return plan, tuple(instance.pending[k].id for k in found.order)


def _with_overdue_protected(moment: Plan, instance: SchedulingInstance, context: PlanningContext) -> Plan:
    """The optimal matching of this moment without the starts that would delay an overdue job."""
    protecting = schedule_protecting_overdue(instance.problem, moment_starts(moment, instance, context))
    if protecting is None:
        return moment
    schedule, overdue = protecting
    return serve_schedule(moment, schedule, instance, context, overdue=instance.pending[overdue].id)


def _with_promises(
    instance: SchedulingInstance, known: dict[str, EndPromise], context: PlanningContext
) -> tuple[ScheduleProblem, dict[str, EndPromise]]:
    """The problem with bounds for the pending jobs that have none yet, and their promises; none without a clock."""
    problem = instance.problem
    new = [k for k, job in enumerate(instance.pending) if job.id not in known]
    if not new or math.isnan(context.now_s):
        return problem, {}
    unbounded = replace(problem, latest_end_s=np.full(problem.jobs, np.inf))
    fifo = schedule_in_order(unbounded, jobs_in_order(problem, JobOrder.FIFO), GREEDY_JOINT_THROUGHPUT)
    latest_s = problem.latest_end_s.copy()
    added: dict[str, EndPromise] = {}
    for k in new:
        bound_s = PROMISE_FACTOR * float(fifo.end_s[k]) + PROMISE_SLACK_S
        if math.isfinite(bound_s):
            name = instance.pending[k].id
            added[name] = EndPromise(job_id=name, latest_end_s=context.now_s + bound_s)
            latest_s[k] = min(float(latest_s[k]), bound_s)
    return replace(problem, latest_end_s=latest_s), added


def forget_promises(promises: Sequence[EndPromise], context: PlanningContext) -> tuple[EndPromise, ...]:
    """The promises of jobs that the snapshot shows; all of them where it is partial."""
    if context.snapshot.partial:
        return tuple(promises)
    return tuple(promise for promise in promises if promise.job_id in context.jobs)
