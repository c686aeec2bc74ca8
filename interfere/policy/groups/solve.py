"""The best placement in groups, level by level; a min-max objective by bisection, as `solve.search` does for pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.group_master.problem import WAITS, GroupPlacement, GroupProblem
from interfere.matching.group_master.search import GroupSolution, solve_group_levels
from interfere.matching.master.tolerance import is_proved
from interfere.policy.groups.problem import GroupDecision
from interfere.records import LevelKind, PlanLevel
from interfere.time_budget import TimeBudget

SAME_WEIGHT = 1e-12  # relative: sums of the same weights in another order
SHARE_OF_BISECTION = 0.6  # of the budget; the rest is for the sum below the threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSolved:
    """A placement, what is proved of it, and the decision with the columns that were found."""

    decision: GroupDecision
    placement: GroupPlacement
    levels: tuple[PlanLevel, ...]


def solve_groups(decision: GroupDecision, start: GroupPlacement, budget: TimeBudget, *, min_max: bool) -> GroupSolved:
    """The best placement found within the budget, with each level's value and bound; `start` is any placement."""
    if min_max:
        return _solve_min_max(decision, start, budget)
    names, levels = (*decision.waiting, *decision.costs), (*decision.waiting_levels, *decision.cost_levels)
    solution = solve_group_levels(decision.problem, levels, start, budget=budget, guide=decision.total_cost)
    found = decision.extended(solution.problem, solution.levels, solution.guide)
    proved = _plan_levels(names, solution.values, solution.lower_bounds)
    return GroupSolved(decision=found, placement=solution.placement, levels=proved)


def all_proved(levels: Sequence[PlanLevel]) -> bool:
    """Whether every level is within the tolerance of its bound."""
    return all(is_proved(level.value, level.lower_bound) for level in levels)


def largest_cost(decision: GroupDecision, placement: GroupPlacement) -> float:
    """The largest cost of a job that starts or runs; 0 where none does."""
    largest = max(decision.floor, float(decision.largest[placement.column].max(initial=-np.inf)))
    return largest if largest > -np.inf else 0.0


def _solve_min_max(decision: GroupDecision, start: GroupPlacement, budget: TimeBudget) -> GroupSolved:
    # 1. The least weight that can wait, without any threshold.
    share = budget.share(SHARE_OF_BISECTION)
    free = _least_waiting(decision, decision.problem, start, share)
    best = free.placement
    # 2. Bisect the thresholds: thresholds[high] is reached; below thresholds[low] is not.
    thresholds = _thresholds(decision)
    low, high = 0, int(np.searchsorted(thresholds, largest_cost(decision, best)))
    proved = -1  # the largest index whose threshold was proved too low
    while low < high and not share.expired:
        middle = (low + high) // 2
        capped = _capped(decision, float(thresholds[middle]))
        trial = _least_waiting(decision, capped, _within(capped, best), share)
        if _as_good(trial, free):
            best = trial.placement
            high = min(middle, int(np.searchsorted(thresholds, largest_cost(decision, best))))
        else:
            proved = middle if _proved_worse(trial, free) else proved
            low = middle + 1
    value = largest_cost(decision, best)
    bound = float(thresholds[high]) if proved == high - 1 or high == 0 else float(thresholds[proved + 1])
    # 3. The smallest sum with no job above the threshold.
    levels = (*decision.waiting_levels, *decision.cost_levels)
    final = solve_group_levels(_capped(decision, value), levels, best, budget=budget, guide=decision.total_cost)
    value, waiting = largest_cost(decision, final.placement), len(decision.waiting_levels)
    levels_proved = (
        *_plan_levels(decision.waiting, final.values[:waiting], free.lower_bounds),
        PlanLevel(kind=LevelKind.MAX_COST, value=value, lower_bound=min(bound, value)),
        *_plan_levels(decision.costs, final.values[waiting:], final.lower_bounds[waiting:]),
    )
    return GroupSolved(decision=decision, placement=final.placement, levels=levels_proved)


def _least_waiting(
    decision: GroupDecision, problem: GroupProblem, start: GroupPlacement, budget: TimeBudget
) -> GroupSolution:
    return solve_group_levels(problem, decision.waiting_levels, start, budget=budget, guide=decision.total_cost)


def _as_good(trial: GroupSolution, best: GroupSolution) -> bool:
    """Does no more weight wait, level by level?"""
    for own, other in zip(trial.values, best.values, strict=True):
        if own > other * (1 + SAME_WEIGHT):
            return False
        if own < other * (1 - SAME_WEIGHT):
            return True
    return True


def _proved_worse(trial: GroupSolution, best: GroupSolution) -> bool:
    """Is it proved that more weight has to wait, at the first level that differs?"""
    for own, bound, other in zip(trial.values, trial.lower_bounds, best.values, strict=True):
        if own > other * (1 + SAME_WEIGHT):
            return bound > other * (1 + SAME_WEIGHT)
    return False


def _capped(decision: GroupDecision, threshold: float) -> GroupProblem:
    """The problem without groups in which a job costs more than the threshold."""
    return replace(decision.problem, allowed=decision.problem.allowed & (decision.largest <= threshold))


def _within(problem: GroupProblem, placement: GroupPlacement) -> GroupPlacement:
    """The placement in which jobs of groups that are not allowed any more wait."""
    counts = np.zeros(len(problem.host), dtype=np.int64)
    allowed = problem.allowed[placement.column]
    counts[placement.column[allowed]] = placement.count[allowed]
    for column, count in zip(placement.column[~allowed].tolist(), placement.count[~allowed].tolist(), strict=True):
        for job in problem.members[column].tolist():
            if job >= 0:
                counts[job] += count  # the first columns are those that wait, in the order of the classes
    assert (problem.host[: len(problem.demand)] == WAITS).all()
    return GroupPlacement.of_counts(counts)


def _thresholds(decision: GroupDecision) -> np.ndarray:
    """Sorted distinct costs of a job that can be the largest; first the least that it can be in any placement."""
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
