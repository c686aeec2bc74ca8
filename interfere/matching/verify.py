"""An independent check of a matching: is it allowed, what does it cost, and which bound do its dual prices prove?

It shares no code with the search except the blossom algorithm that completes the proof of an optimum.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.blossom import SparseProblem
from interfere.matching.records import Matching
from interfere.records import SolveStatus

EQUAL = 1e-9  # relative tolerance: prices travel as floats, while the proof was made in whole numbers
BLOCK_ROWS = 512
MAX_LISTED = 5  # problems of one sort that are listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Findings about a matching. `problems` is empty when everything that the matching claims is true."""

    cost: float  # computed again
    bound: float  # proved by its prices, as `Matching` says
    problems: tuple[str, ...]


def verify(
    cost: NDArray[np.float64],
    solo: NDArray[np.float64] | None,
    matching: Matching,
    *,
    max_devices: int | None = None,
) -> Verification:
    """Check feasibility, cost and bound in O(n²), and whether a claimed optimum can be improved by any open edge.

    An edge is open when its reduced cost does not rule it out. `cost` float64[n, n] and `solo` float64[n] (None: no job
    may run solo) are those given to `match_pairs`. A claim of infeasibility is not checked.
    """
    n = len(cost)
    solo_cost = np.full(n, np.inf) if solo is None else np.asarray(solo, dtype=np.float64)
    mate, y = matching.mate, matching.y
    if matching.status is SolveStatus.INFEASIBLE:
        return Verification(cost=np.inf, bound=np.inf, problems=())
    # 1. Is the partition allowed?
    problems = _broken_rules(cost, solo_cost, mate, max_devices)
    if problems:
        return Verification(cost=np.inf, bound=-np.inf, problems=tuple(problems))
    # 2. What does it cost, and which bound do the prices prove?
    total = sum(float(cost[i, j]) if i < j else float(solo_cost[i]) for i, j in enumerate(mate.tolist()) if i <= j)
    max_solo = 0 if max_devices is None else max(0, 2 * max_devices - n)
    if matching.solo_price and max_devices is None:
        problems.append("it charges a solo price, and no limit of devices justifies one")
    problems += _broken_odd_sets(matching)
    bound = _dual_bound(cost, solo_cost + matching.solo_price, matching) - matching.solo_price * max_solo
    slack = EQUAL * max(1e-300, abs(total), float(np.abs(y).max(initial=0.0))) * n
    # 3. Do its claims agree with that?
    if abs(total - matching.cost) > slack:
        problems.append(f"its cost is {total:.12g}, it claims {matching.cost:.12g}")
    if bound > total + slack:
        problems.append(f"its prices prove a bound of {bound:.12g}, above its cost: they are wrong")
    if matching.lower_bound > total + slack:
        problems.append(f"its lower bound {matching.lower_bound:.12g} lies above its cost")
    if matching.status is SolveStatus.OPTIMAL:
        min_cost = _min_cost(cost, solo_cost, matching, total - bound + slack, max_devices)
        if min_cost < total - slack:
            problems.append(f"it is called optimal at {total:.12g}, but {min_cost:.12g} is possible")
    elif matching.lower_bound > bound + slack:
        problems.append(f"its prices prove a bound of {bound:.12g}, it claims {matching.lower_bound:.12g}")
    return Verification(cost=total, bound=bound, problems=tuple(problems))


def _broken_rules(
    cost: NDArray[np.float64], solo: NDArray[np.float64], mate: NDArray[np.int64], max_devices: int | None
) -> list[str]:
    """Why the partition is not allowed; empty when it is."""
    n, jobs = len(cost), np.arange(len(cost))
    if mate.shape != (n,) or (n and (mate.min() < 0 or mate.max() >= n)) or (mate[mate] != jobs).any():
        return ["it is no partition into pairs and solo jobs"]
    first, solo_jobs = jobs[mate > jobs], jobs[mate == jobs]
    problems = [f"jobs {i} and {mate[i]} may not share" for i in first[np.isinf(cost[first, mate[first]])][:MAX_LISTED]]
    problems += [f"job {i} may not run solo" for i in solo_jobs[np.isinf(solo[solo_jobs])][:MAX_LISTED]]
    if max_devices is not None and len(first) + len(solo_jobs) > max_devices:
        problems.append(f"it needs {len(first) + len(solo_jobs)} devices of {max_devices}")
    return problems


def _broken_odd_sets(matching: Matching) -> list[str]:
    """What is wrong with the odd sets: an even one, one that names a job twice, or a negative price proves nothing."""
    return [
        f"an odd set of {len(each.members)} jobs at a price of {each.price:.12g} proves nothing"
        for each in matching.odd_sets
        if each.price < 0 or len(each.members) % 2 == 0 or len(np.unique(each.members)) != len(each.members)
    ][:MAX_LISTED]


def _dual_bound(cost: NDArray[np.float64], solo: NDArray[np.float64], matching: Matching) -> float:
    """Σ y, less what the odd sets may pay and half of each row's worst violation.

    The diagonal of the full matrix is twice the solo cost.
    """
    y = matching.y
    total = float(y.sum()) - sum(each.price * ((len(each.members) - 1) // 2) for each in matching.odd_sets)
    for first in range(0, len(y), BLOCK_ROWS):
        rows = slice(first, first + BLOCK_ROWS)
        reduced = _reduced_costs(cost, matching, rows)
        k = np.arange(len(reduced))
        reduced[k, first + k] = 2.0 * (solo[rows] - y[rows])
        total += float(np.minimum(reduced.min(axis=1), 0.0).sum()) / 2
    return total


def _reduced_costs(cost: NDArray[np.float64], matching: Matching, rows: slice) -> NDArray[np.float64]:
    """float64[h, n]: cost of each pair less the prices of its jobs, plus those of the odd sets that hold both."""
    y = matching.y
    reduced: NDArray[np.float64] = cost[rows] - y[rows, None] - y
    for each in matching.odd_sets:
        inside = each.members[(each.members >= rows.start) & (each.members < rows.stop)]
        reduced[np.ix_(inside - rows.start, each.members)] += each.price
    return reduced


def _min_cost(
    cost: NDArray[np.float64],
    solo: NDArray[np.float64],
    matching: Matching,
    max_reduced_cost: float,
    max_devices: int | None,
) -> float:
    """Cost of the best partition over the edges that reduced costs do not rule out; no other partition is cheaper."""
    y = matching.y
    reduced = _reduced_costs(cost, matching, slice(0, len(y)))
    i, j = np.nonzero(np.triu(reduced <= max_reduced_cost, 1))
    problem = SparseProblem.of(
        i.astype(np.int64), j.astype(np.int64), cost[i, j] - y[i] - y[j], solo + matching.solo_price - y
    )
    mate = problem.solve() if max_devices is None else problem.solve_within(max_devices, matching.solo_price)
    if mate is None:
        return np.inf
    return sum(float(cost[a, b]) if a < b else float(solo[a]) for a, b in enumerate(mate.tolist()) if a <= b)
