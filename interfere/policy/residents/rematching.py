"""What re-pairing running and waiting jobs of one device class is worth: the columns' values from predictions.

A job that runs is worth its weight times its speed, 1 / slowdown. A move makes a job do `checkpoint_s` of work again:
`move_factor` times that (hysteresis) is spread over the time for which the new company is expected to last, the shorter
expected remaining time of the two. So values and costs are both weighted speeds, and a move pays only if it gains more
speed than its checkpoint takes, within that time.
Law: a job that may not move stays where it is, a pair that must not be made is not, but one that runs may stay.
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

    home: Ints  # int64[n]: number of the device that it is on; WAITS for a job that waits
    weight: Floats  # float64[n] > 0
    expected_s: Floats  # float64[n] > 0: expected remaining time alone
    checkpoint_s: Floats  # float64[n]: work that is lost when it moves
    may_move: Bools  # bool[n]; not read of jobs that wait


def rematching_problem(
    jobs: RematchableJobs, slowdown: Floats, allowed: Bools, *, devices: int, move_factor: float
) -> RematchingProblem:
    """Return the problem of `devices` devices, those with residents first.

    `slowdown` float64[n, n]: of i beside j, NaN where it is not known; `allowed` bool[n, n], symmetric: may the two be
    put on one device? Pairs that are on one device may stay there in any case.
    """
    shared_s = np.minimum(jobs.expected_s[:, None], jobs.expected_s[None, :])  # the diagonal is that of a job alone
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
    """Job -> device, of every job that starts or moves; the order in which they start, once all that leave have left.

    `device_ids`: of the m devices, those with residents first, as the homes are numbered. Groups that stay on no home
    take the devices that no group stays on.
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
