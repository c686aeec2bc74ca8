"""Independent verification of a placement and its dual lower bounds, column by column, without code of the search.

A bound that an integer program found cannot be verified by dual prices. Groups that are no columns (`cutoffs`,
`patterns`) are left out, because pricing all of them takes longer than the search: a bound that is wrong on the columns
is refuted, and the bound on the other groups is not confirmed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.matching.problem import (
    WAITS,
    Floats,
    Level,
    Placement,
    PlacementProblem,
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
        bound = _bound(problem, level, certificate, np.where(is_open, reduced, np.inf))
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


def _bound(problem: PlacementProblem, level: Level, certificate: LevelCertificate, reduced: Floats) -> float:
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
