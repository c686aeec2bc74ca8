"""What a matching is, and the checks at the door. `inf` forbids a pair; `mate[i] == i` means alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.records import SolveStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """A matching of n jobs with a proved lower bound; `gap` = (cost - lower_bound) / |cost|."""

    mate: NDArray[np.int64]  # int64[n]
    cost: float
    lower_bound: float
    status: SolveStatus

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


def infeasible(n: int) -> Matching:
    """The answer when no allowed matching exists."""
    return Matching(mate=np.arange(n), cost=np.inf, lower_bound=np.inf, status=SolveStatus.INFEASIBLE)


def check_costs(cost: NDArray[np.float64], solo: NDArray[np.float64]) -> None:
    """Raise InvalidInputError unless `cost` is float[n, n], symmetric within 1e-9, `solo` float[n], no NaN, no -inf."""
    remedy = "send symmetric costs, +inf where a pair is forbidden"
    if cost.ndim != 2 or cost.shape[0] != cost.shape[1]:
        raise InvalidInputError("cost must be square", value=cost.shape, remedy=remedy)
    off = cost.copy()
    np.fill_diagonal(off, 0.0)
    bad = np.isnan(off) | np.isneginf(off)
    if bad.any():
        raise InvalidInputError("cost holds NaN or -inf", value=f"at {np.argwhere(bad)[0].tolist()}", remedy=remedy)
    finite = np.isfinite(off)
    if (finite != finite.T).any() or not np.allclose(off[finite], off.T[finite], rtol=1e-9, atol=1e-12):
        raise InvalidInputError("cost is not symmetric", value="cost[i, j] ≠ cost[j, i]", remedy=remedy)
    if solo.shape != (len(cost),) or np.isnan(solo).any() or np.isneginf(solo).any():
        raise InvalidInputError(
            "solo must be float[n] without NaN or -inf", value=solo.shape, remedy="+inf forbids staying alone"
        )


def cost_of(mate: NDArray[np.int64], cost: NDArray[np.float64], solo: NDArray[np.float64]) -> float:
    """Σ over pairs of cost[i, mate] + Σ over jobs alone of solo[i]."""
    me = np.arange(len(mate))
    ahead = mate > me
    return float(cost[me[ahead], mate[ahead]].sum() + solo[mate == me].sum())
