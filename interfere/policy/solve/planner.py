"""One plan for the pending jobs of all sizes: every job starts alone, beside another, or waits, with a reason."""

import math
from collections.abc import Sequence
from dataclasses import replace

from interfere.matching.problem import WAITS, Placement
from interfere.policy.answer.actions import AnswerBuilder
from interfere.policy.answer.starts import all_waiting, merge_plans, pairings
from interfere.policy.context import MAX_CLOSING_TIMES, PlanningContext
from interfere.policy.costs.candidates import resident_floor
from interfere.policy.costs.job_classes import company_lengths
from interfere.policy.problem_size import independent_parts, problem_size
from interfere.policy.solve.builder import decision_problem
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.solve.greedy import place_greedily, waiting_jobs
from interfere.policy.solve.queue_order import in_queue_order
from interfere.policy.solve.search import DecisionSolution, all_proved, largest_cost, solve_decision, thresholds
from interfere.policy.solve.starts import start_groups
from interfere.records import LevelKind, Plan, PlanLevel, Snapshot, SolveStatus
from interfere.records.cluster import DEFAULT_SEATS

# Costs of pairs and seats up to which all parts are planned as one problem: they take 20 ms.
CELLS_OF_ONE_PROBLEM = 100_000
SHARE_OF_SEARCH = 0.85  # of the budget that is left once the columns are listed; the rest is for schedules and moves


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
    """Return the independent parts of a snapshot that have pending jobs, to be planned one by one.

    A small problem is one part.
    """
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
    queue = context.snapshot.pending
    # 1. What may start, and at which cost, and the greedy baseline; start weights only where some job waits.
    crowded = _outnumber_seats(context.snapshot)
    decision, greedy = place_greedily(decision_problem(context, by_start_weight=crowded), queue)
    if not crowded and waiting_jobs(decision, greedy):
        decision, greedy = place_greedily(decision_problem(context, by_start_weight=True), queue)
    # 2. The search from the baseline; of equals the jobs that were submitted first.
    budget = context.budget.share(SHARE_OF_SEARCH)
    solved = solve_decision(decision, greedy, budget)
    if solved.failed_checks:
        context.report_failed_checks(context.snapshot, solved.failed_checks)
    decision, placement = solved.decision, solved.placement
    placement = in_queue_order(decision, placement, queue)
    # 3. The placement as actions, with the rules behind them.
    answer = AnswerBuilder(decision, start_groups(decision, placement, queue), context)
    return _plan(replace(solved, placement=placement), greedy, answer, context)


def _outnumber_seats(snapshot: Snapshot) -> bool:
    """Whether the pending jobs ask for more seats than are free, or one for more devices, so that some have to wait
    whatever is decided.

    The seats of a device that grants memory follow from its grants: with such a device the answer is no.
    """
    if not all(math.isnan(device.granule_bytes) for device in snapshot.devices):
        return False
    free = sum([(device.seats or DEFAULT_SEATS) - len(device.residents) for device in snapshot.devices])
    if sum([job.gpus for job in snapshot.pending]) > free:
        return True
    largest = max(job.gpus for job in snapshot.pending)
    if largest == 1 or sum([not device.residents for device in snapshot.devices]) >= largest:
        return False
    return not any(job.gpus == largest for device in snapshot.devices for job in device.residents)


def _nothing_pending(context: PlanningContext) -> Plan:
    """The plan without pending jobs."""
    floor = resident_floor(context)
    value = floor if floor > -math.inf else 0.0
    return replace(all_waiting((), context), objective_value=value, lower_bound=value, greedy_cost=value)


def _plan(solved: DecisionSolution, greedy: Placement, answer: AnswerBuilder, context: PlanningContext) -> Plan:
    """Return the placement as a plan, with the proved bounds."""
    decision, placement, levels = solved.decision, solved.placement, solved.levels
    starts = decision.problem.host[placement.column] != WAITS
    kind = LevelKind.MAX_COST if decision.is_min_max else LevelKind.COST
    rounded_lengths = company_lengths(context.snapshot, context.custom_objective, context.custom_rules).is_rounded
    if context.has_rounded_windows or rounded_lengths:
        levels = tuple(_without_bound(level, decision) for level in levels)
    value = sum(level.value for level in levels if level.kind is kind)
    lower_bound = min(value, sum(level.lower_bound for level in levels if level.kind is kind))
    optimal = all_proved(levels)
    actions, (refused, refused_total) = answer.actions(), answer.refusals()
    return Plan(
        decision_id=context.decision_id,
        model_version=context.predictor.version,
        actions=actions,
        pairs=pairings(actions),
        refused=refused,
        refused_total=refused_total,
        cost=float(decision.total_cost.cost[placement.column[starts]] @ placement.count[starts]),
        greedy_cost=largest_cost(decision, greedy) if decision.is_min_max else greedy.value(decision.total_cost),
        greedy_waiting=waiting_jobs(decision, greedy),
        lower_bound=value if optimal else lower_bound,
        gap=0.0 if optimal else (value - lower_bound) / max(abs(value), 1e-12),
        status=SolveStatus.OPTIMAL if optimal else SolveStatus.BOUNDED,
        objective_value=value,
        levels=levels,
    )


def _without_bound(level: PlanLevel, decision: DecisionProblem) -> PlanLevel:
    """The level of a problem that leaves some placements out, with a bound that holds for them too."""
    floors = {LevelKind.WAITING_WEIGHT: 0.0, LevelKind.MAX_COST: float(thresholds(decision)[0])}
    floor = floors.get(level.kind, min(each.floor for each in decision.cost_levels))
    return replace(level, lower_bound=min(level.value, floor))
