"""The placement problem as arrays: which groups of jobs may start on which host, and what each group takes.

There are k classes of interchangeable jobs and h host classes. A host class is a set of interchangeable empty devices,
or of devices with interchangeable residents. A column is one group of jobs, possibly of equal classes, that starts on
one host, or one job that waits. Every job is in exactly one chosen column. Two forms keep the number of columns small:
all groups up to a size are columns and larger ones only in part, with a bound from the least cost of every pair; or
groups are generated from patterns of jobs that differ only in cost, with a bound from the best group of each pattern.

A group is looked up by a hash: the sum of a random number for its host and one for the kind of each of its jobs.

Dual prices prove a lower bound once they are lowered until no group of jobs has a negative reduced cost.
Some groups are not columns of the problem; for these only a least cost of each pair is known. A group of m jobs has
m (m - 1) / 2 pairs, and each job is in m - 1 of them. With c_i = alone_i - price_i the group's reduced cost is at least

    Σ_i s_i  -  price of what the group takes of its host,
    s_i = ½ Σ of the m - 1 least over j of  pair_ij + (c_i + c_j) / (m - 1)

The same holds for its m (m - 1) (m - 2) / 6 triples, where each job is in (m - 1) (m - 2) / 2 triples and each pair in
m - 2 of them:

    s_i = ⅙ (m - 1) (m - 2) min over j, l of  (c_i + c_j + c_l) · 2 / ((m - 1) (m - 2)) + (pairs of i, j, l) / (m - 2)

Where this bound is negative, either the host's price is lowered by the group's shortfall, or the price of each job i by
the shortfall of s_i against 1 / m of the host's price.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
    priority: int | None = None  # of the jobs whose costs it sums; None: of all jobs
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


Earlier = tuple[Level, ...]
ROUNDING = 2.0**-50  # of the sum of a bound's absolute terms: eight roundings of float64
MAX_CELLS_OF_TRIPLES = 80_000_000  # looked at for one bound: half a second


def feasible_prices(
    problem: PlacementProblem, level: Level, prices: Prices, allowed: Bools, earlier: Earlier = ()
) -> Prices:
    """Return dual prices lowered until no allowed group, whether a column or not, has a negative reduced cost.

    The price of a job is at most the cost of its waiting. The price of a host falls by the most negative reduced cost
    of a group on this host.
    """
    prices = no_dearer_than_waiting(problem, level, prices, allowed, earlier)
    lowered = _eased_for_unlisted(problem, level, prices, earlier)
    reduced = reduced_costs(problem, level.cost, lowered, earlier)
    placed = np.flatnonzero((problem.host != WAITS) & allowed)
    worst = np.zeros(len(problem.supply))
    np.minimum.at(worst, problem.host[placed], reduced[placed] / problem.takes[placed])
    return replace(lowered, hosts=lowered.hosts + worst)


def no_dearer_than_waiting(
    problem: PlacementProblem, level: Level, prices: Prices, allowed: Bools, earlier: Earlier
) -> Prices:
    """Return the prices with those of jobs lowered to the cost of waiting, where a job may wait."""
    waits = np.flatnonzero((problem.host == WAITS) & allowed)
    cost = charged(level.cost, prices, [other.cost for other in earlier])
    jobs = prices.jobs.copy()
    np.minimum.at(jobs, problem.members[waits, 0], cost[waits])
    return replace(prices, jobs=jobs)


def dual_bound(problem: PlacementProblem, prices: Prices, limits: Floats) -> float:
    """Return the lower bound that feasible prices prove; `limits` float64[l] bounds the sums of the limited levels.

    The prices of heavy jobs and of their hosts may be many decades above the value and cancel out. The bound is lowered
    by the rounding that this leaves in it, so that it is below the optimum at every scale of the costs.
    """
    terms = _dual_terms(problem, prices, limits)
    return math.fsum(terms) - rounding_of(problem, prices, limits)


def rounding_of(problem: PlacementProblem, prices: Prices, limits: Floats) -> float:
    """Return a bound on the rounding of the reduced cost of any column of a placement and of the prices' bound."""
    return ROUNDING * math.fsum(map(abs, _dual_terms(problem, prices, limits)))


