"""What a scheduler believes about pairs, as a `Predictor` like the server's: a matrix of slowdowns by workload.

Beliefs are the truth itself, the mean of all pairs, the truth with an error, or whatever a model predicted beforehand.
A pair whose slowdown is NaN is one that nobody predicts: it never shares.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from interfere.errors import UnfitError
from interfere.records import NAN, JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction, Source
from interfere.sharing_modes import SharingMode
from interfere.sim.truth import TruthTable

Floats = NDArray[np.float64]
Profiles = Mapping[tuple[str, str], JobProfile]
"""(workload, device type) -> its solo profile; a workload without a profile never shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPredictor:
    """A predictor with one matrix of slowdowns of n workloads for all device types, or one for each of t types, and
    one uncertainty of log slowdown."""

    version: str
    device_types: tuple[str, ...]
    index: Mapping[str, int]  # workload -> row and column
    slowdown: Floats  # float64[n, n], or float64[t, n, n] in the order of `device_types`; NaN: not predicted
    spread: float = 0.0  # half-width of the 90 % interval of log slowdown
    profiles: Profiles = field(default_factory=dict)

    def knows(self, device_type: str, mode: SharingMode) -> str:
        """Return the reason why nothing can be predicted on this device type; empty where predictions are possible."""
        return "" if device_type in self.device_types else f"nothing is known of {device_type}"

    def on_type(self, device_type: str) -> Floats:
        """Return float64[n, n]: the slowdowns on a device type; on the first one where it is another."""
        if self.slowdown.ndim == 2:
            return self.slowdown
        known = device_type in self.device_types
        return np.asarray(self.slowdown[self.device_types.index(device_type) if known else 0])

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """Return medians and intervals of the pairs; a pair that is NaN in the matrix is abstained from."""
        unknown_domain = "" if batch.allow_extrapolation else self.knows(batch.device_type, batch.mode)
        index = np.array([self.index[job.workload] for job in batch.jobs], dtype=np.int64)
        median = self.on_type(batch.device_type)[index[batch.victim], index[batch.neighbour]]
        if unknown_domain:
            median = np.full(len(batch), NAN)
        abstains = np.isnan(median).tolist()
        reason = unknown_domain or "nothing is known of this pair: it never shares a device"
        return Prediction(
            median=median,
            lower=median * np.exp(-self.spread),
            upper=median * np.exp(self.spread),
            feasibility=np.full(len(batch), NAN),
            source=tuple(Source.ABSTAINED if silent else Source.MODEL for silent in abstains),
            reason=tuple(reason if silent else "" for silent in abstains),
        )

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Return slowdowns at the quantile of the batch, which lies on the line through the median and the ends of the
        90 % interval of log slowdown.

        Raises UnfitError for another device type unless the batch allows extrapolation.
        """
        if not batch.allow_extrapolation and (unknown_domain := self.knows(batch.device_type, batch.mode)):
            raise UnfitError("no prediction on this device type", value=batch.device_type, remedy=unknown_domain)
        i = [self.index[job.workload] for job in batch.victims]
        j = [self.index[job.workload] for job in batch.neighbours]
        factor, slowdown = np.exp(self.spread * (quantile - 0.5) / 0.45), self.on_type(batch.device_type)
        return MatrixPrediction(
            victim_slowdown=(slowdown[np.ix_(i, j)] * factor).astype(np.float32),
            neighbour_slowdown=(slowdown[np.ix_(j, i)].T * factor).astype(np.float32),
            feasible=np.ones((len(i), len(j)), dtype=np.uint8),
        )


def beliefs_from(truth: TruthTable, slowdown: Floats, version: str) -> MatrixPredictor:
    """Return a predictor of these slowdowns. Pairs that must not share in truth are not predicted."""
    believed = np.where(np.isnan(truth.table), np.nan, slowdown)
    profiles = {
        (workload, truth.device_type): JobProfile(
            workload=workload, device_type=truth.device_type, step_time_s=1.0, source="replay"
        )
        for k, workload in enumerate(truth.workloads)
        if np.isfinite(believed[k]).any()
    }
    return MatrixPredictor(
        version=version,
        device_types=(truth.device_type,),
        index=truth.index,
        slowdown=believed,
        profiles=profiles,
    )


def true_beliefs(truth: TruthTable) -> MatrixPredictor:
    """Return a predictor that knows the true slowdown of every pair."""
    return beliefs_from(truth, truth.table, "truth")


def mean_beliefs(truth: TruthTable) -> MatrixPredictor:
    """Return a predictor that gives every pair the geometric mean of all true slowdowns."""
    return beliefs_from(truth, np.full_like(truth.table, np.exp(np.nanmean(np.log(truth.table)))), "mean")


def noisy_beliefs(truth: TruthTable, error: float, seed: int) -> MatrixPredictor:
    """Return the truth times exp(error · z), z standard normal, with one draw per ordered pair; never below 1."""
    z = np.random.default_rng(seed).standard_normal(truth.table.shape)
    return beliefs_from(truth, np.fmax(truth.table * np.exp(error * z), 1.0), f"truth ± {error:.0%}")


def beliefs_of_types(
    beliefs: Sequence[MatrixPredictor], workloads: Iterable[str], speeds: Mapping[str, float]
) -> MatrixPredictor:
    """Return one predictor of several, each of one device type, with a profile of every workload on each type.

    `speeds`: device type -> its speed. A workload that no belief knows never shares, but its run time on each device
    type is known, which deadlines need.
    """
    names = [name for name in dict.fromkeys([*(name for each in beliefs for name in each.index), *workloads]) if name]
    slowdown = np.full((len(beliefs), len(names), len(names)), np.nan)
    for on_type, each in zip(slowdown, beliefs, strict=True):
        place = [names.index(name) for name in each.index]
        on_type[np.ix_(place, place)] = each.slowdown
    kinds = tuple(kind for each in beliefs for kind in each.device_types)
    profiles = {
        (name, kind): JobProfile(workload=name, device_type=kind, step_time_s=1.0 / speeds[kind], source="replay")
        for name in names
        for kind in kinds
    }
    index = {name: k for k, name in enumerate(names)}
    return replace(beliefs[0], device_types=kinds, index=index, slowdown=slowdown, profiles=profiles)
