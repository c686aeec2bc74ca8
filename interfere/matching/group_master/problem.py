"""The placement of jobs in groups as arrays: which groups may start on which host, and what each takes.

k job classes of interchangeable jobs and h host classes: interchangeable empty devices, or sets of devices that run
interchangeable jobs. A column is one group of jobs, equal classes allowed, that starts on one host, or one job that
waits. Every job is in exactly one column. Where there are too many groups, those up to a size are all listed and of
the larger ones some; a bound then counts on what every pair in a group costs at least.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
class GroupProblem:
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
class GroupLevel:
    """One sum to minimise, once every level before it is as small as it can be."""

    cost: Floats  # float64[c]
    bounds: tuple[PairBound, ...] = ()  # of each cutoff
    floor: float = -np.inf  # no placement has a smaller sum
    is_waiting: bool = False  # whether only waiting costs anything


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlacement:
    """How often each chosen column is taken."""

    column: Ints  # int64[n], each once
    count: Ints  # int64[n], at least 1

    @classmethod
    def of_counts(cls, counts: Ints) -> "GroupPlacement":
        """From the count of every column."""
        column = np.flatnonzero(counts > 0)
        return cls(column=column, count=counts[column])

    def value(self, level: GroupLevel) -> float:
        """The sum of a level."""
        return float(level.cost[self.column] @ self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPrices:
    """Dual prices of the master problem's rows."""

    jobs: Floats  # float64[k]
    hosts: Floats  # float64[h] ≤ 0 where the supply is a limit, any sign where it has to be used up
    max_devices: float
    limits: Floats  # float64[l] ≤ 0: of limits on the sums of earlier levels

    def device(self, problem: GroupProblem) -> Floats:
        """float64[h]: of one unit of each host's supply."""
        return np.asarray(self.hosts + np.where(problem.is_empty, self.max_devices, 0.0))


def reduced_costs(
    problem: GroupProblem, cost: Floats, prices: GroupPrices, earlier: tuple[GroupLevel, ...] = ()
) -> Floats:
    """float64[c]: cost of each column beyond the prices of what it takes. `earlier`: levels that limits are on."""
    return np.asarray(_charged(cost, prices, [level.cost for level in earlier]) - paid(problem, prices))


def paid(problem: GroupProblem, prices: GroupPrices) -> Floats:
    """float64[c]: the prices of the jobs of each column and of what it takes of its host."""
    return np.asarray(
        _prices_of_jobs(problem, prices.jobs) + problem.takes * np.append(prices.device(problem), 0.0)[problem.host]
    )


def _prices_of_jobs(problem: GroupProblem, jobs: Floats) -> Floats:
    """float64[c]: Σ of the prices of the jobs of each column."""
    padded, total = np.append(jobs, 0.0), np.zeros(len(problem.members))
    for column in problem.members.T:  # much faster than a sum over rows of few cells
        total += padded[column]
    return total


def _charged(cost: Floats, prices: GroupPrices, earlier: list[Floats]) -> Floats:
    for other, price in zip(earlier, prices.limits.tolist(), strict=True):
        if price:
            cost = cost - price * other
    return cost


def feasible_prices(
    problem: GroupProblem,
    level: GroupLevel,
    prices: GroupPrices,
    allowed: Bools,
    earlier: tuple[GroupLevel, ...] = (),
) -> GroupPrices:
    """The prices lowered until no group that is allowed, listed or not, costs less than they come to.

    Jobs are no dearer than waiting, and a host is as much cheaper as the best group on it costs less than its prices.
    """
    waits = np.flatnonzero((problem.host == WAITS) & allowed)
    cost = _charged(level.cost, prices, [other.cost for other in earlier])
    jobs = prices.jobs.copy()
    np.minimum.at(jobs, problem.members[waits, 0], cost[waits])
    lowered = GroupPrices(jobs=jobs, hosts=prices.hosts, max_devices=prices.max_devices, limits=prices.limits)
    reduced = cost - paid(problem, lowered)
    placed = np.flatnonzero((problem.host != WAITS) & allowed)
    worst = np.zeros(len(problem.supply))
    np.minimum.at(worst, problem.host[placed], reduced[placed] / problem.takes[placed])
    np.minimum(worst, _unlisted(problem, level, lowered, earlier), out=worst)
    return GroupPrices(jobs=jobs, hosts=prices.hosts + worst, max_devices=prices.max_devices, limits=prices.limits)


def dual_bound(problem: GroupProblem, prices: GroupPrices, limits: Floats) -> float:
    """The lower bound that feasible prices prove; `limits` float64[l]: what the sums of the limited levels may be."""
    value = float(problem.demand @ prices.jobs) + float(problem.supply @ prices.hosts)
    return value + problem.max_devices * prices.max_devices + float(limits @ prices.limits)


def _unlisted(problem: GroupProblem, level: GroupLevel, prices: GroupPrices, earlier: tuple[GroupLevel, ...]) -> Floats:
    """float64[h] ≤ 0: a bound on the reduced cost, for each unit of supply, of the groups that are no columns.

    A group of m jobs has m (m - 1) / 2 pairs, and each job is in m - 1 of them: so it costs at least as many times the
    least of pair + (alone less price of both jobs) / (m - 1).
    """
    worst, device = np.zeros(len(problem.supply)), prices.device(problem)
    for k, cut in enumerate(problem.cutoffs):
        bound = level.bounds[k]
        limited = [other.bounds[k] for other in earlier]
        alone = _charged(bound.alone, prices, [other.alone for other in limited]) - prices.jobs[bound.classes]
        pair = _charged(bound.pair, prices, [np.where(np.isfinite(o.pair), o.pair, 0.0) for o in limited])
        for m in range(cut.listed_size + 1, cut.largest_size + 1):
            share = alone / max(m - 1, 1)
            least = float(np.min(pair + share[:, None] + share, initial=np.inf)) * m * (m - 1) / 2
            worst[cut.host] = min(worst[cut.host], least / cut.takes - float(device[cut.host]))
    return worst
