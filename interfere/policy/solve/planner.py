"""One plan for the pending jobs of all sizes: every job starts alone, beside another, or waits, with a reason."""

import math
from collections.abc import Sequence
from dataclasses import replace

from interfere.errors import InvalidInputError
from interfere.matching.master.problem import ColumnKind, Placement
from interfere.policy.answer.actions import AnswerBuilder
from interfere.policy.answer.merge import all_waiting, merge_plans
from interfere.policy.context import MAX_CLOSING_TIMES, PlanningContext
from interfere.policy.costs.candidates import find_candidates, resident_floor
from interfere.policy.deadlines.infeasible import find_infeasible_deadlines
from interfere.policy.groups.hosts import has_groups
from interfere.policy.groups.planner import plan_groups
from interfere.policy.independent_pools import independent_parts
from interfere.policy.problem_size import problem_size
from interfere.policy.solve.decision_problem import DecisionProblem, decision_problem
from interfere.policy.solve.greedy import place_greedily, waiting_jobs
from interfere.policy.solve.groups import start_groups
from interfere.policy.solve.queue_order import in_queue_order
from interfere.policy.solve.search import DecisionSolution, largest_cost, solve_decision
from interfere.policy.solve.submission_order import in_order_of_submission
from interfere.policy.validate import validate_snapshot
from interfere.records import LevelKind, Plan, PlanLevel, Snapshot, SolveStatus
from interfere.time_budget import TimeBudget

# Costs of pairs and seats up to which all parts are planned as one problem: they take 20 ms.
CELLS_OF_ONE_PROBLEM = 100_000


def plan(context: PlanningContext) -> Plan:
    """The plan for one snapshot, without a ledger. Raises InvalidInputError when the snapshot contradicts itself."""
    violations = validate_snapshot(context.snapshot, context.custom_objective)
    if violations:
        raise InvalidInputError.from_violations(violations)
    context = replace(context, budget=TimeBudget(context.limits.timing.time_budget_s))
    infeasible = find_infeasible_deadlines(context)
    feasible_plan = plan_pending_jobs(context.with_snapshot(infeasible.snapshot))
    return replace(feasible_plan, actions=infeasible.annotate(feasible_plan.actions, ()))


def plan_pending_jobs(context: PlanningContext) -> Plan:
    """The plan for a valid snapshot, or a subproblem of one, whose infeasible deadlines have been set aside."""
    snapshot = context.snapshot
    if not snapshot.pending:
        return _nothing_pending(context)
    parts = () if context.custom_objective else parts_planned_apart(snapshot)
    if len(parts) < 2:
        return _plan_together(context)
    return merge_plans(_plan_parts(parts, context), context)


def parts_planned_apart(snapshot: Snapshot) -> tuple[Snapshot, ...]:
    """The parts that are planned one by one, those with pending jobs; the snapshot itself where it is one problem."""
    parts = tuple(part for part in independent_parts(snapshot) if part.pending)
    if len(parts) < 2 or problem_size(snapshot, MAX_CLOSING_TIMES).cells <= CELLS_OF_ONE_PROBLEM:
        return (snapshot,)
    return parts


def _plan_parts(parts: Sequence[Snapshot], context: PlanningContext) -> list[Plan]:
    """The plans of parts that have nothing to do with one another; each gets its share of the budget."""
    sizes = [problem_size(part, MAX_CLOSING_TIMES).cells for part in parts]
    plans = []
    for k, part in enumerate(parts):
        share = context.budget.share(sizes[k] / max(1, sum(sizes[k:])))
        plans.append(_plan_together(replace(context.subproblem(part), budget=share)))
    return plans


def _plan_together(context: PlanningContext) -> Plan:
    """The plan of pending jobs as one problem."""
    if has_groups(context.snapshot):
        return plan_groups(context)
    queue = context.snapshot.pending
    # 1. What may start, and at which cost: the jobs of each size, and the greedy baseline.
    decision, greedy = _problem(context, by_start_weight=False)
    if waiting_jobs(greedy):
        decision, greedy = _problem(context, by_start_weight=True)
    candidates = decision.candidates
    # 2. The search from the baseline; of equals the jobs that were submitted first.
    solution = solve_decision(decision, greedy, context.budget, min_max=context.objective.is_min_max)
    if not context.objective.prices_waiting:
        solution = replace(solution, placement=in_queue_order(decision, solution.placement, queue))
    # 3. The placement as actions, with the rules behind them.
    groups = start_groups(decision, solution.placement, queue)
    found = _plan(decision, solution, greedy, AnswerBuilder(candidates, groups, context), context)
    # 4. Where that would let jobs end later on average, the order of submission instead.
    return in_order_of_submission(found, decision, context) if context.objective.prices_waiting else found


def _problem(context: PlanningContext, *, by_start_weight: bool) -> tuple[DecisionProblem, Placement]:
    """The candidates of all sizes as one problem, and the greedy placement."""
    queue = context.snapshot.pending
    sizes = sorted({job.gpus for job in queue})
    decision = decision_problem([find_candidates(context, size, by_start_weight=by_start_weight) for size in sizes])
    return decision, place_greedily(decision, queue)


def _nothing_pending(context: PlanningContext) -> Plan:
    """The plan without pending jobs."""
    floor = resident_floor(context)
    value = floor if floor > -math.inf else 0.0
    return replace(all_waiting((), context), objective_value=value, lower_bound=value, greedy_cost=value)


def _plan(
    decision: DecisionProblem,
    solution: DecisionSolution,
    greedy: Placement,
    answer: AnswerBuilder,
    context: PlanningContext,
) -> Plan:
    """The placement as a plan, with what is proved of it."""
    min_max, placement = context.objective.is_min_max, solution.placement
    starts = placement.columns.kind != ColumnKind.WAIT
    cost = float(placement.columns.costs(decision.total_cost)[starts] @ placement.count[starts])
    kind = LevelKind.MAX_COST if min_max else LevelKind.COST
    value = sum(level.value for level in solution.levels if level.kind is kind)
    if context.has_rounded_windows:
        solution = replace(solution, levels=tuple(_without_bound(level, decision) for level in solution.levels))
    lower_bound = sum(level.lower_bound for level in solution.levels if level.kind is kind)
    refused, refused_total = answer.refusals()
    return Plan(
        decision_id=context.decision_id,
        model_version=context.predictor.version,
        actions=answer.actions(),
        pairs=answer.pairings(),
        refused=refused,
        refused_total=refused_total,
        cost=cost,
        greedy_cost=largest_cost(decision, greedy) if min_max else greedy.value(decision.total_cost),
        greedy_waiting=waiting_jobs(greedy),
        lower_bound=value if solution.is_optimal else min(value, lower_bound),
        gap=0.0 if solution.is_optimal else (value - min(value, lower_bound)) / max(abs(value), 1e-12),
        status=SolveStatus.OPTIMAL if solution.is_optimal else SolveStatus.BOUNDED,
        objective_value=value,
        levels=solution.levels,
    )


def _without_bound(level: PlanLevel, decision: DecisionProblem) -> PlanLevel:
    """The level of a problem that leaves some placements out, with a bound that holds for them too."""
    floor = (
        decision.resident_floor
        if level.kind is LevelKind.MAX_COST
        else min(each.floor for each in decision.cost_levels)
    )
    floor = 0.0 if level.kind is LevelKind.WAITING_WEIGHT else floor
    return replace(level, lower_bound=min(level.value, floor))
