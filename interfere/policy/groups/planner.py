"""One plan for pending jobs where devices have other than two seats."""

from dataclasses import replace

from interfere.matching.group_master.problem import WAITS, GroupPlacement
from interfere.policy.answer.actions import AnswerBuilder
from interfere.policy.context import PlanningContext
from interfere.policy.groups.answer import GroupAnswer, placed_groups
from interfere.policy.groups.builder import group_decision
from interfere.policy.groups.greedy import place_around_pairs, place_greedily, waiting_jobs
from interfere.policy.groups.problem import GroupDecision
from interfere.policy.groups.solve import GroupSolved, all_proved, largest_cost, solve_groups
from interfere.policy.solve.decision_problem import decision_problem
from interfere.policy.solve.greedy import place_greedily as place_pairs_greedily
from interfere.policy.solve.search import solve_decision
from interfere.records import LevelKind, Plan, PlanLevel, SolveStatus

SHARE_OF_PAIRS = 0.4  # of the budget that is left after the groups are listed


def plan_groups(context: PlanningContext) -> Plan:
    """The plan of a valid snapshot with pending jobs."""
    queue = context.snapshot.pending
    # 1. Every group that may start, and the greedy baseline; classes by start weight only where some job waits.
    decision = group_decision(context, by_start_weight=False)
    decision, greedy = place_greedily(decision, queue)
    if waiting_jobs(decision, greedy):
        decision, greedy = place_greedily(group_decision(context, by_start_weight=True), queue)
    # 2. The search from the baseline; where not every group is listed, from the best pairs if these are better.
    start = greedy
    if decision.problem.cutoffs and not context.budget.expired:
        start = min(greedy, _around_pairs(decision, context), key=lambda placement: _levels(decision, placement))
    solved = solve_groups(decision, start, context.budget, min_max=context.objective.is_min_max)
    # 3. The placement as actions, with the rules behind them.
    decision = solved.decision
    answer = GroupAnswer(decision, placed_groups(decision, solved.placement, queue), context)
    return _plan(solved, greedy, answer, context)


def _around_pairs(decision: GroupDecision, context: PlanningContext) -> GroupPlacement:
    """The best pairs of the same candidates, and all other jobs where they add the least cost."""
    pairs, queue, min_max = (
        decision_problem(decision.candidates),
        context.snapshot.pending,
        context.objective.is_min_max,
    )
    budget = context.budget.share(SHARE_OF_PAIRS)
    solution = solve_decision(pairs, place_pairs_greedily(pairs, queue), budget, min_max=min_max)
    return place_around_pairs(decision, pairs, solution.placement)


def _levels(decision: GroupDecision, placement: GroupPlacement) -> tuple[float, ...]:
    """What a placement comes to, level by level."""
    waiting = [placement.value(level) for level in decision.waiting_levels]
    largest = [largest_cost(decision, placement)] if decision.is_min_max else []
    return (*waiting, *largest, *(placement.value(level) for level in decision.cost_levels))


def _plan(solved: GroupSolved, greedy: GroupPlacement, answer: GroupAnswer, context: PlanningContext) -> Plan:
    """The placement as a plan, with what is proved of it."""
    decision, placement, levels = solved.decision, solved.placement, solved.levels
    min_max = context.objective.is_min_max
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
