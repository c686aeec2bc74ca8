"""What a matching is, and the checks on its input. A cost of `inf` forbids a pair; `mate[i] == i` is a solo job."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.records import SolveStatus

TILE = 1024  # rows and columns of one checked block: it and its mirror image stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class OddSet:
    """An odd number of jobs with a price on every pair inside: at most (|members| - 1) / 2 of them can be chosen."""

    members: NDArray[np.int64]  # int64[s], s odd and at least 3
    price: float  # ≥ 0, added to the reduced cost of every pair inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """A partition of n jobs into pairs and solo jobs, with dual prices that prove a lower bound on its cost.

    Σ y - Σ_S price_S · (|S| - 1) / 2 - solo_price · (solo jobs allowed) - ½ Σ_i (worst violation in row i) bounds every
    matching from below, S being the odd sets, and `verify` rechecks it. `lower_bound` equals `cost` where also every
    edge that could improve on it was tried.
    """

    mate: NDArray[np.int64]  # int64[n]: partner of each job, itself when solo
    cost: float
    lower_bound: float
    status: SolveStatus
    y: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # float64[n], dual prices of the jobs
    solo_price: float = 0.0  # Lagrange multiplier of the device limit: charged for every solo job; 0 without a limit
    odd_sets: tuple[OddSet, ...] = ()  # that the bound needs besides the jobs
    edges: NDArray[np.int64] | None = None  # row · n + column of the edges that decide the prices: a warm start's edges

    @property
    def gap(self) -> float:
        """Largest possible distance of the cost from the optimum, relative to the cost; 0 when optimal."""
        if self.status is SolveStatus.OPTIMAL:
            return 0.0
        return (self.cost - self.lower_bound) / max(abs(self.cost), 1e-12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Which seat each job takes, and the total cost."""

    seat: NDArray[np.int64]  # int64[n]; -1 where a job got none
    cost: float


def infeasible_matching(n: int) -> Matching:
    """The answer for n jobs when no allowed matching exists."""
    return Matching(mate=np.arange(n), cost=np.inf, lower_bound=np.inf, status=SolveStatus.INFEASIBLE)


def check_costs(cost: NDArray[np.float64], solo: NDArray[np.float64]) -> None:
    """Raise InvalidInputError unless `cost` is float[n, n], symmetric within 1e-9, `solo` float[n], no NaN, no -inf."""
    remedy = "send symmetric costs, +inf where a pair is forbidden"
    n = len(cost) if cost.ndim else 0
    if cost.ndim != 2 or cost.shape[0] != cost.shape[1]:
        raise InvalidInputError("cost must be square", value=cost.shape, remedy=remedy)
    for r in range(0, n, TILE):
        for c in range(r, n, TILE):
            upper, lower = cost[r : r + TILE, c : c + TILE], cost[c : c + TILE, r : r + TILE].T
            if bool((upper == lower).all()) and float(upper.min()) > -np.inf:  # NaN equals nothing
                continue
            with np.errstate(invalid="ignore"):  # inf - inf is NaN, and no comparison with NaN holds
                difference = np.abs(upper - lower)
            valid = difference <= 1e-9 * np.minimum(np.abs(upper), np.abs(lower)) + 1e-12
            valid |= (upper == np.inf) & (lower == np.inf)
            if r == c:
                np.fill_diagonal(valid, True)
            if not valid.all():
                i, j = np.argwhere(~valid)[0] + np.array([r, c])
                raise _invalid_cell(cost, int(i), int(j), remedy)
    if solo.shape != (n,) or np.isnan(solo).any() or np.isneginf(solo).any():
        raise InvalidInputError(
            "solo must be float[n] without NaN or -inf", value=solo.shape, remedy="+inf where a job may not run solo"
        )


def _invalid_cell(cost: NDArray[np.float64], i: int, j: int, remedy: str) -> InvalidInputError:
    values = cost[i, j], cost[j, i]
    if np.isnan(values).any() or np.isneginf(values).any():
        return InvalidInputError("cost holds NaN or -inf", value=f"at [{i}, {j}]", remedy=remedy)
    return InvalidInputError(
        "cost is not symmetric", value=f"cost[{i}, {j}] = {values[0]:g} ≠ cost[{j}, {i}] = {values[1]:g}", remedy=remedy
    )


def partition_cost(mate: NDArray[np.int64], cost: NDArray[np.float64], solo: NDArray[np.float64]) -> float:
    """Σ over pairs of cost[i, mate] + Σ over solo jobs of solo[i]."""
    jobs = np.arange(len(mate))
    first = mate > jobs
    return float(cost[jobs[first], mate[first]].sum() + solo[mate == jobs].sum())
