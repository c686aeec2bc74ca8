"""Predicted slowdowns of pairs on one device class: medians, upper quantiles, and the risk of memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.records import NAN, ActionKind, JobProfile, Limits, MatrixBatch

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPredictions:
    """Predicted slowdowns of r row jobs beside c column jobs, float64[r, c] each; NaN where nothing is predicted."""

    row_slowdown: Floats  # median, of the row job
    column_slowdown: Floats  # median, of the column job
    row_upper: Floats  # quantile 1 - risk; NaN where no cap is set
    column_upper: Floats
    fit_probability: Floats  # that both fit the memory of the device; NaN where no misfit risk is set

    @classmethod
    def unknown(cls, shape: tuple[int, int]) -> "PairPredictions":
        """Nothing is predicted."""
        ahead, back, row_upper, column_upper, fits = (np.full(shape, np.nan) for _ in range(5))
        return cls(
            row_slowdown=ahead,
            column_slowdown=back,
            row_upper=row_upper,
            column_upper=column_upper,
            fit_probability=fits,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPredictor:
    """Asks the context's predictor about r row jobs beside c column jobs; each distinct profile is asked about once."""

    rows: JobsOnClass
    columns: JobsOnClass
    context: PlanningContext

    @property
    def unknown_domain(self) -> str:
        """Why the model knows nothing of the device type and sharing mode; empty where it does."""
        device_class = self.rows.device_class
        extrapolate = self._limits.allow_extrapolation
        return "" if extrapolate else self.context.predictor.knows(device_class.type, device_class.mode)

    @property
    def may_predict(self) -> bool:
        """Does the model know the device type and sharing mode, and may jobs share at all?"""
        return not self.unknown_domain and ActionKind.START_SHARED in self._limits.allowed

    @property
    def profiled(self) -> tuple[NDArray[np.intp], ...]:
        """Index of the pairs of which both workloads are profiled: rows and columns, as `np.ix_` gives them."""
        return np.ix_(np.flatnonzero(self.rows.profiled), np.flatnonzero(self.columns.profiled))

    @property
    def _limits(self) -> Limits:
        return self.context.limits

    def predict(self, *, capped: bool) -> PairPredictions:
        """Medians and how likely pairs fit, and where a cap may bind the quantile 1 - risk."""
        predictions, profiled = PairPredictions.unknown((len(self.rows.jobs), len(self.columns.jobs))), self.profiled
        if not self.may_predict or not self.rows.profiled.any() or not self.columns.profiled.any():
            return predictions
        predictions.row_slowdown[profiled], predictions.column_slowdown[profiled], fits = self._quantile(0.5)
        if fits is not None:
            predictions.fit_probability[profiled] = fits
        if capped:
            upper = self._quantile(1 - self._limits.slowdown.risk)
            predictions.row_upper[profiled], predictions.column_upper[profiled], _ = upper
        return predictions

    def _quantile(self, level: float) -> tuple[Floats, Floats, Floats | None]:
        """A quantile of both slowdowns for the profiled jobs, and how likely they fit; each profile is asked once."""
        row_profiles, row_of = _distinct(self.rows.profiles)
        column_profiles, column_of = _distinct(self.columns.profiles)
        device_class = self.rows.device_class
        memory = device_class.memory
        answer = self.context.predict_matrix(
            MatrixBatch(
                victims=row_profiles,
                neighbours=column_profiles,
                device_type=device_class.type,
                mode=device_class.mode,
                device_memory_bytes=memory.allocatable_bytes if memory.memory_bytes >= 0 else NAN,
                allow_extrapolation=self._limits.allow_extrapolation,
            ),
            level,
        )
        spread = np.ix_(row_of, column_of)
        fits = None
        if answer.feasibility is not None and not math.isnan(self._limits.memory.misfit_risk):
            fits = answer.feasibility[spread].astype(np.float64)
        ahead, back = answer.victim_slowdown[spread], answer.neighbour_slowdown[spread]
        return ahead.astype(np.float64), back.astype(np.float64), fits

    def slowdown_quantile(self, level: float) -> tuple[Floats, Floats]:
        """A quantile of both slowdowns for the profiled jobs: row beside column, column beside row."""
        ahead, back, _ = self._quantile(level)
        return ahead, back


def _distinct(profiles: Sequence[JobProfile | None]) -> tuple[tuple[JobProfile, ...], list[int]]:
    """The distinct profiles, and for each job that has one its place among them."""
    place_of: dict[int, int] = {}
    distinct: list[JobProfile] = []
    places = []
    for profile in profiles:
        if profile is None:
            continue
        if id(profile) not in place_of:
            place_of[id(profile)] = len(distinct)
            distinct.append(profile)
        places.append(place_of[id(profile)])
    return tuple(distinct), places
