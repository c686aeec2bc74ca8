"""Corrects the predicted slowdowns of a wrapped model by learned effects, for lists of pairs and for matrices.

With the median m, a quantile q of the wrapped model and the correction c of `pair_corrections`, the corrected quantile
is m · exp(c ± √((ratio · log(q / m))² + z² · extra)), where z is the standard normal quantile of the same level.
Observed pairs that are too novel for the model are answered from its extrapolation, where learning began.

Law: a direction that nobody observed stays without an answer, and so does a domain that the model never saw.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.measured import StepTimes, contradicts
from interfere.predict.online.base_predictions import BasePredictions
from interfere.predict.online.belief_state import BeliefState, PairObservation
from interfere.predict.online.effects import Effects
from interfere.predict.online.pair_corrections import Corrections, PairCorrections, indices_by_workload
from interfere.predict.online.prior import Floats, WorkloadKey
from interfere.predict.online.stand_in_profiles import StandInProfiles
from interfere.predict.online.unseen_device import JobCoordinates
from interfere.protocols import Predictor
from interfere.records import JobProfile, MatrixBatch, MatrixPrediction, PairBatch, Prediction, Source
from interfere.sharing_modes import SharingMode

MAX_LOG_CORRECTION = math.log(20.0)  # beyond twentyfold, the model or the measurement is broken
LOWER_LEVEL, UPPER_LEVEL = 0.05, 0.95  # quantiles of a Prediction's interval
# Observed ordered pairs after which a device type that the model never saw is answered, with intervals that say how
# little is known: on Gavel's table they hold .94 to 1.00 of the other pairs from 5 pairs on.
MIN_DOMAIN_PAIRS = 5


class CorrectedPredictor:
    """Asks the wrapped model for slowdowns and multiplies them by learned corrections."""

    def __init__(
        self,
        inner: Predictor,
        effects: Effects,
        base_predictions: BasePredictions,
        stand_ins: StandInProfiles,
        *,
        step_times: StepTimes,
        coordinates: JobCoordinates,
    ) -> None:
        """Wrap the model `inner` with learned effects; the arguments have the meaning given at `OnlineModel`."""
        self._inner, self._effects, self._stand_ins = inner, effects, stand_ins
        self._corrections = PairCorrections(effects)
        self._measured_neighbours = base_predictions.measured_neighbours
        self._step_times, self._coordinates = step_times, coordinates

    @property
    def _state(self) -> BeliefState:
        return self._effects.state

    def knows(self, device_type: str, mode: SharingMode) -> str:
        """Return "" where the wrapped model knows the domain or enough pairs of it were observed, else the reason."""
        unknown_domain = self._inner.knows(device_type, mode)
        domain = self._state.domains.get((device_type, mode))
        if not unknown_domain or (domain is not None and domain.pair_count >= MIN_DOMAIN_PAIRS):
            return ""
        observed = f"; {domain.pair_count} of {MIN_DOMAIN_PAIRS} pairs were observed" if domain else ""
        return unknown_domain + observed

    def _may_extrapolate(self, batch: PairBatch | MatrixBatch) -> bool:
        """Return whether the wrapped model may extrapolate: on request, or with enough observed pairs of the domain."""
        domain = batch.device_type, batch.mode
        return batch.allow_extrapolation or bool(self._inner.knows(*domain) and not self.knows(*domain))

    def _coordinates_of(self, jobs: Sequence[JobProfile], device_type: str, mode: SharingMode) -> Floats:
        """Return float64[n, C]: coordinates of jobs on a device type without training data; C is 0 on trained types."""
        if (device_type, mode) not in self._state.unseen_devices:
            return np.zeros((len(jobs), 0))
        return self._coordinates(jobs, device_type, mode)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """Return the wrapped model's slowdowns times exp(correction), with intervals from the learned posterior."""
        if not batch.allow_extrapolation and self._may_extrapolate(batch):
            batch = replace(batch, allow_extrapolation=True)
        answer = self._inner.predict_pairs(batch)
        if not self._state.domains or len(batch) == 0:
            return answer
        keys: list[WorkloadKey] = [(job.workload, batch.device_type, batch.mode) for job in batch.jobs]
        # 1. Observed pairs that are too novel for the wrapped model, and unprofiled jobs, get an uncorrected answer.
        if not (batch.allow_extrapolation or self.knows(batch.device_type, batch.mode)):
            answer = with_observed_pairs(answer, batch, keys, self._state, self._inner)
        median, lower, upper = answer.median.copy(), answer.lower.copy(), answer.upper.copy()
        source, reason = list(answer.source), list(answer.reason)
        unprofiled = self._stand_ins.mask(keys, batch.jobs)
        for k in np.flatnonzero(unprofiled[batch.victim] | unprofiled[batch.neighbour]).tolist():
            pair = keys[batch.victim[k]], keys[batch.neighbour[k]]
            lower[k], median[k], upper[k] = (
                self._stand_ins.slowdown(*pair, level) for level in (LOWER_LEVEL, 0.5, UPPER_LEVEL)
            )
            source[k], reason[k] = Source.MODEL, ""
        # 2. The correction.
        measured = self._are_measured(batch, keys)
        families = [job.family for job in batch.jobs]
        corrections = self._corrections.pair_beliefs(
            keys,
            families,
            batch.victim,
            batch.neighbour,
            np.log(median),
            measured,
            self._coordinates_of(batch.jobs, batch.device_type, batch.mode),
        )
        for k in np.flatnonzero(corrections.applies & np.isfinite(median)).tolist():
            if source[k] is Source.MEASURED:  # a measurement that was corrected since is no longer the table's
                source[k] = Source.MODEL
        return replace(
            answer,
            median=corrected_median(median, corrections),
            lower=corrected_quantile(lower, median, corrections, LOWER_LEVEL),
            upper=corrected_quantile(upper, median, corrections, UPPER_LEVEL),
            source=tuple(source),
            reason=tuple(reason),
        )

    def confirming_windows(self, batch: PairBatch) -> list[PairObservation]:
        """Return, for each pair of a batch, the window that would confirm the wrapped model's own answer."""
        answer = self._inner.predict_pairs(replace(batch, allow_extrapolation=True))
        keys: list[WorkloadKey] = [(job.workload, batch.device_type, batch.mode) for job in batch.jobs]
        log_median = np.log(answer.median)
        unprofiled = self._stand_ins.mask(keys, batch.jobs)
        for k in np.flatnonzero(unprofiled[batch.victim] | unprofiled[batch.neighbour]).tolist():
            pair = keys[batch.victim[k]], keys[batch.neighbour[k]]
            log_median[k] = math.log(self._stand_ins.slowdown(*pair, 0.5))
        measured = self._are_measured(batch, keys)
        coordinates = [tuple(row) for row in self._coordinates_of(batch.jobs, batch.device_type, batch.mode).tolist()]
        return [
            PairObservation(
                victim=keys[i],
                neighbour=keys[j],
                log_predicted=float(log_median[k]),
                log_observed=float(log_median[k]),
                measured=bool(measured[k]),
                families=(batch.jobs[i].family, batch.jobs[j].family),
                coordinates=(coordinates[i], coordinates[j]),
            )
            for k, (i, j) in enumerate(zip(batch.victim.tolist(), batch.neighbour.tolist(), strict=True))
        ]

    def _are_measured(self, batch: PairBatch, keys: list[WorkloadKey]) -> NDArray[np.bool_]:
        """Return bool[p]: whether the wrapped model answers a pair from a measurement that its profiles agree with."""
        is_current = [not contradicts(job, self._step_times) for job in batch.jobs]
        return np.array(
            [
                is_current[i] and is_current[j] and keys[j][0] in self._measured_neighbours.get(keys[i], ())
                for i, j in zip(batch.victim.tolist(), batch.neighbour.tolist(), strict=True)
            ]
        )

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Return the wrapped model's slowdowns of both directions, each corrected like a pair."""
        batch = replace(batch, allow_extrapolation=self._may_extrapolate(batch))
        answer = self._inner.predict_matrix(batch, quantile=quantile)
        if not self._state.domains or answer.victim_slowdown.size == 0:
            return answer
        victims, neighbours = (
            [(job.workload, batch.device_type, batch.mode) for job in jobs]
            for jobs in (batch.victims, batch.neighbours)
        )
        # 1. Observed pairs that are too novel for the wrapped model, and unprofiled jobs, get an uncorrected answer.
        extrapolated = replace(batch, allow_extrapolation=True)
        if not (batch.allow_extrapolation or self.knows(batch.device_type, batch.mode)):
            answer = with_observed_cells(
                answer,
                victims,
                neighbours,
                self._state,
                lambda: self._inner.predict_matrix(extrapolated, quantile=quantile),
            )
        median = answer
        if quantile != 0.5:
            median = self._inner.predict_matrix(extrapolated)
        unprofiled_victims = self._stand_ins.mask(victims, batch.victims)
        unprofiled_neighbours = self._stand_ins.mask(neighbours, batch.neighbours)
        for i, j in zip(*np.nonzero(unprofiled_victims[:, None] | unprofiled_neighbours), strict=True):
            for matrix, level in ((answer, quantile), (median, 0.5)):
                matrix.victim_slowdown[i, j] = self._stand_ins.slowdown(victims[i], neighbours[j], level)
                matrix.neighbour_slowdown[i, j] = self._stand_ins.slowdown(neighbours[j], victims[i], level)
        # 2. The correction, in both directions.
        forward = self._matrix_corrections(
            (victims, neighbours), (batch.victims, batch.neighbours), median.victim_slowdown, quantile
        )
        backward = self._matrix_corrections(
            (neighbours, victims), (batch.neighbours, batch.victims), median.neighbour_slowdown.T, quantile
        )
        return replace(
            answer,
            victim_slowdown=corrected_matrix(answer.victim_slowdown, median.victim_slowdown, forward, quantile),
            neighbour_slowdown=np.ascontiguousarray(
                corrected_matrix(answer.neighbour_slowdown.T, median.neighbour_slowdown.T, backward, quantile).T
            ),
        )

    def _matrix_corrections(
        self,
        keys: tuple[list[WorkloadKey], list[WorkloadKey]],
        jobs: tuple[Sequence[JobProfile], Sequence[JobProfile]],
        median: NDArray[np.float32],
        quantile: float,
    ) -> Corrections:
        """Return the corrections of each victim beside each neighbour; `median` is the model's predicted slowdown."""
        families = [job.family for job in jobs[0]], [job.family for job in jobs[1]]
        rows, columns = (np.array([not contradicts(job, self._step_times) for job in side]) for side in jobs)
        return self._corrections.matrix_beliefs(
            *keys,
            families,
            np.log(median.astype(np.float64)),
            measured_cells(self._measured_neighbours, *keys) & rows[:, None] & columns,
            (self._coordinates_of(jobs[0], *keys[0][0][1:]), self._coordinates_of(jobs[1], *keys[0][0][1:])),
            with_variances=quantile != 0.5,
        )


