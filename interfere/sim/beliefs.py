"""What a scheduler believes about pairs, as the same `Predictor` that the server asks: a matrix by workload.

Beliefs are the truth itself, the mean of all pairs, the truth with an error, or whatever a model said beforehand. A
pair that is NaN is one that nobody predicts: it never shares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from interfere.errors import UnfitError
from interfere.records import (
    NAN,
    JobProfile,
    MatrixBatch,
    MatrixPrediction,
    PairBatch,
    Prediction,
    Source,
)
from interfere.sim.truth import TruthTable

Floats = NDArray[np.float64]
Profiles = Mapping[tuple[str, str], JobProfile]
"""(workload, device type) -> what is known of it alone; a workload without one runs alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPredictor:
    """slowdown[i, j] of n workloads on one device type, and how far it may be off in log slowdown."""

    version: str
    device_type: str
    place: Mapping[str, int]
    slowdown: Floats  # float64[n, n]; NaN: nobody knows
    spread: float = 0.0  # half-width of the 90 % interval
    profiles: Profiles = field(default_factory=dict)

    def knows(self, device_type: str, mode: str) -> str:
        """Empty when the matrix is of this device type, else the reason; sharing modes are not told apart."""
        return "" if device_type == self.device_type else f"nothing is known of {device_type}: ask {self.device_type}"

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """Medians and intervals from the matrix; a pair that is NaN there abstains."""
        unknown_domain = "" if batch.allow_extrapolation else self.knows(batch.device_type, batch.mode)
        index = np.array([self.place[job.workload] for job in batch.jobs], dtype=np.int64)
        median = self.slowdown[index[batch.victim], index[batch.neighbour]]
        if unknown_domain:
            median = np.full(len(batch), NAN)
        abstains = np.isnan(median).tolist()
        reason = unknown_domain or "nobody predicts this pair: it never shares a device"
        return Prediction(
            median=median,
            lower=median * np.exp(-self.spread),
            upper=median * np.exp(self.spread),
            feasibility=np.full(len(batch), NAN),
            source=tuple(Source.ABSTAINED if silent else Source.MODEL for silent in abstains),
            reason=tuple(reason if silent else "" for silent in abstains),
        )

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Quantiles on the line through the log median and the ends of the interval.

        Raises UnfitError for another device type unless the batch allows extrapolation.
        """
        if not batch.allow_extrapolation and (unknown_domain := self.knows(batch.device_type, batch.mode)):
            raise UnfitError("no prediction on this device type", value=batch.device_type, remedy=unknown_domain)
        i = [self.place[job.workload] for job in batch.victims]
        j = [self.place[job.workload] for job in batch.neighbours]
        shift = np.exp(self.spread * (quantile - 0.5) / 0.45)
        return MatrixPrediction(
            victim_slowdown=(self.slowdown[np.ix_(i, j)] * shift).astype(np.float32),
            neighbour_slowdown=(self.slowdown[np.ix_(j, i)].T * shift).astype(np.float32),
            feasible=np.ones((len(i), len(j)), dtype=np.uint8),
        )


def believing(truth: TruthTable, slowdown: Floats, version: str, spread: float = 0.0) -> MatrixPredictor:
    """A belief about the workloads of a truth; where the truth forbids a pair, so does the belief."""
    told = np.where(np.isnan(truth.table), np.nan, slowdown)
    profiles = {
        (name, truth.device_type): JobProfile(
            workload=name, device_type=truth.device_type, step_time_s=1.0, source="replay"
        )
        for k, name in enumerate(truth.workloads)
        if np.isfinite(told[k]).any()
    }
    return MatrixPredictor(
        version=version,
        device_type=truth.device_type,
        place=truth.place,
        slowdown=told,
        spread=spread,
        profiles=profiles,
    )


def knowing(truth: TruthTable) -> MatrixPredictor:
    """Perfect knowledge."""
    return believing(truth, truth.table, "truth")


def ignorant(truth: TruthTable) -> MatrixPredictor:
    """Every pair at the mean log slowdown of all: nothing is known of any pair."""
    return believing(truth, np.full_like(truth.table, np.exp(np.nanmean(np.log(truth.table)))), "mean")


def noisy(truth: TruthTable, error: float, seed: int) -> MatrixPredictor:
    """The truth times exp(error · z), z standard normal, one draw an ordered pair; never below 1."""
    z = np.random.default_rng(seed).standard_normal(truth.table.shape)
    return believing(truth, np.fmax(truth.table * np.exp(error * z), 1.0), f"truth ± {error:.0%}")
