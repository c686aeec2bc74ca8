"""One plan for pending jobs where devices have other than two seats."""

from dataclasses import replace

from interfere.matching.group_master.problem import WAITS, GroupPlacement
from interfere.policy.answer.actions import AnswerBuilder
from interfere.policy.context import PlanningContext
from interfere.policy.groups.answer import GroupAnswer, placed_groups
from interfere.policy.groups.greedy import place_greedily, waiting_jobs
from interfere.policy.groups.problem import GroupDecision, group_decision
from interfere.policy.groups.solve import Solved, all_proved, largest_cost, solve_groups
from interfere.records import LevelKind, Plan, PlanLevel, SolveStatus


def plan_groups(context: PlanningContext) -> Plan:
    """The plan of a valid snapshot with pending jobs."""
    queue = context.snapshot.pending
    # 1. Every group that may start, and the greedy baseline; classes by start weight only where some job waits.
    decision = group_decision(context, by_start_weight=False)
    greedy = place_greedily(decision, queue)
    if waiting_jobs(decision, greedy):
        decision = group_decision(context, by_start_weight=True)
        greedy = place_greedily(decision, queue)
    # 2. The search from the baseline.
    solved = solve_groups(decision, greedy, context.budget, min_max=context.objective.is_min_max)
    # 3. The placement as actions, with the rules behind them.
    answer = GroupAnswer(decision, placed_groups(decision, solved[0], queue), context)
    return _plan(decision, solved, greedy, answer, context)


def _plan(
    decision: GroupDecision, solved: Solved, greedy: GroupPlacement, answer: GroupAnswer, context: PlanningContext
) -> Plan:
    """The placement as a plan, with what is proved of it."""
    (placement, levels), min_max = solved, context.objective.is_min_max
    starts = decision.problem.host[placement.column] != WAITS
    kind = LevelKind.MAX_COST if min_max else LevelKind.COST
    if context.has_rounded_windows:
        levels = tuple(_without_bound(level, decision) for level in levels)
    value = sum(level.value for level in levels if level.kind is kind)
    lower_bound = min(value, sum(level.lower_bound for level in levels if level.kind is kind))
    refused, refused_total = AnswerBuilder(decision.candidates, answer.starts, context).refusals()
    optimal = all_proved(levels)
    return Plan(
        decision_id=context.decision_id,
        model_version=context.predictor.version,
        actions=answer.actions(),
        pairs=answer.pairings(),
        refused=refused,
        refused_total=refused_total,
        cost=float(decision.total_cost.cost[placement.column[starts]] @ placement.count[starts]),
        greedy_cost=largest_cost(decision, greedy) if min_max else greedy.value(decision.total_cost),
        greedy_waiting=waiting_jobs(decision, greedy),
        lower_bound=value if optimal else lower_bound,
        gap=0.0 if optimal else (value - lower_bound) / max(abs(value), 1e-12),
        status=SolveStatus.OPTIMAL if optimal else SolveStatus.BOUNDED,
        objective_value=value,
        levels=levels,
    )


def _without_bound(level: PlanLevel, decision: GroupDecision) -> PlanLevel:
    """The level of a problem that leaves some placements out, with a bound that holds for them too."""
    floors = {LevelKind.WAITING_WEIGHT: 0.0, LevelKind.MAX_COST: decision.floor}
    floor = floors.get(level.kind, min(each.floor for each in decision.cost_levels))
    return replace(level, lower_bound=min(level.value, floor))
