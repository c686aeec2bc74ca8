"""Jobs in groups of three or four, by local search: nothing is proved but the bound.

A group costs the sum of its pairs, which is how slowdowns of groups are composed. Two neighbourhoods in turn: one job
of every group is taken out and all are put back at once, as an assignment; and two jobs swap their groups.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.matching.dual_prices import price
from interfere.matching.records import check_costs
from interfere.records import SolveStatus

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PATIENCE = 6  # rounds without a gain before the search ends: each tries every seat of the groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups of at most k jobs. HEURISTIC: `lower_bound` holds, but nothing says that the cost is near it."""

    group: Ints  # int64[n]: which group each job is in
    cost: float
    lower_bound: float
    status: SolveStatus


def match_groups(cost: Floats, k: int, *, time_limit_s: float | None = None, seed: int = 0) -> Grouping:
    """Groups of k jobs (⌈n/k⌉ of them, as equal as can be) of small Σ over pairs within groups of `cost` float64[n, n].

    `inf` forbids two jobs in one group; INFEASIBLE when the search finds no allowed grouping. Raises InvalidInputError
    on NaN, asymmetry, wrong shapes and k below 2.
    """
    began = time.perf_counter()
    cost = np.asarray(cost, dtype=np.float64)
    check_costs(cost, np.zeros(len(cost) if cost.ndim else 0))
    if k < 2:
        raise InvalidInputError("a group holds at least two jobs", value=k, remedy="k = 2, 3 or 4")
    n = len(cost)
    if n == 0:
        return Grouping(group=np.zeros(0, dtype=np.int64), cost=0.0, lower_bound=0.0, status=SolveStatus.HEURISTIC)
    deadline_s = np.inf if time_limit_s is None else began + time_limit_s
    finite = cost[np.isfinite(cost)]
    dear = 1.0 + n * k * (float(np.abs(finite).max()) if len(finite) else 0.0)  # no grouping without it costs as much
    open_cost = np.where(np.isfinite(cost), cost, dear)
    np.fill_diagonal(open_cost, 0.0)
    rng = np.random.default_rng(seed)
    seats = _first(open_cost, k)
    best, idle = _total(open_cost, seats), 0
    while idle < PATIENCE and time.perf_counter() < deadline_s:
        for column in rng.permutation(k).tolist():
            seats = _reassigned(open_cost, seats, column)
        seats = _swapped(open_cost, seats, deadline_s)
        now = _total(open_cost, seats)
        idle = 0 if now < best - 1e-12 * abs(best) else idle + 1
        best = min(best, now)
        rng.permuted(seats, axis=1, out=seats)  # other jobs are taken out next time
    group = np.empty(n, dtype=np.int64)
    for g, members in enumerate(seats.tolist()):
        group[[job for job in members if job >= 0]] = g
    together = (group[:, None] == group) & ~np.eye(n, dtype=bool)
    if np.isinf(cost[together]).any():
        return Grouping(group=group, cost=np.inf, lower_bound=np.inf, status=SolveStatus.INFEASIBLE)
    total = float(cost[together].sum()) / 2
    return Grouping(group=group, cost=total, lower_bound=min(total, _bound(open_cost, k)), status=SolveStatus.HEURISTIC)


def _first(cost: Floats, k: int) -> Ints:
    """int64[groups, k] of jobs, -1 an empty seat: column by column, each group takes the job that suits it best."""
    from scipy.optimize import linear_sum_assignment

    n = len(cost)
    groups = -(-n // k)
    order = np.argsort(-cost.mean(axis=1), kind="stable")  # the hardest to place start the groups
    seats = np.full((groups, k), -1, dtype=np.int64)
    seats[:, 0] = order[:groups]
    for column in range(1, k):
        left = np.setdiff1d(np.arange(n), seats)
        load = _beside(cost, seats)
        rows, columns = linear_sum_assignment(load[:, left])
        seats[rows, column] = left[columns]
    return seats


def _beside(cost: Floats, seats: Ints) -> Floats:
    """float64[groups, n]: what each job would cost beside the members of each group."""
    load = np.zeros((len(seats), len(cost)))
    for column in seats.T:
        there = column >= 0
        load[there] += cost[column[there]]
    return load


def _reassigned(cost: Floats, seats: Ints, column: int) -> Ints:
    """Take one seat of every group out, and fill all of them again at least cost."""
    from scipy.optimize import linear_sum_assignment

    rest = seats.copy()
    rest[:, column] = -1
    out = seats[:, column]
    load = _beside(cost, rest)[:, np.maximum(out, 0)]
    load[:, out < 0] = 0.0  # an empty seat costs nothing, but no group has two: sizes stay as equal as can be
    load[np.ix_((rest < 0).sum(axis=1) > 1, out < 0)] = cost.sum() + 1.0
    rows, columns = linear_sum_assignment(load)
    rest[rows, column] = out[columns]
    return rest


def _swapped(cost: Floats, seats: Ints, deadline_s: float) -> Ints:
    """Swap two jobs of different groups while that is cheaper, best swap of each job first."""
    seats = seats.copy()
    groups, k = seats.shape
    for column in range(k):
        if time.perf_counter() > deadline_s:
            break
        for g in range(groups):
            job = int(seats[g, column])
            if job < 0:
                continue
            load = _beside(cost, seats)
            own = np.repeat(np.arange(groups), k).reshape(groups, k)
            others = np.maximum(seats, 0)
            # Leaving: what both pay now; arriving: beside the other's group without the one who left.
            leave = load[g, job] + load[own, others]
            arrive = load[own, job] - cost[job, others] + load[g, others] - cost[job, others]
            gain = np.where((seats >= 0) & (own != g), leave - arrive, -np.inf)
            at = np.unravel_index(int(gain.argmax()), gain.shape)
            if gain[at] > 1e-12 * max(1.0, abs(float(leave[at]))):
                seats[g, column], seats[at] = seats[at], job
    return seats


def _total(cost: Floats, seats: Ints) -> float:
    return float(sum(_beside(cost, seats)[np.arange(len(seats)), np.maximum(c, 0)][c >= 0].sum() for c in seats.T)) / 2


def _bound(cost: Floats, k: int) -> float:
    """Lower bound from prices y of the fractional matching.

    Each pair costs at least y_i + y_j, and a job of a group of m is in m - 1 pairs: (m - 1) · y, m as the sizes allow.
    """
    n = len(cost)
    matrix = cost.copy()
    np.fill_diagonal(matrix, np.inf)
    if n < 3:
        return float(cost.sum()) / 2 if n == 2 and k >= 2 else 0.0
    top = float(np.abs(cost).max())
    scale = 2.0**36 / top if top > 0 else 1.0
    found = price(np.rint(matrix * scale))
    if found is None:
        return -np.inf
    smallest = n // -(-n // k)
    high = smallest - 1, min(k, n) - 1
    spill = float(found.y.sum() - found.bound) * high[1]
    return (float(sum(min(high[0] * y, high[1] * y) for y in found.y.tolist())) - spill - n * k) / scale
