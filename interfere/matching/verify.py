"""Independent verification of a placement and its dual lower bounds, column by column, without code of the search.

A bound that an integer program found cannot be verified by dual prices.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.matching.patterns import NO_KIND
from interfere.matching.problem import (
    WAITS,
    Floats,
    Level,
    PairBound,
    Placement,
    PlacementProblem,
    Prices,
)
from interfere.matching.search import LevelCertificate

EQUAL = 1e-9  # relative: sums of the same numbers in another order
ROUNDING = 2.0**-51  # of the sum of a bound's absolute terms: four roundings of float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of a verification; `problems` is empty where every claim holds."""

    values: tuple[float, ...]
    bounds: tuple[float, ...]  # that the prices prove of each level
    problems: tuple[str, ...]


def verify_levels(
    problem: PlacementProblem,
    levels: Sequence[Level],
    placement: Placement,
    certificates: Sequence[LevelCertificate],
) -> Verification:
    """Verify that a placement is allowed, recompute each level's value, and recompute bounds from dual prices."""
    problems = list(broken_limits(problem, placement))
    is_open = problem.allowed.copy()
    values, bounds = [], []
    for level, certificate in zip(levels, certificates, strict=True):
        value = math.fsum((level.cost[placement.column] * placement.count).tolist())
        slack = EQUAL * abs(value)
        values.append(value)
        reduced = _reduced(problem, level, levels, certificate)
        bound = _bound(problem, level, levels, certificate, np.where(is_open, reduced, np.inf))
        rounding = ROUNDING * math.fsum(map(abs, _dual_terms(problem, certificate)))
        bounds.append(min(bound, value))
        if value > certificate.value + slack:
            problems.append(f"the value of a level is {value:.12g}, {certificate.value:.12g} is claimed")
        if certificate.linear_bound > bound + slack:
            problems.append(f"the prices prove {bound:.12g} of a level, {certificate.linear_bound:.12g} is claimed")
        if bound > value + slack + rounding:
            problems.append(f"the prices prove {bound:.12g}, above the value {value:.12g}: they are wrong")
        # Placements as good as the certified one at the level use these columns alone.
        if level.floor == 0.0 and value <= 0.0:
            is_open &= level.cost <= 0.0
        elif certificate.prices is not None:
            is_open &= reduced <= max(0.0, certificate.value - bound) + rounding
    return Verification(values=tuple(values), bounds=tuple(bounds), problems=tuple(problems))


def broken_limits(problem: PlacementProblem, placement: Placement) -> Iterator[str]:
    """Yield each violated constraint in words: forbidden columns, jobs not placed exactly once, exceeded supplies."""
    column, count = placement.column, placement.count
    if not (problem.allowed[column] & (count >= 1)).all():
        yield f"column {column[~(problem.allowed[column] & (count >= 1))][0]} is not allowed"
    placed = np.zeros(len(problem.demand) + 1, dtype=np.int64)  # the last is for NOBODY
    for members in problem.members[column].T:
        np.add.at(placed, members, count)
    if (placed[:-1] != problem.demand).any():
        yield "jobs are not placed exactly once"
    host, taken = problem.host[column], count * problem.takes[column]
    starts = host != WAITS
    used = np.bincount(host[starts], weights=taken[starts], minlength=len(problem.supply))
    if (used > problem.supply).any():
        yield "more than the supply of a host is taken"
    if used[problem.is_empty].sum() > problem.max_devices:
        yield "more than the empty devices are taken"


def _reduced(problem: PlacementProblem, level: Level, levels: Sequence[Level], certificate: LevelCertificate) -> Floats:
    """Return float64[c]: the reduced cost of each column."""
    prices, cost = certificate.prices, level.cost.copy()
    if prices is None:
        return cost
    for place, price in zip(certificate.limited, prices.limits.tolist(), strict=True):
        cost -= price * levels[place].cost
    price_of_job = np.append(prices.jobs, 0.0)
    for members in problem.members.T:
        cost -= price_of_job[members]
    device = prices.hosts + np.where(problem.is_empty, prices.max_devices, 0.0)
    placed = problem.host != WAITS
    cost[placed] -= problem.takes[placed] * device[problem.host[placed]]
    return np.asarray(cost)


def _bound(
    problem: PlacementProblem,
    level: Level,
    levels: Sequence[Level],
    certificate: LevelCertificate,
    reduced: Floats,
) -> float:
    """Return the lower bound of a level, its floor without prices; `reduced` float64[c] is inf for excluded columns."""
    prices = certificate.prices
    if prices is None:
        return level.floor
    terms = _dual_terms(problem, certificate)
    waits = problem.host == WAITS
    negative = np.minimum(reduced, 0.0)
    terms += (problem.demand[problem.members[waits, 0]] * negative[waits]).tolist()
    worst = np.zeros(len(problem.supply))
    np.minimum.at(worst, problem.host[~waits], negative[~waits] / problem.takes[~waits])
    for place_of_cut, cut in enumerate(problem.cutoffs):
        device = float(prices.hosts[cut.host]) + (prices.max_devices if problem.is_empty[cut.host] else 0.0)
        own, earlier = level.bounds[place_of_cut], [levels[k].bounds[place_of_cut] for k in certificate.limited]
        for m in range(cut.listed_size + 1, cut.largest_size + 1):
            for a in range(len(own.classes)):
                least = m * _least_share(problem, prices, own, earlier, a, m)
                worst[cut.host] = min(worst[cut.host], least / cut.takes - device)
    if problem.patterns is not None:
        for host, least in _least_of_patterns(problem, level, levels, certificate):
            worst[host] = min(worst[host], least)
    terms += (problem.supply * worst).tolist()
    return max(math.fsum(terms), level.floor)


