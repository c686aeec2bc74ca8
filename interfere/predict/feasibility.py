"""The probability that two jobs fit in one device's memory, from their peak memory and from pairs that did or did not
fit.

With x = log((peak_i + peak_j) / capacity) and one effect per workload (0 for an unknown one)

    P(fit) = 1 / (1 + exp(-(level + slope · x + effect[i] + effect[j]))),   slope ≤ 0

so more memory never makes a pair more likely to fit. If no observed pair failed to fit, no model is fitted: the
probability is then 1 up to the capacity and 0 above the capacity. A report of more memory than a device has is no use
of memory: it would keep the workload from being placed.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.devices import find_device_type
from interfere.devices.gpus import GIB
from interfere.records import MemoryUsage
from interfere.reports.numbers import format_gib

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# For device types whose memory is not known: the largest accelerators have 0.3 TiB, a host of CPU cores a few TiB.
MAX_USAGE_BYTES = 8 * 1024 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasibility:
    """The logistic model of the module's formula, fitted on pairs that did and did not fit."""

    level: float
    slope: float  # at most 0
    effect: Floats  # float64[N + 1], by identity of the workload; 0 is an unknown one

    def probability(self, share: Floats, victim: Ints, neighbour: Ints) -> Floats:
        """Return P(fit) elementwise for jobs whose peaks sum to `share` of the capacity; NaN where the share is NaN.

        `victim` and `neighbour` are the identities of the workloads.
        """
        with np.errstate(divide="ignore"):
            x = np.log(share)
        score = self.level + self.slope * x + (self.effect[victim] + self.effect[neighbour])
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(score, -500.0, 500.0))))


def fits_by_peak_sum(share: Floats) -> Floats:
    """Return elementwise 1 where the peaks fit the capacity (`share` ≤ 1), 0 where not, NaN where the share is NaN."""
    return np.where(np.isnan(share), np.nan, (share <= 1.0).astype(np.float64))


def impossible_usage(usage: MemoryUsage) -> str:
    """Return why a memory report cannot be true and what to do about it; "" for a plausible report."""
    known = find_device_type(usage.device_type).memory_bytes
    limit = MAX_USAGE_BYTES if math.isnan(known) else known
    if usage.bytes <= limit:
        return ""
    sizes = f"{format_gib(usage.bytes)} exceed the {format_gib(limit)} of a {usage.device_type}"
    return f"{sizes}: send bytes, of one device"
