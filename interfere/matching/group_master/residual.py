"""What a linear solution leaves when some of its columns are kept whole: the rest of the problem."""

from dataclasses import replace

import numpy as np

from interfere.matching.group_master.formulation import best_of_each
from interfere.matching.group_master.problem import (
    NOBODY,
    WAITS,
    Bools,
    Floats,
    GroupLevel,
    GroupProblem,
    Ints,
)
from interfere.matching.group_master.programs import GroupRestriction

LARGE_SHARE = 0.5  # of a column in a linear solution over patterns: it is kept as a whole


def best_columns(problem: GroupProblem, reduced: Floats, limit: float) -> Ints:
    """The columns below the limit that are the best few of their host, or of one of their jobs."""
    negative = np.flatnonzero(reduced < limit)
    order = negative[np.argsort(reduced[negative], kind="stable")]
    return np.asarray(order[best_of_each(problem.host[order], problem.members[order])])


def with_largest_shares(problem: GroupProblem, kept: Ints, columns: Ints, x: Floats) -> Ints:
    """int64[c]: the kept columns, and each that a linear solution has half of at least, if there is room."""
    counts = kept.copy()
    part = x - np.floor(x + 1e-6)
    for place in np.argsort(-part, kind="stable")[: int((part >= LARGE_SHARE).sum())].tolist():
        counts[columns[place]] += 1
        rest, _ = residual_problem(problem, counts, GroupRestriction.none(problem))
        if min(rest.demand.min(), rest.supply.min(), rest.max_devices) < 0:
            counts[columns[place]] -= 1
    return counts


def residual_problem(
    problem: GroupProblem, kept: Ints, restriction: GroupRestriction
) -> tuple[GroupProblem, tuple[tuple[GroupLevel, float], ...]]:
    """The problem that kept columns leave."""
    column = np.flatnonzero(kept)
    count = kept[column]
    demand, supply = problem.demand.copy(), problem.supply.copy()
    members = problem.members[column]
    at = members != NOBODY
    np.subtract.at(demand, members[at], np.broadcast_to(count[:, None], members.shape)[at])
    placed = problem.host[column] != WAITS
    taken = (count * problem.takes[column])[placed]
    np.subtract.at(supply, problem.host[column][placed], taken)
    on_empty = int(taken[problem.is_empty[problem.host[column][placed]]].sum())
    limits = tuple((level, value - float(level.cost[column] @ count)) for level, value in restriction.limits)
    return replace(problem, demand=demand, supply=supply, max_devices=problem.max_devices - on_empty), limits


def possible_columns(problem: GroupProblem) -> Bools:
    """bool[c]: does the problem still have what each column takes? Several jobs of one class count as one."""
    left = np.append(problem.demand > 0, True)[problem.members].all(axis=1)
    host = np.append(problem.supply, np.iinfo(np.int64).max)[problem.host]
    limit = np.where(np.append(problem.is_empty, False)[problem.host], problem.max_devices, np.iinfo(np.int64).max)
    return np.asarray(left & (problem.takes <= np.minimum(host, limit)))
