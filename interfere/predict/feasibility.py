"""Do two jobs fit one device's memory? A sum of known peaks; silence where a number is absent."""

import numpy as np
from numpy.typing import NDArray


def fit_probability(
    victim_bytes: NDArray[np.float64], neighbour_bytes: NDArray[np.float64], device_bytes: float
) -> NDArray[np.float64]:
    """float64[p]: 1 where both peaks fit, 0 where they do not, NaN where a peak or the capacity is unknown."""
    total = victim_bytes + neighbour_bytes
    return np.where(np.isnan(total) | np.isnan(device_bytes), np.nan, (total <= device_bytes).astype(np.float64))
