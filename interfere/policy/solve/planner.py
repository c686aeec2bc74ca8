"""One plan for jobs on one device each: every pending job starts alone, starts beside another, or waits, with a reason.

First the most weight is started, then at the smallest value of the objective: `min_sum` where costs add, `min_max`
where the largest counts; `answer.actions` turns the placement into actions.
"""

import math
from dataclasses import dataclass, replace

from interfere.errors import InvalidInputError
from interfere.policy.answer.actions import AnswerBuilder, start_groups
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates, find_candidates
from interfere.policy.deadlines.infeasible import find_infeasible_deadlines
from interfere.policy.solve.greedy import GreedyPlacement, place_greedily
from interfere.policy.solve.min_max import solve_min_max
from interfere.policy.solve.min_sum import (
    RELATIVE_TOLERANCE,
    Floats,
    Placement,
    cost_lower_bound,
    placement_from,
    solve_min_sum,
    waiting_penalties,
)
from interfere.policy.validate import validate_snapshot
from interfere.records import Plan, SolveStatus
from interfere.time_budget import TimeBudget


def plan(context: PlanningContext) -> Plan:
    """The plan for one snapshot, without a ledger. Raises InvalidInputError when the snapshot contradicts itself."""
    violations = validate_snapshot(context.snapshot, context.custom_objective)
    if violations:
        raise InvalidInputError.from_violations(violations)
    infeasible = find_infeasible_deadlines(context)
    feasible_plan = plan_single_device_jobs(context.with_snapshot(infeasible.snapshot))
    return replace(feasible_plan, actions=infeasible.annotate(feasible_plan.actions, ()))


def plan_single_device_jobs(context: PlanningContext) -> Plan:
    """The plan for a valid snapshot, or a subproblem of one, in which every job takes one device.

    Deadlines that are infeasible have been set aside (`deadlines.infeasible`).
    """
    budget = TimeBudget(context.limits.timing.time_budget_s)
    # 1. What may start, and at which cost.
    candidates = find_candidates(context)
    # 2. The greedy baseline, then the solver.
    greedy = place_greedily(candidates)
    solution = _solve(candidates, waiting_penalties(candidates), greedy, budget)
    # 3. The placement as actions, with the rules behind them.
    answer = AnswerBuilder(candidates, start_groups(candidates, solution.placement.starts), context)
    refused, refused_total = answer.refusals()
    return Plan(
        decision_id=context.decision_id,
        model_version=context.predictor.version,
        actions=tuple(answer.action(i) for i in range(len(candidates.pending))),
        pairs=answer.pairings(),
        refused=refused,
        refused_total=refused_total,
        cost=solution.placement.cost,
        greedy_cost=greedy.largest_cost if candidates.is_min_max else greedy.cost,
        greedy_waiting=greedy.waiting,
        lower_bound=solution.value if solution.is_optimal else solution.lower_bound,
        gap=0.0 if solution.is_optimal else solution.gap,
        status=SolveStatus.OPTIMAL if solution.is_optimal else SolveStatus.BOUNDED,
        objective_value=solution.value,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solution:
    """A placement, its value in the objective, and a lower bound on that of any with as much started weight."""

    placement: Placement
    value: float
    lower_bound: float

    @property
    def gap(self) -> float:
        """Relative to the value."""
        return (self.value - self.lower_bound) / max(abs(self.value), 1e-12)

    @property
    def is_optimal(self) -> bool:
        """Whether value and bound differ by rounding only."""
        tolerance = RELATIVE_TOLERANCE * max(abs(self.value), self.placement.total)
        return self.value - self.lower_bound <= tolerance


def _solve(candidates: Candidates, penalties: Floats, greedy: GreedyPlacement, budget: TimeBudget) -> _Solution:
    """The solver's placement; where the budget expired before it was as good as greedy, the greedy one."""
    greedy_placement = placement_from(candidates, penalties, greedy.starts, lower_bound=-math.inf)
    if candidates.is_min_max:
        return _solve_min_max(candidates, penalties, greedy, greedy_placement, budget)
    placement = solve_min_sum(candidates, penalties, budget)
    if placement.is_optimal:
        return _Solution(placement=placement, value=placement.cost, lower_bound=placement.cost)
    if greedy_placement.total < placement.total:
        placement = replace(greedy_placement, lower_bound=placement.lower_bound)
    lower_bound = placement.lower_bound - placement.waiting_penalty
    if not placement.waiting_penalty:
        lower_bound = max(lower_bound, cost_lower_bound(candidates))
    return _Solution(placement=placement, value=placement.cost, lower_bound=min(placement.cost, lower_bound))


def _solve_min_max(
    candidates: Candidates,
    penalties: Floats,
    greedy: GreedyPlacement,
    greedy_placement: Placement,
    budget: TimeBudget,
) -> _Solution:
    solution = solve_min_max(candidates, penalties, budget)
    placement, value, lower_bound = solution.placement, solution.largest_cost, solution.lower_bound
    greedy_starts_more = greedy_placement.waiting_penalty < placement.waiting_penalty * (1 - RELATIVE_TOLERANCE)
    greedy_starts_as_much = greedy_placement.waiting_penalty <= placement.waiting_penalty * (1 + RELATIVE_TOLERANCE)
    if greedy_starts_more or (greedy_starts_as_much and greedy.largest_cost < value):
        placement, value = greedy_placement, greedy.largest_cost
        lower_bound = min(lower_bound, candidates.resident_floor)
    if value == -math.inf:  # no job starts and none runs
        value = lower_bound = 0.0
    return _Solution(placement=placement, value=value, lower_bound=lower_bound)
