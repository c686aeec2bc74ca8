"""One job's row: activity, kernels, memory, roofline on its device, sharing mode."""

import numpy as np
from numpy.typing import NDArray

from features import activity, kernels, memory, roofline
from interfere.records import MODES, JobProfile

COLUMNS: tuple[str, ...] = (
    *activity.COLUMNS,
    *kernels.COLUMNS,
    *memory.COLUMNS,
    *roofline.COLUMNS,
    *(f"mode_{mode}" for mode in MODES),
)


def encode(profile: JobProfile, device_type: str, mode: str) -> NDArray[np.float32]:
    """float32[F]: values of `COLUMNS`, one cast at the end."""
    row = (
        *activity.encode(profile),
        *kernels.encode(profile),
        *memory.encode(profile),
        *roofline.encode(profile, device_type),
        *(float(mode == known) for known in MODES),
    )
    return np.array(row, dtype=np.float64).astype(np.float32)
