"""Finds the cheapest partition of jobs into pairs and solo jobs, as a placement problem on devices of one class.

Every job is in one column, alone or with one other job. A job may also wait, at a cost above all others; so a partition
exists exactly where the optimum leaves no job waiting.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.matching.problem import NOBODY, WAITS, Level, Placement, PlacementProblem, is_proved
from interfere.matching.search import solve_levels
from interfere.records import SolveStatus
from interfere.time_budget import TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """A partition of n jobs into pairs and solo jobs, with its cost and proof."""

    mate: Ints  # int64[n]: partner of each job, the job itself where it is solo
    cost: float
    lower_bound: float  # no partition costs less
    status: SolveStatus
    prices: Floats  # float64[n]: dual price of each job in the linear program: what the last job more of it would cost

    @property
    def gap(self) -> float:
        """Return the largest possible relative distance of the cost from the optimum; 0 for an optimal partition."""
        if self.status is SolveStatus.OPTIMAL:
            return 0.0
        return (self.cost - self.lower_bound) / max(abs(self.cost), 1e-12)


def match_pairs(
    cost: Floats, solo: Floats | None = None, *, max_devices: int | None = None, time_limit_s: float = np.inf
) -> Matching:
    """Return the cheapest partition of n jobs into pairs and solo jobs, on at most `max_devices` devices.

    `cost` float64[n, n], symmetric, inf where a pair is forbidden, its diagonal not read; `solo` float64[n], inf where
    a job may not be solo, None where no job may; `time_limit_s`: CPU seconds, after which the best partition so far is
    returned as BOUNDED, at an infinite cost where none was found. The status is INFEASIBLE where no partition exists.
    Raises InvalidInputError on NaN, -inf, a wrong shape or a cost that is not symmetric.

    >>> import numpy as np
    >>> from interfere import match_pairs
    >>> cost = np.array([[0, 3, 1, 4], [3, 0, 5, 1], [1, 5, 0, 2], [4, 1, 2, 0]], dtype=np.float64)
    >>> matching = match_pairs(cost)
    >>> matching.mate.tolist(), matching.cost, matching.status.value
    ([2, 3, 0, 1], 2.0, 'OPTIMAL')
    """
    cost = np.asarray(cost, dtype=np.float64)
    n = len(cost) if cost.ndim else 0
    solo = np.full(n, np.inf) if solo is None else np.asarray(solo, dtype=np.float64)
    _check_costs(cost, solo)
    if max_devices is not None and max_devices < 0:
        raise InvalidInputError("max_devices is negative", value=max_devices, remedy="send 0 or more, or None")
    problem, levels = _problem(cost, solo, n if max_devices is None else min(n, max_devices))
    nothing = np.zeros(n)
    if not n:
        return Matching(mate=np.arange(0), cost=0.0, lower_bound=0.0, status=SolveStatus.OPTIMAL, prices=nothing)
    solution = solve_levels(problem, levels, _cheapest_first(problem, levels[1]), budget=TimeBudget(time_limit_s))
    waiting, value = solution.values
    if waiting > 0:
        status = SolveStatus.INFEASIBLE if solution.lower_bounds[0] > 0 else SolveStatus.BOUNDED
        bound = np.inf if status is SolveStatus.INFEASIBLE else -np.inf
        return Matching(mate=np.arange(n), cost=np.inf, lower_bound=bound, status=status, prices=nothing)
    proved = is_proved(value, solution.lower_bounds[1])
    dual = solution.certificates[1].prices
    mate = _mates(problem, solution.placement)
    return Matching(
        mate=mate,
        cost=value,
        lower_bound=value if proved else solution.lower_bounds[1],
        status=SolveStatus.OPTIMAL if proved else SolveStatus.BOUNDED,
        prices=nothing if dual is None else _centred(dual.jobs, cost, solo, mate),
    )


def _problem(cost: Floats, solo: Floats, devices: int) -> tuple[PlacementProblem, tuple[Level, Level]]:
    """Return the jobs as a placement problem with one host class, and its levels: waiting jobs, then costs."""
    n = len(cost)
    alone = np.flatnonzero(np.isfinite(solo))
    i, j = np.nonzero(np.triu(np.isfinite(cost), 1))
    c = n + len(alone) + len(i)
    members = np.full((c, 2), NOBODY, dtype=np.int64, order="F")
    members[:n, 0] = np.arange(n)
    members[n : n + len(alone), 0] = alone
    members[n + len(alone) :, 0], members[n + len(alone) :, 1] = i, j
    placed = np.arange(c) >= n
    problem = PlacementProblem(
        demand=np.ones(n, dtype=np.int64),
        supply=np.array([devices], dtype=np.int64),
        is_empty=np.ones(1, dtype=bool),
        max_devices=devices,
        members=members,
        host=np.where(placed, 0, WAITS).astype(np.int64),
        takes=placed.astype(np.int64),
        allowed=np.ones(c, dtype=bool),
    )
    values = np.concatenate([np.zeros(n), solo[alone], cost[i, j]])
    floor = 0.0 if values.min(initial=0.0) >= 0 else -np.inf
    waiting = Level(cost=(~placed).astype(np.float64), floor=0.0, is_waiting=True)
    return problem, (waiting, Level(cost=values, floor=floor))


def _cheapest_first(problem: PlacementProblem, level: Level) -> Placement:
    """Return a greedy partition: columns are taken in order of cost per job, and the remaining jobs wait."""
    n, size = len(problem.demand), problem.size
    free, devices, chosen = np.ones(n, dtype=bool), problem.max_devices, []
    for column in (n + np.argsort(level.cost[n:] / size[n:], kind="stable")).tolist():
        jobs = problem.members[column, : size[column]]
        if devices and free[jobs].all():
            free[jobs] = False
            devices -= 1
            chosen.append(column)
            if not free.any():
                break
    column = np.concatenate([np.flatnonzero(free), np.array(sorted(chosen), dtype=np.int64)])
    return Placement(column=column, count=np.ones(len(column), dtype=np.int64))


def _mates(problem: PlacementProblem, placement: Placement) -> Ints:
    """Return int64[n]: the partner of each job in a placement without waiting jobs; a solo job is its own partner."""
    members = problem.members[placement.column]
    mate = np.arange(len(problem.demand))
    pairs = members[members[:, 1] != NOBODY]
    mate[pairs[:, 0]], mate[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
    return mate


def _centred(prices: Floats, cost: Floats, solo: Floats, mate: Ints) -> Floats:
    """Return float64[n]: dual prices of equal bound that divide the cost of each pair as evenly as dual feasibility
    allows.

    A linear program ends at a vertex of its dual, where one job of a pair may carry the whole cost.
    """
    prices, jobs = prices.copy(), np.arange(len(prices))
    for i in np.flatnonzero(mate > jobs).tolist():
        j = int(mate[i])
        others = (jobs != i) & (jobs != j)
        most_i, most_j = (
            min(float(np.min(cost[k] - prices, where=others, initial=np.inf)), float(solo[k])) - prices[k]
            for k in (i, j)
        )
        even = (prices[j] - prices[i]) / 2
        shift = min(max(even, -max(most_j, 0.0)), max(most_i, 0.0))
        prices[i], prices[j] = prices[i] + shift, prices[j] - shift
    return prices


def _check_costs(cost: Floats, solo: Floats) -> None:
    """Raise InvalidInputError on NaN, -inf, a `solo` other than float[n] or a `cost` not symmetric float[n, n]."""
    remedy = "send symmetric costs, +inf where a pair is forbidden"
    if cost.ndim != 2 or cost.shape[0] != cost.shape[1]:
        raise InvalidInputError("cost must be square", value=cost.shape, remedy=remedy)
    off_diagonal = ~np.eye(len(cost), dtype=bool)
    invalid = (np.isnan(cost) | np.isneginf(cost)) & off_diagonal
    if invalid.any():
        i, j = np.argwhere(invalid)[0].tolist()
        raise InvalidInputError("cost holds NaN or -inf", value=f"at [{i}, {j}]", remedy=remedy)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and no comparison with NaN holds
        differs = ~(np.abs(cost - cost.T) <= 1e-9 * np.minimum(np.abs(cost), np.abs(cost.T)) + 1e-12)
    differs &= (cost != cost.T) & off_diagonal
    if differs.any():
        i, j = np.argwhere(differs)[0].tolist()
        raise InvalidInputError(
            "cost is not symmetric", value=f"cost[{i}, {j}] = {cost[i, j]:g} ≠ {cost[j, i]:g}", remedy=remedy
        )
    if solo.shape != (len(cost),) or np.isnan(solo).any() or np.isneginf(solo).any():
        raise InvalidInputError(
            "solo must be float[n] without NaN or -inf", value=solo.shape, remedy="+inf where a job may not run solo"
        )
