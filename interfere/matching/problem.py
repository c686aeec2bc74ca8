"""The placement problem as arrays: which groups of jobs may start on which host, and what each group takes.

There are k classes of interchangeable jobs and h host classes. A host class is a set of interchangeable empty devices,
or of devices with interchangeable residents. A column is one group of jobs, possibly of equal classes, that starts on
one host, or one job that waits. Every job is in exactly one chosen column. Two forms keep the number of columns small:
all groups up to a size are columns and larger ones only in part, with a bound from the least cost of every pair; or
groups are generated from patterns of jobs that differ only in cost, with a bound from the best group of each pattern.

A group is looked up by a hash: the sum of a random number for its host and one for the kind of each of its jobs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.patterns import PatternCosts, Patterns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
WAITS = -1  # host of a job that waits
NOBODY = -1  # fills up the members of small groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoff:
    """A host on which all groups up to some size are columns, and larger groups only in part."""

    host: int
    takes: int  # units of supply that each group takes, e.g. the devices of a gang
    listed_size: int
    largest_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementProblem:
    """The columns, demands and supplies of a placement problem. Every job may also wait."""

    demand: Ints  # int64[k]: jobs of each class
    supply: Ints  # int64[h]: devices of each class, or places beside residents
    is_empty: Bools  # bool[h]: do its devices count towards `max_devices`?
    max_devices: int
    members: Ints  # int64[c, m]: the classes of each group, NOBODY where it is smaller
    host: Ints  # int64[c]: WAITS for a job that waits
    takes: Ints  # int64[c]: units of its host's supply that each column takes
    allowed: Bools  # bool[c]
    cutoffs: tuple[Cutoff, ...] = ()  # none where every group is a column
    patterns: Patterns | None = None  # groups that become columns when pricing finds them

    @property
    def size(self) -> Ints:
        """Return int64[c]: the number of jobs in each column."""
        return np.asarray((self.members != NOBODY).sum(axis=1), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBound:
    """A lower bound on the cost of a group on a host: Σ `alone` over its jobs plus Σ `pair` over its pairs."""

    classes: Ints  # int64[b]: the job classes that it is about
    alone: Floats  # float64[b]
    pair: Floats  # float64[b, b], symmetric; inf where two jobs of these classes may not share


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One objective of a lexicographic order, minimised among the placements optimal for all earlier levels."""

    cost: Floats  # float64[c]
    bounds: tuple[PairBound, ...] = ()  # of each cutoff
    floor: float = -np.inf  # no placement has a smaller sum
    is_waiting: bool = False  # whether only waiting costs anything
    patterns: PatternCosts | None = None  # where the problem has patterns


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The chosen columns and how often each is taken."""

    column: Ints  # int64[n], each once
    count: Ints  # int64[n], at least 1

    @classmethod
    def of_counts(cls, counts: Ints) -> "Placement":
        """Return the placement with the given count of every column."""
        column = np.flatnonzero(counts > 0)
        return cls(column=column, count=counts[column])

    def value(self, level: Level) -> float:
        """Return the objective value of a level, correctly rounded whatever the order of the columns."""
        return math.fsum((level.cost[self.column] * self.count).tolist())


def all_waiting(problem: PlacementProblem) -> Placement:
    """Return the placement in which every job waits; the first k columns must be the waiting ones, in class order."""
    column = np.flatnonzero(problem.demand)
    return Placement(column=column, count=problem.demand[column])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The dual prices of the rows of the master problem."""

    jobs: Floats  # float64[k]
    hosts: Floats  # float64[h] ≤ 0 where the supply is a limit, any sign where it has to be used up
    max_devices: float
    limits: Floats  # float64[l] ≤ 0: of limits on the sums of earlier levels
    eased: Floats | None = (
        None  # float64[k] ≥ 0: by how much the jobs' prices were lowered for groups that are no columns
    )

    def device(self, problem: PlacementProblem) -> Floats:
        """Return float64[h]: the dual price of one unit of each host's supply; empty hosts add the device limit's."""
        return np.asarray(self.hosts + np.where(problem.is_empty, self.max_devices, 0.0))


