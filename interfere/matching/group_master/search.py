"""The best placement in groups, level by level, by column generation, and a bound of each level that prices prove.

1. Linear program over a few columns; price all others; add those that could improve it; until none could.
2. Keep the whole part of its solution, and solve what is left as an integer program over columns of small reduced cost.
3. Where a gap remains, no better placement uses a column of larger reduced cost: the integer program over those below.

The next level is solved among the placements that are as good: without columns whose reduced cost exceeds the gap, with
everything used up that has a price, or where a gap remains with the sum limited to what was reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.group_master.bound import dual_bound, feasible_prices
from interfere.matching.group_master.problem import (
    NOBODY,
    WAITS,
    Bools,
    Floats,
    GroupLevel,
    GroupPlacement,
    GroupPrices,
    GroupProblem,
    Ints,
    reduced_costs,
)
from interfere.matching.group_master.programs import (
    GroupRestriction,
    LinearAnswer,
    LinearProgram,
    solve_integer_program,
)
from interfere.matching.master.tolerance import LEVEL_TOLERANCE, level_tolerance
from interfere.time_budget import TimeBudget

SCALED_SUM = 1e4  # what the sum of a level is scaled to for HiGHS
NEGATIVE = 1e-9  # of that sum: a reduced cost below -1e-9 of it is negative
BEST_PER_HOST, BEST_PER_JOB = 4, 3  # columns that one pricing round adds
FIRST_COLUMNS = 2_000  # groups of one or two that the first linear program has at most, the cheapest
NEAR_COLUMNS = (1_000, 6_000)  # of an integer program: few improve the placement, all up to the gap prove it
MAX_NODES = (20, 200)  # of its search tree: keeps it deterministic and short
WAITING_TOLERANCE = 1e-13  # a light job that waits in vain is less than the level's tolerance beside heavy ones
WAITING_WEIGHT = 2.0  # of waiting in one sum with costs, beside the largest cost of a group
SHARE_OF_BUDGET = 0.5  # of what is left, for a level that is not the last
LARGE, SHARE_OF_CLOSING = 50_000, 0.4  # columns of a problem in which a gap is closed for that share of what is left
EQUAL = 1e-11  # of the largest price: a reduced cost below is rounding
NO_GAP = 1e-12
LIMIT_SLACK = 1e-10  # relative: sums of the same costs in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCertificate:
    """What proves the bound of one level: prices, and the earlier levels whose sums are limited.

    Without prices the floor of the level is its bound.
    """

    value: float
    lower_bound: float
    linear_bound: float  # that the prices prove
    prices: GroupPrices | None
    limited: tuple[int, ...] = ()  # places of these levels
    limit_values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSolution:
    """A placement, and of each level its value there and its bound among placements as good at the levels before."""

    placement: GroupPlacement
    values: tuple[float, ...]
    lower_bounds: tuple[float, ...]
    certificates: tuple[GroupCertificate, ...]


def solve_group_levels(
    problem: GroupProblem,
    levels: Sequence[GroupLevel],
    start: GroupPlacement,
    *,
    budget: TimeBudget,
    guide: GroupLevel | None = None,
) -> GroupSolution:
    """The placement that is best level by level, from any placement `start`. `guide`: costs of the first columns."""
    guide = guide or levels[-1]
    restriction = GroupRestriction(allowed=problem.allowed.copy(), tight=np.zeros(len(problem.supply) + 1, dtype=bool))
    placement, columns = start, _first_columns(problem, guide)
    waiting = [level for level in levels if level.is_waiting]
    if any(start.value(level) > 0 for level in waiting):
        combined = _combined(problem, waiting, guide)
        search = _LevelSearch(problem, combined, placement, columns, restriction, budget.share(SHARE_OF_BUDGET))
        search.run(closes_gap=False)
        placement, columns = search.best, search.columns
    bounds: list[float] = []
    certificates: list[GroupCertificate] = []
    for k, level in enumerate(levels):
        share = budget if k == len(levels) - 1 else budget.share(SHARE_OF_BUDGET)
        search = _LevelSearch(problem, level, placement, columns, restriction, share)
        search.run(closes_gap=True)
        placement, columns = search.best, search.columns
        bounds.append(search.bound)
        limited = [next(p for p, other in enumerate(levels) if other is limit) for limit in restriction.levels]
        certificates.append(
            GroupCertificate(
                value=search.value,
                lower_bound=min(search.bound, search.value),
                linear_bound=min(search.linear_bound, search.value),
                prices=search.prices,
                limited=tuple(limited),
                limit_values=tuple(restriction.values.tolist()),
            )
        )
        restriction = _restricted(problem, level, search, restriction)
    values = tuple(placement.value(level) for level in levels)
    return GroupSolution(
        placement=placement,
        values=values,
        lower_bounds=tuple(min(bound, value) for bound, value in zip(bounds, values, strict=True)),
        certificates=tuple(certificates),
    )


def _first_columns(problem: GroupProblem, guide: GroupLevel) -> Ints:
    """Waiting, and the cheapest groups of one or two."""
    size = problem.size
    small = np.flatnonzero(problem.allowed & (problem.host != WAITS) & (size <= 2))
    if len(small) > FIRST_COLUMNS:
        per_job = guide.cost[small] / size[small]
        small = small[np.argpartition(per_job, FIRST_COLUMNS)[:FIRST_COLUMNS]]
    return np.concatenate([np.flatnonzero(problem.host == WAITS), small])


def _combined(problem: GroupProblem, waiting: Sequence[GroupLevel], guide: GroupLevel) -> GroupLevel:
    """The costs of the guide and of waiting in one sum, in which no cost of a group outweighs a job that waits."""
    cost = guide.cost
    for level in reversed(waiting):
        least = float(np.min(level.cost, where=level.cost > 0, initial=np.inf))
        dearest = float(np.max(np.abs(cost), where=problem.allowed, initial=1e-300))
        cost = cost + WAITING_WEIGHT * dearest / least * level.cost
    return GroupLevel(cost=cost, bounds=guide.bounds, floor=guide.floor)


def _restricted(
    problem: GroupProblem, level: GroupLevel, search: "_LevelSearch", restriction: GroupRestriction
) -> GroupRestriction:
    """The placements that are as good at a level."""
    if level.floor == 0.0 and search.value <= 0.0:
        allowed = restriction.allowed & (level.cost <= 0.0)
        return replace(restriction, allowed=allowed)
    limited = replace(
        restriction, limits=(*restriction.limits, (level, search.value + LIMIT_SLACK * abs(search.value)))
    )
    if search.prices is None:
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


class _LevelSearch:
    """The search of one level: the best placement, bound and prices so far."""

    def __init__(
        self,
        problem: GroupProblem,
        level: GroupLevel,
        start: GroupPlacement,
        columns: Ints,
        restriction: GroupRestriction,
        budget: TimeBudget,
    ) -> None:
        self._problem, self._level, self._restriction, self._budget = problem, level, restriction, budget
        self.best, self.value = start, start.value(level)
        self.bound, self.linear_bound = level.floor, -np.inf
        self.prices: GroupPrices | None = None
        self.columns = columns[restriction.allowed[columns]]
        self._reduced: Floats = np.zeros(0)
        self._linear: LinearAnswer | None = None

    @property
    def is_proved(self) -> bool:
        """Whether the best placement is within tolerance of the bound."""
        return self.value - self.bound <= self._tolerance

    @property
    def _tolerance(self) -> float:
        share = WAITING_TOLERANCE if self._level.is_waiting else LEVEL_TOLERANCE
        return level_tolerance(self.value, self.bound, share)

    def run(self, *, closes_gap: bool) -> None:
        """All stages, as far as they are needed and the budget goes."""
        if not self.is_proved and not self._budget.expired:
            self._generate_columns()
        if not self.is_proved and not self._budget.expired:
            self._round()
        if closes_gap:
            self._close_gap()

    def _scale(self) -> float:
        allowed = self._restriction.allowed
        largest = float(np.max(np.abs(self._level.cost), where=allowed, initial=0.0))
        return (abs(self.value) or largest or 1.0) / SCALED_SUM

    def _generate_columns(self) -> None:
        scale = self._scale()
        program = LinearProgram(self._problem, self._level, self._restriction, scale=scale)
        program.add(np.concatenate([self.columns, self.best.column]))
        while True:
            linear = program.solve(self._budget)
            if linear is None:
                break
            self._linear, self.columns = linear, program.columns
            if not self._problem.cutoffs:  # else only the last prices prove anything worth the time
                self._take_bound(linear.prices)
            if np.all(np.abs(linear.x - np.rint(linear.x)) <= 1e-6):
                self._take(GroupPlacement.of_counts(self._counts(np.rint(linear.x))))
            if self.is_proved or self._budget.expired:
                break
            reduced = reduced_costs(self._problem, self._level.cost, linear.prices, self._restriction.levels)
            reduced[~self._restriction.allowed] = np.inf
            if program.add(_best_columns(self._problem, reduced, -NEGATIVE * scale * SCALED_SUM)) == 0:
                break
        if self._linear is not None and self._problem.cutoffs:
            self._take_bound(self._linear.prices)
        self.columns = program.columns

    def _counts(self, x: Floats) -> Ints:
        counts = np.zeros(len(self._problem.host), dtype=np.int64)
        counts[self.columns] = x.astype(np.int64)
        return counts

    def _take_bound(self, prices: GroupPrices) -> None:
        restriction = self._restriction
        prices = feasible_prices(self._problem, self._level, prices, restriction.allowed, restriction.levels)
        bound = dual_bound(self._problem, prices, restriction.values)
        if bound > self.linear_bound or self.prices is None:
            reduced = reduced_costs(self._problem, self._level.cost, prices, restriction.levels)
            self.prices, self.linear_bound = prices, bound
            self._reduced = np.where(restriction.allowed, reduced, np.inf)
            self.bound = max(self.bound, bound)

    def _take(self, placement: GroupPlacement) -> None:
        value = placement.value(self._level)
        if value < self.value:
            self.best, self.value = placement, value

    def _round(self) -> None:
        """Keep the whole part of the linear solution; an integer program over what is left of it."""
        if self._linear is None:
            return
        problem, kept = self._problem, self._counts(np.floor(self._linear.x + 1e-6))
        residual, limits = _residual(problem, kept, self._restriction)
        near = np.flatnonzero(_possible(residual) & np.isfinite(self._reduced))
        used = self.columns[self._linear.x > 1e-9]
        near = near[np.argsort(self._reduced[near], kind="stable")[: NEAR_COLUMNS[0]]]
        waits = np.flatnonzero((problem.host == WAITS) & self._restriction.allowed)
        columns = np.unique(np.concatenate([near, used[_possible(residual)[used]], waits]))
        none = GroupPlacement.of_counts(np.zeros(0, dtype=np.int64))
        placement, _ = solve_integer_program(
            residual,
            self._level,
            replace(self._restriction, limits=limits),
            columns,
            scale=self._scale(),
            budget=self._budget,
            start=none,
            max_nodes=MAX_NODES[0],
        )
        if placement is not None:
            kept[placement.column] += placement.count
            self._take(GroupPlacement.of_counts(kept))

    def _close_gap(self) -> None:
        """The integer program over every listed column that a better placement could use, few of them first."""
        if len(self._problem.host) > LARGE:
            self._budget = self._budget.share(SHARE_OF_CLOSING)
        for most, nodes in zip(NEAR_COLUMNS, MAX_NODES, strict=True):
            if self.prices is None or self.is_proved or self._budget.expired:
                return
            gap = self.value - self.linear_bound
            near = np.flatnonzero(self._reduced <= gap + self._tolerance)
            complete = len(near) <= most
            if not complete:
                near = near[np.argpartition(self._reduced[near], most)[:most]]
            placement, bound = solve_integer_program(
                self._problem,
                self._level,
                self._restriction,
                np.union1d(near, self.best.column),
                scale=self._scale(),
                budget=self._budget,
                start=self.best,
                max_nodes=nodes if not complete else 50 * nodes,
            )
            if placement is not None:
                self._take(placement)
            if complete:
                if not self._problem.cutoffs:
                    self.bound = max(self.bound, min(bound, self.value))
                return


def _best_columns(problem: GroupProblem, reduced: Floats, limit: float) -> Ints:
    """The columns below the limit that are the best few of their host, or of one of their jobs."""
    negative = np.flatnonzero(reduced < limit)
    order = negative[np.argsort(reduced[negative], kind="stable")]
    chosen = [order[_rank_within(problem.host[order]) < BEST_PER_HOST]]
    members = problem.members[order]
    for slot in range(members.shape[1]):
        at = np.flatnonzero(members[:, slot] != NOBODY)
        chosen.append(order[at[_rank_within(members[at, slot]) < BEST_PER_JOB]])
    return np.unique(np.concatenate(chosen))


def _rank_within(keys: Ints) -> Ints:
    """int64[n]: how many earlier entries have the same key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.searchsorted(ordered, ordered, side="left")
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - first
    return rank


