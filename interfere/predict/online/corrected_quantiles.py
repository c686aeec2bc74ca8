"""Corrections applied to predictions: the median moves, and the interval moves with it and changes its width.

With the median m, a quantile q of the wrapped model and the correction c of `pair_corrections`, the corrected quantile
is m · exp(c ± √((ratio · log(q / m))² + z² · extra)), where z is the standard normal quantile of the same level.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.online.pair_corrections import Corrections, indices_by_workload
from interfere.predict.online.prior import Floats, WorkloadKey

MAX_LOG_CORRECTION = math.log(20.0)  # beyond twentyfold, the model or the measurement is broken


def corrected_median(median: Floats, corrections: Corrections) -> Floats:
    """The medians times the exponential of their corrections."""
    corrected = median * np.exp(np.clip(corrections.mean, -MAX_LOG_CORRECTION, MAX_LOG_CORRECTION))
    return np.asarray(np.where(corrections.applies, corrected, median))


def corrected_quantile(quantile: Floats, median: Floats, corrections: Corrections, level: float) -> Floats:
    """The quantile at `level` that belongs to the corrected medians."""
    z = NormalDist().inv_cdf(level)
    log_ratio = corrections.sd_ratio * np.log(quantile / median)
    width = np.copysign(np.sqrt(log_ratio**2 + z * z * corrections.extra_var), z)
    corrected = corrected_median(median, corrections) * np.exp(width)
    return np.asarray(np.where(corrections.applies, corrected, quantile))


def corrected_matrix(
    predicted: NDArray[np.float32], median: NDArray[np.float32], corrections: Corrections, level: float
) -> NDArray[np.float32]:
    """Return float32[v, n]: the corrected quantile at `level` of the wrapped model.

    `median` is the median of the same prediction.
    """
    exact = median.astype(np.float64)
    if level == 0.5:
        return corrected_median(exact, corrections).astype(np.float32)
    return corrected_quantile(predicted.astype(np.float64), exact, corrections, level).astype(np.float32)


def measured_cells(
    measured_neighbours: Mapping[WorkloadKey, Any], victims: list[WorkloadKey], neighbours: list[WorkloadKey]
) -> NDArray[np.bool_]:
    """bool[v, n]: pairs that the wrapped model answers by a measurement."""
    measured = np.zeros((len(victims), len(neighbours)), dtype=bool)
    columns = indices_by_workload(neighbours)
    for i, victim in enumerate(victims):
        for workload in measured_neighbours.get(victim, set()) & columns.keys():
            measured[i, columns[workload]] = True
    return measured
