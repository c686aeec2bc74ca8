"""The best placement of a decision problem, level by level, and what is proved of each level.

A min-max objective is minimised by bisection: among the placements that are best at the waiting levels, find the
smallest threshold such that no job costs more. Whether a threshold can be reached is again a matter of the waiting
levels, with the starts above it left out.
"""

from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.master.lexicographic import LevelResult, Solution, solve_levels
from interfere.matching.master.problem import BlockCosts, ColumnKind, Columns, Floats, Placement, PlacementProblem
from interfere.matching.master.tolerance import is_proved
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import LevelKind, PlanLevel
from interfere.time_budget import TimeBudget

SAME_WEIGHT = 1e-12  # relative: sums of the same weights in another order
SHARE_OF_BISECTION = 0.6  # of the budget; the rest is for the sum below the threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSolution:
    """A placement, and each level's value with its bound."""

    placement: Placement
    levels: tuple[PlanLevel, ...]

    @property
    def is_optimal(self) -> bool:
        """Whether every level is within the tolerance of its bound."""
        return all(is_proved(level.value, level.lower_bound) for level in self.levels)


def solve_decision(
    decision: DecisionProblem, start: Placement, budget: TimeBudget, *, min_max: bool
) -> DecisionSolution:
    """The best placement found within the budget; `start` is any placement."""
    if min_max:
        return _solve_min_max(decision, start, budget)
    names, levels = (*decision.waiting, *decision.costs), (*decision.waiting_levels, *decision.cost_levels)
    if decision.prices_waiting:
        names, levels = (*decision.costs, *decision.waiting), (*decision.cost_levels, *decision.waiting_levels)
    solution = solve_levels(decision.problem, levels, start, budget=budget, guide=decision.total_cost)
    return DecisionSolution(placement=solution.placement, levels=_plan_levels(names, solution.results))


def largest_cost(decision: DecisionProblem, placement: Placement) -> float:
    """The largest cost of a job that starts or runs; 0 where none does."""
    columns = placement.columns.take(placement.columns.kind != ColumnKind.WAIT)
    costs = columns.costs_of(decision.max_job_costs)
    largest = max(decision.resident_floor, float(costs.max(initial=-np.inf)))
    return largest if largest > -np.inf else 0.0


def _solve_min_max(decision: DecisionProblem, start: Placement, budget: TimeBudget) -> DecisionSolution:
    # 1. The least weight that can wait, without any threshold.
    bisection_budget = budget.share(SHARE_OF_BISECTION)
    best = _least_waiting(decision, decision.problem, start, bisection_budget)
    # 2. Bisect the thresholds: thresholds[high] is reached; below thresholds[low] is not.
    thresholds = _thresholds(decision)
    low, high = 0, int(np.searchsorted(thresholds, largest_cost(decision, best.placement)))
    proved = -1  # the largest index whose threshold was proved too low
    while low < high and not bisection_budget.expired:
        middle = (low + high) // 2
        capped = _capped(decision.problem, decision.max_job_costs, float(thresholds[middle]))
        trial = _least_waiting(decision, capped, _within(capped, best.placement), bisection_budget)
        if _as_good(trial, best):
            best = replace(trial, results=best.results)
            high = min(middle, int(np.searchsorted(thresholds, largest_cost(decision, trial.placement))))
        else:
            proved = middle if _proved_worse(trial, best) else proved
            low = middle + 1
    value = largest_cost(decision, best.placement)
    bound = float(thresholds[high]) if proved == high - 1 or high == 0 else float(thresholds[proved + 1])
    # 3. The smallest sum with no job above the threshold.
    capped = _capped(decision.problem, decision.max_job_costs, value)
    levels = (*decision.waiting_levels, *decision.cost_levels)
    final = solve_levels(capped, levels, best.placement, budget=budget, guide=decision.total_cost)
    value = largest_cost(decision, final.placement)
    waiting = len(decision.waiting_levels)
    return DecisionSolution(
        placement=final.placement,
        levels=(
            *_plan_levels(decision.waiting, tuple(map(_with_bound, final.results[:waiting], best.results))),
            PlanLevel(kind=LevelKind.MAX_COST, value=value, lower_bound=min(bound, value)),
            *_plan_levels(decision.costs, final.results[waiting:]),
        ),
    )


