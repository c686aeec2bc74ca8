"""Least-cost general matching with a proof: alone allowed, forbidden pairs, any n, at most `max_devices` devices.

1. Prices of the fractional problem give a lower bound, and every edge a reduced cost (`prices`).
2. The edges of small reduced cost are matched exactly (`blossom`): an upper bound.
3. An edge whose reduced cost exceeds upper - lower bound is in no better matching. All others are matched exactly.
Where many jobs are alike, counting kinds takes the place of this (`kinds`).
A caller who gives less time gets the best found so far, and how far it can be from the best.
"""

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.matching.blossom import SparseProblem, devices
from interfere.matching.device_limit import device_price
from interfere.matching.dual_prices import BLOCK, Prices, bound_of, extended, price, reduced_blocks
from interfere.matching.heuristic import joined, rough_matching, swapped
from interfere.matching.identical_jobs import kinds_of, match_kinds
from interfere.matching.records import Matching, check_costs, cost_of, infeasible
from interfere.records import SolveStatus

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FIRST_EDGES = 0.8  # edges a job that the first exact solve takes
GROWTH = 1.3  # of them, where they hold no matching
MOST_FIRST_EDGES = 6.0  # of the about ten a job that prices rest on
WIDER = 4.0  # times the reduced cost that the next one takes, where these hold no matching
PASSES, PASSES_SMALL = 20, 40_000  # passes over all pairs that a whole solve costs: 60 at 1,000 jobs, 16 from 3,000 on
SAMPLED = 0.5  # share of these after which the prices of a sample have reached every job
ASCENTS = 12  # passes that halve every job's slack; more raise the bound by less than 1 %
UNITS, MOST_UNITS = 2.0**36, 2.0**46  # in the dearest best edge of a job, and in the largest cost: sums stay below 2^53
FEW = 100  # jobs up to which the search by reduced costs is faster than counting kinds, however alike they are


