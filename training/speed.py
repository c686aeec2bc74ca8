"""Speed under sharing, y = 1 / slowdown, in the clipped range in which models are scored and compared."""

import numpy as np
from numpy.typing import NDArray

MIN_SPEED, MAX_SPEED = 0.05, 1.6


def speed(log_slowdown: NDArray[np.float64]) -> NDArray[np.float64]:
    """y = 1/s of log slowdowns, clipped to [`MIN_SPEED`, `MAX_SPEED`] as in the published figures."""
    return np.clip(np.exp(-log_slowdown), MIN_SPEED, MAX_SPEED)
