"""Rounding of a linear solution over patterns: groups of large value are fixed, and the residual problem is solved
again.

The linear program of the residual problem has other dual prices, at which other groups are best, so columns are
generated for it too. This repeats until few jobs are left, which an integer program places.
"""

from dataclasses import replace

import numpy as np

from interfere.matching.formulation import Formulation
from interfere.matching.insertion import groups_of, placement_of_groups
from interfere.matching.pattern_search import PatternSearch
from interfere.matching.problem import (
    WAITS,
    Floats,
    Ints,
    Level,
    Placement,
    PlacementProblem,
    Prices,
    reduced_costs,
)
from interfere.matching.programs import LinearProgram, Restriction, solve_integer_program
from interfere.matching.residual import possible_columns, residual_problem, with_largest_shares
from interfere.time_budget import TimeBudget

WAITING_COST = 10.0  # of a job that waits, beside the mean cost of a job
FEW_JOBS = 40  # at most this many jobs are placed by the integer program
MAX_PROGRAMS = 12  # linear programs over residual problems
ROUNDS = 4  # of pricing in each
NEAR_COLUMNS = 1_500  # of each, and of the integer program: those of least reduced cost
MAX_NODES = 20  # of the integer program's search tree
UNAVAILABLE = 10.0  # times the magnitude of the sum: price of a job or host that a group may not take


class PatternRounding:
    """The rounding heuristic of one level."""

    def __init__(
        self,
        formulation: Formulation,
        place: int,
        search: PatternSearch,
        restriction: Restriction,
        budget: TimeBudget,
        *,
        magnitude: float,
        scale: float,
    ) -> None:
        """`magnitude` > 0 is the scale of the level's sum; `scale` divides costs before they reach the solver."""
        self._formulation, self._place, self._search = formulation, place, search
        self._restriction, self._budget, self._scale = restriction, budget, scale
        self._waiting_cost = WAITING_COST * magnitude / int(formulation.problem.demand.sum())
        self._taken = UNAVAILABLE * magnitude

    def placement(self, columns: Ints, x: Floats, prices: Prices) -> Placement | None:
        """Return a placement rounded from the linear solution `x` over `columns`; None where none was found."""
        kept = np.zeros(len(self._formulation.problem.host), dtype=np.int64)
        for _ in range(MAX_PROGRAMS):
            # 1. Whole groups, and those with large shares.
            kept = self._as_long(kept)
            kept[columns] += np.floor(x + 1e-6).astype(np.int64)
            kept = with_largest_shares(self._formulation.problem, kept, columns, x)
            residual, limits = residual_problem(self._formulation.problem, kept, self._restriction)
            if not residual.demand.any():
                return Placement.of_counts(kept)
            if int(residual.demand.sum()) <= FEW_JOBS or self._budget.expired:
                break
            # 2. The linear program over the rest.
            program = self._solved(residual, limits, prices)
            if program is None:
                break
            columns, x, prices = program
        # 3. The integer program over the last jobs.
        self._add_groups(residual, prices, of_all=True)
        residual, restriction = self._extended(residual, limits)
        level, waits = self._level, residual.host == WAITS
        joins = not restriction.allowed[waits].any()  # unplaced jobs join a group
        if joins:
            level = replace(level, cost=np.where(waits, self._waiting_cost, level.cost))
            restriction = replace(restriction, allowed=restriction.allowed | waits)
            self._restriction = replace(self._restriction, allowed=restriction.allowed)
        placement, _ = solve_integer_program(
            residual,
            level,
            restriction,
            self._near(residual, prices),
            scale=self._scale,
            budget=self._budget,
            start=Placement.of_counts(np.zeros(0, dtype=np.int64)),
            max_nodes=MAX_NODES,
        )
        kept = self._as_long(kept)
        if placement is not None:
            kept[placement.column] += placement.count
        elif not restriction.limits and restriction.allowed[waits].all():  # all who are left wait, or join
            kept[waits] += residual.demand[residual.members[waits, 0]]
        else:
            return None
        if not joins:
            return Placement.of_counts(kept)
        groups, waiting = groups_of(self._formulation, kept)
        costs = self._level.patterns
        assert costs is not None
        return placement_of_groups(self._formulation, costs, groups, waiting)

    def _solved(
        self, residual: PlacementProblem, limits: tuple[tuple[Level, float], ...], prices: Prices
    ) -> tuple[Ints, Floats, Prices] | None:
        """Return columns, solution and prices of the residual linear program; None where it was not solved."""
        self._add_groups(residual, prices)
        residual, restriction = self._extended(residual, limits)
        program = LinearProgram(residual, self._level, restriction, scale=self._scale)
        program.add(self._near(residual, prices))
        solved = None
        for _ in range(ROUNDS):
            linear = program.solve(self._budget)
            if linear is None:
                break
            solved = program.columns, linear.x, linear.prices
            found = self._search.add_near(self._masked(residual, linear.prices), self._restriction, 0.0)
            residual, restriction = self._extended(residual, limits)
            program.extend(residual, self._level, restriction)
            if program.add(found[possible_columns(residual)[found]]) == 0 or self._budget.expired:
                break
        return solved

    @property
    def _level(self) -> Level:
        return self._formulation.levels[self._place]

    def _extended(
        self, residual: PlacementProblem, limits: tuple[tuple[Level, float], ...]
    ) -> tuple[PlacementProblem, Restriction]:
        """Return the residual problem with the columns generated since it was made, and its restriction."""
        levels = self._formulation.levels
        self._restriction = self._restriction.extended(levels)
        problem = replace(
            self._formulation.problem,
            demand=residual.demand,
            supply=residual.supply,
            max_devices=residual.max_devices,
        )
        values = zip(self._restriction.places, limits, strict=True)
        return problem, replace(self._restriction, limits=tuple((levels[at], value) for at, (_, value) in values))

    def _add_groups(self, residual: PlacementProblem, prices: Prices, *, of_all: bool = False) -> None:
        """Add columns for the best groups of the residual problem at the given prices."""
        masked = self._masked(residual, prices)
        self._search.add_near(masked, self._restriction, self._taken / 2, of_all=of_all)
        self._restriction = self._restriction.extended(self._formulation.levels)

    def _masked(self, residual: PlacementProblem, prices: Prices) -> Prices:
        """Return prices at which no group uses a job or host that the residual problem lacks."""
        return replace(
            prices,
            jobs=np.where(residual.demand > 0, prices.jobs, -self._taken),
            hosts=np.where(residual.supply > 0, prices.hosts, -self._taken),
        )

    def _near(self, residual: PlacementProblem, prices: Prices) -> Ints:
        """Return the columns that may be used: those of least reduced cost, and all waiting columns."""
        problem, restriction = self._formulation.problem, self._restriction
        reduced = reduced_costs(problem, self._level.cost, prices, restriction.levels)
        possible = possible_columns(residual) & restriction.allowed
        waits = np.flatnonzero((problem.host == WAITS) & possible)
        near = np.flatnonzero(possible)
        return np.union1d(near[np.argsort(reduced[near], kind="stable")[:NEAR_COLUMNS]], waits)

    def _as_long(self, counts: Ints) -> Ints:
        """Return the counts padded with zeros for columns generated since."""
        return np.concatenate([counts, np.zeros(len(self._formulation.problem.host) - len(counts), dtype=np.int64)])
