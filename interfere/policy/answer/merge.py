"""Merges plans of independent subproblems: sums their costs, or takes the maximum for min-max objectives.

Law: the merged lower bound is valid, because each subproblem's lower bound is valid for its own jobs.
"""

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace

from interfere.policy.answer.actions import MAX_REFUSALS
from interfere.policy.answer.starts import group_costs, job_objective_cost, pairings
from interfere.policy.context import PlanningContext
from interfere.policy.rules.text import render
from interfere.records import Action, ActionKind, LevelKind, Plan, PlanLevel, Rule, SolveStatus

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
        for job_id, slowdown in ((action.job_id, action.slowdown), *action.slowdown_of_partners.items()):
            if job_id in context.jobs and action.device_id in context.devices:
                device_type = context.devices[action.device_id].type
                max_cost = max(max_cost, job_objective_cost(context.jobs[job_id], slowdown, device_type, context))
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
