"""Scores a model on a log of asked and observed pairs: equal in training, offline and in a running server.

A log is a sequence of pairs in order of time, some with the slowdown that was observed. Error is that of speed, as the
gate between challenger and champion compares it: |y - ŷ| with y = 1/s clipped to [`MIN_SPEED`, `MAX_SPEED`]. Law: a
score depends on the model and the pairs of its window alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.protocols import Predictor
from interfere.records import NAN, JobProfile, PairBatch
from interfere.sharing_modes import SharingMode

MIN_SPEED, MAX_SPEED = 0.05, 1.6

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def speed(log_slowdown: Floats) -> Floats:
    """Return y = 1/s of log slowdowns, clipped to [`MIN_SPEED`, `MAX_SPEED`] as in the published figures."""
    return np.clip(np.exp(-log_slowdown), MIN_SPEED, MAX_SPEED)


def speed_error(measured_log: Floats, predicted_log: Floats) -> Floats:
    """Return the absolute error of speed, elementwise, of log slowdowns; NaN where either is NaN."""
    return np.abs(speed(measured_log) - speed(predicted_log))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedPair:
    """One ordered pair that a model was asked about or that was observed."""

    victim: JobProfile
    neighbour: JobProfile
    device_type: str
    mode: SharingMode
    slowdown: float = NAN  # observed; NaN where it was only asked


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowScore:
    """What a model answers to the `t` pairs of one window."""

    median: Floats  # float64[t], also where the model abstains
    lower: Floats
    upper: Floats
    abstains: Bools  # bool[t]: without extrapolation it gives no answer
    error: Floats  # float64[t]: of speed; NaN where nothing was observed

    def __len__(self) -> int:
        return len(self.median)

    @property
    def unusable(self) -> Bools:
        """Return bool[t]: which answers are not finite and positive, or whose interval does not hold the median."""
        ordered = (self.lower <= self.median * (1 + 1e-9)) & (self.median <= self.upper * (1 + 1e-9))
        return ~(np.isfinite(self.median) & (self.median > 0) & ordered)

    def disagrees(self, other: "WindowScore") -> Bools:
        """Return bool[t]: for which pairs the intervals of the two models have no common slowdown."""
        return (self.lower > other.upper) | (self.upper < other.lower)


def score(model: Predictor, log: Sequence[LoggedPair], windows: Sequence[slice]) -> tuple[WindowScore, ...]:
    """Return the score of a model in each window, which is a slice of the log."""
    return tuple(_score_window(model, log[window]) for window in windows)


def _score_window(model: Predictor, pairs: Sequence[LoggedPair]) -> WindowScore:
    numbers = np.full((3, len(pairs)), np.nan)
    abstains = np.zeros(len(pairs), dtype=bool)
    places: dict[tuple[str, SharingMode], list[int]] = {}
    for k, pair in enumerate(pairs):
        places.setdefault((pair.device_type, pair.mode), []).append(k)
    for (device_type, mode), rows in places.items():
        distinct = {id(job): job for k in rows for job in (pairs[k].victim, pairs[k].neighbour)}
        index = {key: place for place, key in enumerate(distinct)}
        victim, neighbour = (
            np.array([index[id(job)] for job in side])
            for side in ([pairs[k].victim for k in rows], [pairs[k].neighbour for k in rows])
        )
        answer, careful = (
            model.predict_pairs(
                PairBatch(
                    jobs=tuple(distinct.values()),
                    victim=victim,
                    neighbour=neighbour,
                    device_type=device_type,
                    mode=mode,
                    allow_extrapolation=extrapolate,
                )
            )
            for extrapolate in (True, False)
        )
        numbers[:, rows] = answer.median, answer.lower, answer.upper
        abstains[rows] = np.isnan(careful.median)
    observed = np.array([pair.slowdown for pair in pairs], dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = speed_error(np.log(observed), np.log(numbers[0]))
    return WindowScore(median=numbers[0], lower=numbers[1], upper=numbers[2], abstains=abstains, error=error)
