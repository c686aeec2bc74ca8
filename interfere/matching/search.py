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

from interfere.matching.formulation import Formulation, PatternSearch, charged_patterns, first_prices
from interfere.matching.problem import (
    WAITS,
    Floats,
    Ints,
    Level,
    Placement,
    PlacementProblem,
    Prices,
    dual_bound,
    feasible_prices,
    level_tolerance,
    reduced_costs,
    rounding_of,
)
from interfere.matching.programs import (
    UNITS_PER_COLUMN,
    LinearAnswer,
    LinearProgram,
    Restriction,
    solve_integer_program,
)
from interfere.matching.rounding import PatternRounding, best_columns, rounded_columns
from interfere.time_budget import TimeBudget

SCALED_SUM = 1e4  # HiGHS sees the level's sum scaled to about this value
NEGATIVE = 1e-9  # a reduced cost below -NEGATIVE times the level's sum is negative
NEAR_COLUMNS = (1_000, 6_000, 30_000)  # of an integer program: few improve the placement, all up to the gap prove it
SHARE_OF_COLUMNS = 0.8  # of the time, to add columns; the rest proves and rounds
MAX_NODES = (20, 200, 1_000)  # nodes of the integer search tree: keeps the search deterministic and short
PRICING_UNITS = 0.3  # work units of pricing a column or pattern once
WAITING_TOLERANCE = 1e-13  # a light job that waits in vain is less than the level's tolerance beside heavy ones
LARGE, SHARE_OF_CLOSING = 50_000, 0.4  # columns of a problem in which a gap is closed for that share of what is left
LINEAR_GAP = 1e-3  # of a linear program over patterns that is as good as solved: half of all rounds gain less


