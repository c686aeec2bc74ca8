"""Groups of three or four jobs by local search: a lower bound is proved, but not that the grouping is near it.

A group costs the sum of its pairs, which is how slowdowns of groups are composed. Two neighbourhoods alternate: one job
of every group is removed and all are put back at once, as an assignment; and two jobs exchange groups.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.matching.dual_prices import solve_dual_prices
from interfere.matching.records import check_costs
from interfere.records import SolveStatus
from interfere.time_budget import TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_IDLE_ROUNDS = 6  # rounds without improvement that end the search: each round tries every seat of the groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups of at most k jobs. Status HEURISTIC: `lower_bound` is proved, but the cost may be far above it."""

    group: Ints  # int64[n]: the group of each job
    cost: float
    lower_bound: float
    status: SolveStatus


def match_groups(cost: Floats, k: int, *, time_limit_s: float | None = None, seed: int = 0) -> Grouping:
    """Group n jobs into ⌈n/k⌉ groups of nearly equal size with a small sum of pair costs within the groups.

    `cost` float64[n, n]: `inf` forbids two jobs in one group. Stops soon after `time_limit_s`; equal input and `seed`
    give the same groups where time does not cut the search short. The status is INFEASIBLE when the search finds no
    allowed grouping. Raises InvalidInputError on NaN, asymmetry, wrong shapes and k below 2.
    """
    cost = np.asarray(cost, dtype=np.float64)
    check_costs(cost, np.zeros(len(cost) if cost.ndim else 0))
    if k < 2:
        raise InvalidInputError("a group holds at least two jobs", value=k, remedy="k = 2, 3 or 4")
    n = len(cost)
    if n == 0:
        return Grouping(group=np.zeros(0, dtype=np.int64), cost=0.0, lower_bound=0.0, status=SolveStatus.HEURISTIC)
    budget = TimeBudget(np.inf if time_limit_s is None else time_limit_s)
    finite = cost[np.isfinite(cost)]
    max_cost = float(np.abs(finite).max()) if len(finite) else 0.0
    forbidden_cost = 1.0 + n * k * max_cost  # every grouping without a forbidden pair costs less
    finite_cost = np.where(np.isfinite(cost), cost, forbidden_cost)
    np.fill_diagonal(finite_cost, 0.0)
    rng = np.random.default_rng(seed)
    seats = _initial_seats(finite_cost, k)
    best, idle_rounds = _total_cost(finite_cost, seats), 0
    while idle_rounds < MAX_IDLE_ROUNDS and not budget.expired:
        for column in rng.permutation(k).tolist():
            seats = _reassign_column(finite_cost, seats, column)
        seats = _swap_jobs(finite_cost, seats, budget)
        search_cost = _total_cost(finite_cost, seats)
        idle_rounds = 0 if search_cost < best - 1e-12 * abs(best) else idle_rounds + 1
        best = min(best, search_cost)
        rng.permuted(seats, axis=1, out=seats)  # the next round removes other jobs
    group = np.empty(n, dtype=np.int64)
    for g, members in enumerate(seats.tolist()):
        group[[job for job in members if job >= 0]] = g
    together = (group[:, None] == group) & ~np.eye(n, dtype=bool)
    if np.isinf(cost[together]).any():
        return Grouping(group=group, cost=np.inf, lower_bound=np.inf, status=SolveStatus.INFEASIBLE)
    total = float(cost[together].sum()) / 2
    lower_bound = min(total, _lower_bound(finite_cost, k))
    return Grouping(group=group, cost=total, lower_bound=lower_bound, status=SolveStatus.HEURISTIC)


