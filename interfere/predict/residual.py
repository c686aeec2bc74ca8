"""Online correction: a measured pair moves the next prediction of that pair, and of its jobs in other pairs.

The state is a pure fold over observations: the same observations in the same order give the same state, whatever their
timestamps. `OnlineModel` wraps a `Predictor`; what it learns is defined in `interfere.predict.online.effects`.

Laws: an observation never moves the prediction of its pair away from the observed slowdown, nor past it; pairs that
share no job with it keep their predictions; intervals never widen.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from interfere.predict.online.base_predictions import BasePredictions, ResolveProfile
from interfere.predict.online.drift import MIN_JOB_WINDOWS, DriftTest, Verdict, global_drift_test, job_drift_test
from interfere.predict.online.effects import Effects, PairObservation
from interfere.predict.online.matrix_corrections import MAX_LOG_CORRECTION, correct_matrix
from interfere.predict.online.novel_pairs import with_observed_cells, with_observed_pairs
from interfere.predict.online.prior import ResidualPrior, WorkloadKey, default_prior
from interfere.predict.online.revertible import RevertibleDict
from interfere.predict.online.solo_rates import SoloRates
from interfere.predict.online.unprofiled_jobs import UnprofiledJobs
from interfere.protocols import Predictor
from interfere.records import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    NAN,
    MatrixBatch,
    MatrixPrediction,
    ObservationResult,
    PairBatch,
    Prediction,
    Progress,
    Source,
)

LOWER_LEVEL, UPPER_LEVEL = 0.05, 0.95  # quantiles of a Prediction's interval


class LearningResult(NamedTuple):
    """What was done with a window, why, and |measured / predicted - 1| of the prediction before it."""

    result: ObservationResult
    reason: str = ""
    error_ratio: float = NAN


_NEW_JOB_TEST = job_drift_test()


class OnlineModel:
    """Wraps a `Predictor` and learns from `Progress`. Not thread-safe: the caller holds one lock."""

    def __init__(
        self,
        inner: Predictor,
        prior: ResidualPrior | None = None,
        *,
        measured: Iterable[tuple[str, str, str, str]] = (),
    ) -> None:
        """Wrap `inner`, with nothing learned yet.

        `prior`: of the errors of `inner`; None for the default one. `measured`: (victim, neighbour, device type, mode)
        of the pairs that `inner` answers by a measurement; effects of jobs do not move those.
        """
        self._inner = inner
        self.effects = Effects(prior or default_prior())
        self.solo = SoloRates()
        self.drift_tests: RevertibleDict[WorkloadKey, DriftTest] = RevertibleDict()
        self.frozen_tests: RevertibleDict[WorkloadKey, DriftTest] = RevertibleDict()  # those of jobs that drift
        self.global_test = global_drift_test()
        self.alarm_count = 0  # drift alarms, of single jobs and of all together
        self.observation_count = 0
        self.quarantined_count = 0
        self._savepoint = (self.global_test, self.observation_count, self.quarantined_count, self.alarm_count)
        self._base_predictions = BasePredictions(inner, self.effects, measured)
        self.unprofiled = UnprofiledJobs(self.effects)

    @property
    def version(self) -> str:
        """Version of the wrapped model; corrections do not change it."""
        return self._inner.version

    def knows(self, device_type: str, mode: str) -> str:
        """The answer of the wrapped model: empty when it knows this domain, else the reason and the remedy."""
        return self._inner.knows(device_type, mode)

    # --- learning ---------------------------------------------------------------------------------------------------

    def observe(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Learn from one window.

        A solo window teaches the job's solo rate; a shared window without a known solo rate stays pending until then.
        """
        self.observation_count += 1
        if not window.company:
            return self._learn_solo(window, resolve)
        if math.isnan(self.solo.slowdown(window)) and len(window.company) == 1:
            self.solo.add_pending(window)
            return LearningResult(
                ObservationResult.PENDING_SOLO,
                f"no solo window of {window.workload} on {window.device_type} yet: this one is applied after the first",
            )
        return self._learn_shared(window, resolve)

    def prefetch(self, windows: Sequence[Progress], resolve: ResolveProfile) -> None:
        """Ask the wrapped model about all pairs of these windows at once, so that `observe` finds them in the cache."""
        pairs_by_domain: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
        for window in windows:
            if len(window.company) == 1:
                pair = (window.workload, window.company[0])
                pairs_by_domain.setdefault((window.device_type, window.mode), {})[pair] = None
        for (device_type, mode), pairs in pairs_by_domain.items():
            self._base_predictions.predict(list(pairs), device_type, mode, resolve)

    def _learn_solo(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        if math.isnan(window.steps):
            return LearningResult(ObservationResult.REJECTED, "a solo window has no slowdown: send steps")
        if window.steps <= 0:
            return LearningResult(
                ObservationResult.REJECTED, "a solo window without a step teaches no rate: send a longer window"
            )
        for pending in self.solo.learn(window):
            self._learn_shared(pending, resolve)
        return LearningResult(ObservationResult.APPLIED)

    def _learn_shared(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        if len(window.company) != 1:
            return LearningResult(
                ObservationResult.REJECTED,
                f"a window of {len(window.company) + 1} co-located jobs teaches no pair: send windows of pairs",
            )
        slowdown = self.solo.slowdown(window)
        if not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
            return LearningResult(
                ObservationResult.REJECTED,
                f"slowdown {slowdown:.3g} lies outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]: check steps and solo rate",
            )
        pair = (window.workload, window.company[0])
        (base,) = self._base_predictions.predict([pair], window.device_type, window.mode, resolve)
        if math.isnan(base.log_median):
            return LearningResult(
                ObservationResult.REJECTED,
                f"no prediction to correct for {window.workload} beside {window.company[0]} on "
                f"{window.device_type}/{window.mode}: register profiles of both",
            )
        return self._learn_pair(
            PairObservation(
                victim=(window.workload, window.device_type, window.mode),
                neighbour=(window.company[0], window.device_type, window.mode),
                log_predicted=base.log_median,
                log_observed=math.log(slowdown),
                base_measured=base.measured,
            )
        )

    def _learn_pair(self, observation: PairObservation) -> LearningResult:
        """Update the drift tests with one observation, then learn, relearn or quarantine it as they say."""
        # 1. The test of the victim, and of all jobs together. Many new jobs that are off in one direction are no drift:
        #    they are being learned, so only a job with some windows enters the global test.
        residual = self.effects.residual(observation)
        error_ratio = abs(math.expm1(residual.error))
        job_before, global_before = self.drift_tests.get(observation.victim, _NEW_JOB_TEST), self.global_test
        global_verdict = Verdict.LEARN
        if job_before.window_count >= MIN_JOB_WINDOWS:
            self.global_test, global_verdict = self.global_test.update(residual.z)
        job_test, job_verdict = job_before.update(residual.z)
        self.alarm_count += job_test.alarm_count - job_before.alarm_count
        self.alarm_count += self.global_test.alarm_count - global_before.alarm_count
        self.drift_tests[observation.victim] = job_test
        if job_test.frozen:
            self.frozen_tests[observation.victim] = job_test
        elif observation.victim in self.frozen_tests:
            self.frozen_tests.remove(observation.victim)
        # 2. Quarantine.
        if global_verdict is Verdict.QUARANTINE and self.global_test.frozen:
            return self._quarantine(
                "all jobs drift from what was learned: nothing is learned until their windows are consistent",
                error_ratio,
            )
        if job_verdict is Verdict.QUARANTINE:
            ratio = f"{math.exp(residual.error):.3g} × the prediction"
            if job_test.frozen:
                workload = observation.victim[0]
                reason = f"{workload} drifts ({ratio}): nothing is learned of it until its windows are consistent"
            else:
                reason = f"{ratio}, {abs(residual.z):.0f} standard deviations off: an outlier"
            return self._quarantine(reason, error_ratio)
        # 3. Learn.
        if global_verdict is Verdict.RELEARN:
            for key in {*self.effects.as_victim, *self.effects.as_neighbour}:
                self.effects.reset_uncertainty(key)
        if job_verdict is Verdict.RELEARN:
            self.effects.reset_uncertainty(observation.victim)
        self.effects.learn(observation)
        return LearningResult(ObservationResult.APPLIED, "", error_ratio)

    def _quarantine(self, reason: str, error_ratio: float) -> LearningResult:
        self.quarantined_count += 1
        return LearningResult(ObservationResult.QUARANTINED, reason, error_ratio)

    # --- undoing ----------------------------------------------------------------------------------------------------

    def set_savepoint(self) -> None:
        """Let `restore_savepoint` return to the present state, until the next savepoint."""
        for state in self._revertible_state():
            state.set_savepoint()
        self._savepoint = (self.global_test, self.observation_count, self.quarantined_count, self.alarm_count)

    def restore_savepoint(self) -> None:
        """Unlearn everything since the savepoint: what could not be stored must not be known."""
        for state in self._revertible_state():
            state.restore_savepoint()
        self.global_test, self.observation_count, self.quarantined_count, self.alarm_count = self._savepoint

    def _revertible_state(self) -> tuple[RevertibleDict[Any, Any], ...]:
        return (
            *self.effects.revertible_state(),
            self.drift_tests,
            self.frozen_tests,
            self.solo.rates,
            self.solo.pending,
        )

    # --- predicting -------------------------------------------------------------------------------------------------

    @property
    def _has_learned(self) -> bool:
        return bool(self.effects.as_victim or self.effects.as_neighbour or self.effects.pairs)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """The wrapped model's answer times exp(correction), its interval moved along and narrowed."""
        answer = self._inner.predict_pairs(batch)
        if not self._has_learned or len(batch) == 0:
            return answer
        effects = self.effects
        keys: list[WorkloadKey] = [(job.workload, batch.device_type, batch.mode) for job in batch.jobs]
        # 1. Observed pairs that are too novel for the wrapped model, and unprofiled jobs, get an uncorrected answer.
        if not (batch.allow_extrapolation or self.knows(batch.device_type, batch.mode)):
            answer = with_observed_pairs(answer, batch, keys, effects, self._inner)
        median, lower, upper = answer.median.copy(), answer.lower.copy(), answer.upper.copy()
        source, reason = list(answer.source), list(answer.reason)
        unprofiled = self.unprofiled.mask(keys, batch.jobs)
        for k in np.flatnonzero(unprofiled[batch.victim] | unprofiled[batch.neighbour]).tolist():
            pair = keys[batch.victim[k]], keys[batch.neighbour[k]]
            lower[k], median[k], upper[k] = (
                self.unprofiled.slowdown(*pair, level) for level in (LOWER_LEVEL, 0.5, UPPER_LEVEL)
            )
            source[k], reason[k] = Source.MODEL, ""
        # 2. The correction.
        measured = np.array(
            [
                keys[j][0] in self._base_predictions.measured_neighbours.get(keys[i], ())
                for i, j in zip(batch.victim.tolist(), batch.neighbour.tolist(), strict=True)
            ]
        )
        correction, sd_ratio = effects.corrections_and_sd_ratios(
            keys, batch.victim, batch.neighbour, np.log(median), measured
        )
        corrected = median * np.exp(np.clip(correction, -MAX_LOG_CORRECTION, MAX_LOG_CORRECTION))
        # Pairs of which nothing was learned stay as they are, to the last bit.
        moved = np.isfinite(median) & ((correction != 0) | (sd_ratio < 1))
        lower = np.where(moved, corrected * (lower / median) ** sd_ratio, lower)
        upper = np.where(moved, corrected * (upper / median) ** sd_ratio, upper)
        median = np.where(moved, corrected, median)
        for k in np.flatnonzero(moved).tolist():
            if source[k] is Source.MEASURED:  # a measurement that was corrected since is no longer the table's
                source[k] = Source.MODEL
        return replace(answer, median=median, lower=lower, upper=upper, source=tuple(source), reason=tuple(reason))

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Both matrices of the wrapped model, corrected like pairs."""
        answer = self._inner.predict_matrix(batch, quantile=quantile)
        if not self._has_learned or answer.victim_slowdown.size == 0:
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
                self.effects,
                lambda: self._inner.predict_matrix(extrapolated, quantile=quantile),
            )
        median = answer
        if quantile != 0.5:
            median = self._inner.predict_matrix(extrapolated)
        unprofiled_victims = self.unprofiled.mask(victims, batch.victims)
        unprofiled_neighbours = self.unprofiled.mask(neighbours, batch.neighbours)
        for i, j in zip(*np.nonzero(unprofiled_victims[:, None] | unprofiled_neighbours), strict=True):
            for matrix, level in ((answer, quantile), (median, 0.5)):
                matrix.victim_slowdown[i, j] = self.unprofiled.slowdown(victims[i], neighbours[j], level)
                matrix.neighbour_slowdown[i, j] = self.unprofiled.slowdown(neighbours[j], victims[i], level)
        # 2. The correction, in both directions.
        narrow = quantile != 0.5
        measured_neighbours = self._base_predictions.measured_neighbours
        victim_slowdown = correct_matrix(
            self.effects,
            measured_neighbours,
            victims,
            neighbours,
            answer.victim_slowdown,
            median.victim_slowdown,
            narrow=narrow,
        )
        neighbour_slowdown = correct_matrix(
            self.effects,
            measured_neighbours,
            neighbours,
            victims,
            answer.neighbour_slowdown.T,
            median.neighbour_slowdown.T,
            narrow=narrow,
        )
        return replace(
            answer,
            victim_slowdown=victim_slowdown,
            neighbour_slowdown=np.ascontiguousarray(neighbour_slowdown.T),
        )

    # --- state ------------------------------------------------------------------------------------------------------

    def drifting_workloads(self) -> tuple[str, ...]:
        """Sorted workloads that drift: nothing is learned of them until their windows are consistent again."""
        return tuple(sorted({workload for workload, _, _ in self.frozen_tests}))

    def summary(self) -> dict[str, int]:
        """Counts of what this state was built from, for GetModel."""
        return {
            "observations": self.observation_count,
            "pending_solo": self.solo.pending_count(),
            "solo_rates": len(self.solo.rates),
            "corrected_jobs": len(self.effects.as_victim),
            "corrected_pairs": len(self.effects.pairs),
            "quarantined": self.quarantined_count,
            "frozen_jobs": len(self.frozen_tests),
            "alarms": self.alarm_count,
        }
