"""Predicts the slowdown of pairs that were not measured from those that were: one effect a victim, one a neighbour.

Log slowdowns are a Gaussian process: variance shared by rows of one victim, by rows of one neighbour, and of the pair
alone. A pair of which neither side was measured is unknown, and so is everything where fewer than three rows are.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.monitoring.audit.slowdowns import SlowdownEstimate

Floats = NDArray[np.float64]
Texts = NDArray[np.str_]

MIN_ROWS = 3
MAX_ROWS = 1000  # the surest: the work grows with their cube, and effects of one side are known well before
MIN_SD = 0.05  # of log slowdown between pairs: below it all pairs would be alike
# Shares of the variance of log slowdowns in published tables: additive R² .53 to .84 (`interfere data card`).
VICTIM_SHARE, NEIGHBOUR_SHARE, PAIR_SHARE = 0.35, 0.35, 0.3
MEAN_VARIANCE = 10.0  # of the mean of all pairs, times the variance between them: as good as unknown


class PairEffects:
    """Predictions of one device type."""

    def __init__(self, measured: Sequence[SlowdownEstimate]) -> None:
        """Fit the effects. `measured`: slowdowns beside one neighbour."""
        measured = sorted(measured, key=lambda each: each.log_sd)[:MAX_ROWS]
        self._victims = np.array([each.victim for each in measured])
        self._neighbours = np.array([each.company[0] for each in measured])
        y = np.array([math.log(each.slowdown) for each in measured])
        self._known = len(y) >= MIN_ROWS
        if not self._known:
            return
        self._variance = max(float(y.var()), MIN_SD**2)
        same = self._shared(self._victims[:, None], self._neighbours[:, None]) + MEAN_VARIANCE
        self._inverse = np.linalg.inv(self._variance * same + np.diag([each.log_sd**2 for each in measured]))
        self._row_sums = self._inverse.sum(axis=1)
        self._mean = float(y.mean())
        self._weights = self._inverse @ (y - self._mean)

    def predict(self, victim: str, neighbour: str) -> tuple[float, float] | None:
        """Return mean and standard deviation of the log slowdown; None where it is unknown."""
        if not self._known or not (victim in self._victims or neighbour in self._neighbours):
            return None
        # The covariance with the rows is the same constant for all, and more for the few rows of either side.
        common = self._variance * MEAN_VARIANCE
        more = self._variance * self._shared(victim, neighbour)
        rows = np.flatnonzero(more)
        few = more[rows]
        mean = self._mean + common * float(self._weights.sum()) + float(few @ self._weights[rows])
        known = common**2 * float(self._row_sums.sum()) + 2 * common * float(few @ self._row_sums[rows])
        known += float(few @ self._inverse[np.ix_(rows, rows)] @ few)
        prior = self._variance * (VICTIM_SHARE + NEIGHBOUR_SHARE + PAIR_SHARE + MEAN_VARIANCE)
        return mean, math.sqrt(max(prior - known, 1e-6))

    def _shared(self, victim: str | Texts, neighbour: str | Texts) -> Floats:
        """Return the variance that a pair shares with each measured row, as a fraction of the prior variance."""
        same_victim, same_neighbour = self._victims == victim, self._neighbours == neighbour
        shares = VICTIM_SHARE * same_victim + NEIGHBOUR_SHARE * same_neighbour
        return np.asarray(shares + PAIR_SHARE * (same_victim & same_neighbour), dtype=np.float64)
