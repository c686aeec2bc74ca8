"""Several levels one after the other: each as small as it can be among the placements that are best at those before.

Where prices prove a level's optimum, the placements that are as good are exactly those that use no start of positive
reduced cost and leave nothing over that has a price; the next level is solved among them. Where a gap remains, starts
whose reduced cost exceeds it are left out and the sum is limited to what was reached.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.master.first_columns import seed_columns
from interfere.matching.master.pricing import Prices, reduced_costs
from interfere.matching.master.problem import (
    BlockCosts,
    ColumnKind,
    Columns,
    Ints,
    Level,
    Placement,
    PlacementProblem,
)
from interfere.matching.master.restricted_master import LevelLimit
from interfere.matching.master.single_level import LevelSolution, Restriction, solve_level
from interfere.time_budget import TimeBudget

SHARE_OF_BUDGET = 0.5  # of what is left, for a level that is not the last
WAITING_WEIGHT = 2.0  # of waiting in one sum with costs, beside the largest cost of a start
EQUAL = 1e-11  # of the largest price: a reduced cost or price below is rounding
NO_GAP = 1e-12  # relative: rounding of sums, below which the prices prove the very optimum
LIMIT_SLACK = 1e-10  # relative: sums of the same costs in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelResult:
    """What one level came to in the final placement, and the bound among placements as good at the levels before."""

    value: float
    lower_bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCertificate:
    """What proves the bound of a level: prices, and the earlier levels whose sums they are limited by.

    Without prices the floor of the level is its bound.
    """

    value: float
    linear_bound: float  # that the prices prove; that of an integer program may be higher
    prices: Prices | None
    limited: tuple[int, ...]  # places of these levels
    limit_values: tuple[float, ...]

    def all_prices(self) -> list[float]:
        """Every price of jobs, devices and seats."""
        if self.prices is None:
            return []
        parts = (*self.prices.jobs, self.prices.capacity, *self.prices.seats)
        return [self.prices.max_devices, *(float(x) for part in parts for x in part)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A placement, the result of each level, and the search so far restricted to placements as good as it."""

    placement: Placement
    results: tuple[LevelResult, ...]
    problem: PlacementProblem
    restriction: Restriction
    columns: Columns
    certificates: tuple[LevelCertificate, ...]  # of each level, in the placement that was best when it was solved


def solve_levels(
    problem: PlacementProblem,
    levels: Sequence[Level],
    start: Placement,
    *,
    budget: TimeBudget,
    guide: Level | None = None,
) -> Solution:
    """The placement that is best level by level, from any placement to `start` with.

    `guide`: costs by which the first columns are chosen; those of the last level without one.
    """
    none = Restriction(tight=np.zeros(0, dtype=np.int64))
    guide = guide or levels[-1]
    certificates: list[LevelCertificate] = []
    restriction, columns, placement, bounds = none, seed_columns(problem, guide), start, []
    waiting = list(itertools.takewhile(lambda level: level.is_waiting, levels))
    if any(start.value(level) > 0 for level in waiting):
        combined = combined_level(problem, waiting, guide)
        share = budget.share(SHARE_OF_BUDGET)
        found = solve_level(problem, combined, start, seed=columns, restriction=none, budget=share, closes_gap=False)
        placement, columns = found.placement, found.columns
    for k, level in enumerate(levels):
        columns = columns.take(columns.allowed(problem))
        last = k == len(levels) - 1
        share = budget if last else budget.share(SHARE_OF_BUDGET)
        found = solve_level(problem, level, placement, seed=columns, restriction=restriction, budget=share)
        placement, columns = found.placement, found.columns
        bounds.append(found.lower_bound)
        certificates.append(_certificate(levels, found, restriction))
        problem, restriction = restrict_to_level(problem, level, found, restriction)
    results = tuple(
        LevelResult(value=value, lower_bound=min(bound, value))
        for level, bound in zip(levels, bounds, strict=True)
        for value in [placement.value(level)]
    )
    return Solution(
        placement=placement,
        results=results,
        problem=problem,
        restriction=restriction,
        columns=columns,
        certificates=tuple(certificates),
    )


def _certificate(levels: Sequence[Level], found: LevelSolution, restriction: Restriction) -> LevelCertificate:
    """What proves the bound of a level that was solved within a restriction."""
    places = [next(k for k, level in enumerate(levels) if level is limit.level) for limit in restriction.limits]
    return LevelCertificate(
        value=found.value,
        linear_bound=found.linear_bound,
        prices=found.prices,
        limited=tuple(places),
        limit_values=tuple(limit.value for limit in restriction.limits),
    )


def combined_level(problem: PlacementProblem, waiting_levels: Sequence[Level], guide: Level) -> Level:
    """The costs of the guide and of waiting in one sum: mostly the starts that the levels choose one by one."""
    costs = list(guide.costs)
    for level in reversed(waiting_levels):
        weight = WAITING_WEIGHT * _largest_cost_per_waiting(problem, costs, level)
        costs = [
            replace(cost, wait=cost.wait + weight * waiting.wait)
            for cost, waiting in zip(costs, level.costs, strict=True)
        ]
    return Level(costs=tuple(costs), floor=guide.floor)


