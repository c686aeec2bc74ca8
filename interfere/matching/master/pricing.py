"""Prices of jobs, devices and seats, what every start costs beyond them, and the bound that they prove.

With prices y of the jobs, u ≤ 0 of the device classes, μ ≤ 0 of the device limit and v ≤ 0 of the seats, a start of
cost c has the reduced cost c less the prices of what it takes. Where no reduced cost is negative, the prices' value

    Σ demand·y + Σ capacity·u + max_devices·μ + Σ seats·v

bounds every placement from below; a negative reduced cost is charged to the jobs of the start, half to each of two.
Any prices give a bound: it does not depend on how they were found, nor how precisely.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from interfere.matching.master.problem import (
    BlockCosts,
    ColumnKind,
    Columns,
    Floats,
    Level,
    PlacementProblem,
)

BEST_PER_JOB = 3  # columns of each kind and device class that one pricing round adds for a job


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dual prices of the master problem's rows."""

    jobs: tuple[Floats, ...]  # float64[k] of each block
    capacity: Floats  # float64[t] ≤ 0 where the capacity is a limit, any sign where it has to be used up
    max_devices: float
    seats: tuple[Floats, ...]  # float64[r] of each block
    limits: Floats  # float64[m] ≤ 0: of limits on the sums of earlier levels

    @classmethod
    def of_rows(cls, problem: PlacementProblem, row_dual: Floats) -> "Prices":
        """From the duals of the rows, in the order of `PlacementProblem.row_offsets`, then of the level limits."""
        jobs, seats, capacity, n_rows = problem.row_offsets()
        t = len(problem.capacity)
        return cls(
            jobs=tuple(row_dual[a : a + len(b.demand)] for a, b in zip(jobs, problem.blocks, strict=True)),
            capacity=row_dual[capacity : capacity + t],
            max_devices=float(row_dual[capacity + t]),
            seats=tuple(row_dual[a : a + len(b.seats)] for a, b in zip(seats, problem.blocks, strict=True)),
            limits=row_dual[n_rows:],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReducedCosts:
    """Reduced costs of the starts of one block; inf where a start is not allowed."""

    wait: Floats  # float64[k]
    solo: Floats  # float64[t, k]
    pair: Floats  # float64[t, k, k]
    seat: Floats  # float64[k, r]


def reduced_costs(
    problem: PlacementProblem, level: Level, prices: Prices, limited: Sequence[Level] = ()
) -> tuple[BlockReducedCosts, ...]:
    """Reduced costs of every start at a level; `limited`: the earlier levels whose sums `prices.limits` price."""
    blocks = []
    for b, block in enumerate(problem.blocks):
        costs = _charged(
            level.costs[b], [(earlier.costs[b], x) for earlier, x in zip(limited, prices.limits, strict=True)]
        )
        y, device = prices.jobs[b], block.size * (prices.capacity + prices.max_devices)
        pair = costs.pair - (y[:, None] + y)
        pair -= device[:, None, None]
        blocks.append(
            BlockReducedCosts(
                wait=np.where(block.wait_allowed, costs.wait - y, np.inf),
                solo=np.where(block.solo_allowed, costs.solo - y - device[:, None], np.inf),
                pair=np.where(block.pair_allowed, pair, np.inf),
                seat=np.where(block.seat_allowed, costs.seat - y[:, None] - prices.seats[b], np.inf),
            )
        )
    return tuple(blocks)


def _charged(costs: BlockCosts, earlier: Sequence[tuple[BlockCosts, float]]) -> BlockCosts:
    """The costs less price × cost at each limited earlier level."""
    for other, price in earlier:
        if price:
            costs = BlockCosts(
                wait=costs.wait - price * other.wait,
                solo=costs.solo - price * other.solo,
                pair=costs.pair - price * other.pair,
                seat=costs.seat - price * other.seat,
            )
    return costs


def dual_bound(
    problem: PlacementProblem,
    prices: Prices,
    reduced: Sequence[BlockReducedCosts],
    limits: Floats,
) -> float:
    """The lower bound that the prices prove; `limits` float64[m]: what the sums of the limited levels may be."""
    value = float(problem.capacity @ prices.capacity) + problem.max_devices * prices.max_devices
    value += float(limits @ prices.limits)
    for block, y, v, costs in zip(problem.blocks, prices.jobs, prices.seats, reduced, strict=True):
        value += float(block.demand @ y) + float(block.seats @ v) + float(block.demand @ _violations(costs))
    return value


def _violations(costs: BlockReducedCosts) -> Floats:
    """float64[k] ≤ 0: the most negative share of a reduced cost that a job of each class can be charged."""
    worst = np.minimum(costs.wait, 0.0)
    np.minimum(worst, costs.solo.min(axis=0, initial=np.inf), out=worst)
    np.minimum(worst, costs.seat.min(axis=1, initial=np.inf), out=worst)
    np.minimum(worst, costs.pair.min(axis=(0, 2), initial=np.inf) / 2, out=worst)
    return np.asarray(worst)


def columns_up_to(
    reduced: Sequence[BlockReducedCosts], limit: float, best_per_job: int | None = None
) -> tuple[Columns, Floats]:
    """Every column whose reduced cost is at most `limit`, and these reduced costs.

    `best_per_job`: of the seats and pairs only that many of each job on each resource, the cheapest.
    """
    parts, values = [], []
    for b, costs in enumerate(reduced):
        for part, value in _block_columns(b, costs, limit, best_per_job):
            parts.append(part)
            values.append(value)
    return Columns.concatenate(parts), np.concatenate([np.zeros(0), *values])


def _block_columns(
    b: int, costs: BlockReducedCosts, limit: float, best_per_job: int | None
) -> Iterator[tuple[Columns, Floats]]:
    at = np.flatnonzero(costs.wait <= limit)
    yield Columns.of(b, ColumnKind.WAIT, 0, at), costs.wait[at]
    t, i = np.nonzero(costs.solo <= limit)
    yield Columns.of(b, ColumnKind.SOLO, t, i), costs.solo[t, i]
    i, r = _cells(costs.seat, limit, best_per_job)
    yield Columns.of(b, ColumnKind.SEAT, r, i), costs.seat[i, r]
    for t_index, pair in enumerate(costs.pair):
        i, j = _cells(pair, limit, best_per_job)
        first, second = np.minimum(i, j), np.maximum(i, j)
        keep = i <= j if best_per_job is None else _distinct(first, second, len(pair))
        first, second = first[keep], second[keep]
        yield Columns.of(b, ColumnKind.PAIR, t_index, first, second), pair[first, second]


def _cells(costs: Floats, limit: float, best_per_row: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the cells up to the limit; at most `best_per_row` in each row, the smallest."""
    if best_per_row is None or costs.shape[1] <= best_per_row:
        i, j = np.nonzero(costs <= limit)
        return i, j
    best = np.argpartition(costs, best_per_row, axis=1)[:, :best_per_row]
    i = np.repeat(np.arange(len(costs)), best_per_row)
    j = best.ravel()
    near = costs[i, j] <= limit
    return i[near], j[near]


def _distinct(first: np.ndarray, second: np.ndarray, k: int) -> np.ndarray:
    """Places of the first occurrence of each pair."""
    return np.unique(first * k + second, return_index=True)[1]


def prices_at_zero(problem: PlacementProblem, n_limits: int = 0) -> Prices:
    """No price for anything."""
    return Prices(
        jobs=tuple(np.zeros(len(block.demand)) for block in problem.blocks),
        capacity=np.zeros(len(problem.capacity)),
        max_devices=0.0,
        seats=tuple(np.zeros(len(block.seats)) for block in problem.blocks),
        limits=np.zeros(n_limits),
    )
