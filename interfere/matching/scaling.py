"""Costs in whole units: rounded so finely that no proof is lost, and so coarsely that sums of them stay exact.

Units are fine beside what a job's cheapest start costs, unless the largest cost is so large that sums would not stay
exact. Then the largest costs are outliers: a partition without them is found first, and they are hopeless where even
the cheapest starts of all other jobs beside them cost more. What rounding may still hide is told as an error.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.dual_prices import BLOCK_CELLS

Floats = NDArray[np.float64]

# In the most expensive "cheapest start of a job", and in the largest cost: sums stay below 2^53.
USUAL_UNITS, MAX_UNITS = 2.0**36, 2.0**46
ROUNDING = 1e-15  # relative, of one sum in floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledCosts:
    """Costs in whole units."""

    matrix: Floats  # float64[n, n], its diagonal twice the solo cost
    solo: Floats  # float64[n]
    scale: float  # units in a cost of one, a power of two: prices of another problem scale without rounding
    error: float  # in the caller's costs: the most by which rounding moves the cost of any partition


def scale_costs(cost: Floats, solo: Floats) -> ScaledCosts:
    """Costs float64[n, n], +inf on the diagonal, and solo costs float64[n] in whole units."""
    n = len(cost)
    max_cost, usual_cost = _largest(cost, solo), _usual_cost(cost, solo)
    scale = float(min(USUAL_UNITS / max(usual_cost, 1e-300), MAX_UNITS / max_cost)) if max_cost > 0 else 1.0
    scale = float(2.0 ** np.floor(np.log2(scale)))
    matrix, solo = cost * scale, solo * scale
    moved = _rounding(solo)
    for rows in _blocks(n):
        block = matrix[rows]
        moved = max(moved, _rounding(block))
        np.rint(block, out=block)
    solo = np.rint(solo)
    np.fill_diagonal(matrix, 2.0 * solo)
    return ScaledCosts(matrix=matrix, solo=solo, scale=scale, error=n * moved / scale)


def without_outliers(cost: Floats, solo: Floats) -> tuple[Floats, Floats] | None:
    """The costs with +inf for those that would make units coarse; None where there are none."""
    limit = _usual_cost(cost, solo) * (MAX_UNITS / USUAL_UNITS)
    if _largest(cost, solo) <= limit:
        return None
    return np.where(cost > limit, np.inf, cost), np.where(solo > limit, np.inf, solo)


def outliers_are_hopeless(cost: Floats, solo: Floats, upper_bound: float) -> bool:
    """Whether no partition with a start that `without_outliers` leaves out costs less than `upper_bound`."""
    limit = _usual_cost(cost, solo) * (MAX_UNITS / USUAL_UNITS)
    share = np.minimum(cost.min(axis=1) / 2, solo)  # prices: no pair costs less than the shares of its two jobs
    if not np.isfinite(share).all():
        return False
    reach = upper_bound - float(share.sum())
    reach += ROUNDING * len(solo) * (abs(upper_bound) + float(np.abs(share).sum()))
    for rows in _blocks(len(solo)):
        block = cost[rows]
        if (block - share[rows, None] - share)[block > limit].min(initial=np.inf) <= reach:
            return False
    return bool((solo - share)[solo > limit].min(initial=np.inf) > reach)


def _usual_cost(cost: Floats, solo: Floats) -> float:
    """The largest absolute value of a job's cheapest start."""
    cheapest = np.minimum(cost.min(axis=1, initial=np.inf), solo)
    return float(np.abs(cheapest[np.isfinite(cheapest)]).max(initial=0.0))


def _largest(cost: Floats, solo: Floats) -> float:
    """The largest absolute value of a finite cost."""
    largest = float(np.abs(solo[np.isfinite(solo)]).max(initial=0.0))
    for rows in _blocks(len(cost)):
        block = cost[rows]
        finite = np.isfinite(block)
        highest, lowest = np.max(block, where=finite, initial=0.0), np.min(block, where=finite, initial=0.0)
        largest = max(largest, float(highest), -float(lowest))
    return largest


def _rounding(values: Floats) -> float:
    """The most that a finite value is moved by rounding."""
    with np.errstate(invalid="ignore"):  # inf - inf
        moved = np.abs(values - np.rint(values))
    return float(np.fmax.reduce(moved, axis=None, initial=0.0))


def _blocks(n: int) -> Iterator[slice]:
    """The rows of a square matrix in parts that stay in the cache."""
    height = max(1, BLOCK_CELLS // max(1, n))
    for first in range(0, n, height):
        yield slice(first, min(n, first + height))
