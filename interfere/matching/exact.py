"""Least-cost general matching with proof: solo jobs, forbidden pairs, any n, at most `max_devices` devices.

Costs are rounded to whole units (`scaling`). Where many jobs are interchangeable they are counted by class
(`identical_jobs`), else reduced costs say which edges matter (`reduced_cost_search`).
With a time limit, the answer is the best partition found so far, with a bound on its distance from the optimum.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.matching.dual_prices import DualPrices
from interfere.matching.identical_jobs import job_classes, match_job_classes
from interfere.matching.records import Matching, check_costs, infeasible_matching, partition_cost
from interfere.matching.reduced_cost_search import ScaledProblem
from interfere.matching.scaling import outliers_are_hopeless, scale_costs, without_outliers
from interfere.records import SolveStatus
from interfere.time_budget import TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EQUAL = 1e-9  # of Σ |cost| of a partition: as far above its bound as it may be and be called optimal
MIN_JOBS_FOR_CLASSES = 100  # up to here the search by reduced costs is faster, however many jobs are interchangeable


def match_pairs(
    cost: Floats,
    solo: Floats | None = None,
    *,
    max_devices: int | None = None,
    gap: float = 0.0,
    time_limit_s: float | None = None,
    warm_start: Matching | None = None,
    current: Ints | None = None,
    switching_cost: float = 0.0,
) -> Matching:
    """The cheapest partition of n jobs into pairs and, where `solo` is finite, solo jobs.

    `cost` float64[n, n]: cost of each pair, symmetric, +inf where forbidden, its diagonal ignored.
    `solo` float64[n]: cost of each job by itself, +inf where it must be paired; None: every job must be paired.
    `max_devices`: limit on pairs plus solo jobs.
    `gap`, `time_limit_s`: the search ends once this relative gap is proved, or soon after this time.
    `warm_start`: the matching of a problem that differs in few jobs.
    `current` int64[n]: the partition in force; every job that leaves its partner costs `switching_cost` more, which the
    cost of the answer includes.

    Raises InvalidInputError on NaN, asymmetry or wrong shapes. The status is INFEASIBLE when no such partition exists,
    BOUNDED when a better one may exist, else OPTIMAL: none is better by more than 1e-9 of Σ |cost|.

    >>> import numpy as np
    >>> from interfere import match_pairs
    >>> cost = np.array([[0, 3, 1, 4], [3, 0, 5, 1], [1, 5, 0, 2], [4, 1, 2, 0]], dtype=np.float64)
    >>> matching = match_pairs(cost)
    >>> matching.mate.tolist(), matching.cost, matching.status.value
    ([2, 3, 0, 1], 2.0, 'OPTIMAL')
    """
    # 1. Check the input.
    cost = np.asarray(cost, dtype=np.float64)
    n = len(cost) if cost.ndim else 0
    solo = np.full(n, np.inf) if solo is None else np.asarray(solo, dtype=np.float64)
    check_costs(cost, solo)
    _check_options(n, gap, time_limit_s, warm_start, current, switching_cost)
    if current is not None and switching_cost > 0:
        cost, solo = _with_switching_cost(cost, solo, np.asarray(current), switching_cost)
    cost = cost.copy()
    np.fill_diagonal(cost, np.inf)
    budget = TimeBudget(np.inf if time_limit_s is None else time_limit_s)
    request = _Request(max_devices=max_devices, gap=gap, warm_start=warm_start, budget=budget)
    # 2. Leave out costs so large that the units would be coarse, where no best partition contains them.
    usual = without_outliers(cost, solo)
    if usual is not None:
        matching = _solve_in_units(*usual, request)
        if matching.status is not SolveStatus.INFEASIBLE and outliers_are_hopeless(cost, solo, matching.cost):
            return matching
    return _solve_in_units(cost, solo, request)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What a caller of `match_pairs` asks for, besides the costs."""

    max_devices: int | None
    gap: float
    warm_start: Matching | None
    budget: TimeBudget


