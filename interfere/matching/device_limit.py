"""What a job alone has to pay so that few enough are: the price behind "at most m devices".

n jobs on at most m devices leave at most 2 m - n alone. The fractional bound at a price, less the price times that
number, is concave, and its slope is how many jobs too many are alone. Its summit is looked for by false position
(Illinois), from what a third of the jobs would pay.
Law: at any price, the bound that comes with it is one on every matching with at most `lonely` jobs alone.
"""

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from interfere.matching.dual_prices import DENSE, SHARE, Prices, price

Floats = NDArray[np.float64]

STEPS = 40  # prices asked for; 5-16 where 1,000 jobs all differ
FIRST_STEP = 0.1  # of the sample's price: how far from it the second price is
WIDER = 4.0  # times the last step, while the slope keeps its sign
NEAR = 50  # of a sample: one job in so many too many alone is near enough, its price only begins the search of all
EDGE = 0.02  # of the bracket that a step stays away from its ends


def device_price(
    matrix: Floats, solo: Floats, lonely: int, deadline_s: float, *, spare: int = 0
) -> tuple[float, Prices] | None:
    """The price at which the bound is best, and the prices of the jobs there; None when nothing is feasible.

    `matrix` float64[n, n] of whole numbers as in `prices`, its diagonal unused; `solo` float64[n]. Ends where no price
    bounds better by a unit, or where at most `spare` jobs too many or too few are alone.
    """
    matrix = matrix.copy()
    search = _Search.of(matrix, solo, lonely, deadline_s, spare=spare)
    best: tuple[float, Prices] | None = None
    known: Prices | None = None
    for _ in range(STEPS):
        paid = search.next()
        np.fill_diagonal(matrix, 2.0 * (solo + paid))
        prices = price(matrix, known=known, deadline_s=deadline_s)
        if prices is None:
            return best
        known = prices
        if best is None or prices.bound - paid * lonely > best[1].bound - best[0] * lonely:
            best = paid, prices
        if search.told(paid, prices) or time.perf_counter() > deadline_s:
            return best
    return best


@dataclass(slots=True, kw_only=True)
class _Side:
    """The nearest price asked for on one side of the summit."""

    paid: float
    slope: float  # jobs too many alone
    height: float  # the bound, less price · lonely
    weight: float  # the slope, or half of it where the other side moved twice


@dataclass(slots=True, kw_only=True)
class _Search:
    """Prices to ask for, from the slopes that came back."""

    lonely: int
    spare: int
    first: float
    step: float
    most: float  # at it, every pair that there is pays
    low: _Side | None = None
    high: _Side | None = None
    heights: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, matrix: Floats, solo: Floats, lonely: int, deadline_s: float, *, spare: int) -> "_Search":
        n = len(solo)
        finite = matrix[np.isfinite(matrix)]
        most = 2.0 * float(np.ptp(finite)) + 1.0 if len(finite) else 1.0
        np.fill_diagonal(matrix, np.inf)
        usual = np.abs(matrix.min(axis=1, initial=np.inf))
        usual = usual[np.isfinite(usual) & (usual > 0)]
        step = float(np.median(usual)) if len(usual) else 1.0
        first = 0.0
        if n > SHARE * DENSE:
            some = np.sort(np.random.default_rng(n).permutation(n)[: n // SHARE])
            sample = matrix[np.ix_(some, some)]
            found = device_price(sample, solo[some], round(lonely / SHARE), deadline_s, spare=len(some) // NEAR)
            if found is not None and found[0] > 0:
                first, step = found[0], FIRST_STEP * found[0]
        return cls(lonely=lonely, spare=spare, first=first, step=max(1.0, np.floor(step)), most=most)

    def next(self) -> float:
        """The price to ask for."""
        if self.low is None and self.high is None:
            return self.first
        if self.low is None or self.high is None:
            step, self.step = self.step, self.step * WIDER
            if self.low is None:
                return max(0.0, self.high.paid - step) if self.high else self.first
            return min(self.most, self.low.paid + step)
        width = self.high.paid - self.low.paid
        share = self.low.weight / (self.low.weight - self.high.weight)
        inside = self.low.paid + np.clip(share, EDGE, 1 - EDGE) * width
        return float(np.clip(np.rint(inside), self.low.paid + 1, self.high.paid - 1))

    def told(self, paid: float, prices: Prices) -> bool:
        """Take what came back; True when no other price bounds better by a unit."""
        slope = float(prices.alone - self.lonely)
        side = _Side(paid=paid, slope=slope, height=prices.bound - paid * self.lonely, weight=slope)
        self.heights.append(side.height)
        if abs(slope) <= self.spare:
            return True
        if slope > 0:
            if self.low is not None and self.high is not None:
                self.high.weight /= 2
            self.low = side
        else:
            if self.low is not None and self.high is not None:
                self.low.weight /= 2
            self.high = side
        if self.low is None:
            return paid <= 0
        if self.high is None:
            return paid >= self.most
        summit = self.low.height + self.low.slope * self._crossing()
        return self.high.paid - self.low.paid <= 1 or summit - max(self.heights) < 1

    def _crossing(self) -> float:
        """From `low`, where the tangents at both sides meet."""
        if self.low is None or self.high is None:
            raise AssertionError("both sides are known here")
        width = self.high.paid - self.low.paid
        return (self.high.height - self.low.height - self.high.slope * width) / (self.low.slope - self.high.slope)
