"""One level of the placement problem: the smallest sum, by column generation, and a bound that its prices prove.

1. Linear program over a few columns; price all others; add those that could improve it; until none could.
2. Round: keep the whole part of the linear solution, and solve what is left of it as an integer program.
3. Where a gap remains, no better placement uses a start of larger reduced cost than the gap: solve the integer program
   over all starts up to that.
"""

from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.master.counting_bound import counting_prices
from interfere.matching.master.first_columns import all_waiting, seed_columns
from interfere.matching.master.pricing import (
    BEST_PER_JOB,
    BlockReducedCosts,
    Prices,
    columns_up_to,
    dual_bound,
    reduced_costs,
)
from interfere.matching.master.problem import ColumnKind, Columns, Floats, Ints, Level, Placement, PlacementProblem
from interfere.matching.master.restricted_master import (
    LevelLimit,
    LinearSolution,
    RestrictedMaster,
    is_integral,
    placement_of,
    solve_integer_program,
)
from interfere.matching.master.sampling import sample_prices
from interfere.matching.master.tolerance import LEVEL_TOLERANCE, level_tolerance
from interfere.time_budget import TimeBudget

# Waiting is searched on to the last digit: a light job that waits in vain is less than the tolerance beside heavy ones.
WAITING_TOLERANCE = 1e-13
SCALED_SUM = 1e4  # what the sum of a level is scaled to for HiGHS, whose tolerances are absolute (1e-9)
RESCALE_BELOW = 1e-3  # of the expected sum: the scale is chosen anew where the linear program finds less
NEAR_SAMPLE = 30.0  # scaled reduced cost at the prices of a sample up to which columns are added at first
FIRST_PER_JOB = 6  # of these, of each job on each resource
SHARE_OF_SAMPLE = 0.3  # of the budget
NEGATIVE = 1e-8  # scaled reduced cost below which a column is added
OPEN_COLUMNS = (1_000, 3_000, 10_000, 30_000)  # of an integer program: few improve the placement, all prove it
MAX_RESIDUAL_COLUMNS = 4_000
RESIDUAL_REACH = 0.02  # of the sum: reduced costs up to which columns may complete a rounded solution


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """What the levels before left open: rows that have to be used up, and sums that may not grow."""

    tight: Ints  # rows of the master problem
    limits: tuple[LevelLimit, ...] = ()

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels whose sums are limited."""
        return tuple(limit.level for limit in self.limits)

    @property
    def values(self) -> Floats:
        """float64[m]: what these sums may be."""
        return np.array([limit.value for limit in self.limits])


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSolution:
    """The best placement of a level that was found, and a bound on its sum with the prices that prove it."""

    placement: Placement
    value: float
    lower_bound: float
    linear_bound: float  # that the prices prove; the bound of an integer program may be higher
    prices: Prices | None  # None where the floor of the level is the bound
    columns: Columns  # that were at hand, for the next level to start from


def solve_level(
    problem: PlacementProblem,
    level: Level,
    start: Placement,
    *,
    seed: Columns,
    restriction: Restriction,
    budget: TimeBudget,
    closes_gap: bool = True,
) -> LevelSolution:
    """The smallest sum of a level. `start`: a placement within the restriction; `seed`: columns to begin with.

    `closes_gap`: whether to search on where the rounded solution is not proved.
    """
    search = _LevelSearch(problem, level, start, seed, restriction, budget)
    if level.is_waiting and not search.is_proved:
        search.bound_by_counting()
    if not search.is_proved and not budget.expired:
        search.generate_columns()
    if not search.is_proved and not budget.expired:
        search.round_linear_solution()
    if closes_gap:
        search.solve_open_columns()
    return search.solution()


class _LevelSearch:
    """The stages of `solve_level`, and the best placement, bound and prices so far."""

    def __init__(
        self,
        problem: PlacementProblem,
        level: Level,
        start: Placement,
        seed: Columns,
        restriction: Restriction,
        budget: TimeBudget,
    ) -> None:
        self._problem, self._level, self._restriction, self._budget = problem, level, restriction, budget
        self._best, self._value = start, start.value(level)
        self._bound = self._linear_bound = level.floor
        self._prices: Prices | None = None
        self._reduced: tuple[BlockReducedCosts, ...] = ()
        self._linear: LinearSolution | None = None
        self._columns = Columns.concatenate([seed, start.columns])

    @property
    def is_proved(self) -> bool:
        """Whether the best placement is within tolerance of the bound."""
        return self._value - self._bound <= self._tolerance

    @property
    def _tolerance(self) -> float:
        share = WAITING_TOLERANCE if self._level.is_waiting else LEVEL_TOLERANCE
        return level_tolerance(self._value, self._bound, share)

    def solution(self) -> LevelSolution:
        """What was found."""
        return LevelSolution(
            placement=self._best,
            value=self._value,
            lower_bound=min(self._bound, self._value),
            linear_bound=min(self._linear_bound, self._value),
            prices=self._prices,
            columns=self._columns,
        )

    def bound_by_counting(self) -> None:
        """Bound the weight that waits by how many jobs there is room for."""
        prices = counting_prices(self._problem, self._level, len(self._restriction.limits))
        self._take_bound(prices, reduced_costs(self._problem, self._level, prices, self._restriction.levels))

    # --- 1. the linear program --------------------------------------------------------------------------------------

    def generate_columns(self) -> None:
        """Solve the linear program, adding columns until no other could improve it."""
        master = RestrictedMaster(
            self._problem,
            self._level,
            scale=self._scale(self._value),
            tight=self._restriction.tight,
            limits=self._restriction.limits,
        )
        first = sample_prices(self._problem, self._level, self._linear_prices)
        if first is not None:
            unlimited = replace(first, limits=np.zeros(len(self._restriction.limits)))
            reduced = reduced_costs(self._problem, self._level, unlimited, self._restriction.levels)
            few = self._columns.kind
            at_hand = self._columns.take((few == ColumnKind.WAIT) | (few == ColumnKind.SOLO))
            master.add(Columns.concatenate([at_hand, self._best.columns]))
            master.add(columns_up_to(reduced, NEAR_SAMPLE * master.scale, FIRST_PER_JOB)[0])
        else:
            master.add(self._columns)
        while True:
            linear = master.solve(self._budget)
            if linear is None:
                break
            if abs(linear.value) < RESCALE_BELOW * master.scale * SCALED_SUM and linear.value:
                master.rescale(self._scale(linear.value))
                continue
            self._linear = linear
            reduced = reduced_costs(self._problem, self._level, linear.prices, self._restriction.levels)
            self._take_bound(linear.prices, reduced)
            self._take_integral(master.columns, linear.x)
            if self.is_proved or self._budget.expired:
                break
            if master.add(columns_up_to(reduced, -NEGATIVE * master.scale, BEST_PER_JOB)[0]) == 0:
                break
        self._columns = master.columns

    def _linear_prices(self, problem: PlacementProblem, level: Level) -> Prices | None:
        """The prices of the linear program of another problem, for a share of the budget."""
        none = Restriction(tight=np.zeros(0, dtype=np.int64))
        start = all_waiting(problem)
        seed = seed_columns(problem, level)
        search = _LevelSearch(problem, level, start, seed, none, self._budget.share(SHARE_OF_SAMPLE))
        search.generate_columns()
        return None if search._linear is None else search._linear.prices

    def _scale(self, value: float) -> float:
        """Of a sum like `value`; of the largest cost where the sum is 0."""
        return (abs(value) or _largest_cost(self._problem, self._level) or 1.0) / SCALED_SUM

    def _take_bound(self, prices: Prices, reduced: tuple[BlockReducedCosts, ...]) -> None:
        bound = dual_bound(self._problem, prices, reduced, self._restriction.values)
        if bound > self._linear_bound or self._prices is None:
            # Not raised to the floor: which starts a better placement may use follows from what the prices prove alone.
            self._prices, self._reduced, self._linear_bound = prices, reduced, bound
            self._bound = max(self._bound, bound)

    def _take_integral(self, columns: Columns, x: Floats) -> None:
        if is_integral(x):
            self._take(placement_of(columns, x))

    def _take(self, placement: Placement) -> None:
        """Keep a placement that is better than the best so far."""
        value = placement.value(self._level)
        if value < self._value:
            self._best, self._value = placement, value

    # --- 2. rounding ------------------------------------------------------------------------------------------------

    def round_linear_solution(self) -> None:
        """Keep the whole part of the linear solution; solve an integer program over what is left of it."""
        if self._linear is None:
            return
        whole = np.floor(self._linear.x + 1e-6)
        columns = self._columns.take(np.arange(len(whole)))
        kept = placement_of(columns, whole)
        residual, limits = self._residual(kept)
        open_columns, reduced = columns_up_to(self._reduced, RESIDUAL_REACH * max(abs(self._value), 1e-300))
        possible = _possible(residual, open_columns)
        open_columns, reduced = open_columns.take(possible), reduced[possible]
        if len(open_columns) > MAX_RESIDUAL_COLUMNS:
            open_columns = open_columns.take(np.argpartition(reduced, MAX_RESIDUAL_COLUMNS)[:MAX_RESIDUAL_COLUMNS])
        at_hand = columns.take((self._linear.x > 0) & _possible_mask(residual, columns))
        answer = solve_integer_program(
            residual,
            self._level,
            _union(open_columns, at_hand),
            scale=self._scale(self._value),
            tight=self._restriction.tight,
            limits=limits,
            budget=self._budget,
        )
        if answer.placement is not None:
            self._take(_joined(kept, answer.placement))

    def _residual(self, kept: Placement) -> tuple[PlacementProblem, tuple[LevelLimit, ...]]:
        """The problem that the kept columns leave."""
        problem, columns = self._problem, kept.columns
        capacity, blocks, taken = problem.capacity.copy(), [], 0
        for b, block in enumerate(problem.blocks):
            demand, seats = block.demand.copy(), block.seats.copy()
            at = columns.block == b
            pair, seat = columns.kind == ColumnKind.PAIR, columns.kind == ColumnKind.SEAT
            on_empty = at & (pair | (columns.kind == ColumnKind.SOLO))
            np.subtract.at(demand, columns.i[at], kept.count[at])
            np.subtract.at(demand, columns.j[at & pair], kept.count[at & pair])
            np.subtract.at(seats, columns.resource[at & seat], kept.count[at & seat])
            np.subtract.at(capacity, columns.resource[on_empty], block.size * kept.count[on_empty])
            taken += block.size * int(kept.count[on_empty].sum())
            blocks.append(replace(block, demand=demand, seats=seats))
        limits = tuple(
            replace(limit, value=limit.value - kept.value(limit.level)) for limit in self._restriction.limits
        )
        residual = replace(problem, blocks=tuple(blocks), capacity=capacity, max_devices=problem.max_devices - taken)
        return residual, limits

    # --- 3. the integer program over all open columns ---------------------------------------------------------------

    def solve_open_columns(self) -> None:
        """Solve the integer program over every column that a better placement could use, few of them first."""
        for most in OPEN_COLUMNS:
            if self._prices is None or self.is_proved or self._budget.expired:
                return
            reach = self._value - self._linear_bound
            open_columns, reduced = columns_up_to(self._reduced, reach + self._tolerance)
            complete = len(open_columns) <= most
            if not complete:
                open_columns = open_columns.take(np.argpartition(reduced, most)[:most])
            answer = solve_integer_program(
                self._problem,
                self._level,
                _union(open_columns, self._best.columns),
                scale=self._scale(self._value),
                tight=self._restriction.tight,
                limits=self._restriction.limits,
                budget=self._budget,
                start=self._best,
            )
            if answer.placement is not None:
                self._take(answer.placement)
            if complete:
                self._bound = max(self._bound, min(answer.lower_bound, self._value))
                return


def _possible_mask(problem: PlacementProblem, columns: Columns) -> np.ndarray:
    """bool[c]: does the problem still have what each column takes?"""
    possible = np.ones(len(columns), dtype=bool)
    for b, block in enumerate(problem.blocks):
        at = np.flatnonzero(columns.block == b)
        i, j, resource, kind = columns.i[at], columns.j[at], columns.resource[at], columns.kind[at]
        needed = np.where((i == j) & (kind == ColumnKind.PAIR), 2, 1)
        ok = (block.demand[i] >= needed) & (block.demand[j] >= 1)
        seat, on_empty = kind == ColumnKind.SEAT, (kind == ColumnKind.SOLO) | (kind == ColumnKind.PAIR)
        ok[seat] &= block.seats[resource[seat]] >= 1
        ok[on_empty] &= (problem.capacity[resource[on_empty]] >= block.size) & (problem.max_devices >= block.size)
        possible[at] = ok
    return possible


def _possible(problem: PlacementProblem, columns: Columns) -> Ints:
    return np.flatnonzero(_possible_mask(problem, columns))


def _union(first: Columns, second: Columns) -> Columns:
    """Each column once."""
    both = Columns.concatenate([first, second])
    return both.take(np.sort(np.unique(both.keys(), return_index=True)[1]))


def _joined(first: Placement, second: Placement) -> Placement:
    """Both placements together."""
    return Placement(
        columns=Columns.concatenate([first.columns, second.columns]),
        count=np.concatenate([first.count, second.count]),
    ).merged()


def _largest_cost(problem: PlacementProblem, level: Level) -> float:
    """The largest |cost| of an allowed start."""
    largest = 0.0
    for block, costs in zip(problem.blocks, level.costs, strict=True):
        for allowed, cost in (
            (block.solo_allowed, costs.solo),
            (block.pair_allowed, costs.pair),
            (block.seat_allowed, costs.seat),
        ):
            largest = max(largest, float(np.abs(cost).max(where=allowed & np.isfinite(cost), initial=0.0)))
    return largest
