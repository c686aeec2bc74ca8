"""The least worst cost of a job, by search for a threshold.

Of all placements that start the most weight, the smallest largest cost θ of a job; then, with no job above θ, the least
sum. Whether as much weight starts below a threshold never turns from yes to no as it rises, so the sorted distinct
costs are halved until one is left: about 18 placements at no cost for 300 jobs beside 700 residents, then a costed one.
"""

from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.costs.candidates import Options
from interfere.policy.solve.min_sum import EQUAL, Floats, Placement, place, placement_of
from interfere.time_budget import UNLIMITED, TimeBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstPlacement:
    """A placement, the largest cost of a job in it, and what is proved of the least possible."""

    placement: Placement
    worst: float
    bound: float


def least_worst(options: Options, price: Floats, budget: TimeBudget = UNLIMITED) -> WorstPlacement:
    """The placement; exact when every one on the way was."""
    near = place(_free(options), price, budget)
    least, worst = near.waiting * (1 + EQUAL), _worst(options, near)
    values = _values(options)
    low, high = 0, int(np.searchsorted(values, worst))  # values[high] is reached; below values[low] is not
    proved = -1
    while low < high and not budget.expired:
        middle = (low + high) // 2
        found = place(_free(options.up_to(float(values[middle]))), price, budget)
        if found.waiting <= least:
            near, worst = found, _worst(options, found)
            high = min(middle, int(np.searchsorted(values, worst)))
        else:
            proved = middle if found.bound > least else proved
            low = middle + 1
    exact = proved == high - 1 or high == 0
    bound = float(values[high]) if exact else float(values[proved + 1])
    best = place(options.up_to(worst), price, budget)
    if best.waiting > least:  # the time did not do for it
        best = placement_of(options, price, near.starts, bound=-np.inf)
    worst = _worst(options, best)
    return WorstPlacement(placement=best, worst=worst, bound=min(bound, worst))


def _free(options: Options) -> Options:
    """The same choices at no cost: who starts at all is found ten times sooner than who starts cheapest."""

    def free(cost: Floats) -> Floats:
        return np.where(np.isfinite(cost), 0.0, np.inf)

    return replace(
        options,
        alone={where: free(cost) for where, cost in options.alone.items()},
        together={where: replace(table, cost=free(table.cost)) for where, table in options.together.items()},
        beside={where: (replace(t, cost=free(t.cost)), columns) for where, (t, columns) in options.beside.items()},
        seat_place=tuple((replace(t, cost=free(t.cost)), column) for t, column in options.seat_place),
    )


def _worst(options: Options, placement: Placement) -> float:
    return max([options.floor, *(options.cost_of(start)[1] for start in placement.starts)])


def _values(options: Options) -> Floats:
    """Sorted distinct costs of a job that may decide; the floor first."""
    tables = [*options.together.values(), *(costs for costs, _ in options.beside.values())]
    parts = [cost[np.isfinite(cost)] for cost in options.alone.values()]
    parts += [costs.worst[np.isfinite(costs.cost)] for costs in tables]
    values = np.unique(np.concatenate([np.zeros(0), *parts]))
    return np.concatenate([[options.floor], values[values > options.floor]])
