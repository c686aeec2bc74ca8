"""Lower bounds from dual prices: prices are lowered until no group of jobs has a negative reduced cost.

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
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.problem import (
    WAITS,
    Bools,
    Cutoff,
    Floats,
    Ints,
    Level,
    PlacementProblem,
    Prices,
    charged,
    paid,
)

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
    waits = np.flatnonzero((problem.host == WAITS) & allowed)
    cost = charged(level.cost, prices, [other.cost for other in earlier])
    jobs = prices.jobs.copy()
    np.minimum.at(jobs, problem.members[waits, 0], cost[waits])
    lowered = _eased_for_unlisted(problem, level, replace(prices, jobs=jobs), earlier)
    reduced = cost - paid(problem, lowered)
    placed = np.flatnonzero((problem.host != WAITS) & allowed)
    worst = np.zeros(len(problem.supply))
    np.minimum.at(worst, problem.host[placed], reduced[placed] / problem.takes[placed])
    return replace(lowered, hosts=lowered.hosts + worst)


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
