"""What is not known of pairs, and which of them, once measured, would lower that most.

The gain of a candidate is how much measuring it lowers the posterior variances of all pairs of interest, each weighted
by what an error there costs (A-optimality; Krause, Singh and Guestrin 2008 show why taking the best candidate, counting
it as measured and repeating is near the best). No measured value is needed: under a normal posterior the variances
depend on where was measured alone.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MEAN_OF_ABSOLUTE = float(np.sqrt(2 / np.pi))  # of a normal variable, in standard deviations


@dataclass(slots=True)
class UnknownPairs:
    """Covariances of t pairs of interest and the 2c directions of c candidates, given what was measured or chosen so
    far.

    A candidate is an unordered pair: its two directions, one after the other, are measured at once.
    """

    cross: Floats  # float64[t, 2c]
    own: Floats  # float64[2c, 2c]
    noise: Floats  # float64[2c], variance of a measurement
    slopes: Floats  # float64[2c], of speed
    is_self: NDArray[np.bool_]  # bool[c]: a job beside itself, whose two directions are one measurement

    def gain(self, weight: Floats) -> Floats:
        """Return float64[c]: how much measuring a candidate lowers the weighted sum of the variances of interest."""
        forth, back = self.cross[:, ::2], self.cross[:, 1::2]
        variance = np.diag(self.own) + self.noise
        of_forth, of_back = variance[::2], variance[1::2]
        both = np.diag(self.own, 1)[::2]
        forth_sum, back_sum, both_sum = (weight @ product for product in (forth**2, back**2, forth * back))
        of_two = (of_back * forth_sum - 2 * both * both_sum + of_forth * back_sum) / (of_forth * of_back - both**2)
        return np.asarray(np.where(self.is_self, forth_sum / of_forth, of_two))

    def error(self, candidate: int) -> float:
        """Return the expected absolute error of a candidate's own two speeds."""
        rows = self._rows(candidate)
        deviation = np.sqrt(np.maximum(np.diag(self.own)[rows], 0.0))
        return float(np.mean(self.slopes[rows] * deviation)) * MEAN_OF_ABSOLUTE

    def condition(self, candidate: int) -> None:
        """Count both directions of a candidate as measured."""
        for row in self._rows(candidate):
            column = self.own[:, row].copy()
            variance = column[row] + self.noise[row]
            self.cross = self.cross - np.outer(self.cross[:, row], column) / variance
            self.own = self.own - np.outer(column, column) / variance

    def _rows(self, candidate: int) -> list[int]:
        return [2 * candidate] if self.is_self[candidate] else [2 * candidate, 2 * candidate + 1]
