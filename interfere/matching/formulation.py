"""The restricted master problem, and column generation over patterns: which groups of patterns become columns.

At given job prices, the price of a host is the least reduced cost of a group on it, so every step yields a lower bound.
The dual solutions of successive linear programs oscillate; so groups are priced between the latest dual solution and
the best prices so far (dual smoothing: Pessoa, Sadykov, Uchoa and Vanderbeck, 2018). Patterns that recently had small
reduced costs are searched first.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from interfere.matching.patterns import MAX_EVALUATED, NO_KIND, PatternCosts, PatternPricing
from interfere.matching.problem import (
    NOBODY,
    WAITS,
    Bools,
    Floats,
    Ints,
    Level,
    PlacementProblem,
    Prices,
    charged,
    dual_bound,
    no_dearer_than_waiting,
    paid,
)
from interfere.matching.programs import Restriction

BEST_PER_HOST, BEST_PER_JOB = 4, 3  # columns that one pricing round adds


class Formulation:
    """A placement problem with the column costs of every level; columns are added and never removed."""

    def __init__(self, problem: PlacementProblem, levels: Sequence[Level]) -> None:
        self.problem, self.levels = problem, tuple(levels)
        self._known: dict[tuple[int, ...], int] = {}  # pattern and job classes -> column
        self._keys: dict[int, tuple[int, ...]] = {}  # the reverse

    @cached_property
    def pricing(self) -> PatternPricing:
        """Return the pricing of the problem's patterns, which finds groups of small reduced cost."""
        assert self.problem.patterns is not None
        return PatternPricing(self.problem.patterns)

    def places_of(self, column: int) -> list[int]:
        """Return the job classes of a generated column, in the order of the places of its pattern."""
        _, *classes = self._keys[column]
        return [job for job in classes if job != NOBODY]

    @cached_property
    def ends_of_sizes(self) -> list[int]:
        """Return the end index of each run of consecutive patterns with equal host and size."""
        patterns = self.problem.patterns
        assert patterns is not None
        kind_of_group = patterns.host * (1 + patterns.members.shape[1]) + (patterns.members != NO_KIND).sum(axis=1)
        return [*(1 + np.flatnonzero(np.diff(kind_of_group))).tolist(), len(kind_of_group)]

    def pattern_of_columns(self) -> Ints:
        """Return int64[c]: the pattern of each generated column, -1 for the columns of the original problem."""
        found = np.full(len(self.problem.host), -1, dtype=np.int64)
        for key, column in self._known.items():
            found[column] = key[0]
        return found

    def add_groups(self, rows: Ints, classes: Ints) -> Ints:
        """Add groups as columns and return the columns int64[n]; `classes` int64[n, m] are the job classes by place."""
        patterns = self.problem.patterns
        assert patterns is not None
        classes = np.where(patterns.members[rows] == NO_KIND, NOBODY, classes)
        keys = [(row, *jobs) for row, jobs in zip(rows.tolist(), classes.tolist(), strict=True)]
        new: dict[tuple[int, ...], int] = {}
        for place, key in enumerate(keys):
            if key not in self._known:
                new.setdefault(key, place)
        first = len(self.problem.host)
        self._known |= {key: first + k for k, key in enumerate(new)}
        self._keys |= {first + k: key for k, key in enumerate(new)}
        if new:
            at = np.array(list(new.values()), dtype=np.int64)
            self._append(rows[at], classes[at])
        return np.array([self._known[key] for key in keys], dtype=np.int64)

    def _append(self, rows: Ints, classes: Ints) -> None:
        problem, patterns = self.problem, self.problem.patterns
        assert patterns is not None
        after_all = np.iinfo(np.int64).max
        ordered = np.sort(np.where(classes == NOBODY, after_all, classes), axis=1)
        members = np.where(ordered == after_all, NOBODY, ordered)
        levels = []
        for level in self.levels:
            assert level.patterns is not None
            added = level.patterns.of_groups(patterns, rows, classes)
            levels.append(replace(level, cost=np.concatenate([level.cost, added])))
        self.levels = tuple(levels)
        self.problem = replace(
            problem,
            members=np.concatenate([problem.members, members]),
            host=np.concatenate([problem.host, patterns.host[rows]]),
            takes=np.concatenate([problem.takes, patterns.takes[rows]]),
            allowed=np.concatenate([problem.allowed, np.ones(len(rows), dtype=bool)]),
        )

    def reduced_costs_of_patterns(self, costs: PatternCosts, prices: Prices) -> Floats:
        """Return float64[p]: a lower bound on the least reduced cost within each pattern, exact for the lowest."""
        return self.pricing.reduced_costs(costs, prices.jobs, prices.device(self.problem))

    def add_best(
        self,
        reduced: Floats,
        limit: float,
        costs: PatternCosts,
        prices: Prices,
        *,
        rows: Ints | None = None,
        most: int | None = None,
    ) -> Ints:
        """Add the groups of smallest reduced cost below `limit` as columns, and return these columns (int64).

        Added are the best few for each host and job, or the `most` best of all. `reduced` float64[n] gives the reduced
        costs of the patterns `rows`, which default to all patterns.
        """
        patterns = self.problem.patterns
        assert patterns is not None
        below = np.flatnonzero(reduced < limit)
        kept = MAX_EVALUATED if most is None else most
        if len(below) > kept:
            below = below[np.argpartition(reduced[below], kept)[:kept]]
        below = below[np.argsort(reduced[below], kind="stable")]
        chosen = below if rows is None else rows[below]
        classes = self.pricing.best_groups(chosen, costs, prices.jobs)
        if most is None:
            best = best_of_each(patterns.host[chosen], classes)
            chosen, classes = chosen[best], classes[best]
        return self.add_groups(chosen, classes)

    def least_of_hosts(self, reduced: Floats) -> Floats:
        """Return float64[h]: the least reduced cost of a pattern on each host per unit of supply; inf without any."""
        patterns = self.problem.patterns
        assert patterns is not None
        least = np.full(len(self.problem.supply), np.inf)
        np.minimum.at(least, patterns.host, reduced / patterns.takes)
        return least


