"""The greedy baseline: each job in the order of the queue takes the cheapest place that is left.

This is what a scheduler without matching would do; every plan states its cost beside the plan's own.
"""

from dataclasses import dataclass

import numpy as np

from interfere.policy.costs.candidates import Candidates, Start
from interfere.policy.device_class import DeviceClass


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyPlacement:
    """The starts of the greedy baseline and what they cost."""

    starts: tuple[Start, ...]
    cost: float  # sum over the starts
    largest_cost: float  # of a job that starts or runs
    waiting: int  # jobs


def place_greedily(candidates: Candidates) -> GreedyPlacement:
    """Each job takes an empty device while there is one, else the place beside a job that adds the least cost."""
    free_devices: dict[DeviceClass, list[int]] = {}
    for k, empty_class in reversed(list(enumerate(candidates.empty_classes))):
        free_devices.setdefault(empty_class, []).append(k)
    n = len(candidates.pending)
    seat_cost = candidates.seat_cost()
    join_cost = np.full((n, n), np.inf)  # float64[joiner, host]: beside a pending job that was started alone
    starts: dict[int, Start] = {}  # by first member
    devices_taken, waiting = 0, 0
    for i in range(n):
        # 1. An empty device of the first class that allows the job.
        device_class = _first_class(candidates, free_devices, i) if devices_taken < candidates.max_new_devices else None
        if device_class is not None:
            devices_taken += 1
            starts[i] = Start(members=(i,), device=free_devices[device_class].pop())
            solo_cost = candidates.solo_cost[device_class][i]
            join_cost[:, i] = candidates.pair_tables[device_class].cost[:, i] - solo_cost
            continue
        # 2. Beside a resident or a job started before, whichever adds less.
        seat = int(np.argmin(seat_cost[i])) if seat_cost.shape[1] else -1
        best_seat_cost = float(seat_cost[i, seat]) if seat >= 0 else np.inf
        host = int(np.argmin(join_cost[i]))
        if join_cost[i, host] < best_seat_cost:
            starts[host] = Start(members=(host, i), device=starts[host].device)
            join_cost[:, host] = np.inf
        elif np.isfinite(best_seat_cost):
            starts[i] = Start(members=(i,), seat=seat)
            seat_cost[:, seat] = np.inf
        else:
            waiting += 1
    placed = tuple(starts.values())
    costs = [candidates.cost_of(start) for start in placed]
    return GreedyPlacement(
        starts=placed,
        cost=float(sum(cost for cost, _ in costs)),
        largest_cost=max([candidates.resident_floor, *(largest for _, largest in costs)]),
        waiting=waiting,
    )


def _first_class(candidates: Candidates, free_devices: dict[DeviceClass, list[int]], i: int) -> DeviceClass | None:
    """The first device class with a free device on which job i may start alone."""
    for device_class in candidates.pair_tables:
        if free_devices[device_class] and np.isfinite(candidates.solo_cost[device_class][i]):
            return device_class
    return None