def corrected_median(median: Floats, corrections: Corrections) -> Floats:
    """The medians times the exponential of their corrections."""
    corrected = median * np.exp(np.clip(corrections.mean, -MAX_LOG_CORRECTION, MAX_LOG_CORRECTION))
    return np.asarray(np.where(corrections.applies, corrected, median))


def corrected_quantile(quantile: Floats, median: Floats, corrections: Corrections, level: float) -> Floats:
    """The quantile at `level` that belongs to the corrected medians."""
    z = NormalDist().inv_cdf(level)
    log_ratio = corrections.sd_ratio * np.log(quantile / median)
    width = np.copysign(np.sqrt(log_ratio**2 + z * z * corrections.extra_var), z)
    corrected = corrected_median(median, corrections) * np.exp(width)
    return np.asarray(np.where(corrections.applies, corrected, quantile))


def corrected_matrix(
    predicted: NDArray[np.float32], median: NDArray[np.float32], corrections: Corrections, level: float
) -> NDArray[np.float32]:
    """Return float32[v, n]: the corrected quantile at `level` of the wrapped model.

    `median` is the median of the same prediction.
    """
    exact = median.astype(np.float64)
    if level == 0.5:
        return corrected_median(exact, corrections).astype(np.float32)
    return corrected_quantile(predicted.astype(np.float64), exact, corrections, level).astype(np.float32)