def best_of_each(host: Ints, members: Ints, per_class: int = BEST_PER_JOB) -> Ints:
    """Return the indices of the first groups of each host and the first `per_class` of each class; input best first."""
    chosen = [np.flatnonzero(_rank_within(host) < BEST_PER_HOST)]
    for column in members.T:
        at = np.flatnonzero(column != NOBODY)
        chosen.append(at[_rank_within(column[at]) < per_class])
    return np.unique(np.concatenate(chosen))


def _rank_within(keys: Ints) -> Ints:
    """Return int64[n]: for each entry, how many earlier entries have the same key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.searchsorted(ordered, ordered, side="left")
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - first
    return rank


ACTIVE_PATTERNS = 40_000  # among which columns are looked for first, and as many again, evenly of hosts and sizes

CENTER = 0.8  # weight of the best prices in the smoothed prices at which columns are priced
FEW_COLUMNS = 20  # below this number of new columns, unsmoothed prices are tried too
NEAR_COLUMNS = 1_000  # that are added at once where not each host and job needs some


class PatternSearch:
    """The best dual prices so far at one level of a problem with patterns."""

    def __init__(self, formulation: Formulation, place: int) -> None:
        """Begin a search; `place` is the index of the level among the levels of the formulation."""
        self._formulation, self._place = formulation, place
        self.prices: Prices | None = None  # feasible: no group costs less than they come to
        self.bound = -np.inf  # that they prove
        self._center: Prices | None = None  # the best prices if only the active patterns mattered
        self._center_bound = -np.inf
        self._active: tuple[Ints, PatternPricing] | None = None

    def price_all(self, restriction: Restriction) -> None:
        """Compute the lower bound of the current best prices over all patterns."""
        if self._center is not None and self._center is not self.prices:
            level = self._formulation.levels[self._place]
            costs = charged_patterns(level, self._center, restriction)
            reduced = self._formulation.reduced_costs_of_patterns(costs, self._center)
            self._take_bound(self._center, self._formulation.least_of_hosts(reduced), restriction)

    def add_columns(self, prices: Prices, restriction: Restriction, limit: float, *, near_enough: float = 0.0) -> Ints:
        """Add groups of reduced cost below `limit` and return their columns; the recently good patterns are searched
        first.

        Once the linear optimum is within the relative distance `near_enough` of its lower bound, all patterns are
        searched.
        """
        problem, level = self._formulation.problem, self._formulation.levels[self._place]
        costs = charged_patterns(level, prices, restriction)
        allowed = _as_long(restriction.allowed, len(problem.host))
        prices = no_dearer_than_waiting(problem, level, prices, allowed, restriction.levels)
        if self._active is not None and self._center is None:
            return self._add_active(prices, restriction, limit)
        if self._active is not None and self._center is not None:
            # 1. Where patterns of small reduced cost are, between the best prices and those of the linear program.
            value = dual_bound(problem, prices, restriction.values)
            found = self._add_active(_between(self._center, prices), restriction, limit)
            if len(found) < FEW_COLUMNS:
                found = np.union1d(found, self._add_active(prices, restriction, limit))
            if len(found) and value - self._center_bound > near_enough * abs(value):
                return found
            prices = self._center if len(found) else prices
            costs = charged_patterns(level, prices, restriction)
        return self._add_of_all(prices, costs, restriction, limit)

    def add_near(self, prices: Prices, restriction: Restriction, limit: float, *, of_all: bool = False) -> Ints:
        """Return columns of the best active patterns, or of all patterns, at prices that need not improve the bound."""
        formulation = self._formulation
        costs = charged_patterns(formulation.levels[self._place], prices, restriction)
        if self._active is None or of_all:
            return formulation.add_best(
                formulation.reduced_costs_of_patterns(costs, prices), limit, costs, prices, most=NEAR_COLUMNS
            )
        rows, pricing = self._active
        reduced = pricing.reduced_costs(costs.among(rows), prices.jobs, prices.device(formulation.problem))
        return formulation.add_best(reduced, limit, costs, prices, rows=rows)

    def _add_active(self, prices: Prices, restriction: Restriction, limit: float) -> Ints:
        """Return columns of the best active patterns; prices of a better bound become the smoothing centre."""
        assert self._active is not None
        formulation, (rows, pricing) = self._formulation, self._active
        problem, patterns = formulation.problem, pricing.patterns
        costs = charged_patterns(formulation.levels[self._place], prices, restriction)
        reduced = pricing.reduced_costs(costs.among(rows), prices.jobs, prices.device(problem))
        least = np.zeros(len(problem.supply))
        least -= prices.hosts
        np.minimum.at(least, patterns.host, reduced / patterns.takes)
        bound = dual_bound(problem, prices, restriction.values) + float(problem.supply @ least)
        if bound > self._center_bound:
            self._center, self._center_bound = replace(prices, hosts=prices.hosts + least), bound
        return formulation.add_best(reduced, limit, costs, prices, rows=rows)

    def _add_of_all(self, prices: Prices, costs: PatternCosts, restriction: Restriction, limit: float) -> Ints:
        formulation = self._formulation
        reduced = formulation.reduced_costs_of_patterns(costs, prices)
        self._take_bound(prices, formulation.least_of_hosts(reduced), restriction)
        self._center, self._center_bound = self.prices, self.bound
        found = formulation.add_best(reduced, limit, costs, prices)
        if len(found):
            self._look_near(reduced)
        return found

    def _look_near(self, reduced: Floats) -> None:
        """Make the patterns of least reduced cost the active ones, which later steps search first."""
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

    def _take_bound(self, prices: Prices, least: Floats, restriction: Restriction) -> None:
        """Keep the prices if their bound is the best so far.

        `least` float64[h] is the least reduced cost of a pattern of each host.
        """
        problem, level = self._formulation.problem, self._formulation.levels[self._place]
        listed = np.flatnonzero((problem.host != WAITS) & _as_long(restriction.allowed, len(problem.host)))
        cost = charged(level.cost, prices, [self._formulation.levels[place].cost for place in restriction.places])
        reduced = cost - paid(problem, prices)
        np.minimum.at(least, problem.host[listed], reduced[listed] / problem.takes[listed])
        feasible = replace(prices, hosts=np.minimum(prices.hosts + least, 0.0))
        bound = dual_bound(problem, feasible, restriction.values)
        if bound > self.bound or self.prices is None:
            self.prices, self.bound = feasible, bound


def _between(center: Prices, prices: Prices) -> Prices:
    """Return prices between the best prices and a new dual solution, to damp the oscillation of dual solutions."""
    return Prices(
        jobs=CENTER * center.jobs + (1 - CENTER) * prices.jobs,
        hosts=CENTER * center.hosts + (1 - CENTER) * prices.hosts,
        max_devices=CENTER * center.max_devices + (1 - CENTER) * prices.max_devices,
        limits=CENTER * center.limits + (1 - CENTER) * prices.limits,
    )


def _smallest(values: Floats, count: int) -> Ints:
    """Return the indices of the `count` smallest values in arbitrary order."""
    return np.argpartition(values, count)[:count] if len(values) > count else np.arange(len(values))


def charged_patterns(level: Level, prices: Prices, restriction: Restriction) -> PatternCosts:
    """Return the pattern costs of a level minus the dual prices of the limits on earlier levels."""
    costs = level.patterns
    assert costs is not None
    for earlier, price in zip(restriction.levels, prices.limits.tolist(), strict=True):
        if price and earlier.patterns is not None:
            costs = costs.less(earlier.patterns, price)
    return costs


def _as_long(allowed: Bools, length: int) -> Bools:
    """Return the mask padded with True for columns added since, which are allowed."""
    return np.concatenate([allowed, np.ones(length - len(allowed), dtype=bool)])


def first_prices(problem: PlacementProblem, level: Level, value: float) -> Prices:
    """Return initial job prices: equal excess slowdown for all jobs, chosen so that the prices sum to a given value."""
    costs, hosts = level.patterns, len(problem.supply)
    assert costs is not None
    base, slope = costs.base.max(axis=0), costs.slope.max(axis=0)
    excess = (value - float(problem.demand @ base)) / max(float(problem.demand @ slope), 1e-300)
    return Prices(jobs=base + slope * max(excess, 0.0), hosts=np.zeros(hosts), max_devices=0.0, limits=np.zeros(0))
