"""Lexicographic minimisation of a placement by column generation, with a lower bound for each level from dual prices.

1. Solve a linear program over a few columns; price all others; add columns that could improve it; repeat until none.
2. Fix the integer part of the solution; solve the residual problem as an integer program over columns of small reduced
cost.
3. Where a gap remains, no column of reduced cost above the gap is in a better placement: solve the integer program over
the columns below it.
The next level allows only placements that are equally good: columns of reduced cost above the gap are excluded, every
resource with a positive price must be used up, and where a gap remains the sum is limited to the value reached.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.formulation import Formulation
from interfere.matching.level_search import LevelSearch
from interfere.matching.problem import (
    WAITS,
    Ints,
    Level,
    Placement,
    PlacementProblem,
    Prices,
    reduced_costs,
)
from interfere.matching.programs import (
    Restriction,
)
from interfere.matching.residual import best_columns
from interfere.time_budget import TimeBudget

# Groups of one or two of each job class that the first linear program has: the cheapest, and some at random. Many jobs
# are cheapest beside the same few; without the others the prices are far off, and more rounds and columns follow.
FIRST_PER_JOB, RANDOM_PER_JOB = 2, 10
WAITING_WEIGHT = 2.0  # of waiting in one sum with costs, beside the largest cost of a group
SHARE_OF_BUDGET = 0.5  # of the remaining time, for a level that is not the last
EQUAL = 1e-11  # of the largest price: a reduced cost below is rounding
NO_GAP = 1e-12
LIMIT_SLACK = 1e-10  # relative: sums of the same costs in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelCertificate:
    """The proof of one level's lower bound: dual prices, and the earlier levels whose sums are limited.

    Without prices, the lower bound is the `floor` of the level.
    """

    value: float
    lower_bound: float
    linear_bound: float  # that the prices prove
    prices: Prices | None
    limited: tuple[int, ...] = ()  # places of these levels
    limit_values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A placement with its value and lower bound at each level, among placements optimal at all earlier levels."""

    placement: Placement
    values: tuple[float, ...]
    lower_bounds: tuple[float, ...]
    certificates: tuple[LevelCertificate, ...]
    problem: PlacementProblem  # with the generated columns
    levels: tuple[Level, ...]
    guide: Level


def solve_levels(
    problem: PlacementProblem,
    levels: Sequence[Level],
    start: Placement,
    *,
    budget: TimeBudget,
    guide: Level | None = None,
) -> Solution:
    """Return the lexicographically best placement; search begins at `start` and with columns of least cost `guide`."""
    guide = guide or levels[-1]
    restriction = Restriction.none(problem)
    placement, columns = start, _first_columns(problem, guide)
    waiting = list(itertools.takewhile(lambda level: level.is_waiting, levels))
    formulation = Formulation(problem, (*levels, _combined(problem, waiting, guide), guide))
    if any(start.value(level) > 0 for level in waiting):
        search = LevelSearch(formulation, len(levels), placement, columns, restriction, budget.share(SHARE_OF_BUDGET))
        search.run(closes_gap=False)
        placement, columns, restriction = search.best, search.columns, search.restriction
    bounds: list[float] = []
    certificates: list[LevelCertificate] = []
    for k in range(len(levels)):
        share = budget if k == len(levels) - 1 else budget.share(SHARE_OF_BUDGET)
        search = LevelSearch(formulation, k, placement, columns, restriction, share)
        search.run(closes_gap=True)
        placement, columns, restriction = search.best, search.columns, search.restriction
        bounds.append(search.bound)
        certificates.append(
            LevelCertificate(
                value=search.value,
                lower_bound=min(search.bound, search.value),
                linear_bound=min(search.linear_bound, search.value),
                prices=search.prices,
                limited=restriction.places,
                limit_values=tuple(restriction.values.tolist()),
            )
        )
        restriction = _restricted(search)
    found = formulation.levels[: len(levels)]
    values = tuple(placement.value(level) for level in found)
    return Solution(
        placement=placement,
        values=values,
        lower_bounds=tuple(min(bound, value) for bound, value in zip(bounds, values, strict=True)),
        certificates=tuple(certificates),
        problem=formulation.problem,
        levels=found,
        guide=formulation.levels[-1],
    )


def _first_columns(problem: PlacementProblem, guide: Level) -> Ints:
    """Return the columns of the first linear program: all that wait, of the groups of one or two jobs the cheapest few
    of each host and job class, and some at random; the same problem always gets the same columns."""
    size = problem.size
    per_job = np.where(problem.allowed & (problem.host != WAITS) & (size <= 2), guide.cost / size, np.inf)
    small = best_columns(problem, per_job, np.inf, per_class=FIRST_PER_JOB)
    possible = np.flatnonzero(np.isfinite(per_job))
    most = min(len(possible), RANDOM_PER_JOB * len(problem.demand))
    spread = np.random.default_rng(0).choice(possible, most, replace=False)
    return np.unique(np.concatenate([np.flatnonzero(problem.host == WAITS), small, spread]))


def _combined(problem: PlacementProblem, waiting: Sequence[Level], guide: Level) -> Level:
    """Return guide and waiting costs as one level, in which one more waiting job outweighs any cost of groups."""
    cost = guide.cost
    for level in reversed(waiting):
        least = float(np.min(level.cost, where=level.cost > 0, initial=np.inf))
        dearest = float(np.max(np.abs(cost), where=problem.allowed, initial=1e-300))
        cost = cost + WAITING_WEIGHT * dearest / least * level.cost
    return Level(cost=cost, bounds=guide.bounds, floor=guide.floor, patterns=guide.patterns)


def _restricted(search: LevelSearch) -> Restriction:
    """Return the restriction to placements that are as good at the level just searched."""
    problem, level, restriction = search.problem, search.level, search.restriction
    if level.floor == 0.0 and search.value <= 0.0 and (level.is_waiting or problem.patterns is None):
        allowed = restriction.allowed & (level.cost <= 0.0)
        return replace(restriction, allowed=allowed)
    limited = replace(
        restriction,
        limits=(*restriction.limits, (level, search.value + LIMIT_SLACK * abs(search.value))),
        places=(*restriction.places, search.place),
    )
    if search.prices is None or problem.patterns is not None:
        return limited
    prices, gap = search.prices, max(0.0, search.value - search.linear_bound)
    reduced = reduced_costs(problem, level.cost, prices, restriction.levels)
    device = np.append(prices.hosts, prices.max_devices)
    largest = max(float(np.abs(prices.jobs).max(initial=1e-300)), float(np.abs(device).max(initial=0.0)))
    allowed = restriction.allowed & (reduced <= gap * (1 + 1e-9) + EQUAL * largest)
    allowed[search.best.column] = True
    if gap > NO_GAP * max(abs(search.value), abs(search.linear_bound)):
        return replace(limited, allowed=allowed)
    return replace(restriction, allowed=allowed, tight=restriction.tight | (np.abs(device) > EQUAL * largest))