def _largest_cost_per_waiting(problem: PlacementProblem, costs: Sequence[BlockCosts], level: Level) -> float:
    """The largest cost of a start or of waiting, over the smallest cost of waiting at the level."""
    dearest, least = 0.0, np.inf
    for block, cost, waiting in zip(problem.blocks, costs, level.costs, strict=True):
        for values, allowed in (
            (cost.wait, block.wait_allowed),
            (cost.solo, block.solo_allowed),
            (cost.pair, block.pair_allowed),
            (cost.seat, block.seat_allowed),
        ):
            dearest = max(dearest, float(np.max(np.abs(values), where=allowed, initial=0.0)))
        least = min(least, float(np.min(waiting.wait, where=waiting.wait > 0, initial=np.inf)))
    return max(dearest, 1e-300) / least


def restrict_to_level(
    problem: PlacementProblem, level: Level, found: LevelSolution, restriction: Restriction
) -> tuple[PlacementProblem, Restriction]:
    """The problem of the next level: only placements that are as good at this one."""
    at_floor = found.value <= level.floor + LIMIT_SLACK * abs(level.floor)
    if at_floor and level.floor == 0.0:
        return _without_costly_starts(problem, level), restriction
    if found.prices is None:
        return problem, _with_limit(restriction, level, found)
    # 1. Starts whose reduced cost exceeds the gap are in no placement that is as good.
    prices = found.prices
    reduced = reduced_costs(problem, level, prices, restriction.levels)
    largest = max(
        [1e-300, *(float(np.abs(y).max(initial=0.0)) for y in (*prices.jobs, prices.capacity, *prices.seats))]
    )
    gap = max(0.0, found.value - found.linear_bound)
    reach = gap * (1 + 1e-9) + EQUAL * largest
    blocks = tuple(
        replace(
            block,
            wait_allowed=block.wait_allowed & (costs.wait <= reach),
            solo_allowed=block.solo_allowed & (costs.solo <= reach),
            pair_allowed=block.pair_allowed & (costs.pair <= reach),
            seat_allowed=block.seat_allowed & (costs.seat <= reach),
        )
        for block, costs in zip(problem.blocks, reduced, strict=True)
    )
    problem = _keep_chosen(replace(problem, blocks=blocks), found.placement)
    # 2. Without a gap, what has a price is used up; with one, the sum is limited.
    if gap > NO_GAP * max(abs(found.value), abs(found.linear_bound)):
        return problem, _with_limit(restriction, level, found)
    return problem, replace(restriction, tight=_priced_rows(problem, found, restriction, EQUAL * largest))


def _with_limit(restriction: Restriction, level: Level, found: LevelSolution) -> Restriction:
    scale = max(abs(found.value), 1e-300)
    value = found.value + LIMIT_SLACK * scale
    return replace(restriction, limits=(*restriction.limits, LevelLimit(level=level, value=value, scale=scale)))


def _priced_rows(problem: PlacementProblem, found: LevelSolution, restriction: Restriction, negligible: float) -> Ints:
    """The rows of devices and seats that have a price, hence are used up in every placement that is as good."""
    assert found.prices is not None
    prices = found.prices
    _, _, capacity, _ = problem.row_offsets()
    devices = np.concatenate([prices.capacity, [prices.max_devices], *prices.seats])
    return np.union1d(restriction.tight, capacity + np.flatnonzero(np.abs(devices) > negligible)).astype(np.int64)


def _without_costly_starts(problem: PlacementProblem, level: Level) -> PlacementProblem:
    """The problem without starts that cost something, where the best sum is 0 and no start costs less."""
    blocks = tuple(
        replace(
            block,
            wait_allowed=block.wait_allowed & (costs.wait <= 0),
            solo_allowed=block.solo_allowed & (costs.solo <= 0),
            pair_allowed=block.pair_allowed & (costs.pair <= 0),
            seat_allowed=block.seat_allowed & (costs.seat <= 0),
        )
        for block, costs in zip(problem.blocks, level.costs, strict=True)
    )
    return replace(problem, blocks=blocks)


def _keep_chosen(problem: PlacementProblem, placement: Placement) -> PlacementProblem:
    """The problem in which at least the starts of the placement are allowed, whatever rounding says of them."""
    blocks = []
    for b, block in enumerate(problem.blocks):
        columns = placement.columns.take(placement.columns.block == b)
        wait, solo = block.wait_allowed.copy(), block.solo_allowed.copy()
        pair, seat = block.pair_allowed.copy(), block.seat_allowed.copy()
        kind, resource, i, j = columns.kind, columns.resource, columns.i, columns.j
        wait[i[kind == ColumnKind.WAIT]] = True
        at = kind == ColumnKind.SOLO
        solo[resource[at], i[at]] = True
        at = kind == ColumnKind.PAIR
        pair[resource[at], i[at], j[at]] = pair[resource[at], j[at], i[at]] = True
        at = kind == ColumnKind.SEAT
        seat[i[at], resource[at]] = True
        blocks.append(replace(block, wait_allowed=wait, solo_allowed=solo, pair_allowed=pair, seat_allowed=seat))
    return replace(problem, blocks=tuple(blocks))