def match_pairs(
    cost: Floats,
    solo: Floats | None = None,
    *,
    max_devices: int | None = None,
    gap: float = 0.0,
    time_limit_s: float | None = None,
    warm: Matching | None = None,
    current: Ints | None = None,
    switching_cost: float = 0.0,
) -> Matching:
    """Cheapest partition of n jobs into pairs and, where `solo` is finite, jobs alone.

    `cost` float64[n, n], its diagonal ignored; `solo` float64[n], or None when nobody may stay alone. Stops once the
    relative `gap` is proved, or soon after `time_limit_s`. `warm` is the matching of a problem that differs in few
    jobs. `current` int64[n] is the partition in force: every job that leaves its partner costs `switching_cost` more,
    and the answer's cost includes it. Raises InvalidInputError on NaN, asymmetry or wrong shapes; the status is
    INFEASIBLE when no such partition exists, BOUNDED when a better one may.

    >>> import numpy as np
    >>> from interfere import match_pairs
    >>> cost = np.array([[0, 3, 1, 4], [3, 0, 5, 1], [1, 5, 0, 2], [4, 1, 2, 0]], dtype=np.float64)
    >>> matching = match_pairs(cost)
    >>> matching.mate.tolist(), matching.cost, matching.status.value
    ([2, 3, 0, 1], 2.0, 'OPTIMAL')
    """
    began = time.perf_counter()
    cost = np.asarray(cost, dtype=np.float64)
    n = len(cost) if cost.ndim else 0
    alone = np.full(n, np.inf) if solo is None else np.asarray(solo, dtype=np.float64)
    check_costs(cost, alone)
    _check_options(n, gap, time_limit_s, warm, current, switching_cost)
    if current is not None and switching_cost > 0:
        cost, alone = _with_switching(cost, alone, np.asarray(current), switching_cost)
    limit_s = np.inf if time_limit_s is None else began + time_limit_s
    problem, scale = _in_units(cost, alone, gap=gap, deadline_s=limit_s)
    start = None
    if warm is not None and len(warm.y) == n:
        start = Prices(y=warm.y * scale, bound=-np.inf, done=False, keys=warm.edges)
    found = _by_kinds(problem, max_devices)
    if found is None:
        found = problem.solve(start) if max_devices is None else problem.within(max_devices, start)
    if found.status is SolveStatus.INFEASIBLE:
        return replace(found, seconds=time.perf_counter() - began)
    total = cost_of(found.mate, cost, alone)
    optimal = found.status is SolveStatus.OPTIMAL
    return replace(
        found,
        cost=total,
        lower_bound=total
        if optimal
        else min(total, (found.lower_bound - n) / scale),  # each rounding moved half a unit
        y=found.y / scale,
        alone_price=found.alone_price / scale,
        seconds=time.perf_counter() - began,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """The problem in whole units."""

    matrix: Floats  # float64[n, n], diagonal 2·solo
    solo: Floats  # float64[n]
    gap: float
    deadline_s: float

    def solve(self, start: Prices | None) -> Matching:
        n = len(self.solo)
        if n == 0:
            return Matching(mate=np.arange(0), cost=0.0, lower_bound=0.0, status=SolveStatus.OPTIMAL)
        if self.deadline_s < np.inf and (hurried := self._hurried(start)) is not None:
            return hurried
        prices = price(self.matrix, start=start, deadline_s=self.deadline_s)
        if prices is None:
            return infeasible(n)
        if not prices.done:
            rough = self._rough(prices, None)
            if rough is not None:
                return rough
        return self._exact(prices, None) or infeasible(n)

    def within(self, most: int, start: Prices | None) -> Matching:
        """At most `most` devices, that is 2·most - n jobs alone: a price on being alone, then the exact search."""
        n = len(self.solo)
        lonely = 2 * most - n
        if lonely < 0:
            return infeasible(n)
        if lonely >= n:
            return self.solve(start)
        found = device_price(self.matrix, self.solo, lonely, self.deadline_s)
        if found is None:
            return infeasible(n)
        paid, prices = found
        cap = _Cap(most=most, lonely=lonely, paid=paid)
        dearer = replace(self, matrix=self.matrix.copy(), solo=self.solo + paid)
        np.fill_diagonal(dearer.matrix, 2.0 * dearer.solo)
        if time.perf_counter() > self.deadline_s and (rough := dearer._rough(prices, cap)) is not None:
            return rough
        return dearer._exact(prices, cap) or infeasible(n)

    def _exact(self, prices: Prices, cap: "_Cap | None") -> Matching | None:
        """Match edges of growing reduced cost until the rest cannot matter; None when no partition exists."""
        bound = prices.bound - (cap.paid * cap.lonely if cap else 0.0)
        solo = np.where(np.isfinite(self.solo), np.maximum(0.0, self.solo - prices.y), np.inf)
        share, whole = FIRST_EDGES, prices.keys is None  # whole: the edges hold every one up to `reach`
        i, j, extra, reach = self._first_edges(prices, share)
        while True:
            edges = SparseProblem.of(i, j, extra, solo)
            mate = edges.within(cap.most, cap.paid) if cap else edges.solve()
            if mate is None and reach == np.inf:
                return None
            if (
                mate is None
                and time.perf_counter() > self.deadline_s
                and (rough := self._rough(prices, cap)) is not None
            ):
                return rough
            if mate is None and share < MOST_FIRST_EDGES:
                share *= GROWTH
                i, j, extra, reach = self._first_edges(prices, share)
                continue
            if mate is None:
                reach = max(1.0, reach * WIDER) if len(i) < len(self.solo) ** 2 // 8 else np.inf
            else:
                best = self._answer(mate, prices, bound, cap)
                missing = best.cost - bound
                if missing <= (reach if whole else 0.0):
                    return replace(best, lower_bound=best.cost, status=SolveStatus.OPTIMAL)
                if best.gap <= self.gap or time.perf_counter() > self.deadline_s:
                    return best
                # A first answer may be poor: a wider choice betters it, and what is missing with it.
                reach = min(missing, max(1.0, reach * WIDER))
            i, j, extra = self._edges(prices.y, reach)
            whole = True

    def _first_edges(self, prices: Prices, share: float) -> tuple[Ints, Ints, Floats, float]:
        """`share` edges a job, the cheapest that the prices rest on, and how far they reach."""
        n = len(self.solo)
        if prices.keys is None:
            i, j, extra = self._edges(prices.y, np.inf)
        else:
            i, j = np.divmod(prices.keys, n)
            ahead = i < j
            i, j = i[ahead], j[ahead]
            extra = np.maximum(0.0, self.matrix[i, j] - prices.y[i] - prices.y[j])
        at = min(len(extra) - 1, int(share * n))
        reach = float(np.partition(extra, at)[at]) if len(extra) else 0.0
        near = extra <= reach
        return i[near], j[near], extra[near], reach

    def _edges(self, y: Floats, reach: float) -> tuple[Ints, Ints, Floats]:
        """i < j and reduced cost of all finite edges up to `reach`."""
        parts = []
        for rows, block in reduced_blocks(self.matrix, y):
            # Twice as fast on the flat array.
            near = np.flatnonzero(block <= reach) if reach < np.inf else np.flatnonzero(np.isfinite(block))
            i, j = np.divmod(near, len(y))
            ahead = i + rows.start < j
            parts.append((i[ahead] + rows.start, j[ahead], block[i[ahead], j[ahead]]))
        i, j, extra = (np.concatenate([part[k] for part in parts]) for k in range(3))
        return i.astype(np.int64), j.astype(np.int64), np.maximum(0.0, extra)

    def _answer(self, mate: Ints, prices: Prices, bound: float, cap: "_Cap | None") -> Matching:
        paid = cap.paid if cap else 0.0
        total = cost_of(mate, self.matrix, self.solo - paid)
        return Matching(
            mate=mate,
            cost=total,
            lower_bound=min(bound, total),
            status=SolveStatus.BOUNDED,
            y=prices.y,
            alone_price=paid,
            edges=prices.keys,
        )

    def _hurried(self, start: Prices | None) -> Matching | None:
        """An answer of simple means where the time will not do for prices; None where it will, or they give none."""
        began = time.perf_counter()
        y = np.floor(start.y if start is not None else self.matrix.min(axis=1) / 2)
        if not np.isfinite(y).all():
            return None
        bound = bound_of(self.matrix, y)
        whole_s = (PASSES + PASSES_SMALL / len(y)) * (time.perf_counter() - began)
        if began + whole_s < self.deadline_s:
            return None
        if began + SAMPLED * whole_s < self.deadline_s:
            y = extended(self.matrix, self.deadline_s)
            bound = bound_of(self.matrix, y)
        for _ in range(ASCENTS if start is None else 0):
            if time.perf_counter() > began + (self.deadline_s - began) / 2:
                break
            least = np.concatenate([block.min(axis=1) for _, block in reduced_blocks(self.matrix, y)])
            higher = y + least / 2  # every pair keeps y_i + y_j ≤ cost where it did
            bound, y = max((bound, y), (bound_of(self.matrix, higher), higher), key=lambda pair: pair[0])
        return self._rough(Prices(y=y, bound=bound, done=False), None)

    def _rough(self, prices: Prices, cap: "_Cap | None") -> Matching | None:
        """A good partition without a proof of its own; None where simple means find none."""
        mate = rough_matching(self.matrix, self.solo, prices.y)
        if cap is not None:
            mate = joined(self.matrix, self.solo, mate, cap.most)
        if not np.isfinite(cost_of(mate, self.matrix, self.solo)) or (cap and devices(mate) > cap.most):
            return None
        mate = swapped(self.matrix, mate, self.deadline_s)
        bound = prices.bound - (cap.paid * cap.lonely if cap else 0.0)
        return self._answer(mate, prices, bound, cap)


def _by_kinds(problem: _Pairs, max_devices: int | None) -> Matching | None:
    """The answer where many jobs are alike; None where they are not, or where the time did not do for one."""
    n = len(problem.solo)
    kind = kinds_of(problem.matrix, problem.solo) if n > FEW else None
    if kind is None:
        return None
    if max_devices is not None and 2 * max_devices < n:
        return infeasible(n)
    lonely = None if max_devices is None else 2 * max_devices - n
    return match_kinds(problem.matrix, problem.solo, kind, lonely=lonely, deadline_s=problem.deadline_s)


def _in_units(cost: Floats, solo: Floats, *, gap: float, deadline_s: float) -> tuple[_Pairs, float]:
    """The problem rounded to whole units, and how many of them are one.

    Fine for what jobs may have to pay, and such that no sum of the largest costs loses a unit.
    """
    n = len(cost)
    matrix = cost.copy()
    np.fill_diagonal(matrix, np.inf)
    least = np.minimum(matrix.min(axis=1, initial=np.inf), solo)
    usual = float(np.abs(least[np.isfinite(least)]).max(initial=0.0))
    top = float(np.abs(solo[np.isfinite(solo)]).max(initial=0.0))
    height = max(1, BLOCK // max(1, n))
    for first in range(0, n, height):
        block = matrix[first : first + height]
        finite = np.isfinite(block)
        top = max(
            top, float(np.max(block, where=finite, initial=0.0)), -float(np.min(block, where=finite, initial=0.0))
        )
    scale = float(min(UNITS / max(usual, 1e-300), MOST_UNITS / top)) if top > 0 else 1.0
    scale = float(2.0 ** np.floor(np.log2(scale)))  # prices of another problem are multiplied without rounding
    matrix *= scale
    np.rint(matrix, out=matrix)
    units = np.rint(solo * scale)
    np.fill_diagonal(matrix, 2.0 * units)
    return _Pairs(matrix=matrix, solo=units, gap=gap, deadline_s=deadline_s), scale


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cap:
    most: int  # devices
    lonely: int  # most jobs alone
    paid: float  # price of a job alone, part of the problem's solo costs


def _with_switching(cost: Floats, alone: Floats, current: Ints, each: float) -> tuple[Floats, Floats]:
    """Charge `each` for every job that leaves its partner, or its being alone."""
    me = np.arange(len(current))
    charged = cost + 2.0 * each
    charged[me, current] = cost[me, current]
    return charged, np.where(current == me, alone, alone + each)


def _check_options(
    n: int,
    gap: float,
    time_limit_s: float | None,
    warm: Matching | None,
    current: Ints | None,
    switching_cost: float,
) -> None:
    if not gap >= 0 or not switching_cost >= 0 or not np.isfinite(switching_cost):
        raise InvalidInputError(
            "gap and switching_cost must be ≥ 0", value=f"{gap}, {switching_cost}", remedy="leave them out for none"
        )
    if time_limit_s is not None and not time_limit_s > 0:
        raise InvalidInputError("time_limit_s must be positive", value=time_limit_s, remedy="leave it out for no limit")
    if warm is not None and len(warm.mate) != n:
        raise InvalidInputError(
            "warm is a matching of another size", value=f"{len(warm.mate)} ≠ {n} jobs", remedy="leave it out"
        )
    if current is not None:
        mate = np.asarray(current)
        if (
            mate.shape != (n,)
            or not np.issubdtype(mate.dtype, np.integer)
            or (n and (mate.min() < 0 or mate.max() >= n))
        ):
            raise InvalidInputError("current must be int[n] of partners", value=mate.shape, remedy="own index: alone")
        if n and (mate[mate] != np.arange(n)).any():
            raise InvalidInputError(
                "current is no partition into pairs", value=mate[:8].tolist(), remedy="mate[mate[i]] = i"
            )
