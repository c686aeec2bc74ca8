"""The columns that a first linear program starts with, and the placement that is always possible."""

from dataclasses import replace

import numpy as np

from interfere.matching.master.problem import Block, BlockCosts, ColumnKind, Columns, Level, Placement, PlacementProblem

SEED_PER_JOB = 5  # seats and pairs of each job on each resource


def all_waiting(problem: PlacementProblem) -> Placement:
    """The placement in which every job waits."""
    parts, counts = [], []
    for b, block in enumerate(problem.blocks):
        at = np.flatnonzero(block.demand > 0)
        parts.append(Columns.of(b, ColumnKind.WAIT, 0, at))
        counts.append(block.demand[at])
    return Placement(columns=Columns.concatenate(parts), count=np.concatenate([np.zeros(0, dtype=np.int64), *counts]))


def seed_columns(problem: PlacementProblem, level: Level) -> Columns:
    """Waiting and alone, and the cheapest few seats and pairs of each job at a level."""
    free = [replace_infinite(block, costs) for block, costs in zip(problem.blocks, level.costs, strict=True)]
    parts = []
    for b, costs in enumerate(free):
        block = problem.blocks[b]
        parts.append(Columns.of(b, ColumnKind.WAIT, 0, np.flatnonzero(block.wait_allowed)))
        t, i = np.nonzero(block.solo_allowed)
        parts.append(Columns.of(b, ColumnKind.SOLO, t, i))
        i, r = _cheapest(costs.seat)
        parts.append(Columns.of(b, ColumnKind.SEAT, r, i))
        for t_index, pair in enumerate(costs.pair):
            i, j = _cheapest(pair)
            parts.append(Columns.of(b, ColumnKind.PAIR, t_index, np.minimum(i, j), np.maximum(i, j)))
    seed = Columns.concatenate(parts)
    return seed.take(np.sort(np.unique(seed.keys(), return_index=True)[1]))


def replace_infinite(block: Block, costs: BlockCosts) -> BlockCosts:
    """The costs of seats and pairs, inf where they are not allowed."""
    return replace(
        costs,
        pair=np.where(block.pair_allowed, costs.pair, np.inf),
        seat=np.where(block.seat_allowed, costs.seat, np.inf),
    )


def _cheapest(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of the `SEED_PER_JOB` cheapest finite cells of each row."""
    if costs.shape[1] > SEED_PER_JOB:
        best = np.argpartition(costs, SEED_PER_JOB, axis=1)[:, :SEED_PER_JOB]
    else:
        best = np.broadcast_to(np.arange(costs.shape[1]), costs.shape)
    i = np.repeat(np.arange(len(costs)), best.shape[1])
    j = best.ravel()
    finite = np.isfinite(costs[i, j])
    return i[finite], j[finite]
