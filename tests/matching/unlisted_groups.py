"""Prices of groups that are no columns, one by one: no group on any host may cost less than the prices it pays.

Then a bound that is right on the columns (`interfere.matching.verify`) holds for all groups.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

from interfere.matching.patterns import NO_KIND
from interfere.matching.problem import Level, PairBound, PlacementProblem, Prices
from interfere.matching.search import LevelCertificate

EQUAL = 1e-9


def underpriced_groups(
    problem: PlacementProblem, levels: Sequence[Level], certificates: Sequence[LevelCertificate]
) -> list[tuple[int, int, float]]:
    """Return (level, host, reduced cost) of every host with an unlisted group of negative reduced cost."""
    found = []
    for k, (level, certificate) in enumerate(zip(levels, certificates, strict=True)):
        if certificate.prices is None:
            continue
        least = [*_least_of_cutoffs(problem, level, levels, certificate)]
        if problem.patterns is not None:
            least += _least_of_patterns(problem, level, levels, certificate)
        largest = max(map(abs, (*certificate.prices.jobs.tolist(), *certificate.prices.hosts.tolist())), default=0.0)
        found += [(k, host, reduced) for host, reduced in least if reduced < -EQUAL * max(1.0, largest)]
    return found


def _least_of_cutoffs(
    problem: PlacementProblem, level: Level, levels: Sequence[Level], certificate: LevelCertificate
) -> Iterator[tuple[int, float]]:
    """Yield for each cutoff its host, and the least reduced cost of an unlisted group per unit of supply, at least."""
    prices = certificate.prices
    assert prices is not None
    for place, cut in enumerate(problem.cutoffs):
        device = float(prices.hosts[cut.host]) + (prices.max_devices if problem.is_empty[cut.host] else 0.0)
        own, earlier = level.bounds[place], [levels[k].bounds[place] for k in certificate.limited]
        for m in range(cut.listed_size + 1, cut.largest_size + 1):
            for a in range(len(own.classes)):
                yield cut.host, m * _least_share(problem, prices, own, earlier, a, m) / cut.takes - device


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
