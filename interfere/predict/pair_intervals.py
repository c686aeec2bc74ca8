"""Intervals that each pair has of its own, among jobs of which few pairs were measured.

The numbers themselves are in the model's graphs. What a graph cannot say, how certain each pair is, stands in the model
folder: log residuals at some quantile levels for every ordered pair, in place of the quantiles over all pairs that
`predict.intervals` holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ARRAYS = {name: f"pair_interval_{name}" for name in ("place", "levels", "shifts")}  # names in `arrays.npz`


@dataclass(frozen=True, slots=True, kw_only=True)
class PairIntervals:
    """Residuals of the pairs of `S` jobs; `D` domains, `N` workloads, `q` levels."""

    place: Ints  # int64[N + 1]: place of each identity among these jobs, from 1; 0: none
    levels: Floats  # float64[q], ascending
    shifts: Floats  # float64[D + 1, S + 1, S + 1, q]: log residual of victim beside neighbour; NaN: none of its own

    def quantiles(self, levels: tuple[float, ...], domain: int, victim: Ints, neighbour: Ints) -> tuple[Floats, ...]:
        """The log residual of pairs of identities at each level, NaN where a pair has none of its own.

        Linear between the stored levels, constant beyond them.
        """
        shifts = self.shifts[domain, self.place[victim], self.place[neighbour]]
        return tuple(self._at(level, shifts) for level in levels)

    def _at(self, level: float, shifts: Floats) -> Floats:
        right = min(max(int(self.levels.searchsorted(level)), 1), len(self.levels) - 1)
        low, high = float(self.levels[right - 1]), float(self.levels[right])
        weight = min(max((level - low) / (high - low), 0.0), 1.0)
        return np.asarray((1.0 - weight) * shifts[..., right - 1] + weight * shifts[..., right])


def pair_interval_arrays(intervals: PairIntervals | None) -> dict[str, NDArray[Any]]:
    """The arrays of a model folder, by name; none where no pair has its own."""
    return {} if intervals is None else {name: getattr(intervals, field) for field, name in ARRAYS.items()}


def read_pair_intervals(arrays: Mapping[str, NDArray[Any]]) -> PairIntervals | None:
    """Those of a model folder; None where it has none."""
    if not all(name in arrays for name in ARRAYS.values()):
        return None
    return PairIntervals(**{field: arrays[name] for field, name in ARRAYS.items()})
