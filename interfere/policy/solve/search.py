"""The best placement of a decision problem, level by level, and what is proved of each level.

A min-max objective is minimised by bisection: among the placements that are best at the waiting levels, find the
smallest threshold such that no job costs more. Whether a threshold can be reached is again a matter of the waiting
levels, with the starts above it left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.problem import WAITS, Placement, PlacementProblem, is_proved
from interfere.matching.search import Solution, solve_levels
from interfere.matching.verify import broken_limits, verify_levels
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.records import LevelKind, PlanLevel
from interfere.time_budget import TimeBudget

SAME_WEIGHT = 1e-12  # relative: sums of the same weights in another order
SHARE_OF_BISECTION = 0.6  # of the budget; the rest is for the sum below the threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSolution:
    """A placement with its proved bounds, and the decision problem with all columns that the search generated."""

    decision: DecisionProblem
    placement: Placement
    levels: tuple[PlanLevel, ...]
    failed_checks: tuple[str, ...] = ()  # claims of the search that the independent check did not confirm


def solve_decision(decision: DecisionProblem, start: Placement, budget: TimeBudget) -> DecisionSolution:
    """The best placement found within the budget, with each level's value and bound; `start` is any placement."""
    if decision.is_min_max:
        return _solve_min_max(decision, start, budget)
    solution = solve_levels(decision.problem, decision.levels, start, budget=budget, guide=decision.total_cost)
    solution, failed = checked(solution, start)
    found = decision.extended(solution.problem, solution.levels, solution.guide)
    proved = _plan_levels(decision.names, solution.values, solution.lower_bounds)
    return DecisionSolution(decision=found, placement=solution.placement, levels=proved, failed_checks=failed)


def checked(solution: Solution, start: Placement) -> tuple[Solution, tuple[str, ...]]:
    """Return the solution with the bounds that an independent check of its prices confirms, and the failed claims.

    An illegal placement gives way to the one that the search started from, without bounds.
    """
    broken = tuple(broken_limits(solution.problem, solution.placement))
    if broken:
        values = tuple(start.value(level) for level in solution.levels)
        floors = tuple(min(level.floor, value) for level, value in zip(solution.levels, values, strict=True))
        illegal = f"an illegal placement was replaced by the greedy one: {'; '.join(broken)}"
        return replace(solution, placement=start, values=values, lower_bounds=floors), (illegal,)
    found = verify_levels(solution.problem, solution.levels, solution.placement, solution.certificates)
    if not found.problems:
        return solution, ()
    bounds = tuple(min(own, proved) for own, proved in zip(solution.lower_bounds, found.bounds, strict=True))
    unproved = tuple(f"a certificate does not prove what it claims: {problem}" for problem in found.problems)
    return replace(solution, lower_bounds=bounds), unproved


def all_proved(levels: Sequence[PlanLevel]) -> bool:
    """Whether every level is within the tolerance of its bound."""
    return all(is_proved(level.value, level.lower_bound) for level in levels)


def largest_cost(decision: DecisionProblem, placement: Placement) -> float:
    """The largest cost of a job that starts or runs; 0 where none does."""
    largest = max(decision.floor, float(decision.largest[placement.column].max(initial=-np.inf)))
    return largest if largest > -np.inf else 0.0


