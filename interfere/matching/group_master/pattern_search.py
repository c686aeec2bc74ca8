"""Column generation over patterns: which groups to add at given prices, and what the prices prove.

With the price of each job given, that of a device is what the best group there costs beyond its jobs: so every step
has a bound.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from interfere.matching.group_master.bound import dual_bound
from interfere.matching.group_master.formulation import Formulation
from interfere.matching.group_master.patterns import PatternCosts, PatternPricing
from interfere.matching.group_master.problem import (
    WAITS,
    Bools,
    Floats,
    GroupLevel,
    GroupPrices,
    GroupProblem,
    Ints,
    charged,
    paid,
)
from interfere.matching.group_master.programs import GroupRestriction

ACTIVE_PATTERNS = 40_000  # among which columns are looked for first, and as many again, evenly of hosts and sizes


class PatternSearch:
    """The best prices so far at one level of a problem with patterns."""

    def __init__(self, formulation: Formulation, place: int) -> None:
        """`place`: of the level among those of the formulation."""
        self._formulation, self._place = formulation, place
        self.prices: GroupPrices | None = None  # feasible: no group costs less than they come to
        self.bound = -np.inf  # that they prove

        self._active: tuple[Ints, PatternPricing] | None = None

    def add_columns(
        self, prices: GroupPrices, restriction: GroupRestriction, limit: float, *, near_enough: float = 0.0
    ) -> Ints:
        """Columns of groups of reduced cost below the limit, new ones too; looks first where the last ones were.

        `near_enough`: at this relative distance of the linear program from its bound all patterns are looked at.
        """
        formulation = self._formulation
        level = formulation.levels[self._place]
        costs = charged_patterns(level, prices, restriction)
        prices = _no_dearer_than_waiting(formulation.problem, level, prices, restriction)
        if self._active is not None:
            rows, pricing = self._active
            reduced = pricing.reduced_costs(costs.among(rows), prices.jobs, prices.device(formulation.problem))
            if self._gap(prices, reduced, rows, restriction) > near_enough:
                found = formulation.add_best(reduced, limit, costs, prices, rows=rows)
                if len(found):
                    return found
        reduced = formulation.reduced_costs_of_patterns(costs, prices)
        self._take_bound(prices, formulation.least_of_hosts(reduced), restriction)
        found = formulation.add_best(reduced, limit, costs, prices)
        if len(found):
            self._look_near(reduced)
        return found

    def _gap(self, prices: GroupPrices, reduced: Floats, rows: Ints, restriction: GroupRestriction) -> float:
        """How far the linear program is from its bound if only these patterns mattered, relative."""
        problem = self._formulation.problem
        assert problem.patterns is not None
        least = np.zeros(len(problem.supply))
        np.minimum.at(least, problem.patterns.host[rows], reduced / problem.patterns.takes[rows])
        value = dual_bound(problem, prices, restriction.values)
        return float(-(problem.supply @ least)) / max(abs(value), 1e-300)

    def _look_near(self, reduced: Floats) -> None:
        """Look for columns among the patterns of least reduced cost from now on."""
        formulation, patterns = self._formulation, self._formulation.problem.patterns
        assert patterns is not None
        rows = np.arange(len(reduced))
        if len(rows) > ACTIVE_PATTERNS:
            rows = _smallest(reduced, ACTIVE_PATTERNS)
            ends = formulation.ends_of_sizes
            of_each = [
                first + _smallest(reduced[first:last], ACTIVE_PATTERNS // len(ends))
                for first, last in pairwise([0, *ends])
            ]
            rows = np.unique(np.concatenate([rows, *of_each]))
        self._active = (rows, PatternPricing(patterns.among(rows)))

    def _take_bound(self, prices: GroupPrices, least: Floats, restriction: GroupRestriction) -> None:
        """Keep the prices where they prove more. `least` float64[h]: least reduced cost of patterns on each host."""
        problem, level = self._formulation.problem, self._formulation.levels[self._place]
        listed = np.flatnonzero((problem.host != WAITS) & _as_long(restriction.allowed, len(problem.host)))
        cost = charged(level.cost, prices, [self._formulation.levels[place].cost for place in restriction.places])
        reduced = cost - paid(problem, prices)
        np.minimum.at(least, problem.host[listed], reduced[listed] / problem.takes[listed])
        feasible = replace(prices, hosts=np.minimum(prices.hosts + least, 0.0))
        bound = dual_bound(problem, feasible, restriction.values)
        if bound > self.bound or self.prices is None:
            self.prices, self.bound = feasible, bound


def _smallest(values: Floats, count: int) -> Ints:
    """Places of the smallest values, in no order."""
    return np.argpartition(values, count)[:count] if len(values) > count else np.arange(len(values))


def charged_patterns(level: GroupLevel, prices: GroupPrices, restriction: GroupRestriction) -> PatternCosts:
    """The costs of patterns less the prices of the limits on earlier levels."""
    costs = level.patterns
    assert costs is not None
    for earlier, price in zip(restriction.levels, prices.limits.tolist(), strict=True):
        if price and earlier.patterns is not None:
            costs = costs.less(earlier.patterns, price)
    return costs


def _no_dearer_than_waiting(
    problem: GroupProblem, level: GroupLevel, prices: GroupPrices, restriction: GroupRestriction
) -> GroupPrices:
    waits = np.flatnonzero((problem.host == WAITS) & _as_long(restriction.allowed, len(problem.host)))
    cost = charged(level.cost, prices, [other.cost for other in restriction.levels])
    jobs = prices.jobs.copy()
    np.minimum.at(jobs, problem.members[waits, 0], cost[waits])
    return replace(prices, jobs=jobs)


def _as_long(allowed: Bools, length: int) -> Bools:
    """Columns that were added since are allowed."""
    return np.concatenate([allowed, np.ones(length - len(allowed), dtype=bool)])