def _solve_in_units(cost: Floats, solo: Floats, request: _Request) -> Matching:
    """The best partition at costs rounded to whole units, told in the caller's costs."""
    scaled = scale_costs(cost, solo)
    problem = ScaledProblem(matrix=scaled.matrix, solo=scaled.solo, gap=request.gap, budget=request.budget)
    # 1. Count classes of jobs where that pays off; else search by reduced costs.
    matching = _solve_by_classes(problem, request.max_devices)
    if matching is None:
        warm, similar = request.warm_start, None
        if warm is not None and len(warm.y) == len(solo):
            similar = DualPrices(y=warm.y * scaled.scale, bound=-np.inf, optimal=False, edges=warm.edges)
        limit = request.max_devices
        matching = problem.solve(similar) if limit is None else problem.solve_within(limit, similar)
    if matching.status is SolveStatus.INFEASIBLE:
        return matching
    # 2. Back to the caller's costs, from which rounding may have taken as much as `error`.
    total = partition_cost(matching.mate, cost, solo)
    lower_bound = min(total, matching.lower_bound / scaled.scale - scaled.error)
    proved = matching.status is SolveStatus.OPTIMAL
    optimal = proved and total - lower_bound <= EQUAL * _sum_of_absolutes(matching.mate, cost, solo)
    return replace(
        matching,
        cost=total,
        status=SolveStatus.OPTIMAL if optimal else SolveStatus.BOUNDED,
        lower_bound=total if optimal else lower_bound,
        y=matching.y / scaled.scale,
        solo_price=matching.solo_price / scaled.scale,
        odd_sets=tuple(replace(each, price=each.price / scaled.scale) for each in matching.odd_sets),
    )


def _sum_of_absolutes(mate: Ints, cost: Floats, solo: Floats) -> float:
    """Σ |cost| of the pairs and solo jobs of a partition."""
    jobs = np.arange(len(mate))
    first, alone = jobs[mate > jobs], jobs[mate == jobs]
    return float(np.abs(cost[first, mate[first]]).sum() + np.abs(solo[alone]).sum())


def _solve_by_classes(problem: ScaledProblem, max_devices: int | None) -> Matching | None:
    """The answer where many jobs are interchangeable; None where they are not, or where time ran out."""
    n = len(problem.solo)
    classes = job_classes(problem.matrix, problem.solo) if n > MIN_JOBS_FOR_CLASSES else None
    if classes is None:
        return None
    if max_devices is not None and 2 * max_devices < n:
        return infeasible_matching(n)
    max_solo = None if max_devices is None else 2 * max_devices - n
    return match_job_classes(problem.matrix, problem.solo, classes, max_solo=max_solo, budget=problem.budget)


def _with_switching_cost(cost: Floats, solo: Floats, current: Ints, switching_cost: float) -> tuple[Floats, Floats]:
    """Pair and solo costs in which every job that leaves its partner, or stops running solo, pays `switching_cost`."""
    jobs = np.arange(len(current))
    charged = cost + 2.0 * switching_cost
    charged[jobs, current] = cost[jobs, current]
    return charged, np.where(current == jobs, solo, solo + switching_cost)


def _check_options(
    n: int,
    gap: float,
    time_limit_s: float | None,
    warm_start: Matching | None,
    current: Ints | None,
    switching_cost: float,
) -> None:
    if not gap >= 0 or not switching_cost >= 0 or not np.isfinite(switching_cost):
        raise InvalidInputError(
            "gap and switching_cost must be ≥ 0", value=f"{gap}, {switching_cost}", remedy="leave them out for none"
        )
    if time_limit_s is not None and not time_limit_s > 0:
        raise InvalidInputError("time_limit_s must be positive", value=time_limit_s, remedy="leave it out for no limit")
    if warm_start is not None and len(warm_start.mate) != n:
        raise InvalidInputError(
            "warm_start is a matching of another size",
            value=f"{len(warm_start.mate)} ≠ {n} jobs",
            remedy="leave it out",
        )
    if current is not None:
        mate = np.asarray(current)
        if (
            mate.shape != (n,)
            or not np.issubdtype(mate.dtype, np.integer)
            or (n and (mate.min() < 0 or mate.max() >= n))
        ):
            raise InvalidInputError(
                "current must be int[n] of partners",
                value=mate.shape,
                remedy="send each job's partner, its own index where it runs solo",
            )
        if n and (mate[mate] != np.arange(n)).any():
            raise InvalidInputError(
                "current is no partition into pairs", value=mate[:8].tolist(), remedy="make mate[mate[i]] = i"
            )
