"""Rounding of a linear solution: some columns are fixed, and the residual problem of the other jobs is solved."""

from dataclasses import replace

import numpy as np

from interfere.matching.formulation import BEST_PER_JOB, best_of_each
from interfere.matching.problem import (
    NOBODY,
    WAITS,
    Bools,
    Floats,
    Ints,
    Level,
    Placement,
    PlacementProblem,
)
from interfere.matching.programs import Restriction, solve_integer_program
from interfere.time_budget import TimeBudget

MAX_COLUMNS, MAX_NODES = 1_000, 20  # of the residual integer program: columns, and nodes of its search tree
MAX_RANKED = 100_000  # columns of least reduced cost among which the best of each host and job are looked for
LARGE_SHARE = 0.5  # fractional part from which a column is fixed in full


def best_columns(problem: PlacementProblem, reduced: Floats, limit: float, per_class: int = BEST_PER_JOB) -> Ints:
    """Return columns of reduced cost below `limit`: the best few of each host and `per_class` of each job class."""
    negative = np.flatnonzero(reduced < limit)
    if len(negative) > MAX_RANKED:
        negative = negative[np.argpartition(reduced[negative], MAX_RANKED)[:MAX_RANKED]]
    order = negative[np.argsort(reduced[negative], kind="stable")]
    return np.asarray(order[best_of_each(problem.host[order], problem.members[order], per_class)])


def with_largest_shares(problem: PlacementProblem, kept: Ints, columns: Ints, x: Floats) -> Ints:
    """Return int64[c]: the fixed counts, plus one for columns of large fractional part in `x` if supply allows."""
    counts = kept.copy()
    part = x - np.floor(x + 1e-6)
    for place in np.argsort(-part, kind="stable")[: max(1, int((part >= LARGE_SHARE).sum()))].tolist():
        counts[columns[place]] += 1
        rest, _ = residual_problem(problem, counts, Restriction.none(problem))
        if min(rest.demand.min(), rest.supply.min(), rest.max_devices) < 0:
            counts[columns[place]] -= 1
    return counts


def residual_problem(
    problem: PlacementProblem, kept: Ints, restriction: Restriction
) -> tuple[PlacementProblem, tuple[tuple[Level, float], ...]]:
    """Return the problem left after fixing column counts `kept`, and the limits on level sums that remain."""
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


def possible_columns(problem: PlacementProblem) -> Bools:
    """Return bool[c]: whether enough supply is left for each column; jobs of equal class are counted once."""
    left = np.append(problem.demand > 0, True)[problem.members].all(axis=1)
    host = np.append(problem.supply, np.iinfo(np.int64).max)[problem.host]
    limit = np.where(np.append(problem.is_empty, False)[problem.host], problem.max_devices, np.iinfo(np.int64).max)
    return np.asarray(left & (problem.takes <= np.minimum(host, limit)))


def rounded_columns(
    problem: PlacementProblem,
    level: Level,
    restriction: Restriction,
    columns: Ints,
    x: Floats,
    reduced: Floats,
    *,
    scale: float,
    budget: TimeBudget,
) -> Placement | None:
    """Return the integer part of a linear solution `x`, completed by an integer program over the residual problem.

    `reduced` float64[c]: the reduced cost of every column, inf for forbidden ones. None where no placement was found.
    """
    kept = np.zeros(len(problem.host), dtype=np.int64)
    kept[columns] = np.floor(x + 1e-6).astype(np.int64)
    residual, limits = residual_problem(problem, kept, restriction)
    possible = possible_columns(residual)
    near, used = np.flatnonzero(possible & np.isfinite(reduced)), columns[x > 1e-9]
    near = near[np.argsort(reduced[near], kind="stable")[:MAX_COLUMNS]]
    waits = np.flatnonzero((problem.host == WAITS) & restriction.allowed)
    placement, _ = solve_integer_program(
        residual,
        level,
        replace(restriction, limits=limits),
        np.unique(np.concatenate([near, used[possible[used]], waits])),
        scale=scale,
        budget=budget,
        start=Placement.of_counts(np.zeros(0, dtype=np.int64)),
        max_nodes=MAX_NODES,
    )
    if placement is None:
        return None
    kept[placement.column] += placement.count
    return Placement.of_counts(kept)