def measured_cells(
    measured_neighbours: Mapping[WorkloadKey, Any], victims: list[WorkloadKey], neighbours: list[WorkloadKey]
) -> NDArray[np.bool_]:
    """bool[v, n]: pairs that the wrapped model answers by a measurement."""
    measured = np.zeros((len(victims), len(neighbours)), dtype=bool)
    columns = indices_by_workload(neighbours)
    for i, victim in enumerate(victims):
        for workload in measured_neighbours.get(victim, set()) & columns.keys():
            measured[i, columns[workload]] = True
    return measured


def with_observed_pairs(
    answer: Prediction, batch: PairBatch, keys: Sequence[WorkloadKey], state: BeliefState, model: Predictor
) -> Prediction:
    """The answer, with the model's extrapolation for observed pairs on which it abstained.

    `keys`: of the jobs of the batch.
    """
    filled = [
        k
        for k in np.flatnonzero(np.isnan(answer.median)).tolist()
        if keys[batch.neighbour[k]][0] in state.pairs.get(keys[batch.victim[k]], ())
    ]
    if not filled:
        return answer
    extrapolated = model.predict_pairs(
        replace(batch, victim=batch.victim[filled], neighbour=batch.neighbour[filled], allow_extrapolation=True)
    )
    median, lower, upper = answer.median.copy(), answer.lower.copy(), answer.upper.copy()
    feasibility, source, reason = answer.feasibility.copy(), list(answer.source), list(answer.reason)
    median[filled], lower[filled], upper[filled] = extrapolated.median, extrapolated.lower, extrapolated.upper
    feasibility[filled] = extrapolated.feasibility
    for index, k in enumerate(filled):
        source[k], reason[k] = extrapolated.source[index], extrapolated.reason[index]
    return replace(
        answer,
        median=median,
        lower=lower,
        upper=upper,
        feasibility=feasibility,
        source=tuple(source),
        reason=tuple(reason),
    )