def _residual(
    problem: GroupProblem, kept: Ints, restriction: GroupRestriction
) -> tuple[GroupProblem, tuple[tuple[GroupLevel, float], ...]]:
    """The problem that kept columns leave."""
    column = np.flatnonzero(kept)
    count = kept[column]
    demand, supply = problem.demand.copy(), problem.supply.copy()
    members = problem.members[column]
    at = members != NOBODY
    np.subtract.at(demand, members[at], np.broadcast_to(count[:, None], members.shape)[at])
    placed = problem.host[column] != WAITS
    taken = (count * problem.takes[column])[placed]
    np.subtract.at(supply, problem.host[column][placed], taken)
    on_empty = int(taken[problem.is_empty[problem.host[column][placed]]].sum())
    limits = tuple((level, value - float(level.cost[column] @ count)) for level, value in restriction.limits)
    return replace(problem, demand=demand, supply=supply, max_devices=problem.max_devices - on_empty), limits


def _possible(problem: GroupProblem) -> Bools:
    """bool[c]: does the problem still have what each column takes? Several jobs of one class count as one."""
    left = np.append(problem.demand > 0, True)[problem.members].all(axis=1)
    host = np.append(problem.supply, np.iinfo(np.int64).max)[problem.host]
    limit = np.where(np.append(problem.is_empty, False)[problem.host], problem.max_devices, np.iinfo(np.int64).max)
    return np.asarray(left & (problem.takes <= np.minimum(host, limit)))
