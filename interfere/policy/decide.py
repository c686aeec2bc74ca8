"""One placement decision of a scope: earlier promises are kept, and all other jobs are planned around them.

Law 1: while a promised start has not expired and its job still waits, the plan repeats the start on the same devices
with the same expiry. Law 2: no other job gets these devices, or a device that an accepted deadline needs. Law 3: equal
snapshots and ledgers give equal plans and ledgers; the only clock is the one in the snapshot.

The scheduler asks for the next decision at the first foreseen event, or after a time slice. The events are: the
predicted end of a running or starting job, now + remaining_s · slowdown; the expiry of a promise; the last moment at
which a waiting job can start alone on the fastest type and still meet its deadline; the opening or closing of a device.
An unpredicted slowdown counts as 1, so that the job cannot end before its predicted event.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.errors import InvalidInputError
from interfere.policy.answer.starts import (
    all_waiting,
    merge_plans,
    plan_of_starts,
    tell_assumed_modes,
)
from interfere.policy.context import PlanningContext
from interfere.policy.deadlines.guarantees import (
    DeadlineReview,
    accept_deadlines,
    find_infeasible_deadlines,
    mark_accepted,
    review_deadlines,
    starts_breaking_deadlines,
)
from interfere.policy.ledger.grants import (
    reconcile_ledger,
    renew_grants,
    with_grants,
    with_running_grants,
)
from interfere.policy.ledger.overuse import OveruseReview, UsageLookup, end_actions, keep_actions, review_overuse
from interfere.policy.ledger.promises import (
    PROMISED_KINDS,
    ReconciledPromises,
    renew_promises,
    repeat_action,
    without_promised,
)
from interfere.policy.residents.assignment import LEAVING_KINDS, with_migrations
from interfere.policy.rules.runtime import remaining_quantile_s
from interfere.policy.rules.text import render
from interfere.policy.schedule.decision import TimedPlan, forget_promises, plan_over_time
from interfere.policy.schedule.sizes import choose_sizes, stop_actions
from interfere.policy.slowdowns import DEPARTURES, SlowdownOfJob, slowdowns_among_residents
from interfere.policy.solve.planner import plan_pending_jobs, with_probes
from interfere.policy.subproblems import remaining_snapshot
from interfere.policy.validate import validate_clock, validate_snapshot
from interfere.records import Action, ActionKind, Device, Job, Plan, Promise, Rule, RuleKind, ScopeLedger
from interfere.records.cluster import spans
from interfere.time_budget import TimeBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeDecision:
    """One decision's plan, the ledger to store after it, and the outcome of earlier promises and accepted deadlines."""

    plan: Plan
    ledger: ScopeLedger  # based on the ledger revision that was read
    promises: ReconciledPromises
    deadlines: DeadlineReview


def decide(
    context: PlanningContext,
    ledger: ScopeLedger,
    usages: UsageLookup = lambda _: (),
) -> ScopeDecision:
    """Return the decision for a scope at the time of its snapshot.

    `usages` gives the measured memory use of jobs that hold a memory grant. Without a clock in the snapshot the
    returned ledger is not meant to be stored. Raises InvalidInputError where the snapshot contradicts itself or the
    ledger's clock.
    """
    if context.budget.unlimited:
        context = replace(context, budget=TimeBudget.of_search(context.limits.timing.time_budget_s))
    # 1. Refuse a snapshot that contradicts itself or the ledger, and forget the order in which it was sent.
    _raise_contradictions(context, ledger)
    queue = context.snapshot.pending
    context = context.in_canonical_order()
    # 2. Choose the sizes of elastic jobs.
    sized = choose_sizes(context, ledger.promises)
    context = context.with_snapshot(sized.snapshot)
    # 3. Set infeasible deadlines aside.
    infeasible = find_infeasible_deadlines(context)
    context = context.with_snapshot(infeasible.snapshot)
    # 4. Reconcile promises with the snapshot.
    promises = reconcile_ledger(ledger, context)
    # 5. Review accepted deadlines.
    deadlines = review_deadlines(ledger.accepted_deadlines, context)
    # 6. Renew grants: from here on residents ask for the memory that they are granted.
    ledger = renew_grants(context, ledger, promises)
    promises = replace(promises, kept=ledger.promises)
    context = context.with_snapshot(with_running_grants(context.snapshot, ledger))
    # 7. Find jobs to end for grant overuse.
    overuse = review_overuse(context, ledger, promises.leaving_jobs, usages)
    # 8. Plan everything that is not promised, holding back starts that would break an accepted deadline.
    declined_jobs = infeasible.declined_jobs(promises.kept_jobs)
    unpromised = _plan_around_deadlines(context, ledger, promises, deadlines, overuse, declined_jobs, sized.resized)
    # 9. Start probes, and migrate residents where that gains.
    probed = with_probes(unpromised.plan, unpromised.context, promises.kept)
    new_plan = with_migrations(probed, unpromised.context)
    new_plan = replace(new_plan, actions=(*new_plan.actions, *stop_actions(sized.resized, context)))
    # 10. Attach grants and expiry times.
    new_plan = _with_expiry(replace(new_plan, actions=with_grants(new_plan.actions, context, ledger)), context)
    # 11. Merge with what is promised, held back and declined; predict the slowdowns that result.
    plan = _merge(new_plan, promises, {**unpromised.held_back, **dict.fromkeys(declined_jobs)}, context)
    changes = (*plan.actions, *end_actions(overuse))
    slowdown_of = predicted_slowdowns(context, changes)
    # 12. Accept new deadlines, and write the ledger.
    accepted = accept_deadlines(context, plan.actions, deadlines.standing, slowdown_of)
    ledger = replace(
        ledger,
        promises=renew_promises(promises.kept, new_plan, context),
        accepted_deadlines=(*deadlines.standing, *accepted),
        end_promises=unpromised.timed.end_promises,
        planned_order=unpromised.timed.planned_order,
    )
    # 13. Compose the answer.
    kept = keep_actions(context, changes, overuse, slowdown_of)
    actions = infeasible.annotate(_in_order_of((*changes, *kept), queue), promises.kept_jobs)
    plan = replace(
        plan,
        actions=mark_accepted(tell_assumed_modes(actions, context), ledger.accepted_deadlines),
        resolve_at_s=next_decision_s(context, changes, ledger.promises, slowdown_of),
        stopped_by="time budget" if context.budget.was_cut else "",
        work_units=context.budget.units,
    )
    return ScopeDecision(plan=plan, ledger=ledger, promises=promises, deadlines=deadlines)


