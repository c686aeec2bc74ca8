"""Scores a model on a log of asked and observed cases: equal in training, offline and in a running server.

A case is one job beside its neighbours. A log is a sequence of cases in order of time, some with the slowdown that was
observed. Error is that of speed, as the gate between challenger and champion compares it: |y - ŷ| with y = 1/s clipped
to [`MIN_SPEED`, `MAX_SPEED`].

Law: a score depends on the model and the log up to the end of its window alone. A model that learns is scored on a
window before it learns the window: on one window it answers with what it knew before all of its cases, on windows of
one case each with what it knew before each case.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.predict.groups import compose_groups, composition_of
from interfere.protocols import Predictor
from interfere.records import NAN, JobProfile, PairBatch, Prediction
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
class Case:
    """One job beside its neighbours that a model was asked about, or that was observed."""

    victim: JobProfile
    neighbours: tuple[JobProfile, ...]
    device_type: str
    mode: SharingMode
    slowdown: float = NAN  # observed; NaN where it was only asked


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowScore:
    """The predictions of a model for the `t` cases of one window."""

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
        """Return bool[t]: for which cases the intervals of the two models have no common slowdown."""
        return (self.lower > other.upper) | (self.upper < other.lower)


def score(
    model: Predictor, log: Sequence[Case], windows: Sequence[slice], learn: Callable[[slice], None] = lambda _: None
) -> tuple[WindowScore, ...]:
    """Return the score of a model in each window, which is a slice of the log.

    `learn` lets a model that learns take in a window of the log; it is called after the window was scored.
    """
    scores = []
    for window in windows:
        scores.append(_score_window(model, log[window]))
        learn(window)
    return tuple(scores)


def _score_window(model: Predictor, cases: Sequence[Case]) -> WindowScore:
    numbers = np.full((3, len(cases)), np.nan)
    abstains = np.zeros(len(cases), dtype=bool)
    places: dict[tuple[str, SharingMode], list[int]] = {}
    for k, case in enumerate(cases):
        places.setdefault((case.device_type, case.mode), []).append(k)
    for (device_type, mode), rows in places.items():
        asked = [cases[k] for k in rows]
        answer, careful = (_predict(model, asked, device_type, mode, extrapolate=flag) for flag in (True, False))
        numbers[:, rows] = answer.median, answer.lower, answer.upper
        abstains[rows] = np.isnan(careful.median)
    observed = np.array([case.slowdown for case in cases], dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = speed_error(np.log(observed), np.log(numbers[0]))
    return WindowScore(median=numbers[0], lower=numbers[1], upper=numbers[2], abstains=abstains, error=error)


def _predict(
    model: Predictor, cases: Sequence[Case], device_type: str, mode: SharingMode, *, extrapolate: bool
) -> Prediction:
    """Return one prediction a case, of cases of one domain."""
    pairs = [(case.victim, neighbour) for case in cases for neighbour in case.neighbours]
    jobs = {id(job): job for pair in pairs for job in pair}
    place = {key: k for k, key in enumerate(jobs)}
    victim, neighbour = (np.array([place[id(job)] for job in side]) for side in zip(*pairs, strict=True))
    prediction = model.predict_pairs(
        PairBatch(
            jobs=tuple(jobs.values()),
            victim=victim,
            neighbour=neighbour,
            device_type=device_type,
            mode=mode,
            allow_extrapolation=extrapolate,
        )
    )
    sizes = [len(case.neighbours) for case in cases]
    unknown_share = np.full(len(cases), np.nan)  # of the memory of a device that the log does not name
    return compose_groups(prediction, sizes, unknown_share, composition_of(model, device_type, mode))
