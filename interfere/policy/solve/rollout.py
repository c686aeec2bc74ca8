"""Rollout of a plan for completion times: projected to the end it is no worse than the order of submission (FIFO).

What the plan leaves waiting runs in order of submission afterwards, and starts now where that order would start it now:
else a decision repeated at every event would not come to what was projected.
"""

from collections.abc import Sequence
from dataclasses import replace

from interfere.matching.master.level import LEVEL_TOLERANCE
from interfere.policy.answer.submission_order import projected_means, start_in_order, submission_order_actions
from interfere.policy.context import PlanningContext
from interfere.policy.costs.cluster_projection import project_cluster, starts_in_order
from interfere.policy.solve.levels import DecisionProblem
from interfere.records import Action, LevelKind, Plan, SolveStatus


def in_order_of_submission(plan: Plan, decision: DecisionProblem, context: PlanningContext) -> Plan:
    """The plan and what the order of submission starts beside it; that order alone where the plan would end later."""
    cluster = project_cluster(context)
    means = projected_means(context, plan.actions, cluster)
    if means.plan_is_later:
        return _with_actions(plan, submission_order_actions(context, means, cluster), decision, context)
    starts = starts_in_order(context, cluster, plan.actions)
    if not starts:
        return plan
    jobs = context.pending
    actions = [
        start_in_order(jobs[action.job_id], starts[action.job_id], means) if action.job_id in starts else action
        for action in plan.actions
    ]
    return _with_actions(plan, actions, decision, context)


def _with_actions(plan: Plan, actions: Sequence[Action], decision: DecisionProblem, context: PlanningContext) -> Plan:
    """The plan with other actions of the pending jobs: its pairs remain, other starts are alone."""
    places = {
        job.id: (candidates, i)
        for candidates in decision.candidates
        for i, members in enumerate(candidates.job_classes)
        for job in members
    }
    priced: list[Action] = []
    waiting = dict.fromkeys((level.priority for level in plan.levels if level.kind is LevelKind.WAITING_WEIGHT), 0.0)
    kept = {action.job_id for action in actions if action.partner_id}
    pairs = tuple(pair for pair in plan.pairs if pair.job_id in kept)
    cost = sum(pair.weight for pair in pairs)
    start_cost = cost
    for action in actions:
        candidates, i = places[action.job_id]
        if not action.places:
            cost += float(candidates.wait_cost[i])
            waiting[candidates.pending[i].priority] += float(candidates.start_weight[i])
        elif not action.partner_id:
            device_class = context.device_class(context.devices[action.device_id])
            alone = float(candidates.solo_cost[device_class][i])
            cost, start_cost = cost + alone, start_cost + alone
            priced.append(replace(action, cost=alone))
            continue
        priced.append(action)
    levels = tuple(
        replace(level, value=cost, lower_bound=min(level.lower_bound, cost))
        if level.kind is LevelKind.COST
        else replace(level, value=waiting[level.priority], lower_bound=min(level.lower_bound, waiting[level.priority]))
        for level in plan.levels
    )
    lower_bound = min(plan.lower_bound, cost)
    proved = cost - lower_bound <= LEVEL_TOLERANCE * abs(cost) and plan.status is SolveStatus.OPTIMAL
    return replace(
        plan,
        actions=tuple(priced),
        pairs=pairs,
        cost=start_cost,
        objective_value=cost,
        lower_bound=cost if proved else lower_bound,
        gap=0.0 if proved else (cost - lower_bound) / max(abs(cost), 1e-12),
        status=SolveStatus.OPTIMAL if proved else SolveStatus.BOUNDED,
        levels=levels,
    )
