"""Prediction intervals that widen with novelty, and abstention from pairs with a large expected error.

For held-out rows, let r = log(measured / predicted) be the residual. The published grids are
quantiles of r ÷ spread with spread = sqrt(1 + WIDENING · novelty) (normalised conformal prediction: Papadopoulos,
Gammerman and Vovk 2008). The evidence of a pair is the smaller of its two jobs' numbers of measured partners.

A model abstains from the pairs on which it expects the largest errors (selective prediction: El-Yaniv and Wiener 2010,
"On the foundations of noise-free selective classification"). The error grows with the spread and with the predicted
log slowdown log ŝ: a pair without slowdown leaves little room for error. So the abstention score of a pair is

    sqrt(novelty) · max(0, log ŝ),

and the model abstains above a threshold that was learned on held-out families, and from any pair beyond `MAX_NOVELTY`.

Tables in which few of the possible pairs were measured have intervals of single pairs: log residuals at some quantile
levels for every ordered pair, stored beside the graphs in the model folder. They replace the quantiles over all pairs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVIDENCE_CLASSES = ("new", "few", "known")  # 0 partners, 1 to 3, 4 and more
EVIDENCE_THRESHOLDS = (1, 4)
_THRESHOLDS = np.array(EVIDENCE_THRESHOLDS)
# Growth of the residual's variance with novelty. On held-out jobs and families of two public tables the likeliest
# values were 400 and 10, with little between them: 50 covers the worst tenth of unseen jobs of both.
WIDENING = 50.0
ABSTAINED = 0.1  # share of the pairs of unseen families that a model abstains from, those with the largest scores
MAX_NOVELTY = 0.95  # above this value the training data carry no information about the pair
ARRAYS = {name: f"pair_interval_{name}" for name in ("place", "levels", "shifts")}  # of pair intervals, in `arrays.npz`

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def evidence_class(partners: Ints) -> Ints:
    """Return the index into `EVIDENCE_CLASSES` for each number of measured partners, elementwise."""
    return np.searchsorted(_THRESHOLDS, partners, side="right")


def spread(novelty: Floats) -> Floats:
    """Return the width of the interval relative to that of a pair of novelty 0, elementwise."""
    return np.asarray(np.sqrt(1.0 + WIDENING * novelty))


def abstention_score(novelty: Floats, predicted_log: Floats) -> Floats:
    """Return a score proportional to the expected error, elementwise; `predicted_log` is the predicted log slowdown."""
    return np.asarray(np.sqrt(novelty) * np.maximum(predicted_log, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Quantiles of r ÷ spread by domain: index 0 is all domains together, k + 1 the model's domain k."""

    calibrated: bool  # True if the classes `new` and `known` each have enough residuals
    levels: Floats  # float64[q], ascending
    grids: Floats  # float64[3, D + 1, q], by evidence class, domain and level
    abstains_above: float = math.inf  # abstention score; infinite where the score did not rank the errors

    def abstains(self, novelty: Floats, predicted_log: Floats) -> NDArray[np.bool_]:
        """Return whether the model abstains from each pair, elementwise; `predicted_log` is its log slowdown."""
        doubtful = abstention_score(novelty, predicted_log) > self.abstains_above
        return np.asarray(doubtful | (novelty > MAX_NOVELTY))

    def quantile(self, level: float, *, novelty: Floats, partners: Ints, domain: Ints | int) -> Floats:
        """Return the log residual at `level`, shaped like `novelty`: linear between stored levels, constant outside."""
        (quantile,) = log_residuals(self.grids_at((level,)), novelty=novelty, partners=partners, domain=domain)
        return np.asarray(quantile)

    def grids_at(self, levels: Sequence[float]) -> Floats:
        """Return float64[L, 3, D + 1]: what `log_residuals` needs for these levels, computed once for many pairs."""
        return np.array([self._grid(level) for level in levels])

    def _grid(self, level: float) -> Floats:
        """Return float64[3, D + 1]: the quantiles of r ÷ spread at a level, by evidence class and domain."""
        return _at_level(self.levels, self.grids, level)


def _at_level(levels: Floats, values: Floats, level: float) -> Floats:
    """Return float64[...]: the `values` float64[..., q] at a level, linear between the q `levels`, constant outside."""
    right = min(max(int(levels.searchsorted(level)), 1), len(levels) - 1)
    low, high = float(levels[right - 1]), float(levels[right])
    weight = min(max((level - low) / (high - low), 0.0), 1.0)
    return np.asarray((1.0 - weight) * values[..., right - 1] + weight * values[..., right])


def log_residuals(grids: Floats, *, novelty: Floats, partners: Ints, domain: Ints | int) -> Floats:
    """Return the log residuals of pairs, float64[L, *novelty.shape], at the L levels of `Intervals.grids_at`."""
    return np.asarray(grids[:, evidence_class(partners), domain] * spread(novelty))


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
        return np.array([_at_level(self.levels, shifts, level) for level in levels])


def pair_interval_arrays(intervals: PairIntervals | None) -> dict[str, NDArray[Any]]:
    """Return the arrays that store the intervals in a model folder, by name; empty where there are none."""
    return {} if intervals is None else {name: getattr(intervals, field) for field, name in ARRAYS.items()}


def read_pair_intervals(arrays: Mapping[str, NDArray[Any]]) -> PairIntervals | None:
    """Return the pair intervals of a model folder, or None where it has none."""
    if not all(name in arrays for name in ARRAYS.values()):
        return None
    return PairIntervals(**{field: arrays[name] for field, name in ARRAYS.items()})