def _in_order_of(actions: Sequence[Action], pending: Sequence[Job]) -> tuple[Action, ...]:
    """Return the actions of pending jobs in the order in which the jobs were sent, then those of residents."""
    position = {job.id: k for k, job in enumerate(pending)}
    return tuple(sorted(actions, key=lambda action: position.get(action.job_id, len(position))))


def _raise_contradictions(context: PlanningContext, ledger: ScopeLedger) -> None:
    """Raise InvalidInputError where the snapshot contradicts itself or its clock contradicts that of the ledger."""
    violations = validate_snapshot(context.snapshot, context.custom_objective)
    violations += validate_clock(context.snapshot, ledger)
    if violations:
        raise InvalidInputError.from_violations(violations)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnpromisedPlan:
    """A plan for the jobs and devices that no promise refers to."""

    plan: Plan
    context: PlanningContext  # the subproblem that the plan solves
    held_back: dict[str, Rule]  # pending jobs left out of the subproblem, by id, with the rule that holds each back
    timed: TimedPlan  # the same plan with the entries that the ledger stores


def _plan_around_deadlines(
    context: PlanningContext,
    ledger: ScopeLedger,
    promises: ReconciledPromises,
    deadlines: DeadlineReview,
    overuse: OveruseReview,
    declined_jobs: Sequence[str],
    resized: Collection[str],
) -> _UnpromisedPlan:
    """Plan the jobs that are neither promised nor declined, such that no start breaks an accepted deadline.

    A job whose start would break a deadline is held back, and the others are planned again. No job starts on a device
    where a running job is about to be ended, or to be stopped for another size.
    """
    accepted_jobs = {accepted.job_id for accepted in deadlines.standing}
    promised_starts = [promise.action for promise in promises.kept if not promise.from_device_id]
    held_back: dict[str, Rule] = {}
    snapshot = without_promised(context.snapshot, promises.kept)
    changing = overuse.ending_devices.union(device.id for name in resized for device in context.resident_devices[name])
    snapshot = remaining_snapshot(snapshot, declined_jobs, changing)
    while True:
        unpromised = context.subproblem(snapshot)
        if snapshot.devices:
            plan = plan_pending_jobs(unpromised)
        else:
            plan = all_waiting([job.id for job in snapshot.pending], context, _no_device_rule(overuse))
        timed = plan_over_time(plan, unpromised, ledger)
        plan = timed.plan
        breaking = starts_breaking_deadlines(plan, context, accepted_jobs, promised_starts)
        if not breaking:
            end_promises = forget_promises((*ledger.end_promises, *timed.end_promises), context)
            timed = replace(timed, end_promises=tuple({each.job_id: each for each in end_promises}.values()))
            return _UnpromisedPlan(plan=plan, context=unpromised, held_back=held_back, timed=timed)
        held_back |= breaking
        snapshot = remaining_snapshot(snapshot, breaking, ())


def _no_device_rule(overuse: OveruseReview) -> Rule:
    """Return the rule that explains why jobs wait when no device is left for planning."""
    return Rule(kind=RuleKind.DEVICES_PROMISED, action=ActionKind.END if overuse.ending else None)


