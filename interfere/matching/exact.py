"""Least-cost general matching with proof: solo jobs, forbidden pairs, any n, at most `max_devices` devices.

1. Dual prices of the fractional problem give a lower bound, and every edge a reduced cost (`dual_prices`).
2. The edges of small reduced cost are matched exactly (`blossom`): an upper bound.
3. An edge whose reduced cost exceeds upper - lower bound is in no better matching. All others are matched exactly.
Where many jobs are interchangeable, counting them by class replaces this (`identical_jobs`).
With a time limit, the answer is the best partition found so far, with a bound on its distance from the optimum.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.matching.blossom import SparseProblem, count_devices
from interfere.matching.device_limit import solo_price_for_limit
from interfere.matching.dual_prices import (
    BLOCK_CELLS,
    DualPrices,
    dual_bound,
    prices_from_sample,
    reduced_blocks,
    solve_dual_prices,
)
from interfere.matching.heuristic import greedy_matching, improve_by_swaps, reduce_devices
from interfere.matching.identical_jobs import job_classes, match_job_classes
from interfere.matching.records import Matching, check_costs, infeasible_matching, partition_cost
from interfere.records import SolveStatus
from interfere.time_budget import TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FIRST_EDGES_PER_JOB = 0.8  # in the first exact solve
EDGE_GROWTH = 1.3  # times as many, where these hold no matching
MAX_FIRST_EDGES_PER_JOB = 6.0  # of the about ten per job that decide the prices
REACH_GROWTH = 4.0  # times the largest reduced cost admitted so far, where those edges do not suffice
# Passes over all pairs that a full solve costs: 60 at 1,000 jobs, 16 from 3,000 on.
SOLVE_PASSES, SOLVE_PASSES_TIMES_JOBS = 20, 40_000
SAMPLE_SHARE = 0.5  # of these passes: after it, every job has a price from the sample
MAX_ASCENTS = 12  # passes that halve every job's slack; more raise the bound by less than 1 %
# In the most expensive "cheapest pair of a job", and in the largest cost: sums stay below 2^53.
USUAL_UNITS, MAX_UNITS = 2.0**36, 2.0**46
MIN_JOBS_FOR_CLASSES = 100  # up to here the search by reduced costs is faster, however many jobs are interchangeable


def match_pairs(
    cost: Floats,
    solo: Floats | None = None,
    *,
    max_devices: int | None = None,
    gap: float = 0.0,
    time_limit_s: float | None = None,
    warm_start: Matching | None = None,
    current: Ints | None = None,
    switching_cost: float = 0.0,
) -> Matching:
    """The cheapest partition of n jobs into pairs and, where `solo` is finite, solo jobs.

    `cost` float64[n, n]: cost of each pair, symmetric, +inf where forbidden, its diagonal ignored.
    `solo` float64[n]: cost of each job by itself, +inf where it must be paired; None: every job must be paired.
    `max_devices`: limit on pairs plus solo jobs.
    `gap`, `time_limit_s`: the search ends once this relative gap is proved, or soon after this time.
    `warm_start`: the matching of a problem that differs in few jobs.
    `current` int64[n]: the partition in force; every job that leaves its partner costs `switching_cost` more, which the
    cost of the answer includes.

    Raises InvalidInputError on NaN, asymmetry or wrong shapes. The status is INFEASIBLE when no such partition exists,
    BOUNDED when a better one may exist, else OPTIMAL.

    >>> import numpy as np
    >>> from interfere import match_pairs
    >>> cost = np.array([[0, 3, 1, 4], [3, 0, 5, 1], [1, 5, 0, 2], [4, 1, 2, 0]], dtype=np.float64)
    >>> matching = match_pairs(cost)
    >>> matching.mate.tolist(), matching.cost, matching.status.value
    ([2, 3, 0, 1], 2.0, 'OPTIMAL')
    """
    # 1. Check the input, and round it to whole units.
    cost = np.asarray(cost, dtype=np.float64)
    n = len(cost) if cost.ndim else 0
    solo = np.full(n, np.inf) if solo is None else np.asarray(solo, dtype=np.float64)
    check_costs(cost, solo)
    _check_options(n, gap, time_limit_s, warm_start, current, switching_cost)
    if current is not None and switching_cost > 0:
        cost, solo = _with_switching_cost(cost, solo, np.asarray(current), switching_cost)
    budget = TimeBudget(np.inf if time_limit_s is None else time_limit_s)
    problem, scale = _scale_to_units(cost, solo, gap=gap, budget=budget)
    similar = None
    if warm_start is not None and len(warm_start.y) == n:
        similar = DualPrices(y=warm_start.y * scale, bound=-np.inf, optimal=False, edges=warm_start.edges)
    # 2. Solve by counts of classes where that pays off, else by reduced costs.
    matching = _solve_by_classes(problem, max_devices)
    if matching is None:
        matching = problem.solve(similar) if max_devices is None else problem.solve_within(max_devices, similar)
    if matching.status is SolveStatus.INFEASIBLE:
        return matching
    # 3. Back to the caller's costs. Each rounding moved a cost by up to half a unit, hence the n units off the bound.
    total = partition_cost(matching.mate, cost, solo)
    optimal = matching.status is SolveStatus.OPTIMAL
    return replace(
        matching,
        cost=total,
        lower_bound=total if optimal else min(total, (matching.lower_bound - n) / scale),
        y=matching.y / scale,
        solo_price=matching.solo_price / scale,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeviceLimit:
    """A limit of devices, and the price that enforces it."""

    max_devices: int
    max_solo: int  # solo jobs allowed: 2 · max_devices - n
    solo_price: float  # already part of the problem's solo costs


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScaledProblem:
    """A matching problem in whole units, with the caller's gap and deadline."""

    matrix: Floats  # float64[n, n], diagonal 2·solo
    solo: Floats  # float64[n]
    gap: float
    budget: TimeBudget

    def solve(self, similar: DualPrices | None) -> Matching:
        """Without a limit of devices. `similar`: dual prices of a problem that differs in few rows."""
        n = len(self.solo)
        if n == 0:
            return Matching(mate=np.arange(0), cost=0.0, lower_bound=0.0, status=SolveStatus.OPTIMAL)
        if not self.budget.unlimited and (quick := self._solve_in_little_time(similar)) is not None:
            return quick
        prices = solve_dual_prices(self.matrix, similar=similar, budget=self.budget)
        if prices is None:
            return infeasible_matching(n)
        if not prices.optimal:
            heuristic = self._solve_heuristically(prices, None)
            if heuristic is not None:
                return heuristic
        return self._solve_exactly(prices, None) or infeasible_matching(n)

    def solve_within(self, max_devices: int, similar: DualPrices | None) -> Matching:
        """On at most `max_devices` devices: find the solo price of the limit, then search at that price."""
        n = len(self.solo)
        max_solo = 2 * max_devices - n
        if max_solo < 0:
            return infeasible_matching(n)
        if max_solo >= n:
            return self.solve(similar)
        priced = solo_price_for_limit(self.matrix, self.solo, max_solo, self.budget)
        if priced is None:
            return infeasible_matching(n)
        solo_price, prices = priced
        limit = _DeviceLimit(max_devices=max_devices, max_solo=max_solo, solo_price=solo_price)
        charged = replace(self, matrix=self.matrix.copy(), solo=self.solo + solo_price)
        np.fill_diagonal(charged.matrix, 2.0 * charged.solo)
        if self.budget.expired:
            heuristic = charged._solve_heuristically(prices, limit)
            if heuristic is not None:
                return heuristic
        return charged._solve_exactly(prices, limit) or infeasible_matching(n)

    def _solve_exactly(self, prices: DualPrices, limit: _DeviceLimit | None) -> Matching | None:
        """Match edges of growing reduced cost until the others cannot matter; None when no partition exists."""
        bound = prices.bound - (limit.solo_price * limit.max_solo if limit else 0.0)
        solo = np.where(np.isfinite(self.solo), np.maximum(0.0, self.solo - prices.y), np.inf)
        # `complete`: the edges are all those of reduced cost up to `reach`, not a selection.
        edges_per_job, complete = FIRST_EDGES_PER_JOB, prices.edges is None
        i, j, reduced, reach = self._first_edges(prices, edges_per_job)
        while True:
            problem = SparseProblem.of(i, j, reduced, solo)
            mate = problem.solve_within(limit.max_devices, limit.solo_price) if limit else problem.solve()
            if mate is None and reach == np.inf:
                return None
            if mate is None and self.budget.expired:
                heuristic = self._solve_heuristically(prices, limit)
                if heuristic is not None:
                    return heuristic
            if mate is None and edges_per_job < MAX_FIRST_EDGES_PER_JOB:
                edges_per_job *= EDGE_GROWTH
                i, j, reduced, reach = self._first_edges(prices, edges_per_job)
                continue
            if mate is None:
                reach = max(1.0, reach * REACH_GROWTH) if len(i) < len(self.solo) ** 2 // 8 else np.inf
            else:
                best = self._bounded_matching(mate, prices, bound, limit)
                difference = best.cost - bound
                if difference <= (reach if complete else 0.0):
                    return replace(best, lower_bound=best.cost, status=SolveStatus.OPTIMAL)
                if best.gap <= self.gap or self.budget.expired:
                    return best
                # A first answer may be poor: a few more edges improve it, and with it the difference to the bound.
                reach = min(difference, max(1.0, reach * REACH_GROWTH))
            i, j, reduced = self._edges_up_to(prices.y, reach)
            complete = True

    def _first_edges(self, prices: DualPrices, edges_per_job: float) -> tuple[Ints, Ints, Floats, float]:
        """The cheapest of the edges that decide the prices: both ends, reduced costs, and the largest of these."""
        n = len(self.solo)
        if prices.edges is None:
            i, j, reduced = self._edges_up_to(prices.y, np.inf)
        else:
            i, j = np.divmod(prices.edges, n)
            upper = i < j
            i, j = i[upper], j[upper]
            reduced = np.maximum(0.0, self.matrix[i, j] - prices.y[i] - prices.y[j])
        last = min(len(reduced) - 1, int(edges_per_job * n))
        reach = float(np.partition(reduced, last)[last]) if len(reduced) else 0.0
        near = reduced <= reach
        return i[near], j[near], reduced[near], reach

    def _edges_up_to(self, y: Floats, reach: float) -> tuple[Ints, Ints, Floats]:
        """i < j and reduced cost of all finite edges of reduced cost at most `reach`."""
        edges = []
        for rows, block in reduced_blocks(self.matrix, y):
            # Indices of the flat array: twice as fast as np.nonzero.
            near = np.flatnonzero(block <= reach) if reach < np.inf else np.flatnonzero(np.isfinite(block))
            i, j = np.divmod(near, len(y))
            upper = i + rows.start < j
            edges.append((i[upper] + rows.start, j[upper], block[i[upper], j[upper]]))
        i, j, reduced = (np.concatenate([of_block[k] for of_block in edges]) for k in range(3))
        return i.astype(np.int64), j.astype(np.int64), np.maximum(0.0, reduced)

    def _bounded_matching(self, mate: Ints, prices: DualPrices, bound: float, limit: _DeviceLimit | None) -> Matching:
        """A partition with its true cost and the bound that the prices prove."""
        solo_price = limit.solo_price if limit else 0.0
        total = partition_cost(mate, self.matrix, self.solo - solo_price)
        return Matching(
            mate=mate,
            cost=total,
            lower_bound=min(bound, total),
            status=SolveStatus.BOUNDED,
            y=prices.y,
            solo_price=solo_price,
            edges=prices.edges,
        )

    def _solve_in_little_time(self, similar: DualPrices | None) -> Matching | None:
        """A heuristic answer with cheap prices; None where there is time for optimal ones, or no heuristic works."""
        available_s = self.budget.remaining_s
        y = np.floor(similar.y if similar is not None else self.matrix.min(axis=1) / 2)
        if not np.isfinite(y).all():
            return None
        bound = dual_bound(self.matrix, y)
        full_solve_s = (SOLVE_PASSES + SOLVE_PASSES_TIMES_JOBS / len(y)) * (available_s - self.budget.remaining_s)
        if full_solve_s < available_s:
            return None
        if SAMPLE_SHARE * full_solve_s < available_s:
            y = prices_from_sample(self.matrix, self.budget)
            bound = dual_bound(self.matrix, y)
        for _ in range(MAX_ASCENTS if similar is None else 0):
            if self.budget.remaining_s < available_s / 2:
                break
            row_minima = np.concatenate([block.min(axis=1) for _, block in reduced_blocks(self.matrix, y)])
            raised = y + row_minima / 2  # a pair with y_i + y_j ≤ cost keeps it
            bound, y = max((bound, y), (dual_bound(self.matrix, raised), raised), key=lambda pair: pair[0])
        return self._solve_heuristically(DualPrices(y=y, bound=bound, optimal=False), None)

    def _solve_heuristically(self, prices: DualPrices, limit: _DeviceLimit | None) -> Matching | None:
        """A good partition beside the bound of the given prices; None when the heuristics find no allowed one."""
        mate = greedy_matching(self.matrix, self.solo, prices.y)
        if limit is not None:
            mate = reduce_devices(self.matrix, self.solo, mate, limit.max_devices)
            if count_devices(mate) > limit.max_devices:
                return None
        if not np.isfinite(partition_cost(mate, self.matrix, self.solo)):
            return None
        mate = improve_by_swaps(self.matrix, mate, self.budget)
        bound = prices.bound - (limit.solo_price * limit.max_solo if limit else 0.0)
        return self._bounded_matching(mate, prices, bound, limit)


