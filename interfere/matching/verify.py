"""An independent recheck of a matching: is it allowed, what does it cost, and what do its prices prove?

It shares no code with the search but the blossom algorithm that closes the proof of an optimum.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.blossom import SparseProblem
from interfere.matching.records import Matching
from interfere.records import SolveStatus

EQUAL = 1e-9  # relative: prices travel as floats, a proof was made in whole numbers
ROWS = 512  # of one block


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was found. `problems` is empty when everything the matching claims is true."""

    cost: float  # computed again
    bound: float  # that its prices prove: Σ y - price · (most jobs alone) - ½ Σ_i (worst violation in row i)
    problems: tuple[str, ...]


def verify(
    cost: NDArray[np.float64],
    solo: NDArray[np.float64] | None,
    matching: Matching,
    *,
    max_devices: int | None = None,
) -> Verification:
    """Recheck feasibility, cost and bound in O(n²); of an optimum also that no edge its prices leave open is better."""
    n = len(cost)
    alone = np.full(n, np.inf) if solo is None else np.asarray(solo, dtype=np.float64)
    mate, y = matching.mate, matching.y
    if matching.status is SolveStatus.INFEASIBLE:
        return Verification(cost=np.inf, bound=np.inf, problems=())
    problems = list(_broken(cost, alone, mate, max_devices))
    if problems:
        return Verification(cost=np.inf, bound=-np.inf, problems=tuple(problems))
    total = sum(float(cost[i, j]) if i < j else float(alone[i]) for i, j in enumerate(mate.tolist()) if i <= j)
    lonely = 0 if max_devices is None else max(0, 2 * max_devices - n)
    if matching.alone_price and max_devices is None:
        problems.append("a price on being alone, and no limit of devices that would justify it")
    bound, slack = (
        _bound(cost, alone + matching.alone_price, y),
        EQUAL * max(1e-300, abs(total), float(np.abs(y).max(initial=0.0))),
    )
    bound -= matching.alone_price * lonely
    slack *= n
    if abs(total - matching.cost) > slack:
        problems.append(f"its cost is {total:.12g}, it says {matching.cost:.12g}")
    if bound > total + slack:
        problems.append(f"its prices prove {bound:.12g}, more than it costs: they are wrong")
    if matching.lower_bound > total + slack:
        problems.append(f"its lower bound {matching.lower_bound:.12g} lies above its cost")
    if matching.status is SolveStatus.OPTIMAL:
        best = _best(cost, alone, matching, total - bound + slack, max_devices)
        if best < total - slack:
            problems.append(f"it is called optimal at {total:.12g}, but {best:.12g} is possible")
    elif matching.lower_bound > bound + slack:
        problems.append(f"its prices prove {bound:.12g}, it claims {matching.lower_bound:.12g}")
    return Verification(cost=total, bound=bound, problems=tuple(problems))


def _broken(
    cost: NDArray[np.float64], alone: NDArray[np.float64], mate: NDArray[np.int64], max_devices: int | None
) -> list[str]:
    n, me = len(cost), np.arange(len(cost))
    if mate.shape != (n,) or (n and (mate.min() < 0 or mate.max() >= n)) or (mate[mate] != me).any():
        return ["it is no partition into pairs and single jobs"]
    found = []
    ahead, single = me[mate > me], me[mate == me]
    found += [f"jobs {i} and {mate[i]} may not share" for i in ahead[np.isinf(cost[ahead, mate[ahead]])][:5]]
    found += [f"job {i} may not stay alone" for i in single[np.isinf(alone[single])][:5]]
    if max_devices is not None and len(ahead) + len(single) > max_devices:
        found.append(f"it needs {len(ahead) + len(single)} devices of {max_devices}")
    return found


def _bound(cost: NDArray[np.float64], alone: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Σ y less half of each row's worst violation; being alone counts twice, as the diagonal of a full matrix."""
    total = float(y.sum())
    for first in range(0, len(y), ROWS):
        block = cost[first : first + ROWS] - y[first : first + ROWS, None] - y
        at = np.arange(len(block))
        block[at, first + at] = 2.0 * (alone[first : first + ROWS] - y[first : first + ROWS])
        total += float(np.minimum(block.min(axis=1), 0.0).sum()) / 2
    return total


def _best(
    cost: NDArray[np.float64], alone: NDArray[np.float64], matching: Matching, reach: float, max_devices: int | None
) -> float:
    """Least cost over the edges whose reduced cost does not rule them out; no other partition is cheaper."""
    y = matching.y
    extra = cost - y - y[:, None]
    i, j = np.nonzero(np.triu(extra <= reach, 1))
    solo = alone + matching.alone_price - y
    problem = SparseProblem.of(
        i.astype(np.int64), j.astype(np.int64), np.maximum(0.0, extra[i, j]), np.maximum(0.0, solo)
    )
    mate = problem.solve() if max_devices is None else problem.within(max_devices, matching.alone_price)
    if mate is None:
        return np.inf
    return sum(float(cost[a, b]) if a < b else float(alone[a]) for a, b in enumerate(mate.tolist()) if a <= b)