def _dual_terms(problem: PlacementProblem, prices: Prices, limits: Floats) -> list[float]:
    """Return the summands of the bound: the right-hand side of each row of the master problem times its price."""
    jobs, hosts = problem.demand * prices.jobs, problem.supply * prices.hosts
    return [*jobs.tolist(), *hosts.tolist(), problem.max_devices * prices.max_devices, *(limits * prices.limits)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shortfall:
    """How far the jobs of unlisted groups of one size on one host fall short of their share of the host's price."""

    cut: Cutoff
    classes: Ints  # int64[b]
    of_job: Floats  # float64[b] ≥ 0
    size: int

    def of_group(self, eased: Floats) -> float:
        """Return the largest shortfall of a group after the job prices are lowered by `eased` float64[k]."""
        left = np.maximum(self.of_job - eased[self.classes], 0.0)
        return self.size * float(left.max(initial=0.0))


def _eased_for_unlisted(problem: PlacementProblem, level: Level, prices: Prices, earlier: Earlier) -> Prices:
    """Return prices lowered until unlisted groups have no negative reduced cost, at the least loss of the lower bound.

    Three choices are compared: to lower the prices of all jobs, of hosts alone, or of the jobs on the host of the
    largest supply and of the other hosts.
    """
    if not problem.cutoffs:
        return prices
    short = list(_shortfalls(problem, level, prices, earlier))
    most = max(int(problem.supply[each.cut.host]) for each in short) if short else 0
    choices = []
    for enough in (0, most, most + 1):
        eased = np.zeros(len(prices.jobs))
        for each in short:
            if problem.supply[each.cut.host] >= enough:
                eased[each.classes] = np.maximum(eased[each.classes], each.of_job)
        hosts = np.zeros(len(prices.hosts))
        for each in short:
            hosts[each.cut.host] = max(hosts[each.cut.host], each.of_group(eased) / each.cut.takes)
        choices.append((float(problem.demand @ eased + problem.supply @ hosts), eased, hosts))
    _, eased, hosts = min(choices, key=lambda choice: choice[0])
    return replace(prices, jobs=prices.jobs - eased, hosts=prices.hosts - hosts, eased=eased)


def _shortfalls(problem: PlacementProblem, level: Level, prices: Prices, earlier: Earlier) -> Iterator[_Shortfall]:
    """Yield the shortfalls of each cutoff and group size: by pairs, and by triples where these are few enough."""
    device, cells = prices.device(problem), MAX_CELLS_OF_TRIPLES
    for cut, *bounds in zip(problem.cutoffs, level.bounds, *(other.bounds for other in earlier), strict=True):
        bound, limited = bounds[0], bounds[1:]
        if not len(bound.classes):
            continue
        own = charged(bound.alone, prices, [other.alone for other in limited]) - prices.jobs[bound.classes]
        pair = charged(bound.pair, prices, [np.where(np.isfinite(o.pair), o.pair, 0.0) for o in limited])
        demand = problem.demand[bound.classes]
        pair[np.diag_indices_from(pair)] = np.where(demand > 1, np.diag(pair), np.inf)
        price = float(device[cut.host]) * cut.takes
        for size in range(max(2, cut.listed_size + 1), min(cut.largest_size, int(demand.sum())) + 1):
            lacking = np.maximum(price / size - _shares_by_pairs(own, pair, demand, size), 0.0)
            jobs = np.flatnonzero(lacking)
            cells -= len(jobs) * len(own) ** 2 if size > 2 else 0
            if len(jobs) and size > 2 and cells >= 0:
                by_triples = np.maximum(price / size - _shares_by_triples(own, pair, jobs, size), 0.0)
                lacking[jobs] = np.minimum(lacking[jobs], by_triples)
            if lacking.any():
                yield _Shortfall(cut=cut, classes=bound.classes, of_job=lacking, size=size)


def _shares_by_pairs(own: Floats, pair: Floats, demand: Ints, size: int) -> Floats:
    """Return float64[b]: a lower bound on each job's share of a group's reduced cost, from the pairs of the group."""
    both = pair / 2 + (own[:, None] + own) / (2 * (size - 1))
    others = both[:, np.repeat(np.arange(len(own)), np.minimum(demand, size - 1))]
    return np.asarray(np.partition(others, size - 2, axis=1)[:, : size - 1].sum(axis=1))


def _shares_by_triples(own: Floats, pair: Floats, jobs: Ints, size: int) -> Floats:
    """Return float64[j]: a lower bound on each of some jobs' share of a group's reduced cost, from its triples."""
    triples_of_job = math.comb(size - 1, 2)
    alone, shared = own / triples_of_job, pair / (size - 2)
    least = np.empty(len(jobs))
    for k, i in enumerate(jobs.tolist()):
        beside = alone + shared[i]
        least[k] = float((shared + beside[:, None] + beside).min()) + alone[i]
    return np.asarray(triples_of_job / 3 * least)
