"""Values of re-pairing the running and waiting jobs of one device class, computed from predicted slowdowns.

A running job has the value weight · speed, where speed = 1 / slowdown. A move repeats `checkpoint_s` of work, and
`move_factor` (hysteresis) times that cost is spread over the expected duration of the new pair: the shorter expected
remaining time of the two jobs. So values and costs are both weighted speeds, and a move pays only if the gain in speed
over that duration exceeds the repeated work.
Law: a job that may not move stays on its device; a forbidden pair is never formed, but a running pair may stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.matching.rematching import ELSEWHERE, Arrangement, RematchingProblem

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RematchableJobs:
    """n jobs of one device class, running or waiting."""

    home: Ints  # int64[n]: index of the job's device; WAITS for a waiting job
    weight: Floats  # float64[n] > 0
    expected_s: Floats  # float64[n] > 0: expected remaining time alone
    checkpoint_s: Floats  # float64[n]: seconds of work that a move repeats
    may_move: Bools  # bool[n]; ignored for waiting jobs


def rematching_problem(
    jobs: RematchableJobs, slowdown: Floats, allowed: Bools, *, devices: int, move_factor: float
) -> RematchingProblem:
    """Return the rematching problem on `devices` devices, devices with residents first.

    `slowdown` float64[n, n]: of i beside j, NaN where unknown; `allowed` bool[n, n], symmetric: whether the two jobs
    may be put on one device. Jobs that share a device already may stay together in any case.
    """
    shared_s = np.minimum(jobs.expected_s[:, None], jobs.expected_s[None, :])  # diagonal: a job alone
    speed = jobs.weight[:, None] / np.fmax(np.nan_to_num(slowdown, nan=1.0), 1.0)
    pair = speed + speed.T
    together = (jobs.home[:, None] == jobs.home[None, :]) & (jobs.home >= 0)[:, None]
    lost = move_factor * jobs.weight * jobs.checkpoint_s
    move = np.where(jobs.may_move[:, None], lost[:, None] / shared_s, np.inf)
    return RematchingProblem(
        home=jobs.home,
        alone=jobs.weight.astype(np.float64),
        pair=np.where((allowed & ~np.isnan(slowdown + slowdown.T)) | together, pair, -np.inf),
        move=move,
        stop=np.full(len(jobs.home), np.inf),
        devices=devices,
    )


def destinations(problem: RematchingProblem, arrangement: Arrangement, device_ids: Sequence[str]) -> dict[int, str]:
    """Return the device id of every job that starts or moves, in start order, once all leaving jobs have left.

    `device_ids`: the m devices in the order in which homes are numbered, devices with residents first. Groups without a
    home device get devices that no group keeps.
    """
    groups = list(arrangement.groups())
    taken = {place for _, _, place in groups}
    vacant = [device_id for k, device_id in enumerate(device_ids) if k not in taken]
    device_of: dict[int, str] = {}
    for i, j, place in groups:
        device_id = vacant.pop(0) if place == ELSEWHERE else device_ids[place]
        for member in dict.fromkeys((i, j)):
            if place == ELSEWHERE or problem.home[member] != place:
                device_of[member] = device_id
    return device_of