def _solve_by_classes(problem: _ScaledProblem, max_devices: int | None) -> Matching | None:
    """The answer where many jobs are interchangeable; None where they are not, or where time ran out."""
    n = len(problem.solo)
    classes = job_classes(problem.matrix, problem.solo) if n > MIN_JOBS_FOR_CLASSES else None
    if classes is None:
        return None
    if max_devices is not None and 2 * max_devices < n:
        return infeasible_matching(n)
    max_solo = None if max_devices is None else 2 * max_devices - n
    return match_job_classes(problem.matrix, problem.solo, classes, max_solo=max_solo, budget=problem.budget)


def _scale_to_units(cost: Floats, solo: Floats, *, gap: float, budget: TimeBudget) -> tuple[_ScaledProblem, float]:
    """The problem rounded to whole units, and the number of units in a cost of one.

    Units are fine beside what a job's cheapest pair costs, and large enough that no sum of the largest costs loses one.
    """
    n = len(cost)
    matrix = cost.copy()
    np.fill_diagonal(matrix, np.inf)
    cheapest = np.minimum(matrix.min(axis=1, initial=np.inf), solo)
    usual_cost = float(np.abs(cheapest[np.isfinite(cheapest)]).max(initial=0.0))
    max_cost = float(np.abs(solo[np.isfinite(solo)]).max(initial=0.0))
    height = max(1, BLOCK_CELLS // max(1, n))
    for first in range(0, n, height):
        block = matrix[first : first + height]
        finite = np.isfinite(block)
        highest = float(np.max(block, where=finite, initial=0.0))
        lowest = float(np.min(block, where=finite, initial=0.0))
        max_cost = max(max_cost, highest, -lowest)
    scale = float(min(USUAL_UNITS / max(usual_cost, 1e-300), MAX_UNITS / max_cost)) if max_cost > 0 else 1.0
    scale = float(2.0 ** np.floor(np.log2(scale)))  # a power of two: prices of another problem scale without rounding
    matrix *= scale
    np.rint(matrix, out=matrix)
    solo_units = np.rint(solo * scale)
    np.fill_diagonal(matrix, 2.0 * solo_units)
    return _ScaledProblem(matrix=matrix, solo=solo_units, gap=gap, budget=budget), scale


def _with_switching_cost(cost: Floats, solo: Floats, current: Ints, switching_cost: float) -> tuple[Floats, Floats]:
    """Pair and solo costs in which every job that leaves its partner, or stops running solo, pays `switching_cost`."""
    jobs = np.arange(len(current))
    charged = cost + 2.0 * switching_cost
    charged[jobs, current] = cost[jobs, current]
    return charged, np.where(current == jobs, solo, solo + switching_cost)


def _check_options(
    n: int,
    gap: float,
    time_limit_s: float | None,
    warm_start: Matching | None,
    current: Ints | None,
    switching_cost: float,
) -> None:
    if not gap >= 0 or not switching_cost >= 0 or not np.isfinite(switching_cost):
        raise InvalidInputError(
            "gap and switching_cost must be ≥ 0", value=f"{gap}, {switching_cost}", remedy="leave them out for none"
        )
    if time_limit_s is not None and not time_limit_s > 0:
        raise InvalidInputError("time_limit_s must be positive", value=time_limit_s, remedy="leave it out for no limit")
    if warm_start is not None and len(warm_start.mate) != n:
        raise InvalidInputError(
            "warm_start is a matching of another size",
            value=f"{len(warm_start.mate)} ≠ {n} jobs",
            remedy="leave it out",
        )
    if current is not None:
        mate = np.asarray(current)
        if (
            mate.shape != (n,)
            or not np.issubdtype(mate.dtype, np.integer)
            or (n and (mate.min() < 0 or mate.max() >= n))
        ):
            raise InvalidInputError(
                "current must be int[n] of partners",
                value=mate.shape,
                remedy="send each job's partner, its own index where it runs solo",
            )
        if n and (mate[mate] != np.arange(n)).any():
            raise InvalidInputError(
                "current is no partition into pairs", value=mate[:8].tolist(), remedy="make mate[mate[i]] = i"
            )
