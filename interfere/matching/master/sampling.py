"""First prices of a large problem, from the linear program of a third of its jobs, devices and seats.

The prices of a sample drawn at random are almost those of the whole; every other job gets what its cheapest start among
the sampled leaves it, every other seat what it is worth to the job that gains most. Columns of small reduced cost at
these prices are nearly all that the linear program needs: 3 rounds instead of 24 at 1,000 jobs that all differ.
"""

from collections.abc import Callable

import numpy as np

from interfere.matching.master.pricing import Prices
from interfere.matching.master.problem import Block, BlockCosts, Floats, Ints, Level, PlacementProblem

MIN_CLASSES = 300  # of jobs: a smaller problem is solved sooner than sampled
DIVISOR = 3

SolvePrices = Callable[[PlacementProblem, Level], Prices | None]


def sample_prices(problem: PlacementProblem, level: Level, solve: SolvePrices) -> Prices | None:
    """Prices for the whole problem from those that `solve` finds for a sample; None for a small problem."""
    if sum(len(block.demand) for block in problem.blocks) < MIN_CLASSES:
        return None
    rng = np.random.default_rng(sum(len(block.demand) for block in problem.blocks))
    jobs = [_drawn(rng, len(block.demand)) for block in problem.blocks]
    seats = [_drawn(rng, len(block.seats)) for block in problem.blocks]
    prices = solve(*_sample(problem, level, jobs, seats))
    return None if prices is None else _extended(problem, level, prices, jobs, seats)


def _drawn(rng: np.random.Generator, n: int) -> Ints:
    return np.sort(rng.permutation(n)[: -(-n // DIVISOR)]).astype(np.int64)


def _sample(
    problem: PlacementProblem, level: Level, jobs: list[Ints], seats: list[Ints]
) -> tuple[PlacementProblem, Level]:
    """The sampled jobs and seats, and as large a part of the devices."""
    blocks, costs = [], []
    for block, cost, i, r in zip(problem.blocks, level.costs, jobs, seats, strict=True):
        square = np.ix_(np.arange(len(problem.capacity)), i, i)
        blocks.append(
            Block(
                size=block.size,
                demand=block.demand[i],
                seats=block.seats[r],
                wait_allowed=np.ones(len(i), dtype=bool),
                solo_allowed=block.solo_allowed[:, i],
                pair_allowed=block.pair_allowed[square],
                seat_allowed=block.seat_allowed[np.ix_(i, r)],
            )
        )
        costs.append(
            BlockCosts(
                # A sample may need to let a job wait where the whole need not: at a cost above that of any start.
                wait=np.where(block.wait_allowed[i], cost.wait[i], 2.0 * float(np.abs(cost.pair).max(initial=1e-300))),
                solo=cost.solo[:, i],
                pair=cost.pair[square],
                seat=cost.seat[np.ix_(i, r)],
            )
        )
    whole = sum(int(block.demand.sum()) for block in problem.blocks)
    share = sum(int(block.demand.sum()) for block in blocks) / max(1, whole)
    sample = PlacementProblem(
        blocks=tuple(blocks),
        capacity=np.rint(problem.capacity * share).astype(np.int64),
        max_devices=round(problem.max_devices * share),
    )
    return sample, Level(costs=tuple(costs), floor=level.floor, is_waiting=level.is_waiting)


def _extended(problem: PlacementProblem, level: Level, prices: Prices, jobs: list[Ints], seats: list[Ints]) -> Prices:
    """The prices of the sample, and of all other jobs and seats what these leave them."""
    all_jobs, all_seats = [], []
    for b, (block, cost) in enumerate(zip(problem.blocks, level.costs, strict=True)):
        i, r, device = jobs[b], seats[b], block.size * (prices.capacity + prices.max_devices)
        y = np.where(block.wait_allowed, cost.wait, np.inf)
        y = np.minimum(y, _least(block.solo_allowed, cost.solo - device[:, None], axis=0))
        y = np.minimum(y, _least(block.seat_allowed[:, r], cost.seat[:, r] - prices.seats[b], axis=1))
        for t in range(len(problem.capacity)):
            left = cost.pair[t][:, i] - prices.jobs[b] - device[t]
            y = np.minimum(y, _least(block.pair_allowed[t][:, i], left, axis=1))
        y = np.where(np.isfinite(y), y, 0.0)
        y[i] = prices.jobs[b]
        v = np.minimum(0.0, _least(block.seat_allowed, cost.seat - y[:, None], axis=0))
        v[r] = prices.seats[b]
        all_jobs.append(y)
        all_seats.append(v)
    return Prices(
        jobs=tuple(all_jobs),
        capacity=prices.capacity,
        max_devices=prices.max_devices,
        seats=tuple(all_seats),
        limits=np.zeros(0),
    )


def _least(allowed: np.ndarray, values: Floats, axis: int) -> Floats:
    return np.asarray(np.min(values, axis=axis, where=allowed, initial=np.inf))