def _solve_min_max(decision: DecisionProblem, start: Placement, budget: TimeBudget) -> DecisionSolution:
    # 1. The least weight that can wait, without any threshold.
    share = budget.share(SHARE_OF_BISECTION)
    free = _least_waiting(decision, decision.problem, start, share)
    best = free.placement
    # 2. Bisect the thresholds: limits[high] is reached; below limits[low] is not.
    limits = thresholds(decision)
    low, high = 0, int(np.searchsorted(limits, largest_cost(decision, best)))
    proved = -1  # the largest index whose threshold was proved too low
    while low < high and not share.expired:
        middle = (low + high) // 2
        capped = _capped(decision, float(limits[middle]))
        trial = _least_waiting(decision, capped, _within(capped, best), share)
        if _as_good(trial, free):
            best = trial.placement
            high = min(middle, int(np.searchsorted(limits, largest_cost(decision, best))))
        else:
            proved = middle if _proved_worse(trial, free) else proved
            low = middle + 1
    value = largest_cost(decision, best)
    bound = float(limits[high]) if proved == high - 1 or high == 0 else float(limits[proved + 1])
    # 3. The smallest sum with no job above the threshold.
    levels = (*decision.waiting_levels, *decision.cost_levels)
    final = solve_levels(_capped(decision, value), levels, best, budget=budget, guide=decision.total_cost)
    final, failed = checked(final, best)
    value, waiting = largest_cost(decision, final.placement), len(decision.waiting_levels)
    levels_proved = (
        *_plan_levels(decision.waiting, final.values[:waiting], free.lower_bounds),
        PlanLevel(kind=LevelKind.MAX_COST, value=value, lower_bound=min(bound, value)),
        *_plan_levels(decision.costs, final.values[waiting:], final.lower_bounds[waiting:]),
    )
    return DecisionSolution(decision=decision, placement=final.placement, levels=levels_proved, failed_checks=failed)


def _least_waiting(
    decision: DecisionProblem, problem: PlacementProblem, start: Placement, budget: TimeBudget
) -> Solution:
    return solve_levels(problem, decision.waiting_levels, start, budget=budget, guide=decision.total_cost)


def _as_good(trial: Solution, best: Solution) -> bool:
    """Does no more weight wait, level by level?"""
    for own, other in zip(trial.values, best.values, strict=True):
        if own > other * (1 + SAME_WEIGHT):
            return False
        if own < other * (1 - SAME_WEIGHT):
            return True
    return True


def _proved_worse(trial: Solution, best: Solution) -> bool:
    """Is it proved that more weight has to wait, at the first level that differs?"""
    for own, bound, other in zip(trial.values, trial.lower_bounds, best.values, strict=True):
        if own > other * (1 + SAME_WEIGHT):
            return bound > other * (1 + SAME_WEIGHT)
    return False


def _capped(decision: DecisionProblem, threshold: float) -> PlacementProblem:
    """The problem without groups in which a job costs more than the threshold."""
    return replace(decision.problem, allowed=decision.problem.allowed & (decision.largest <= threshold))


def _within(problem: PlacementProblem, placement: Placement) -> Placement:
    """The placement in which jobs of groups that are not allowed any more wait."""
    counts = np.zeros(len(problem.host), dtype=np.int64)
    allowed = problem.allowed[placement.column]
    counts[placement.column[allowed]] = placement.count[allowed]
    for column, count in zip(placement.column[~allowed].tolist(), placement.count[~allowed].tolist(), strict=True):
        for job in problem.members[column].tolist():
            if job >= 0:
                counts[job] += count  # the first columns are those that wait, in the order of the classes
    assert (problem.host[: len(problem.demand)] == WAITS).all()
    return Placement.of_counts(counts)


def thresholds(decision: DecisionProblem) -> np.ndarray:
    """Return the sorted distinct values that the largest cost of a job may take.

    The first is its least possible value.
    """
    placed = (decision.problem.host != WAITS) & decision.problem.allowed
    distinct = np.unique(decision.largest[placed])
    floor = decision.floor if decision.floor > -np.inf else float(distinct.min(initial=0.0))
    return np.concatenate([[floor], distinct[distinct > floor]])


def _plan_levels(
    names: tuple[tuple[LevelKind, int | None], ...], values: Sequence[float], bounds: Sequence[float]
) -> tuple[PlanLevel, ...]:
    return tuple(
        PlanLevel(kind=kind, priority=priority, value=value, lower_bound=min(bound, value))
        for (kind, priority), value, bound in zip(names, values, bounds, strict=True)
    )
