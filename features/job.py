"""The row of one job: activity, kernels, occupancy, counters, memory, roofline on its device, sharing mode."""

import numpy as np
from numpy.typing import NDArray

from interfere.features import activity, counters, kernels, memory, roofline
from interfere.features import occupancy as geometry
from interfere.records import JobProfile
from interfere.sharing_modes import SharingMode

# The columns of sharing modes belong to the fingerprint, which models are trained with. A mode that was added later has
# zeros in all of them: a code of its own as long as there is one such mode, now `spatial`.
ENCODED_MODES = tuple(mode for mode in SharingMode if mode.properties.has_model_column)
COLUMNS: tuple[str, ...] = (
    *activity.COLUMNS,
    *kernels.COLUMNS,
    *geometry.COLUMNS,
    *counters.COLUMNS,
    *memory.COLUMNS,
    *roofline.COLUMNS,
    *(f"mode_{mode}" for mode in ENCODED_MODES),
)


def encode(profile: JobProfile, device_type: str, mode: SharingMode) -> NDArray[np.float32]:
    """Encode a profile as if it ran on this device type and mode: float32[F], the values of `COLUMNS`.

    All values are computed in float64 and cast once, at the end. Absent facts are NaN.
    """
    row = (
        *activity.encode(profile),
        *kernels.encode(profile),
        *geometry.encode(profile, device_type),
        *counters.encode(profile),
        *memory.encode(profile, device_type),
        *roofline.encode(profile, device_type),
        *(float(mode == sharing_mode) for sharing_mode in ENCODED_MODES),
    )
    return np.array(row, dtype=np.float64).astype(np.float32)


# Columns that a site can fill without profiling: step times and monitoring. No kernels, no FLOPs, no static trace.
UTILISATION_COLUMNS = frozenset(
    (
        "log_step_time_s",
        "step_time_cv",
        *counters.COLUMNS,
        "log_memory_peak_mib",
        "memory_peak_device_frac",
        *(f"mode_{mode}" for mode in ENCODED_MODES),
    )
)
