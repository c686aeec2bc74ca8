"""Lagrange multiplier of the device limit: a price on every solo job that leaves few enough jobs solo.

n jobs on at most m devices leave at most 2 m - n solo. The fractional bound at a solo price, less price · (2 m - n), is
concave in the price; its slope is the number of solo jobs beyond those allowed. The maximum is found by false position
(the Illinois variant), starting from the price that a third of the jobs would need.
Law: at any price, the bound that comes with it holds for every matching with at most `max_solo` solo jobs.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from interfere.matching.dual_prices import MAX_DENSE_JOBS, SAMPLE_DIVISOR, DualPrices, solve_dual_prices
from interfere.time_budget import TimeBudget

Floats = NDArray[np.float64]

MAX_PRICES = 40  # prices tried; 5-16 where 1,000 jobs all differ
FIRST_STEP = 0.1  # distance of the second price from the first, relative to the sample's price
STEP_GROWTH = 4.0  # times the last step, while the slope keeps its sign
SAMPLE_TOLERANCE = 50  # of a sample: one job in 50 too many solo is near enough, its price only starts the full search
EDGE = 0.02  # share of the bracket that a step keeps away from its ends


def solo_price_for_limit(
    matrix: Floats, solo: Floats, max_solo: int, budget: TimeBudget, *, tolerance: int = 0
) -> tuple[float, DualPrices] | None:
    """The solo price with the best bound, and the dual prices of the jobs there; None when nothing is feasible.

    `matrix` float64[n, n] of whole numbers as in `dual_prices`, its diagonal unused; `solo` float64[n]. Ends where no
    price raises the bound by a unit, or where the number of solo jobs misses `max_solo` by at most `tolerance`.
    """
    matrix = matrix.copy()
    search = _PriceSearch.of(matrix, solo, max_solo, budget, tolerance=tolerance)
    best: tuple[float, DualPrices] | None = None
    last: DualPrices | None = None
    for _ in range(MAX_PRICES):
        price = search.next_price()
        np.fill_diagonal(matrix, 2.0 * (solo + price))
        prices = solve_dual_prices(matrix, same_pairs=last, budget=budget)
        if prices is None:
            return best
        last = prices
        if best is None or prices.bound - price * max_solo > best[1].bound - best[0] * max_solo:
            best = price, prices
        if search.record(price, prices) or budget.expired:
            return best
    return best


@dataclass(slots=True, kw_only=True)
class _BracketEnd:
    """The price nearest to the maximum on one side of it."""

    price: float
    slope: float  # solo jobs beyond those allowed
    bound: float  # less price · max_solo
    weight: float  # of false position: the slope, halved each time the other end moved twice


@dataclass(slots=True, kw_only=True)
class _PriceSearch:
    """Chooses the next price to try from the slopes at earlier ones."""

    max_solo: int
    tolerance: int
    first: float
    step: float
    max_price: float  # at it, every pair that exists is cheaper than two solo jobs
    low: _BracketEnd | None = None
    high: _BracketEnd | None = None
    bounds: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, matrix: Floats, solo: Floats, max_solo: int, budget: TimeBudget, *, tolerance: int) -> "_PriceSearch":
        """Start from the price that a sample of the jobs needs; sets the diagonal of `matrix` to inf."""
        n = len(solo)
        finite = matrix[np.isfinite(matrix)]
        max_price = 2.0 * float(np.ptp(finite)) + 1.0 if len(finite) else 1.0
        np.fill_diagonal(matrix, np.inf)
        cheapest = np.abs(matrix.min(axis=1, initial=np.inf))
        cheapest = cheapest[np.isfinite(cheapest) & (cheapest > 0)]
        step = float(np.median(cheapest)) if len(cheapest) else 1.0
        first = 0.0
        if n > SAMPLE_DIVISOR * MAX_DENSE_JOBS:
            sampled = np.sort(np.random.default_rng(n).permutation(n)[: n // SAMPLE_DIVISOR])
            of_sample = solo_price_for_limit(
                matrix[np.ix_(sampled, sampled)],
                solo[sampled],
                round(max_solo / SAMPLE_DIVISOR),
                budget,
                tolerance=len(sampled) // SAMPLE_TOLERANCE,
            )
            if of_sample is not None and of_sample[0] > 0:
                first, step = of_sample[0], FIRST_STEP * of_sample[0]
        return cls(
            max_solo=max_solo, tolerance=tolerance, first=first, step=max(1.0, np.floor(step)), max_price=max_price
        )

    def next_price(self) -> float:
        """The price to try next."""
        if self.low is None and self.high is None:
            return self.first
        if self.low is None or self.high is None:
            step, self.step = self.step, self.step * STEP_GROWTH
            if self.low is None:
                return max(0.0, self.high.price - step) if self.high else self.first
            return min(self.max_price, self.low.price + step)
        width = self.high.price - self.low.price
        share = self.low.weight / (self.low.weight - self.high.weight)
        inside = self.low.price + np.clip(share, EDGE, 1 - EDGE) * width
        return float(np.clip(np.rint(inside), self.low.price + 1, self.high.price - 1))

    def record(self, price: float, prices: DualPrices) -> bool:
        """Take in the solution at a price; True when no other price can raise the bound by a unit."""
        slope = float(prices.solo_jobs - self.max_solo)
        end = _BracketEnd(price=price, slope=slope, bound=prices.bound - price * self.max_solo, weight=slope)
        self.bounds.append(end.bound)
        if abs(slope) <= self.tolerance:
            return True
        if slope > 0:
            if self.low is not None and self.high is not None:
                self.high.weight /= 2
            self.low = end
        else:
            if self.low is not None and self.high is not None:
                self.low.weight /= 2
            self.high = end
        if self.low is None:
            return price <= 0
        if self.high is None:
            return price >= self.max_price
        max_bound = self.low.bound + self.low.slope * self._tangent_crossing()
        return self.high.price - self.low.price <= 1 or max_bound - max(self.bounds) < 1

    def _tangent_crossing(self) -> float:
        """Distance from `low` to where the tangents at both ends meet."""
        if self.low is None or self.high is None:
            raise AssertionError("both ends of the bracket are known here")
        width = self.high.price - self.low.price
        return (self.high.bound - self.low.bound - self.high.slope * width) / (self.low.slope - self.high.slope)
