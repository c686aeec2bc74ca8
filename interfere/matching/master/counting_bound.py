"""A bound on the weight that waits, from how many jobs the devices and seats can take at most.

Every empty device takes at most two jobs, every seat one. With a price d of a device, d/2 of a place on it, a job of
size g pays at most the g·d/2 of its places, and no more than waiting costs it:

    Σ demand_i · min(wait_i, g_i d/2)  -  d · devices  -  Σ seats_r · g_r d/2

bounds the cost of waiting for every d ≥ 0. It is concave in d and linear between the values 2 wait_i / g_i.
"""

import numpy as np

from interfere.matching.master.pricing import Prices
from interfere.matching.master.problem import Floats, Level, PlacementProblem


def counting_prices(problem: PlacementProblem, level: Level, n_limits: int) -> Prices:
    """The prices of the best such bound, for a level at which only waiting costs anything."""
    demand = np.concatenate([block.demand for block in problem.blocks]).astype(np.float64)
    wait = np.concatenate(
        [
            np.where(block.wait_allowed, costs.wait, np.inf)
            for block, costs in zip(problem.blocks, level.costs, strict=True)
        ]
    )
    size = np.concatenate([np.full(len(block.demand), block.size) for block in problem.blocks])
    places = 2.0 * min(problem.max_devices, int(problem.capacity.sum()))
    places += sum(block.size * float(block.seats.sum()) for block in problem.blocks)
    # 1. The price of a place: where the jobs that pay for more, by size, are as many places as there are.
    threshold = np.where(np.isfinite(wait), wait / size, np.inf)
    order = np.argsort(-threshold, kind="stable")
    taken = np.cumsum((demand * size)[order])
    beyond = int(np.searchsorted(taken, places, side="right"))
    place_price = float(threshold[order[beyond]]) if beyond < len(order) else 0.0
    if not np.isfinite(place_price):
        place_price = 0.0
    # 2. Prices of the rows.
    jobs, first = [], 0
    for block in problem.blocks:
        last = first + len(block.demand)
        jobs.append(np.minimum(wait[first:last], block.size * place_price))
        first = last
    limited = problem.max_devices < int(problem.capacity.sum())
    return Prices(
        jobs=tuple(jobs),
        capacity=_constant(len(problem.capacity), 0.0 if limited else -2.0 * place_price),
        max_devices=-2.0 * place_price if limited else 0.0,
        seats=tuple(_constant(len(block.seats), -block.size * place_price) for block in problem.blocks),
        limits=np.zeros(n_limits),
    )


def _constant(n: int, value: float) -> Floats:
    return np.full(n, value, dtype=np.float64)