def _dual_terms(problem: PlacementProblem, certificate: LevelCertificate) -> list[float]:
    """Return the right-hand side of each row of the master problem times its price."""
    prices = certificate.prices
    if prices is None:
        return []
    limits = (limit * float(price) for limit, price in zip(certificate.limit_values, prices.limits, strict=True))
    jobs, hosts = problem.demand * prices.jobs, problem.supply * prices.hosts
    return [*jobs.tolist(), *hosts.tolist(), problem.max_devices * prices.max_devices, *limits]


def _least_of_patterns(
    problem: PlacementProblem, level: Level, levels: Sequence[Level], certificate: LevelCertificate
) -> Iterator[tuple[int, float]]:
    """Yield for each pattern its host, and the least reduced cost of its groups per unit of the host's supply."""
    patterns, prices = problem.patterns, certificate.prices
    assert patterns is not None
    assert prices is not None
    charges = [(1.0, level.patterns)]
    charges += [
        (-price, levels[k].patterns) for k, price in zip(certificate.limited, prices.limits.tolist(), strict=True)
    ]
    for row, kinds in enumerate(patterns.members.tolist()):
        places = [a for a, kind in enumerate(kinds) if kind != NO_KIND]
        choices = [[c for c, kind in enumerate(patterns.kind.tolist()) if kind == kinds[a]] for a in places]
        least = math.inf
        for group in itertools.product(*choices):
            if any(group.count(c) > int(patterns.demand[c]) for c in group):
                continue
            cost = -sum(float(prices.jobs[c]) for c in group)
            for share, costs in charges:
                assert costs is not None
                cost += share * float(costs.added[row])
                for a, c in zip(places, group, strict=True):
                    domain = int(patterns.domain[row])
                    cost += share * float(costs.base[domain, c] + costs.slope[domain, c] * patterns.excess[row, a])
            least = min(least, cost)
        host = int(patterns.host[row])
        device = float(prices.hosts[host]) + (prices.max_devices if problem.is_empty[host] else 0.0)
        yield host, least / int(patterns.takes[row]) - device


def _least_share(
    problem: PlacementProblem, prices: Prices, own: PairBound, earlier: Sequence[PairBound], a: int, m: int
) -> float:
    """Return a lower bound on one job's contribution to the reduced cost of a group of m jobs, by pairs or triples.

    Each job's cost, at its price before the reduction for unlisted groups, is spread evenly over its m - 1 pairs or
    over its triples; each pair or triple then belongs in equal parts to its members. The reduction is added to the
    job's cost.
    """
    eased = [0.0] * len(problem.demand) if prices.eased is None else prices.eased.tolist()
    limits = list(zip(earlier, prices.limits.tolist(), strict=True))

    def alone(place: int) -> float:
        job = int(own.classes[place])
        cost = float(own.alone[place]) - sum(price * float(limited.alone[place]) for limited, price in limits)
        return float(cost - float(prices.jobs[job]) - eased[job])

    def pair(one: int, other: int) -> float:
        cost = float(own.pair[one, other])
        if math.isinf(cost) or int(problem.demand[own.classes[other]]) - (one == other) < 1:
            return math.inf
        return cost - sum(float(price * limited.pair[one, other]) for limited, price in limits)

    places = range(len(own.classes))
    # 1. The m - 1 least of its pairs, as many with each class as there are jobs of it.
    shares = [
        (pair(a, b) + (alone(a) + alone(b)) / (m - 1)) / 2
        for b in places
        for _ in range(min(m - 1, int(problem.demand[own.classes[b]]) - (a == b)))
    ]
    by_pairs = sum(sorted(shares)[: m - 1]) if len(shares) >= m - 1 else math.inf
    # 2. As often as it is in a triple, the least of them.
    by_triples = -math.inf
    if m > 2 and by_pairs < math.inf:
        triples = math.comb(m - 1, 2)
        partners = [b for b in places if pair(a, b) < math.inf]
        by_triples = (
            triples
            / 3
            * min(
                (alone(a) + alone(b) + alone(c)) / triples + (pair(a, b) + pair(a, c) + pair(b, c)) / (m - 2)
                for b in partners
                for c in partners
            )
        )
    return max(by_pairs, by_triples) + eased[int(own.classes[a])]
