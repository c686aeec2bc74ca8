"""Starts as actions, with the cost and the rule of each, and plans that are made of starts or of other plans.

Plans of independent subproblems are merged: their costs are summed, or the maximum is taken for min-max objectives.
Law: the merged lower bound is valid, because each subproblem's lower bound is valid for its own jobs.
"""

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace

from interfere.policy.context import PlanningContext
from interfere.policy.costs.paging import paging_of
from interfere.policy.rules.group_rules import unprofiled_rule
from interfere.policy.rules.jobs_on_class import latency_rule
from interfere.policy.rules.text import render
from interfere.records import (
    NAN,
    Action,
    ActionKind,
    Device,
    Job,
    LevelKind,
    Pairing,
    Plan,
    PlanLevel,
    Rule,
    RuleKind,
    SolveStatus,
)
from interfere.sharing_modes import DEFAULT_MODE, OptionalSharingMode


def start_alone(
    job: Job,
    devices: Sequence[Device],
    context: PlanningContext,
    *,
    cost: float | None = None,
    rule: Rule | None = None,
) -> Action:
    """Return the action that starts a job alone.

    Defaults: `cost` is the job's cost in the objective, `rule` says that a device is free.
    """
    device = devices[0]
    if rule is None:
        profile = context.profile(job, device.type)
        by_p99 = context.latency_predictor is not None
        rule = latency_rule(job, profile, by_p99=by_p99) or Rule(kind=RuleKind.DEVICE_FREE, job_id=job.id)
        if profile is None:
            rule = unprofiled_rule(job, device.type)
    return Action(
        kind=ActionKind.START_ALONE,
        job_id=job.id,
        device_id=device.id,
        device_ids=gang_device_ids(devices),
        slowdown=1.0,
        slowdown_lower=1.0,
        slowdown_upper=1.0,
        cost=job_objective_cost(job, 1.0, device.type, context) if cost is None else cost,
        reason=render(rule),
        rule=rule,
    )


def start_beside(
    job: Job,
    devices: Sequence[Device],
    partner: Job,
    slowdowns: tuple[float, float],
    context: PlanningContext,
    *,
    interval: tuple[float, float] = (NAN, NAN),
) -> Action:
    """Return the action that starts a job beside a partner that starts or runs on the same devices.

    `slowdowns`: of the job and of its partner; `interval`: (lower, upper) slowdown of the job. For a resident partner
    only the added cost counts.
    """
    slowdown, partner_slowdown = slowdowns
    device_type, paging = devices[0].type, paging_of([job, partner], devices[0], context)
    cost = job_objective_cost(job, slowdown * paging, device_type, context)
    cost += job_objective_cost(partner, partner_slowdown * paging, device_type, context)
    if partner.id in context.residents:
        cost -= job_objective_cost(partner, 1.0, device_type, context)
    return start_shared(
        job, devices, [partner], slowdown, [partner_slowdown], cost=cost, interval=interval, paging=paging
    )


def start_shared(
    job: Job,
    devices: Sequence[Device],
    partners: Sequence[Job],
    slowdown: float,
    partner_slowdowns: Sequence[float],
    *,
    cost: float,
    interval: tuple[float, float],
    mode: OptionalSharingMode = "",
    paging: float = 1.0,
) -> Action:
    """Return the action that starts a job beside partners, a resident first; `cost`: of the group, with `paging`."""
    partner, several = partners[0], len(partners) > 1
    rule = Rule(
        kind=RuleKind.LEAST_COST,
        job_id=job.id,
        partner_id=partner.id,
        partner_workload=partner.workload,
        slowdown=slowdown,
        partner_slowdown=partner_slowdowns[0],
        paging_slowdown=paging if paging > 1 else NAN,
    )
    return Action(
        kind=ActionKind.START_SHARED,
        job_id=job.id,
        device_id=devices[0].id,
        device_ids=gang_device_ids(devices),
        partner_id=partner.id,
        slowdown=slowdown,
        slowdown_lower=interval[0],
        slowdown_upper=interval[1],
        partner_slowdown=partner_slowdowns[0],
        partner_ids=tuple(other.id for other in partners) if several else (),
        partner_slowdowns=tuple(partner_slowdowns) if several else (),
        cost=cost,
        mode=mode,
        reason=render(rule),
        rule=rule,
    )


def job_objective_cost(job: Job, slowdown: float, device_type: str, context: PlanningContext) -> float:
    """Return the cost of one job in the objective at a slowdown on a device type.

    The relative time τ counts as 1 on a device type that is not in scope.
    """
    objective, types = context.objective, context.device_types
    times = context.relative_times([job])[0]
    stretch = slowdown * (times[types.index(device_type)] if device_type in types else 1.0)
    return float(objective.constant([job])[0] + objective.rate([job])[0] * stretch)


