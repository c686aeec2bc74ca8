"""Exact matching by reduced costs: which edges can be in a better matching than the best so far, and the best of these.

1. Dual prices of the fractional problem give a lower bound, and every edge a reduced cost (`dual_prices`).
2. The edges of small reduced cost are matched exactly (`blossom`): an upper bound.
3. An edge whose reduced cost exceeds upper - lower bound is in no better matching. Where these bounds leave many edges
   open, odd sets of jobs get prices too (`odd_sets`), which raises the lower bound.
4. All edges that remain are matched exactly.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.matching.blossom import SparseProblem, count_devices
from interfere.matching.device_limit import solo_price_for_limit
from interfere.matching.dual_prices import (
    DualPrices,
    dual_bound,
    prices_from_sample,
    reduced_blocks,
    solve_dual_prices,
)
from interfere.matching.heuristic import greedy_matching, improve_by_swaps, reduce_devices
from interfere.matching.odd_sets import charged_blocks, price_odd_sets
from interfere.matching.records import Matching, infeasible_matching, partition_cost
from interfere.records import SolveStatus
from interfere.time_budget import TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FIRST_EDGES_PER_JOB = 0.8  # in the first exact solve
EDGE_GROWTH = 1.3  # times as many, where these hold no matching
MAX_FIRST_EDGES_PER_JOB = 6.0  # of the about ten per job that decide the prices
REACH_GROWTH = 4.0  # times the largest reduced cost admitted so far, where those edges do not suffice
MANY_OPEN_EDGES = 12  # per job: the blossom algorithm takes longer on more than prices of odd sets do
# Passes over all pairs that a full solve costs: 60 at 1,000 jobs, 16 from 3,000 on.
SOLVE_PASSES, SOLVE_PASSES_TIMES_JOBS = 20, 40_000
SAMPLE_SHARE = 0.5  # of these passes: after it, every job has a price from the sample
MAX_ASCENTS = 12  # passes that halve every job's slack; more raise the bound by less than 1 %


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeviceLimit:
    """A limit of devices, and the price that enforces it."""

    max_devices: int
    max_solo: int  # solo jobs allowed: 2 · max_devices - n
    solo_price: float  # already part of the problem's solo costs


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledProblem:
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
        y = prices.y  # odd sets change which edges are open, never what is minimised over them
        solo = self.solo - y
        # `complete`: the edges are all those of reduced cost up to `reach`, not a selection.
        edges_per_job, complete = FIRST_EDGES_PER_JOB, prices.edges is None
        i, j, reach = self._first_edges(prices, edges_per_job)
        while True:
            problem = SparseProblem.of(i, j, self.matrix[i, j] - y[i] - y[j], solo)
            mate = problem.solve_within(limit.max_devices, limit.solo_price) if limit else problem.solve()
            if mate is None and reach == np.inf:
                return None
            if mate is None and self.budget.expired:
                heuristic = self._solve_heuristically(prices, limit)
                if heuristic is not None:
                    return heuristic
            if mate is None and edges_per_job < MAX_FIRST_EDGES_PER_JOB:
                edges_per_job *= EDGE_GROWTH
                i, j, reach = self._first_edges(prices, edges_per_job)
                continue
            if mate is None:
                reach = max(1.0, reach * REACH_GROWTH) if len(i) < len(self.solo) ** 2 // 8 else np.inf
            else:
                best = self._bounded_matching(mate, prices, limit)
                difference = best.cost - best.lower_bound
                if difference <= (reach if complete else 0.0):  # up to what rounding may hide
                    return replace(best, lower_bound=best.cost - problem.error, status=SolveStatus.OPTIMAL)
                if best.gap <= self.gap or self.budget.expired:
                    return best
                if not prices.odd_sets and self._leaves_many_open(prices, difference):
                    if edges_per_job < MAX_FIRST_EDGES_PER_JOB:  # a better partition to compare the bound with
                        edges_per_job, complete = MAX_FIRST_EDGES_PER_JOB, False
                        i, j, reach = self._first_edges(prices, edges_per_job)
                        continue
                    prices = self._with_odd_sets(prices, mate, best.cost, limit)
                    difference = best.cost - self._bound(prices, limit)
                # A first answer may be poor: a few more edges improve it, and with it the difference to the bound.
                reach = min(difference, max(1.0, reach * REACH_GROWTH))
            i, j = self._edges_up_to(prices, reach)
            complete = True

    def _with_odd_sets(self, prices: DualPrices, mate: Ints, cost: float, limit: _DeviceLimit | None) -> DualPrices:
        """Prices that leave fewer edges open, from those of jobs and a partition of a known cost."""
        i, j, _ = self._first_edges(prices, MAX_FIRST_EDGES_PER_JOB)
        jobs = np.arange(len(mate))
        i, j = np.concatenate([i, jobs[mate > jobs]]), np.concatenate([j, mate[mate > jobs]])
        upper_bound = cost + (limit.solo_price * limit.max_solo if limit else 0.0)
        return price_odd_sets(self.matrix, prices, i, j, upper_bound, self.budget)

    def _first_edges(self, prices: DualPrices, edges_per_job: float) -> tuple[Ints, Ints, float]:
        """The cheapest of the edges that decide the prices: both ends, and the largest of their reduced costs."""
        n = len(self.solo)
        if prices.edges is None:
            i, j = self._edges_up_to(prices, np.inf)
        else:
            i, j = np.divmod(prices.edges, n)
            upper = i < j
            i, j = i[upper], j[upper]
        reduced = self.matrix[i, j] - prices.y[i] - prices.y[j]
        last = min(len(reduced) - 1, int(edges_per_job * n))
        reach = float(np.partition(reduced, last)[last]) if len(reduced) else 0.0
        near = reduced <= reach
        return i[near], j[near], reach

    def _edges_up_to(self, prices: DualPrices, reach: float) -> tuple[Ints, Ints]:
        """i < j of all finite edges of reduced cost at most `reach`."""
        edges = []
        for rows, block in charged_blocks(self.matrix, prices):
            # Indices of the flat array: twice as fast as np.nonzero.
            near = np.flatnonzero(block <= reach) if reach < np.inf else np.flatnonzero(np.isfinite(block))
            i, j = np.divmod(near, len(self.solo))
            upper = i + rows.start < j
            edges.append((i[upper] + rows.start, j[upper]))
        i, j = (np.concatenate([of_block[k] for of_block in edges]) for k in range(2))
        return i.astype(np.int64), j.astype(np.int64)

    def _leaves_many_open(self, prices: DualPrices, difference: float) -> bool:
        """Whether too many edges for the blossom algorithm have a reduced cost of at most `difference`."""
        open_edges = sum(int(np.count_nonzero(block <= difference)) for _, block in charged_blocks(self.matrix, prices))
        return open_edges // 2 > MANY_OPEN_EDGES * len(self.solo)

    def _bound(self, prices: DualPrices, limit: _DeviceLimit | None) -> float:
        """What the prices prove of every partition within the limit."""
        return prices.bound - (limit.solo_price * limit.max_solo if limit else 0.0)

    def _bounded_matching(self, mate: Ints, prices: DualPrices, limit: _DeviceLimit | None) -> Matching:
        """A partition with its true cost and the bound that the prices prove."""
        solo_price = limit.solo_price if limit else 0.0
        total = partition_cost(mate, self.matrix, self.solo - solo_price)
        return Matching(
            mate=mate,
            cost=total,
            lower_bound=min(self._bound(prices, limit), total),
            status=SolveStatus.BOUNDED,
            y=prices.y,
            solo_price=solo_price,
            odd_sets=prices.odd_sets,
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
        return self._bounded_matching(mate, prices, limit)
