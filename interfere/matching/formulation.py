"""The restricted master problem: its columns grow as pricing finds groups of patterns worth adding."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from interfere.matching.patterns import MAX_EVALUATED, NO_KIND, PatternCosts, PatternPricing
from interfere.matching.problem import NOBODY, Floats, Ints, Level, PlacementProblem, Prices

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
