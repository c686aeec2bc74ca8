"""The placement of jobs in groups as arrays: which groups may start on which host, and what each takes.

k job classes of interchangeable jobs and h host classes: interchangeable empty devices, or sets of devices that run
interchangeable jobs. A column is one group of jobs, equal classes allowed, that starts on one host, or one job that
waits. Every job is in exactly one column. Where there are too many groups, those up to a size are all listed and of
the larger ones some; a bound then counts on what every pair in a group costs at least. Or groups are patterns of jobs
that differ only in costs, and a bound counts on the best group of each.
"""

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
    """Groups on one host of which only those up to a size are all columns."""

    host: int
    takes: int  # of the supply by each group: tells jobs on several devices from those on one
    listed_size: int
    largest_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementProblem:
    """What may be placed where. Waiting is always possible."""

    demand: Ints  # int64[k]: jobs of each class
    supply: Ints  # int64[h]: devices of each class, or places beside residents
    is_empty: Bools  # bool[h]: do its devices count towards `max_devices`?
    max_devices: int
    members: Ints  # int64[c, m]: the classes of each group, NOBODY where it is smaller
    host: Ints  # int64[c]: WAITS for a job that waits
    takes: Ints  # int64[c]: of the supply of its host
    allowed: Bools  # bool[c]
    cutoffs: tuple[Cutoff, ...] = ()  # none where every group is a column
    patterns: Patterns | None = None  # groups that become columns when they are found

    @property
    def size(self) -> Ints:
        """int64[c]: jobs of each column."""
        return np.asarray((self.members != NOBODY).sum(axis=1), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBound:
    """What groups on a host cost at least: Σ alone over their jobs, Σ pair over their pairs."""

    classes: Ints  # int64[b]: the job classes that it is about
    alone: Floats  # float64[b]
    pair: Floats  # float64[b, b], symmetric; inf where two jobs of these classes may not share


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One sum to minimise, once every level before it is as small as it can be."""

    cost: Floats  # float64[c]
    bounds: tuple[PairBound, ...] = ()  # of each cutoff
    floor: float = -np.inf  # no placement has a smaller sum
    is_waiting: bool = False  # whether only waiting costs anything
    patterns: PatternCosts | None = None  # where the problem has patterns


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How often each chosen column is taken."""

    column: Ints  # int64[n], each once
    count: Ints  # int64[n], at least 1

    @classmethod
    def of_counts(cls, counts: Ints) -> "Placement":
        """From the count of every column."""
        column = np.flatnonzero(counts > 0)
        return cls(column=column, count=counts[column])

    def value(self, level: Level) -> float:
        """The sum of a level."""
        return float(level.cost[self.column] @ self.count)


def all_waiting(problem: PlacementProblem) -> Placement:
    """The placement in which every job waits; the first columns are those of waiting, in the order of the classes."""
    column = np.flatnonzero(problem.demand)
    return Placement(column=column, count=problem.demand[column])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dual prices of the master problem's rows."""

    jobs: Floats  # float64[k]
    hosts: Floats  # float64[h] ≤ 0 where the supply is a limit, any sign where it has to be used up
    max_devices: float
    limits: Floats  # float64[l] ≤ 0: of limits on the sums of earlier levels
    eased: Floats | None = (
        None  # float64[k] ≥ 0: by how much the jobs' prices were lowered for groups that are no columns
    )

    def device(self, problem: PlacementProblem) -> Floats:
        """float64[h]: of one unit of each host's supply."""
        return np.asarray(self.hosts + np.where(problem.is_empty, self.max_devices, 0.0))


def reduced_costs(problem: PlacementProblem, cost: Floats, prices: Prices, earlier: tuple[Level, ...] = ()) -> Floats:
    """float64[c]: cost of each column beyond the prices of what it takes. `earlier`: levels that limits are on."""
    return np.asarray(charged(cost, prices, [level.cost for level in earlier]) - paid(problem, prices))


def paid(problem: PlacementProblem, prices: Prices) -> Floats:
    """float64[c]: the prices of the jobs of each column and of what it takes of its host."""
    return np.asarray(
        _prices_of_jobs(problem, prices.jobs) + problem.takes * np.append(prices.device(problem), 0.0)[problem.host]
    )


def _prices_of_jobs(problem: PlacementProblem, jobs: Floats) -> Floats:
    """float64[c]: Σ of the prices of the jobs of each column."""
    padded, total = np.append(jobs, 0.0), np.zeros(len(problem.members))
    for column in problem.members.T:  # much faster than a sum over rows of few cells
        total += padded[column]
    return total


def charged(cost: Floats, prices: Prices, earlier: list[Floats]) -> Floats:
    """Costs less the prices of the limits on earlier levels."""
    for other, price in zip(earlier, prices.limits.tolist(), strict=True):
        if price:
            cost = cost - price * other
    return cost
