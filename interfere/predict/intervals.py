"""Prediction intervals: quantiles of held-out residuals by evidence and domain, wider for novel pairs.

With the residual r = log(measured / predicted) of rows that no model was fitted on, the published grids are quantiles
of r ÷ spread, spread = sqrt(1 + WIDENING · novelty) (normalised conformal prediction: Papadopoulos, Gammerman and
Vovk 2008). The evidence of a pair is the smaller of its two jobs' numbers of measured partners.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EVIDENCE_CLASSES = ("new", "few", "known")  # 0 partners, 1 to 3, 4 and more
EVIDENCE_THRESHOLDS = (1, 4)
_THRESHOLDS = np.array(EVIDENCE_THRESHOLDS)
# Growth of the residual's variance with novelty. On held-out jobs and families of two public tables the likeliest
# values were 400 and 10, with little between them: 50 covers the worst tenth of unseen jobs of both.
WIDENING = 50.0
# Above this novelty the model was no better than the mean of all pairs (held-out jobs and families of two public
# tables: MAE .150 beside .160 for novelty .5 to .7, .098 beside .149 for .3 to .5).
MAX_NOVELTY = 0.5

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def evidence_class(partners: Ints) -> Ints:
    """Index into `EVIDENCE_CLASSES` of a number of measured partners, elementwise."""
    return np.searchsorted(_THRESHOLDS, partners, side="right")


def spread(novelty: Floats) -> Floats:
    """Width of the interval relative to that of a pair without novelty, elementwise."""
    return np.asarray(np.sqrt(1.0 + WIDENING * novelty))


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Quantiles of r ÷ spread. Domain 0 is all domains together, k + 1 the model's domain k."""

    calibrated: bool  # do both `new` and `known` rest on enough residuals of their own?
    levels: Floats  # float64[q], ascending
    grids: Floats  # float64[3, D + 1, q], by evidence class, domain and level

    def quantile(self, level: float, *, novelty: Floats, partners: Ints, domain: Ints | int) -> Floats:
        """Log residual at `level`, shaped like `novelty`; linear between the stored levels, constant beyond them."""
        return self.quantiles((level,), novelty=novelty, partners=partners, domain=domain)[0]

    def quantiles(
        self, levels: Sequence[float], *, novelty: Floats, partners: Ints, domain: Ints | int
    ) -> tuple[Floats, ...]:
        """`quantile` at each of the levels."""
        evidence, width = evidence_class(partners), spread(novelty)
        return tuple(np.asarray(self._grid(level)[evidence, domain] * width) for level in levels)

    def _grid(self, level: float) -> Floats:
        """float64[3, D + 1]: quantiles of r ÷ spread at a level, by evidence class and domain."""
        right = min(max(int(self.levels.searchsorted(level)), 1), len(self.levels) - 1)
        low, high = float(self.levels[right - 1]), float(self.levels[right])
        weight = min(max((level - low) / (high - low), 0.0), 1.0)
        return np.asarray((1.0 - weight) * self.grids[:, :, right - 1] + weight * self.grids[:, :, right])
