"""Do two jobs fit one device's memory? A sum of known peaks, corrected by what was seen to fit and not to fit.

With x = log((peak_i + peak_j) / capacity) and one effect a workload (0 for an unknown one)

    P(fit) = 1 / (1 + exp(-(level + slope · x + effect[i] + effect[j]))),   slope ≤ 0

so more memory never makes a pair more likely to fit. A model that saw no misfit answers 1 up to capacity and 0 above.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasibility:
    """Fitted on pairs that did and did not fit."""

    level: float
    slope: float  # at most 0
    effect: Floats  # float64[N + 1], by identity

    def probability(self, share: Floats, victim: Ints, neighbour: Ints) -> Floats:
        """P(fit) for peaks that sum to `share` of the capacity, elementwise; NaN where that is unknown."""
        with np.errstate(divide="ignore"):
            x = np.log(share)
        score = self.level + self.slope * x + (self.effect[victim] + self.effect[neighbour])
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(score, -500.0, 500.0))))


def fits_by_sum(share: Floats) -> Floats:
    """1 where the peaks sum to at most the capacity, 0 where to more, NaN where that is unknown."""
    return np.where(np.isnan(share), np.nan, (share <= 1.0).astype(np.float64))