class LevelSearch:
    """The state of one level's search: incumbent placement, lower bound and dual prices."""

    def __init__(
        self,
        formulation: Formulation,
        place: int,
        start: Placement,
        columns: Ints,
        restriction: Restriction,
        budget: TimeBudget,
        reached: Sequence[float] = (),
    ) -> None:
        """Begin a search of the level at index `place` of the formulation; `reached`: the values of earlier levels."""
        self._formulation, self.place, self.restriction, self._budget = formulation, place, restriction, budget
        self._reached = tuple(reached)
        self.best, self.value = start, start.value(self.level)
        self.bound, self.linear_bound = self.level.floor, -np.inf
        self.prices: Prices | None = None
        self.columns = columns[restriction.allowed[columns]]
        self._reduced: Floats = np.zeros(0)
        self._pattern_search = PatternSearch(formulation, place)
        self._linear: LinearAnswer | None = None

    @property
    def problem(self) -> PlacementProblem:
        """Return the placement problem with all columns generated so far."""
        return self._formulation.problem

    @property
    def level(self) -> Level:
        """Return the level to minimise, with the costs of all columns generated so far."""
        return self._formulation.levels[self.place]

    @property
    def is_proved(self) -> bool:
        """Whether the incumbent is within the tolerance of the lower bound."""
        return self.value - self.bound <= self._tolerance

    @property
    def _tolerance(self) -> float:
        if self.level.is_waiting:
            return max(level_tolerance(self.value, self.bound, WAITING_TOLERANCE), 2 * self.rounding)
        return level_tolerance(self.value, self.bound)

    @property
    def rounding(self) -> float:
        """Return the rounding of the bound and of reduced costs at the best prices; 0 without prices."""
        return 0.0 if self.prices is None else rounding_of(self.problem, self.prices, self.restriction.values)

    def run(self, *, closes_gap: bool) -> None:
        """Run the stages of the search until the incumbent is proved or the time budget is spent."""
        if not self.is_proved and not self._budget.expired:
            self._generate_columns()
        if not self.is_proved and not self._budget.expired:
            self._round()
        if closes_gap:
            self._close_gap()

    def _scale(self) -> float:
        allowed = self.restriction.allowed
        largest = float(np.max(np.abs(self.level.cost), where=allowed, initial=0.0))
        return (abs(self.value) or largest or 1.0) / SCALED_SUM

    def _generate_columns(self) -> None:
        scale = self._scale()
        program = LinearProgram(self.problem, self.level, self.restriction, scale=scale)
        if self.problem.patterns is not None and not self.restriction.limits:
            self._add_first_patterns()
        program.extend(self.problem, self.level, self.restriction)
        program.add(np.concatenate([self.columns, self.best.column]))
        budget = self._budget.share(SHARE_OF_COLUMNS)
        while True:
            linear = program.solve(budget)
            if linear is None:
                break
            self._linear, self.columns = linear, program.columns
            if self._lists_all:  # else only the last prices prove anything worth the time
                self._take_bound(linear.prices)
            if np.all(np.abs(linear.x - np.rint(linear.x)) <= 1e-6):
                self._take(Placement.of_counts(self._counts(np.rint(linear.x))))
            if self.is_proved or budget.expired:
                break
            limit = -NEGATIVE * scale * SCALED_SUM
            if self.problem.patterns is not None:
                found = self._pattern_columns(linear.prices, limit, program)
                self._budget.spend(PRICING_UNITS * len(self.problem.patterns.host))
            else:
                self._budget.spend(PRICING_UNITS * len(self.problem.host))
                reduced = reduced_costs(self.problem, self.level.cost, linear.prices, self.restriction.levels)
                reduced[~self.restriction.allowed] = np.inf
                found = best_columns(self.problem, reduced, limit)
            if program.add(found) == 0:
                break
        if self._linear is not None and self.problem.cutoffs:
            self._take_bound(self._linear.prices)
        if self.problem.patterns is not None:
            self._pattern_search.price_all(self.restriction)
            self._take_pattern_bound()
        self.columns = program.columns

    def _add_first_patterns(self) -> None:
        """Add the best groups of the patterns at initial prices, which assume equal excess slowdown for all jobs."""
        prices = first_prices(self.problem, self.level, self.value)
        found = self._pattern_search.add_columns(prices, self.restriction, np.inf)
        self.restriction = self.restriction.extended(self._formulation.levels)
        self.columns = np.union1d(self.columns, found)
        self._take_pattern_bound()

    def _take_pattern_bound(self) -> None:
        search = self._pattern_search
        if search.prices is not None and search.bound > self.linear_bound:
            self.prices, self.linear_bound = search.prices, search.bound
            self.bound = max(self.bound, search.bound)
            self._price_columns()

    @property
    def _lists_all(self) -> bool:
        """Whether every possible group is a column of the problem."""
        return not self.problem.cutoffs and self.problem.patterns is None

    def _pattern_columns(self, linear: Prices, limit: float, program: LinearProgram) -> Ints:
        """Return columns that could improve the linear program; none where its optimum is close enough to the bound."""
        search = self._pattern_search
        found = search.add_columns(linear, self.restriction, limit, near_enough=LINEAR_GAP)
        self.restriction = self.restriction.extended(self._formulation.levels)
        program.extend(self.problem, self.level, self.restriction)
        self._take_pattern_bound()
        value = dual_bound(self.problem, linear, self.restriction.values)
        return found[:0] if value - search.bound <= LINEAR_GAP * abs(value) else found

    def _counts(self, x: Floats) -> Ints:
        counts = np.zeros(len(self.problem.host), dtype=np.int64)
        counts[self.columns] = x.astype(np.int64)
        return counts

    def _take_bound(self, prices: Prices) -> None:
        restriction = self.restriction
        prices = feasible_prices(self.problem, self.level, prices, restriction.allowed, restriction.levels)
        bound = dual_bound(self.problem, prices, restriction.values)
        if bound > self.linear_bound or self.prices is None:
            self.prices, self.linear_bound = prices, bound
            self._price_columns()
            self.bound = max(self.bound, bound)

    def _price_columns(self) -> None:
        assert self.prices is not None
        reduced = reduced_costs(self.problem, self.level.cost, self.prices, self.restriction.levels)
        self._reduced = np.where(self.restriction.allowed, reduced, np.inf)

    def _take(self, placement: Placement) -> None:
        """Keep a placement that is better at this level and no worse at earlier ones.

        HiGHS keeps limits on earlier levels up to a share of the limit, which many a light job that waits is below.
        """
        value = placement.value(self.level)
        earlier = zip(self._formulation.levels[: len(self._reached)], self._reached, strict=True)
        if value < self.value and all(placement.value(level) <= most + EQUAL * abs(most) for level, most in earlier):
            self.best, self.value = placement, value

    def _round(self) -> None:
        """Fix the integer part of the linear solution, and solve an integer program over the remaining problem."""
        if self._linear is None or self.prices is None:
            return
        if self.problem.patterns is not None:
            scale = self._scale()
            rounding = PatternRounding(
                self._formulation,
                self.place,
                self._pattern_search,
                self.restriction,
                self._budget,
                magnitude=scale * SCALED_SUM,
                scale=scale,
            )
            rounded = rounding.placement(self._linear.columns, self._linear.x, self._linear.prices)
            self.restriction = self.restriction.extended(self._formulation.levels)
            self._price_columns()
            if rounded is not None:
                self._take(rounded)
            return
        self._price_columns()
        rounded = rounded_columns(
            self.problem,
            self.level,
            self.restriction,
            self._linear.columns,
            self._linear.x,
            self._reduced,
            scale=self._scale(),
            budget=self._budget,
        )
        if rounded is not None:
            self._take(rounded)

    def _close_gap(self) -> None:
        """Solve integer programs over the columns that a better placement could use, a small set of columns first."""
        if len(self.problem.host) > LARGE:
            self._budget = self._budget.share(SHARE_OF_CLOSING)
        if self.prices is None or self.is_proved or self._budget.expired:
            return
        if self.problem.patterns is not None:
            gap = self.value - self.linear_bound
            costs = charged_patterns(self.level, self.prices, self.restriction)
            reduced = self._formulation.reduced_costs_of_patterns(costs, self.prices)
            limit = gap + self._tolerance
            self._formulation.add_best(reduced, limit, costs, self.prices, most=NEAR_COLUMNS[0])
            self.restriction = self.restriction.extended(self._formulation.levels)
            self._price_columns()
        for most, nodes in zip(NEAR_COLUMNS, MAX_NODES, strict=True):
            if self.prices is None or self.is_proved or self._budget.expired:
                return
            gap = self.value - self.linear_bound
            near = np.flatnonzero(self._reduced <= gap + self._tolerance)
            affordable = int(min(most, max(1.0, self._budget.remaining_units / UNITS_PER_COLUMN)))
            complete = len(near) <= affordable
            if not complete:
                near = near[np.argpartition(self._reduced[near], affordable)[:affordable]]
            placement, bound = solve_integer_program(
                self.problem,
                self.level,
                self.restriction,
                np.union1d(near, self.best.column),
                scale=self._scale(),
                budget=self._budget,
                start=self.best,
                max_nodes=nodes if not complete else 50 * nodes,
            )
            if placement is not None:
                self._take(placement)
            if complete:
                if self._lists_all:
                    self.bound = max(self.bound, min(bound, self.value))
                return


