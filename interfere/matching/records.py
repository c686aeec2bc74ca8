"""What a matching is, and the checks at the door. `inf` forbids a pair; `mate[i] == i` means alone."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.records import SolveStatus

TILE = 1024  # rows and columns of one checked block: both triangles of it stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """A matching of n jobs, and the prices that prove a lower bound: `verify` rechecks them, a next solve starts there.

    Σ y - alone_price · (most jobs alone) - ½ Σ_i (worst violation in row i) is a bound on every matching; `lower_bound`
    equals `cost` where also every edge that could improve on it was tried.
    """

    mate: NDArray[np.int64]  # int64[n]
    cost: float
    lower_bound: float
    status: SolveStatus
    y: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # float64[n]
    alone_price: float = 0.0  # of one job alone, where the number of devices binds
    edges: NDArray[np.int64] | None = (
        None  # row · n + column of those that the prices rest on: where a next solve starts
    )
    seconds: float = 0.0

    @property
    def gap(self) -> float:
        """How far the cost can be from the best, relative; 0 when optimal."""
        if self.status is SolveStatus.OPTIMAL:
            return 0.0
        return (self.cost - self.lower_bound) / max(abs(self.cost), 1e-12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Which seat each row takes; -1 where a row got none."""

    seat: NDArray[np.int64]  # int64[n]
    cost: float


def infeasible(n: int, seconds: float = 0.0) -> Matching:
    """The answer when no allowed matching exists."""
    return Matching(mate=np.arange(n), cost=np.inf, lower_bound=np.inf, status=SolveStatus.INFEASIBLE, seconds=seconds)


def check_costs(cost: NDArray[np.float64], solo: NDArray[np.float64]) -> None:
    """Raise InvalidInputError unless `cost` is float[n, n], symmetric within 1e-9, `solo` float[n], no NaN, no -inf."""
    remedy = "send symmetric costs, +inf where a pair is forbidden"
    n = len(cost) if cost.ndim else 0
    if cost.ndim != 2 or cost.shape[0] != cost.shape[1]:
        raise InvalidInputError("cost must be square", value=cost.shape, remedy=remedy)
    for r in range(0, n, TILE):
        for c in range(r, n, TILE):
            one, other = cost[r : r + TILE, c : c + TILE], cost[c : c + TILE, r : r + TILE].T
            if bool((one == other).all()) and float(one.min()) > -np.inf:  # NaN equals nothing
                continue
            with np.errstate(invalid="ignore"):  # inf - inf is NaN, which is no good difference
                apart = np.abs(one - other)
            good = apart <= 1e-9 * np.minimum(np.abs(one), np.abs(other)) + 1e-12
            good |= (one == np.inf) & (other == np.inf)
            if r == c:
                np.fill_diagonal(good, True)
            if not good.all():
                i, j = np.argwhere(~good)[0] + np.array([r, c])
                raise _bad_cell(cost, int(i), int(j), remedy)
    if solo.shape != (n,) or np.isnan(solo).any() or np.isneginf(solo).any():
        raise InvalidInputError(
            "solo must be float[n] without NaN or -inf", value=solo.shape, remedy="+inf forbids staying alone"
        )


def _bad_cell(cost: NDArray[np.float64], i: int, j: int, remedy: str) -> InvalidInputError:
    values = cost[i, j], cost[j, i]
    if np.isnan(values).any() or np.isneginf(values).any():
        return InvalidInputError("cost holds NaN or -inf", value=f"at [{i}, {j}]", remedy=remedy)
    return InvalidInputError(
        "cost is not symmetric", value=f"cost[{i}, {j}] = {values[0]:g} ≠ cost[{j}, {i}] = {values[1]:g}", remedy=remedy
    )


def cost_of(mate: NDArray[np.int64], cost: NDArray[np.float64], solo: NDArray[np.float64]) -> float:
    """Σ over pairs of cost[i, mate] + Σ over jobs alone of solo[i]."""
    me = np.arange(len(mate))
    ahead = mate > me
    return float(cost[me[ahead], mate[ahead]].sum() + solo[mate == me].sum())
