"""What it costs that jobs occupy a device: money or energy by the second, until the last of them ends.

Two jobs that share pay for the device once. Slowed down s times the first to end does so after runtime · s; by then the
other has done its share, and goes on alone. Beside a resident only the time counts by which the device is occupied
longer than without the guest. A gang pays for each of its devices. Pure arrays.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from interfere.policy.costs.objectives import Objective
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.runtime import pair_end_s

if TYPE_CHECKING:
    from interfere.policy.costs.pair_predictions import PairPredictions

Floats = NDArray[np.float64]


def occupied_s(row_s: Floats, column_s: Floats, row_slowdown: Floats, column_slowdown: Floats) -> Floats:
    """float64[r, c]: until both have ended, from run times alone float64[r, 1], float64[1, c], and slowdowns."""
    row_end_s = pair_end_s(row_s, column_s, row_slowdown, column_slowdown)
    return np.maximum(row_end_s, pair_end_s(column_s, row_s, column_slowdown, row_slowdown))


def solo_occupancy_costs(jobs: JobsOnClass, objective: Objective) -> Floats:
    """float64[n]: what each job costs alone on its device; 0 where occupancy has no price."""
    if not objective.prices_occupancy:
        return np.zeros(len(jobs.jobs))
    return np.asarray(_price(jobs, objective) * _runtimes_s(jobs))


def pair_occupancy_costs(
    rows: JobsOnClass, columns: JobsOnClass, predictions: "PairPredictions", objective: Objective, *, running: bool
) -> Floats:
    """float64[r, c]: what each pair costs on one device; of columns that are `running` only what the guest adds."""
    row_s, column_s = _runtimes_s(rows)[:, None], _runtimes_s(columns)[None, :]
    both_s = occupied_s(row_s, column_s, predictions.row_slowdown, predictions.column_slowdown)
    return np.asarray(_price(rows, objective)[:, None] * (both_s - column_s if running else both_s))


def _price(jobs: JobsOnClass, objective: Objective) -> Floats:
    """float64[n]: of one second for which the devices of each job are occupied."""
    gpus = np.array([job.gpus for job in jobs.jobs], dtype=np.float64)
    return np.asarray(gpus * objective.occupancy_price(jobs.device_class.price_per_hour, jobs.device_class.power_w))


def _runtimes_s(jobs: JobsOnClass) -> Floats:
    """float64[n]: expected seconds to the end of each job alone there."""
    remaining_s = np.array([job.remaining_s for job in jobs.jobs], dtype=np.float64)
    return np.asarray(remaining_s * jobs.relative_times)