# Groups of one or two of each job class that the first linear program has: the cheapest, and some at random. Many jobs
# are cheapest beside the same few; without the others the prices are far off, and more rounds and columns follow.
FIRST_PER_JOB, RANDOM_PER_JOB = 2, 10
WAITING_WEIGHT = 2.0  # of waiting in one sum with costs, beside the largest cost of a group
SHARE_OF_BUDGET = 0.5  # of the remaining time, for a level that is not the last
EQUAL = 1e-14  # relative: sums of costs that are equal but for rounding
NO_GAP = 1e-12
LIMIT_SLACK = 1e-10  # relative, of the limits in linear and integer programs


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
        reached = [certificate.value for certificate in certificates]
        search = LevelSearch(formulation, k, placement, columns, restriction, share, reached)
        search.run(closes_gap=True)
        placement, columns, restriction = search.best, search.columns, search.restriction
        bounds.append(search.value if search.value - search.bound <= 2 * search.rounding else search.bound)
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
    prices, rounding = search.prices, search.rounding
    gap = max(0.0, search.value - search.linear_bound) + rounding
    reduced = reduced_costs(problem, level.cost, prices, restriction.levels)
    device = np.append(prices.hosts, prices.max_devices)
    allowed = restriction.allowed & (reduced <= gap)
    allowed[search.best.column] = True
    if gap > max(NO_GAP * max(abs(search.value), abs(search.linear_bound)), 4 * rounding):
        return replace(limited, allowed=allowed)
    return replace(restriction, allowed=allowed, tight=restriction.tight | (np.abs(device) > 2 * gap))
