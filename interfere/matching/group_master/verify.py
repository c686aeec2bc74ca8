"""An independent check of a placement in groups and of the bounds that its prices prove, column by column.

It shares no code with the search. A bound that rests on an integer program is not proved by prices.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from interfere.matching.group_master.patterns import NO_KIND
from interfere.matching.group_master.problem import (
    NOBODY,
    WAITS,
    GroupLevel,
    GroupPlacement,
    GroupPrices,
    GroupProblem,
    PairBound,
)
from interfere.matching.group_master.search import GroupCertificate

EQUAL = 1e-9  # relative: sums of the same numbers in another order
REACH = 1e-9  # of the largest price: columns of a reduced cost up to this beyond the gap count as open


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupVerification:
    """Findings about a placement. `problems` is empty when everything that was claimed is true."""

    values: tuple[float, ...]
    bounds: tuple[float, ...]  # that the prices prove of each level
    problems: tuple[str, ...]


def verify_group_levels(
    problem: GroupProblem,
    levels: Sequence[GroupLevel],
    placement: GroupPlacement,
    certificates: Sequence[GroupCertificate],
) -> GroupVerification:
    """Check that a placement is allowed, what each level comes to, and which bounds the prices prove."""
    problems = list(_broken_limits(problem, placement))
    chosen = list(zip(placement.column.tolist(), placement.count.tolist(), strict=True))
    open_columns = [c for c in range(len(problem.host)) if problem.allowed[c]]
    values, bounds = [], []
    for level, certificate in zip(levels, certificates, strict=True):
        value = sum(float(level.cost[c]) * count for c, count in chosen)
        slack = EQUAL * max(1e-300, abs(value))
        values.append(value)
        reduced = {c: _reduced(problem, level, levels, certificate, c) for c in open_columns}
        bound = _bound(problem, level, levels, certificate, reduced)
        bounds.append(bound)
        if certificate.linear_bound > bound + slack:
            problems.append(f"the prices prove {bound:.12g} of a level, {certificate.linear_bound:.12g} is claimed")
        if bound > value + slack:
            problems.append(f"the prices prove {bound:.12g}, above the value {value:.12g}: they are wrong")
        if certificate.prices is not None:
            prices = certificate.prices
            largest = max(map(abs, (*prices.jobs.tolist(), *prices.hosts.tolist(), prices.max_devices)), default=0.0)
            gap = max(0.0, value - bound) + REACH * max(largest, 1e-300)
            open_columns = [c for c in open_columns if reduced[c] <= gap]
        elif level.floor == 0.0 and value <= 0.0:
            open_columns = [c for c in open_columns if level.cost[c] <= 0.0]
    return GroupVerification(values=tuple(values), bounds=tuple(bounds), problems=tuple(problems))


def _broken_limits(problem: GroupProblem, placement: GroupPlacement) -> Iterator[str]:
    placed, taken, on_empty = [0] * len(problem.demand), [0] * len(problem.supply), 0
    for c, count in zip(placement.column.tolist(), placement.count.tolist(), strict=True):
        if not problem.allowed[c] or count < 1:
            yield f"column {c} is not allowed"
        for job in problem.members[c].tolist():
            if job != NOBODY:
                placed[job] += count
        host = int(problem.host[c])
        if host != WAITS:
            taken[host] += count * int(problem.takes[c])
            on_empty += count * int(problem.takes[c]) if problem.is_empty[host] else 0
    if placed != problem.demand.tolist():
        yield "jobs are not placed exactly once"
    if any(used > there for used, there in zip(taken, problem.supply.tolist(), strict=True)):
        yield "more than the supply of a host is taken"
    if on_empty > problem.max_devices:
        yield "more than the empty devices are taken"


def _reduced(
    problem: GroupProblem, level: GroupLevel, levels: Sequence[GroupLevel], certificate: GroupCertificate, c: int
) -> float:
    """What a column costs beyond its prices."""
    prices, cost = certificate.prices, float(level.cost[c])
    if prices is None:
        return cost
    for place, price in zip(certificate.limited, prices.limits.tolist(), strict=True):
        cost -= price * float(levels[place].cost[c])
    cost -= sum(float(prices.jobs[job]) for job in problem.members[c].tolist() if job != NOBODY)
    host = int(problem.host[c])
    if host != WAITS:
        device = float(prices.hosts[host]) + (prices.max_devices if problem.is_empty[host] else 0.0)
        cost -= int(problem.takes[c]) * device
    return cost


def _bound(
    problem: GroupProblem,
    level: GroupLevel,
    levels: Sequence[GroupLevel],
    certificate: GroupCertificate,
    reduced: dict[int, float],
) -> float:
    """The bound of a level; its floor without prices."""
    prices = certificate.prices
    if prices is None:
        return level.floor
    bound = sum(int(n) * float(y) for n, y in zip(problem.demand, prices.jobs, strict=True))
    bound += sum(int(n) * float(v) for n, v in zip(problem.supply, prices.hosts, strict=True))
    bound += problem.max_devices * prices.max_devices
    bound += sum(limit * float(price) for limit, price in zip(certificate.limit_values, prices.limits, strict=True))
    worst = [0.0] * len(problem.supply)
    for c, value in reduced.items():
        host = int(problem.host[c])
        if host == WAITS:
            bound += int(problem.demand[problem.members[c, 0]]) * min(0.0, value)
        else:
            worst[host] = min(worst[host], value / int(problem.takes[c]))
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
    bound += sum(int(n) * least for n, least in zip(problem.supply, worst, strict=True))
    return max(bound, level.floor)


def _least_of_patterns(
    problem: GroupProblem, level: GroupLevel, levels: Sequence[GroupLevel], certificate: GroupCertificate
) -> Iterator[tuple[int, float]]:
    """The host of each pattern, and the least reduced cost of a group of it in units of the supply, one by one."""
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
    problem: GroupProblem, prices: GroupPrices, own: PairBound, earlier: Sequence[PairBound], a: int, m: int
) -> float:
    """What one job adds at least to the reduced cost of a group of m, by the pairs or the triples that it is in.

    The cost of each job, at its price before it was eased, is spread evenly over its m - 1 pairs or its triples; a
    pair or a triple then belongs in equal parts to its members. By what it was eased a job costs more itself.
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