def gang_device_ids(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the ids of all devices of a gang; empty for a job on one device."""
    return tuple(device.id for device in devices) if len(devices) > 1 else ()


def group_costs(starts: Iterable[Action]) -> dict[frozenset[str], float]:
    """Return the cost of each group of jobs that share devices, by the set of their job ids."""
    return {frozenset((action.job_id, *action.partners)): action.cost for action in starts}


def pairings(starts: Iterable[Action]) -> tuple[Pairing, ...]:
    """Return the distinct pairs among the starts."""
    pairs = {
        frozenset((action.job_id, action.partner_id)): Pairing(
            job_id=action.job_id, partner_id=action.partner_id, device_id=action.device_id, weight=action.cost
        )
        for action in reversed(tuple(starts))  # the first of two names the pair
        if len(action.partners) == 1
    }
    return tuple(reversed(pairs.values()))


def tell_assumed_modes(actions: Iterable[Action], context: PlanningContext) -> tuple[Action, ...]:
    """Return the actions with the chosen or assumed sharing mode of the device named in each shared start.

    Slowdowns are predicted for that mode. An assumed mode of timeslice is not named.
    """
    return tuple(_with_assumed_mode(action, context) for action in actions)


def _with_assumed_mode(action: Action, context: PlanningContext) -> Action:
    if action.mode:
        rule = None if action.rule is None else replace(action.rule, sharing_mode=action.mode)
        return replace(action, rule=rule, reason=f"{action.reason}; sharing mode {action.mode}, chosen for its device")
    mode = context.assumed_modes.get(action.device_id, DEFAULT_MODE)
    if mode is DEFAULT_MODE or action.kind is not ActionKind.START_SHARED:
        return action
    rule = None if action.rule is None else replace(action.rule, sharing_mode=mode)
    return replace(action, rule=rule, reason=f"{action.reason}; sharing mode {mode}, for its device names none")


MAX_REFUSALS = 100  # refused pairs listed in full; the rest are counted
_LEVEL_ORDER = (LevelKind.WAITING_WEIGHT, LevelKind.MAX_COST, LevelKind.COST)


def merge_plans(plans: Sequence[Plan], context: PlanningContext) -> Plan:
    """Return one plan merged from the plans of at least one subproblem; no two plans share a job or a device.

    The merged actions are those of the pending jobs in `context`, in queue order.
    """
    action_of = {action.job_id: action for plan in plans for action in plan.actions}
    aggregate = max if context.objective.is_min_max else sum

    def combined(field: str) -> float:
        return float(aggregate(getattr(plan, field) for plan in plans))

    value, lower_bound = combined("objective_value"), combined("lower_bound")
    is_optimal = all(plan.status is SolveStatus.OPTIMAL for plan in plans)
    return replace(
        plans[0],
        actions=tuple(action_of[job.id] for job in context.snapshot.pending),
        pairs=tuple(pair for plan in plans for pair in plan.pairs),
        refused=tuple(refusal for plan in plans for refusal in plan.refused)[:MAX_REFUSALS],
        refused_total=sum(plan.refused_total for plan in plans),
        cost=float(sum(plan.cost for plan in plans)),
        greedy_cost=combined("greedy_cost"),
        greedy_waiting=sum(plan.greedy_waiting for plan in plans),
        lower_bound=min(value, lower_bound),
        gap=(value - lower_bound) / max(abs(value), 1e-12) if value > lower_bound and not is_optimal else 0.0,
        status=SolveStatus.OPTIMAL if is_optimal else SolveStatus.BOUNDED,
        objective_value=value,
        levels=_merged_levels(plans),
    )


def _merged_levels(plans: Sequence[Plan]) -> tuple[PlanLevel, ...]:
    """Return the merged levels: sums of the values of equal kind and priority, or the maximum of largest costs."""
    merged: dict[tuple[int, int], PlanLevel] = {}
    for level in (level for plan in plans for level in plan.levels):
        key = (_LEVEL_ORDER.index(level.kind), -1 if level.priority is None else -level.priority)
        merged[key] = _combined(merged[key], level) if key in merged else level
    return tuple(merged[key] for key in sorted(merged))


def _combined(one: PlanLevel, other: PlanLevel) -> PlanLevel:
    """Return the merger of two plan levels of the same kind and priority."""
    combine = max if one.kind is LevelKind.MAX_COST else operator.add
    value, bound = combine(one.value, other.value), combine(one.lower_bound, other.lower_bound)
    return replace(one, value=value, lower_bound=bound)


def plan_of_starts(starts: Sequence[Action], context: PlanningContext) -> Plan:
    """Return starts that are decided elsewhere as an optimal plan: any plan that keeps them pays their cost."""
    max_cost = -math.inf
    for action in starts:
        paging = action.rule.paging_slowdown if action.rule is not None and action.rule.paging_slowdown > 1 else 1.0
        for job_id, slowdown in ((action.job_id, action.slowdown), *action.slowdown_of_partners.items()):
            if job_id in context.jobs and action.device_id in context.devices:
                device_type = context.devices[action.device_id].type
                max_cost = max(
                    max_cost, job_objective_cost(context.jobs[job_id], slowdown * paging, device_type, context)
                )
    cost = sum(group_costs(starts).values(), 0.0)
    value = max_cost if context.objective.is_min_max else cost
    return replace(
        all_waiting((), context),
        actions=tuple(starts),
        pairs=pairings(starts),
        cost=cost,
        objective_value=value,
        lower_bound=value,
        greedy_cost=value,
    )


def all_waiting(job_ids: Iterable[str], context: PlanningContext, rule: Rule | None = None) -> Plan:
    """Return the plan in which all these jobs wait by the given rule."""
    reason = "" if rule is None else render(rule)
    actions = tuple(
        Action(
            kind=ActionKind.WAIT,
            job_id=job_id,
            reason=reason,
            rule=None if rule is None else replace(rule, job_id=job_id),
        )
        for job_id in job_ids
    )
    return Plan(
        decision_id=context.decision_id,
        model_version=context.predictor.version,
        actions=actions,
        pairs=(),
        refused=(),
        refused_total=0,
        cost=0.0,
        greedy_cost=0.0,
        greedy_waiting=len(actions),
        lower_bound=0.0,
        gap=0.0,
        status=SolveStatus.OPTIMAL,
        objective_value=0.0,
    )
