"""How a job's kernels fill the device: occupancy, multiprocessors, throughputs, what bounds them; weighted by time."""

import math
from collections.abc import Callable

from features.spec import ratio
from interfere.devices import find_device_type
from interfere.records import JobProfile, KernelStat

COLUMNS = (
    "occupancy_time_frac",
    "sm_fill_time_frac",  # min(1, multiprocessors filled / multiprocessors there are)
    "compute_throughput_time_frac",
    "memory_throughput_time_frac",
    "compute_bound_time_frac",
)


def encode(profile: JobProfile, device_name: str) -> tuple[float, ...]:
    """Values of `COLUMNS`; each over the kernels that have the fact, NaN where none has."""
    multiprocessors = find_device_type(device_name).multiprocessors
    return (
        _time_mean(profile, lambda k: k.occupancy_frac),
        _time_mean(profile, lambda k: min(1.0, ratio(k.sm_used, multiprocessors)) if k.sm_used >= 0 else math.nan),
        _time_mean(profile, lambda k: k.compute_frac),
        _time_mean(profile, lambda k: k.memory_frac),
        _time_mean(profile, lambda k: k.compute_bound),
    )


def _time_mean(profile: JobProfile, fact: Callable[[KernelStat], float]) -> float:
    known = [(k.mean_s * k.count, value) for k in profile.kernels if not math.isnan(value := fact(k))]
    return ratio(math.fsum(time_s * value for time_s, value in known), math.fsum(time_s for time_s, _ in known))
