"""How far a job's kernels fill the device: occupancy, multiprocessors, throughput, what bounds them; by time."""

import math
from collections.abc import Callable

from interfere.devices import find_device_type
from interfere.features.numeric import ratio
from interfere.records import JobProfile, KernelStat

COLUMNS = (
    "occupancy_time_frac",
    "sm_fill_time_frac",  # min(1, multiprocessors used / multiprocessors of the device)
    "compute_throughput_time_frac",
    "memory_throughput_time_frac",
    "compute_bound_time_frac",
)


def encode(profile: JobProfile, device_name: str) -> tuple[float, ...]:
    """Return how far a job's kernels fill a device, in the order of `COLUMNS`; NaN where no kernel has the fact."""
    multiprocessors = find_device_type(device_name).multiprocessors
    return (
        _time_mean(profile, lambda k: k.occupancy_frac),
        _time_mean(profile, lambda k: min(1.0, ratio(k.sm_used, multiprocessors)) if k.sm_used >= 0 else math.nan),
        _time_mean(profile, lambda k: k.compute_frac),
        _time_mean(profile, lambda k: k.memory_frac),
        _time_mean(profile, lambda k: k.compute_bound),
    )


def _time_mean(profile: JobProfile, fact: Callable[[KernelStat], float]) -> float:
    """Return the mean of a fact over the kernels that have it, weighted by the time spent in each."""
    weighted = [(k.mean_s * k.count, value) for k in profile.kernels if not math.isnan(value := fact(k))]
    return ratio(math.fsum(time_s * value for time_s, value in weighted), math.fsum(time_s for time_s, _ in weighted))