def _least_waiting(
    decision: DecisionProblem, problem: PlacementProblem, start: Placement, budget: TimeBudget
) -> Solution:
    return solve_levels(problem, decision.waiting_levels, start, budget=budget, guide=decision.total_cost)


def _with_bound(capped: LevelResult, free: LevelResult) -> LevelResult:
    """The value that was reached below the threshold, with the bound that holds without one."""
    return replace(capped, lower_bound=min(free.lower_bound, capped.value))


def _as_good(trial: Solution, best: Solution) -> bool:
    """Does no more weight wait, level by level?"""
    for own, other in zip(trial.results, best.results, strict=True):
        if own.value > other.value * (1 + SAME_WEIGHT):
            return False
        if own.value < other.value * (1 - SAME_WEIGHT):
            return True
    return True


def _proved_worse(trial: Solution, best: Solution) -> bool:
    """Is it proved that more weight has to wait, at the first level that differs?"""
    for own, other in zip(trial.results, best.results, strict=True):
        if own.value > other.value * (1 + SAME_WEIGHT):
            return own.lower_bound > other.value * (1 + SAME_WEIGHT)
    return False


def _capped(problem: PlacementProblem, max_job_costs: tuple[BlockCosts, ...], threshold: float) -> PlacementProblem:
    """The problem without the starts in which a job costs more than the threshold."""
    blocks = tuple(
        replace(
            block,
            solo_allowed=block.solo_allowed & (costs.solo <= threshold),
            pair_allowed=block.pair_allowed & (costs.pair <= threshold),
            seat_allowed=block.seat_allowed & (costs.seat <= threshold),
        )
        for block, costs in zip(problem.blocks, max_job_costs, strict=True)
    )
    return replace(problem, blocks=blocks)


def _within(problem: PlacementProblem, placement: Placement) -> Placement:
    """The placement in which jobs whose start is not allowed any more wait."""
    allowed = placement.columns.allowed(problem)
    stay, leave = placement.columns.take(allowed), placement.columns.take(~allowed)
    is_pair = leave.kind == ColumnKind.PAIR
    block = np.concatenate([leave.block, leave.block[is_pair]])
    i = np.concatenate([leave.i, leave.j[is_pair]])
    count = np.concatenate([placement.count[~allowed], placement.count[~allowed][is_pair]])
    wait = [Columns.of(b, ColumnKind.WAIT, 0, i[block == b]) for b in range(len(problem.blocks))]
    counts = [count[block == b] for b in range(len(problem.blocks))]
    return Placement(
        columns=Columns.concatenate([stay, *wait]),
        count=np.concatenate([placement.count[allowed], *counts]),
    ).merged()


def _thresholds(decision: DecisionProblem) -> Floats:
    """Sorted distinct costs of a job that can be the largest; first the least that it can be in any placement.

    That is the floor of the residents; without residents 0, where no job starts, or a negative cost.
    """
    costs = [np.zeros(0)]
    for block, largest in zip(decision.problem.blocks, decision.max_job_costs, strict=True):
        costs += [largest.solo[block.solo_allowed], largest.pair[block.pair_allowed], largest.seat[block.seat_allowed]]
    distinct = np.unique(np.concatenate(costs))
    floor = decision.resident_floor if decision.resident_floor > -np.inf else float(distinct.min(initial=0.0))
    return np.concatenate([[floor], distinct[distinct > floor]])


def _plan_levels(
    names: tuple[tuple[LevelKind, int | None], ...], results: tuple[LevelResult, ...]
) -> tuple[PlanLevel, ...]:
    return tuple(
        PlanLevel(kind=kind, priority=priority, value=result.value, lower_bound=result.lower_bound)
        for (kind, priority), result in zip(names, results, strict=True)
    )