def reduced_costs(problem: PlacementProblem, cost: Floats, prices: Prices, earlier: tuple[Level, ...] = ()) -> Floats:
    """Return float64[c]: the reduced cost of each column; `earlier` are the levels whose sums are limited."""
    return np.asarray(charged(cost, prices, [level.cost for level in earlier]) - paid(problem, prices))


def paid(problem: PlacementProblem, prices: Prices) -> Floats:
    """Return float64[c]: for each column, the sum of the dual prices of its jobs and of the host capacity that it
    takes."""
    return np.asarray(
        _prices_of_jobs(problem, prices.jobs) + problem.takes * np.append(prices.device(problem), 0.0)[problem.host]
    )


def _prices_of_jobs(problem: PlacementProblem, jobs: Floats) -> Floats:
    """Return float64[c]: the sum of the dual prices of each column's jobs."""
    padded, total = np.append(jobs, 0.0), np.zeros(len(problem.members))
    for column in problem.members.T:  # much faster than a sum over rows of few cells
        total += padded[column]
    return total


def charged(cost: Floats, prices: Prices, earlier: list[Floats]) -> Floats:
    """Return the costs minus the dual prices of the limits on earlier levels."""
    for other, price in zip(earlier, prices.limits.tolist(), strict=True):
        if price:
            cost = cost - price * other
    return cost


LEVEL_TOLERANCE = 1e-7  # of the larger of value and bound: as far above its bound as a level may be and count as proved


def level_tolerance(value: float, lower_bound: float, share: float = LEVEL_TOLERANCE) -> float:
    """Return the tolerance in the units of the level; 0 where there is no lower bound."""
    return share * max(abs(value), abs(lower_bound)) if math.isfinite(lower_bound) else 0.0


def is_proved(value: float, lower_bound: float) -> bool:
    """Whether the value is within the tolerance of its lower bound, so that no better placement matters."""
    return value - lower_bound <= level_tolerance(value, lower_bound)


class GroupLookup:
    """Finds groups among rows of members, int64[g, m], on hosts, int64[g]; a negative member is none."""

    def __init__(self, rows: Ints, members: Ints, host: Ints, *, kinds: int, hosts: int) -> None:
        """`rows` int64[g]: what is found; `kinds` and `hosts`: how many there are of each."""
        rng = np.random.default_rng(0)
        self.kind_key, self.host_key = (np.append(rng.integers(-(2**40), 2**40, n), 0) for n in (kinds, hosts))
        keys = self.host_key[host]
        for column in members.T:
            keys = keys + self.kind_key[column]
        order = np.argsort(keys)
        self._keys, self._rows = keys[order], rows[order]

    @classmethod
    def of_columns(cls, problem: PlacementProblem) -> "GroupLookup":
        """Return the lookup of the allowed columns that place jobs; each job class is a kind."""
        placed = np.flatnonzero((problem.host != WAITS) & problem.allowed)
        members, host = problem.members[placed], problem.host[placed]
        return cls(placed, members, host, kinds=len(problem.demand), hosts=len(problem.supply))

    @classmethod
    def of_patterns(cls, patterns: Patterns, hosts: int) -> "GroupLookup":
        """Return the lookup of all patterns by the kinds of their jobs."""
        kinds = int(patterns.kind.max(initial=-1)) + 1
        return cls(np.arange(len(patterns.host)), patterns.members, patterns.host, kinds=kinds, hosts=hosts)

    def find(self, keys: Ints) -> Ints:
        """Return int64[n]: the row of each sum of keys; -1 where there is none."""
        if not len(self._keys):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._rows[at], -1)

    def find_group(self, host: int, kinds: Sequence[int] | Ints) -> int:
        """Return the row of one group; -1 where there is none."""
        return int(self.find(self.host_key[[host]] + self.kind_key[list(kinds)].sum())[0])
