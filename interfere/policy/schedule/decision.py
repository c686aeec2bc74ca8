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
from interfere.policy.schedule.from_context import SchedulingInstance, is_planned_over_time, scheduling_instance
from interfere.policy.schedule.heuristics import GREEDY_JOINT_THROUGHPUT, JobOrder, jobs_in_order
from interfere.policy.schedule.list_scheduler import schedule_in_order
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
    """The best plan over time, beside the optimal matching of this moment; that matching where there is no such plan.

    `context`: of the jobs and devices that are planned. `ledger`: with the promises and the order of the last round.
    """
    known = {promise.job_id: promise for promise in ledger.end_promises if promise.job_id in context.jobs}
    as_it_is = TimedPlan(plan=moment, end_promises=tuple(known.values()), planned_order=())
    if not is_planned_over_time(context):
        return as_it_is
    instance = scheduling_instance(context, {name: promise.latest_end_s for name, promise in known.items()})
    if instance is None:
        return as_it_is
    # 1. Promise an end to the jobs that were not seen before.
    problem, added = _with_promises(instance, known, context)
    instance = replace(instance, problem=problem)
    # 2. Search the best schedule.
    number_of = {job.id: k for k, job in enumerate(instance.pending)}
    budget = context.budget.share(SHARE_OF_BUDGET)
    found = search(
        problem,
        last_order=[number_of[name] for name in ledger.planned_order if name in number_of],
        expired=lambda: budget.expired,
    )
    # 3. Serve its starts of now.
    plan = serve_schedule(moment, found.schedule, instance, context)
    plan = replace(
        plan,
        planned_value=found.objective_value(problem),
        heuristic_values=tuple(
            HeuristicValue(name=name, value=value) for name, value in sorted(found.heuristic_values.items())
        ),
        chosen_because=found.chosen_because,
        work_units=float(found.work_units),
        stopped_by="time budget" if found.stopped else "",
    )
    promises = known | added
    promised = {name: promise.latest_end_s for name, promise in promises.items()}
    actions = tuple(replace(action, promised_end_s=promised.get(action.job_id, math.nan)) for action in plan.actions)
    return TimedPlan(
        plan=replace(plan, actions=actions),
        end_promises=tuple(promises.values()),
        planned_order=tuple(instance.pending[k].id for k in found.order),
    )


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