def with_observed_cells(
    answer: MatrixPrediction,
    rows: Sequence[WorkloadKey],
    columns: Sequence[WorkloadKey],
    state: BeliefState,
    extrapolate: Callable[[], MatrixPrediction],
) -> MatrixPrediction:
    """The same for a matrix, each direction by itself; `extrapolate` is called only where an observed cell needs it."""
    fill_victim, fill_neighbour = (np.zeros(answer.victim_slowdown.shape, dtype=bool) for _ in range(2))
    for victims, neighbours, cells in ((rows, columns, fill_victim), (columns, rows, fill_neighbour.T)):
        indices = indices_by_workload(neighbours)
        for i, victim in enumerate(victims):
            for workload in state.pairs.get(victim, {}).keys() & indices.keys():
                cells[i, indices[workload]] = True
    fill_victim &= np.isnan(answer.victim_slowdown)
    fill_neighbour &= np.isnan(answer.neighbour_slowdown)
    if not (fill_victim.any() or fill_neighbour.any()):
        return answer
    extrapolated = extrapolate()
    return replace(
        answer,
        victim_slowdown=np.where(fill_victim, extrapolated.victim_slowdown, answer.victim_slowdown),
        neighbour_slowdown=np.where(fill_neighbour, extrapolated.neighbour_slowdown, answer.neighbour_slowdown),
    )
