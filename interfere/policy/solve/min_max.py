"""Min-max objectives: the smallest possible largest cost of a job, by bisection over a threshold.

Among the placements that start the most weight, find the smallest threshold θ such that no job costs more than θ; then,
with no job above θ, the smallest sum. Whether as much weight starts below a threshold is monotone in the threshold, so
the sorted distinct costs are bisected: about 18 placements without costs for 300 jobs beside 700 residents, then one
with costs.
"""

from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.costs.candidates import Candidates
from interfere.policy.solve.min_sum import RELATIVE_TOLERANCE, Floats, Placement, placement_from, solve_min_sum
from interfere.time_budget import UNLIMITED, TimeBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class MinMaxPlacement:
    """A placement, the largest cost of a job in it, and a proved lower bound on that of any placement."""

    placement: Placement
    largest_cost: float
    lower_bound: float


def solve_min_max(candidates: Candidates, penalties: Floats, budget: TimeBudget = UNLIMITED) -> MinMaxPlacement:
    """The placement; optimal when every placement on the way was. `penalties` float64[n]: of each job that waits."""
    # 1. The most weight that can start, without any threshold.
    feasible = solve_min_sum(_without_costs(candidates), penalties, budget)
    max_waiting = feasible.waiting_penalty * (1 + RELATIVE_TOLERANCE)
    largest_cost = _largest_cost(candidates, feasible)
    # 2. Bisect the thresholds: thresholds[high] is reached; below thresholds[low] is not.
    thresholds = _thresholds(candidates)
    low, high = 0, int(np.searchsorted(thresholds, largest_cost))
    proved = -1  # the largest index whose threshold was proved too low
    while low < high and not budget.expired:
        middle = (low + high) // 2
        capped = candidates.capped_at(float(thresholds[middle]))
        trial = solve_min_sum(_without_costs(capped), penalties, budget)
        if trial.waiting_penalty <= max_waiting:
            feasible, largest_cost = trial, _largest_cost(candidates, trial)
            high = min(middle, int(np.searchsorted(thresholds, largest_cost)))
        else:
            proved = middle if trial.lower_bound > max_waiting else proved
            low = middle + 1
    is_proved = proved == high - 1 or high == 0
    lower_bound = float(thresholds[high]) if is_proved else float(thresholds[proved + 1])
    # 3. Below the threshold, the smallest sum.
    placement = solve_min_sum(candidates.capped_at(largest_cost), penalties, budget)
    if placement.waiting_penalty > max_waiting:  # the budget did not suffice for it
        placement = placement_from(candidates, penalties, feasible.starts, lower_bound=-np.inf)
    largest_cost = _largest_cost(candidates, placement)
    return MinMaxPlacement(placement=placement, largest_cost=largest_cost, lower_bound=min(lower_bound, largest_cost))


def _without_costs(candidates: Candidates) -> Candidates:
    """The same starts at no cost: whether they are possible is found ten times sooner than which are cheapest."""

    def free(cost: Floats) -> Floats:
        return np.where(np.isfinite(cost), 0.0, np.inf)

    return replace(
        candidates,
        solo_cost={device_class: free(cost) for device_class, cost in candidates.solo_cost.items()},
        pair_tables={
            device_class: replace(table, cost=free(table.cost))
            for device_class, table in candidates.pair_tables.items()
        },
        resident_tables={
            device_class: (replace(table, cost=free(table.cost)), columns)
            for device_class, (table, columns) in candidates.resident_tables.items()
        },
        seat_columns=tuple(
            (replace(table, cost=free(table.cost)), column) for table, column in candidates.seat_columns
        ),
    )


def _largest_cost(candidates: Candidates, placement: Placement) -> float:
    return max([candidates.resident_floor, *(candidates.cost_of(start)[1] for start in placement.starts)])


def _thresholds(candidates: Candidates) -> Floats:
    """Sorted distinct costs of a job that can be the largest; the floor of the residents first."""
    floor = candidates.resident_floor
    tables = [*candidates.pair_tables.values(), *(table for table, _ in candidates.resident_tables.values())]
    costs = [cost[np.isfinite(cost)] for cost in candidates.solo_cost.values()]
    costs += [table.max_job_cost[np.isfinite(table.cost)] for table in tables]
    distinct = np.unique(np.concatenate([np.zeros(0), *costs]))
    return np.concatenate([[floor], distinct[distinct > floor]])