def _with_expiry(plan: Plan, context: PlanningContext) -> Plan:
    """Return the plan with an expiry time on its starts, migrations and preemptions, until which they are promised."""
    until_s = context.now_s + context.limits.timing.promise_ttl_s
    actions = (
        replace(action, promised_by_s=until_s) if action.kind in PROMISED_KINDS else action for action in plan.actions
    )
    return replace(plan, actions=tuple(actions))


def _merge(
    new_plan: Plan, promises: ReconciledPromises, waiting_rules: Mapping[str, Rule | None], context: PlanningContext
) -> Plan:
    """Return one plan of all pending jobs in queue order, followed by the residents that leave their devices.

    `waiting_rules` maps the id of every job that neither the new plan nor a promise covers to the rule by which it
    waits, or to None for a declined job.
    """
    waiting = all_waiting(waiting_rules, context)
    rules = ((action, waiting_rules[action.job_id]) for action in waiting.actions)
    reasoned = tuple(replace(action, reason=render(rule), rule=rule) if rule else action for action, rule in rules)
    waiting = replace(waiting, actions=reasoned)
    promised = [promise for promise in promises.kept if promise.action.job_id in context.pending]
    kept = plan_of_starts([promise.action for promise in promised], context)
    kept = replace(kept, actions=tuple(map(repeat_action, promised)))
    plan = merge_plans([new_plan, kept, waiting], context)
    leaving = [action for action in new_plan.actions if action.kind in LEAVING_KINDS]
    leaving += [
        repeat_action(promise)
        for promise in promises.kept
        if promise.from_device_id and promise.action.job_id in context.residents
    ]
    return replace(plan, actions=(*plan.actions, *leaving))


def next_decision_s(
    context: PlanningContext, actions: Sequence[Action], promises: Sequence[Promise], slowdown_of: SlowdownOfJob
) -> float:
    """Return the time of the next decision in seconds on the caller's clock; NaN where no event is foreseen.

    `actions` are the actions of the plan that change a placement, `promises` those in the ledger after the plan.
    """
    snapshot = context.snapshot
    started = {action.job_id for action in actions if action.places}
    last_starts_s = [
        job.deadline_s - remaining_quantile_s(job, snapshot.limits.slowdown.risk)
        for job in snapshot.pending
        if job.id not in started
    ]
    closing = (device.windows for device in snapshot.devices if device.windows)
    openings_s = [at_s for windows in closing for span in spans(windows) for at_s in span]
    events_s = [*_predicted_ends_s(context, actions, slowdown_of), *(p.action.promised_by_s for p in promises)]
    events_s.append(snapshot.now_s + snapshot.limits.timing.slice_s)
    events_s += [at_s for at_s in (*last_starts_s, *openings_s) if math.isfinite(at_s) and at_s > snapshot.now_s]
    return float(np.fmin.reduce(events_s, initial=math.nan))


def _predicted_ends_s(context: PlanningContext, actions: Sequence[Action], slowdown_of: SlowdownOfJob) -> list[float]:
    """Return the predicted end time of every running or starting job whose remaining_s is known."""
    starting = {action.job_id for action in actions if action.places}
    stopped = {action.job_id for action in actions if action.kind in (ActionKind.PREEMPT, ActionKind.END)}
    jobs = [job for device in context.snapshot.devices for job in device.residents if job.id not in stopped]
    jobs += [job for job in context.snapshot.pending if job.id in starting]
    told = [job for job in jobs if job.remaining_s >= 0]
    remaining_s = np.array([job.remaining_s for job in told], dtype=np.float64)
    slowdowns = np.array([slowdown_of.get(job.id, math.nan) for job in told], dtype=np.float64)
    return list((context.now_s + remaining_s * np.fmax(slowdowns, 1.0)).tolist())


def predicted_slowdowns(context: PlanningContext, actions: Sequence[Action]) -> SlowdownOfJob:
    """Return the slowdowns of all running and starting jobs after the actions are carried out.

    A resident without an action is predicted only where a `keep` action or a predicted end time needs its slowdown.
    """
    limits = context.limits
    slowdown_of = {action.job_id: action.slowdown for action in actions if action.kind is not ActionKind.WAIT}
    for action in actions:
        slowdown_of |= action.slowdown_of_partners
    departed = {action.job_id for action in actions if action.kind in DEPARTURES}
    staying = [
        (_without_residents(device, departed), job)
        for device in context.snapshot.devices
        for job in device.residents
        if job.id not in slowdown_of and (ActionKind.KEEP in limits.allowed or not math.isnan(job.remaining_s))
    ]
    slowdown_of |= {job.id: 1.0 for device, job in staying if all(other.id == job.id for other in device.residents)}
    return slowdown_of | slowdowns_among_residents(staying, context)


def _without_residents(device: Device, departed: Collection[str]) -> Device:
    if not any(job.id in departed for job in device.residents):
        return device
    return replace(device, residents=tuple(job for job in device.residents if job.id not in departed))
