"""Pair-specific prediction intervals, for tables in which few of the possible pairs were measured.

The model's graphs give the predicted numbers. Their uncertainty is stored beside the graphs in the model folder: log
residuals at some quantile levels for every ordered pair, which replace the quantiles over all pairs of
`predict.intervals`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ARRAYS = {name: f"pair_interval_{name}" for name in ("place", "levels", "shifts")}  # names in `arrays.npz`


@dataclass(frozen=True, slots=True, kw_only=True)
class PairIntervals:
    """Log residuals of the pairs of `S` jobs; `D` domains, `N` workloads, `q` quantile levels."""

    place: Ints  # int64[N + 1]: 1-based index of each identity among the S jobs; 0 if it is not among them
    levels: Floats  # float64[q], ascending
    shifts: Floats  # float64[D + 1, S + 1, S + 1, q]: log residual of victim beside neighbour; NaN if the pair has none

    def quantiles(self, levels: Sequence[float], domain: int, victim: Ints, neighbour: Ints) -> Floats:
        """Return float64[L, *victim.shape]: the log residual of each pair of identities at each of L levels.

        A pair without residuals of its own is NaN.

        Values are linear between the stored levels and constant outside.
        """
        shifts = self.shifts[domain, self.place[victim], self.place[neighbour]]
        return np.array([self._at(level, shifts) for level in levels])

    def _at(self, level: float, shifts: Floats) -> Floats:
        right = min(max(int(self.levels.searchsorted(level)), 1), len(self.levels) - 1)
        low, high = float(self.levels[right - 1]), float(self.levels[right])
        weight = min(max((level - low) / (high - low), 0.0), 1.0)
        return np.asarray((1.0 - weight) * shifts[..., right - 1] + weight * shifts[..., right])


def pair_interval_arrays(intervals: PairIntervals | None) -> dict[str, NDArray[Any]]:
    """Return the arrays that store the intervals in a model folder, by name; empty where there are none."""
    return {} if intervals is None else {name: getattr(intervals, field) for field, name in ARRAYS.items()}


def read_pair_intervals(arrays: Mapping[str, NDArray[Any]]) -> PairIntervals | None:
    """Return the pair intervals of a model folder, or None where it has none."""
    if not all(name in arrays for name in ARRAYS.values()):
        return None
    return PairIntervals(**{field: arrays[name] for field, name in ARRAYS.items()})