def _initial_seats(cost: Floats, k: int) -> Ints:
    """int64[groups, k] of jobs, -1 an empty seat: column by column, each group gets one job at least total cost."""
    from scipy.optimize import linear_sum_assignment

    n = len(cost)
    groups = -(-n // k)
    order = np.argsort(-cost.mean(axis=1), kind="stable")  # the hardest to place start the groups
    seats = np.full((groups, k), -1, dtype=np.int64)
    seats[:, 0] = order[:groups]
    for column in range(1, k):
        unseated = np.setdiff1d(np.arange(n), seats)
        load = _cost_beside(cost, seats)
        rows, columns = linear_sum_assignment(load[:, unseated])
        seats[rows, column] = unseated[columns]
    return seats


def _cost_beside(cost: Floats, seats: Ints) -> Floats:
    """float64[groups, n]: cost of each job beside the members of each group."""
    load = np.zeros((len(seats), len(cost)))
    for column in seats.T:
        taken = column >= 0
        load[taken] += cost[column[taken]]
    return load


def _reassign_column(cost: Floats, seats: Ints, column: int) -> Ints:
    """Remove the job in one seat of every group, and fill those seats again at least cost."""
    from scipy.optimize import linear_sum_assignment

    remaining = seats.copy()
    remaining[:, column] = -1
    removed = seats[:, column]
    load = _cost_beside(cost, remaining)[:, np.maximum(removed, 0)]
    load[:, removed < 0] = 0.0  # an empty seat costs nothing, but no group gets two of them: sizes stay nearly equal
    load[np.ix_((remaining < 0).sum(axis=1) > 1, removed < 0)] = cost.sum() + 1.0
    rows, columns = linear_sum_assignment(load)
    remaining[rows, column] = removed[columns]
    return remaining


def _swap_jobs(cost: Floats, seats: Ints, budget: TimeBudget) -> Ints:
    """Exchange jobs between groups while that is cheaper; every job tries its best exchange once."""
    seats = seats.copy()
    groups, k = seats.shape
    for column in range(k):
        if budget.expired:
            break
        for g in range(groups):
            job = int(seats[g, column])
            if job < 0:
                continue
            load = _cost_beside(cost, seats)
            group_of_seat = np.repeat(np.arange(groups), k).reshape(groups, k)
            seated = np.maximum(seats, 0)
            # Cost of both jobs in their own groups, and of each in the other's group without the job that left it.
            before = load[g, job] + load[group_of_seat, seated]
            after = load[group_of_seat, job] - cost[job, seated] + load[g, seated] - cost[job, seated]
            gain = np.where((seats >= 0) & (group_of_seat != g), before - after, -np.inf)
            best = np.unravel_index(int(gain.argmax()), gain.shape)
            if gain[best] > 1e-12 * max(1.0, abs(float(before[best]))):
                seats[g, column], seats[best] = seats[best], job
    return seats


def _total_cost(cost: Floats, seats: Ints) -> float:
    """Σ over pairs within groups."""
    load, groups = _cost_beside(cost, seats), np.arange(len(seats))
    return float(sum(load[groups, np.maximum(column, 0)][column >= 0].sum() for column in seats.T)) / 2


def _lower_bound(cost: Floats, k: int) -> float:
    """Lower bound from the dual prices y of the fractional matching.

    Each pair costs at least y_i + y_j, and a job in a group of m is in m - 1 pairs, which cost it at least (m - 1) · y
    for the sizes m that occur.
    """
    n = len(cost)
    matrix = cost.copy()
    np.fill_diagonal(matrix, np.inf)
    if n < 3:
        return float(cost.sum()) / 2 if n == 2 and k >= 2 else 0.0
    max_cost = float(np.abs(cost).max())
    scale = 2.0**36 / max_cost if max_cost > 0 else 1.0
    prices = solve_dual_prices(np.rint(matrix * scale))
    if prices is None:
        return -np.inf
    smallest = n // -(-n // k)
    pairs_per_job = smallest - 1, min(k, n) - 1
    excess = float(prices.y.sum() - prices.bound) * pairs_per_job[1]
    total = float(sum(min(pairs_per_job[0] * y, pairs_per_job[1] * y) for y in prices.y.tolist()))
    return (total - excess - n * k) / scale
