"""Correction of whole matrices: effects of jobs as sums of a row and a column, effects of pairs cell by cell."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.effects import Effects
from interfere.predict.online.prior import WorkloadKey

MAX_LOG_CORRECTION = math.log(3.0)  # beyond threefold, the model or the measurement is broken


def correct_matrix(
    effects: Effects,
    measured_neighbours: Mapping[WorkloadKey, set[str]],
    victims: list[WorkloadKey],
    neighbours: list[WorkloadKey],
    predicted: NDArray[np.float32],
    median: NDArray[np.float32],
    *,
    narrow: bool,
) -> NDArray[np.float32]:
    """float32[v, n]: a matrix of the wrapped model with what was learned of its jobs and pairs.

    `predicted`: the wanted quantile; `median`: the median that belongs to it. `measured_neighbours`: by victim, the
    neighbours beside which the wrapped model answers by a measurement. `narrow`: move the quantile nearer to the median
    as observations reduce the uncertainty.
    """
    log_median = np.log(median.astype(np.float64))
    # 1. Effects of jobs, which do not apply to measured pairs.
    measured = _measured_cells(measured_neighbours, victims, neighbours)
    correction = np.where(measured, 0.0, effects.job_corrections(victims, neighbours, log_median))
    sd_ratio = np.ones_like(correction)
    if narrow:
        sd_ratio = np.where(measured, 1.0, effects.job_sd_ratios(victims, neighbours, log_median))
    # 2. Effects of observed pairs.
    columns = indices_by_workload(neighbours)
    for i, victim in enumerate(victims):
        for workload in effects.observed_neighbours.get(victim, set()) & columns.keys():
            for j in columns[workload]:
                correction[i, j] += effects.pair_effect(victim, workload, log_median[i, j])
                if narrow:
                    sd_ratio[i, j] = effects.pair_sd_ratio(
                        victim, neighbours[j], log_median[i, j], measured=bool(measured[i, j])
                    )
    # 3. Move the median, and the quantile with it.
    factor = np.exp(np.clip(correction, -MAX_LOG_CORRECTION, MAX_LOG_CORRECTION))
    corrected: NDArray[np.float64] = median * factor * (predicted / median) ** sd_ratio
    return corrected.astype(np.float32)


def _measured_cells(
    measured_neighbours: Mapping[WorkloadKey, set[str]], victims: list[WorkloadKey], neighbours: list[WorkloadKey]
) -> NDArray[np.bool_]:
    """bool[v, n]: pairs that the wrapped model answers by a measurement."""
    measured = np.zeros((len(victims), len(neighbours)), dtype=bool)
    columns = indices_by_workload(neighbours)
    for i, victim in enumerate(victims):
        for workload in measured_neighbours.get(victim, set()) & columns.keys():
            measured[i, columns[workload]] = True
    return measured


def indices_by_workload(keys: Sequence[WorkloadKey]) -> dict[str, list[int]]:
    """Indices of the keys of each workload."""
    indices: dict[str, list[int]] = {}
    for k, (workload, _, _) in enumerate(keys):
        indices.setdefault(workload, []).append(k)
    return indices
