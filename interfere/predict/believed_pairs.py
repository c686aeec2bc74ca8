"""Intervals of pairs of which something is believed pair by pair: where few pairs of some jobs were measured.

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
ARRAYS = {name: f"believed_{name}" for name in ("place", "levels", "shifts")}  # names in `arrays.npz`


@dataclass(frozen=True, slots=True, kw_only=True)
class BelievedPairs:
    """Residuals of believed pairs. `S` believed jobs, `D` domains, `N` workloads, `q` levels."""

    place: Ints  # int64[N + 1]: place of each identity among the believed jobs, from 1; 0: none
    levels: Floats  # float64[q], ascending
    shifts: Floats  # float64[D + 1, S + 1, S + 1, q]: log residual of victim beside neighbour; NaN: not believed

    def quantiles(self, levels: tuple[float, ...], domain: int, victim: Ints, neighbour: Ints) -> tuple[Floats, ...]:
        """The log residual of pairs of identities at each level, NaN where a pair is not believed.

        Linear between the stored levels, constant beyond them.
        """
        shifts = self.shifts[domain, self.place[victim], self.place[neighbour]]
        return tuple(self._at(level, shifts) for level in levels)

    def _at(self, level: float, shifts: Floats) -> Floats:
        right = min(max(int(self.levels.searchsorted(level)), 1), len(self.levels) - 1)
        low, high = float(self.levels[right - 1]), float(self.levels[right])
        weight = min(max((level - low) / (high - low), 0.0), 1.0)
        return np.asarray((1.0 - weight) * shifts[..., right - 1] + weight * shifts[..., right])


def believed_arrays(believed: BelievedPairs | None) -> dict[str, NDArray[Any]]:
    """The arrays of a model folder, by name; none without believed pairs."""
    return {} if believed is None else {name: getattr(believed, field) for field, name in ARRAYS.items()}


def read_believed_pairs(arrays: Mapping[str, NDArray[Any]]) -> BelievedPairs | None:
    """Those of a model folder; None where it has none."""
    if not all(name in arrays for name in ARRAYS.values()):
        return None
    return BelievedPairs(**{field: arrays[name] for field, name in ARRAYS.items()})
