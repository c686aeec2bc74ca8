"""Predicts the slowdown of pairs that were not measured from those that were: one effect a victim, one a neighbour.

Log slowdowns are a Gaussian process: variance shared by rows of one victim, by rows of one neighbour, and of the pair
alone. A pair of which neither side was measured is unknown, and so is everything where fewer than three rows are.
"""

import math
from collections.abc import Sequence

import numpy as np

from interfere.monitoring.audit.slowdowns import SlowdownEstimate

MIN_ROWS = 3
MIN_SD = 0.05  # of log slowdown between pairs: below it all pairs would be alike
# Shares of the variance of log slowdowns in published tables: additive R² .53 to .84 (`interfere data card`).
VICTIM_SHARE, NEIGHBOUR_SHARE, PAIR_SHARE = 0.35, 0.35, 0.3
MEAN_VARIANCE = 10.0  # of the mean of all pairs, times the variance between them: as good as unknown


class PairEffects:
    """Predictions of one device type."""

    def __init__(self, measured: Sequence[SlowdownEstimate]) -> None:
        """`measured`: slowdowns beside one neighbour."""
        self._victims = np.array([each.victim for each in measured])
        self._neighbours = np.array([each.company[0] for each in measured])
        y = np.array([math.log(each.slowdown) for each in measured])
        self._known = len(y) >= MIN_ROWS
        if not self._known:
            return
        self._variance = max(float(y.var()), MIN_SD**2)
        covariance = self._covariance(self._victims, self._neighbours) + np.diag([each.log_sd**2 for each in measured])
        self._inverse = np.linalg.inv(covariance)
        self._mean = float(y.mean())
        self._weights = self._inverse @ (y - self._mean)

    def predict(self, victim: str, neighbour: str) -> tuple[float, float] | None:
        """Mean and deviation of the log slowdown; None where it is unknown."""
        if not self._known or not (victim in self._victims or neighbour in self._neighbours):
            return None
        cross = self._covariance(np.array([victim]), np.array([neighbour]))[0]
        prior = self._variance * (VICTIM_SHARE + NEIGHBOUR_SHARE + PAIR_SHARE + MEAN_VARIANCE)
        variance = prior - float(cross @ self._inverse @ cross)
        return self._mean + float(cross @ self._weights), math.sqrt(max(variance, 1e-6))

    def _covariance(self, victims: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
        same_victim = victims[:, None] == self._victims[None, :]
        same_neighbour = neighbours[:, None] == self._neighbours[None, :]
        shares = VICTIM_SHARE * same_victim + NEIGHBOUR_SHARE * same_neighbour
        shares = shares + PAIR_SHARE * (same_victim & same_neighbour) + MEAN_VARIANCE
        return np.asarray(self._variance * shares)
