"""One job's row: activity, kernels, geometry, counters, memory, roofline on its device, sharing mode."""

import numpy as np
from numpy.typing import NDArray

from features import activity, counters, geometry, kernels, memory, roofline
from interfere.records import MODES, JobProfile

COLUMNS: tuple[str, ...] = (
    *activity.COLUMNS,
    *kernels.COLUMNS,
    *geometry.COLUMNS,
    *counters.COLUMNS,
    *memory.COLUMNS,
    *roofline.COLUMNS,
    *(f"mode_{mode}" for mode in MODES),
)


def encode(profile: JobProfile, device_type: str, mode: str) -> NDArray[np.float32]:
    """float32[F]: values of `COLUMNS`, one cast at the end."""
    row = (
        *activity.encode(profile),
        *kernels.encode(profile),
        *geometry.encode(profile, device_type),
        *counters.encode(profile),
        *memory.encode(profile, device_type),
        *roofline.encode(profile, device_type),
        *(float(mode == known) for known in MODES),
    )
    return np.array(row, dtype=np.float64).astype(np.float32)


# What a site has that changes nothing: a step time and its monitoring. No kernels, no FLOPs, no static trace.
UTILISATION = frozenset(
    (
        "log_step_time_s",
        "step_time_cv",
        *counters.COLUMNS,
        "log_memory_peak_mib",
        "memory_peak_device_frac",
        *(f"mode_{mode}" for mode in MODES),
    )
)
