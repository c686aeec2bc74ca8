"""Online correction: a measured pair moves the next prediction of that pair, and of its jobs in other pairs.

The state is a pure fold over windows: the same windows in the same order give the same state, whatever their
timestamps. `OnlineModel` wraps a `Predictor`; what it learns is defined in `interfere.predict.online.belief`.

Laws: a window never moves the prediction of its pair away from the observed slowdown, nor past it; pairs that share no
job with it keep their predictions, unless it shows that the software stack of their device type has changed.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.predict.measured import StepTimes, contradicts
from interfere.predict.online.base_predictions import BasePredictions, ResolveProfile
from interfere.predict.online.belief import Belief, LearnedWindow
from interfere.predict.online.belief_state import BeliefState, PairObservation
from interfere.predict.online.corrected_quantiles import (
    corrected_matrix,
    corrected_median,
    corrected_quantile,
    measured_cells,
)
from interfere.predict.online.novel_pairs import with_observed_cells, with_observed_pairs
from interfere.predict.online.pair_corrections import Corrections, PairCorrections
from interfere.predict.online.prior import ResidualPrior, WorkloadKey, default_prior
from interfere.predict.online.solo_rates import MAX_PENDING_WINDOWS, MAX_RATE, MIN_RATE, SoloRate, window_slowdown
from interfere.predict.online.stand_in_profiles import ResolveElsewhere, StandInProfiles
from interfere.protocols import Predictor
from interfere.records import (
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    NAN,
    JobProfile,
    MatrixBatch,
    MatrixPrediction,
    ObservationResult,
    PairBatch,
    Prediction,
    Progress,
    ReporterWeight,
    Source,
)

LOWER_LEVEL, UPPER_LEVEL = 0.05, 0.95  # quantiles of a Prediction's interval
# Observed ordered pairs after which a device type that the model never saw is answered, with intervals that say how
# little is known: on Gavel's table they hold .94 to 1.00 of the other pairs from 5 pairs on.
MIN_DOMAIN_PAIRS = 5


class LearningResult(NamedTuple):
    """What was done with a window, why, |measured / predicted - 1| of the prediction before it, and its weight."""

    result: ObservationResult
    reason: str = ""
    error_ratio: float = NAN
    weight: float = NAN  # with which it was learned, between 0 and 1; NaN for what is no window of a pair


class OnlineModel:
    """Wraps a `Predictor` and learns from `Progress`. One caller learns; a `snapshot` may be read meanwhile."""

    def __init__(
        self,
        inner: Predictor,
        prior: ResidualPrior | None = None,
        *,
        measured: Iterable[tuple[str, str, str, str]] = (),
        step_times: StepTimes | None = None,
        elsewhere: ResolveElsewhere = lambda _: None,
    ) -> None:
        """Wrap `inner`, with nothing learned yet.

        `prior`: of the errors of `inner`; None for the default one. `measured`: (victim, neighbour, device type, mode)
        of the pairs that `inner` answers by a measurement, to which the model's errors do not matter, unless a profile
        contradicts the `step_times` of the measured jobs. `elsewhere` finds a workload's profile on any device type.
        """
        self._inner = inner
        self._elsewhere = elsewhere
        self.belief = Belief(prior or default_prior(), BeliefState(), self._is_trained_on)
        self._saved: BeliefState | None = None
        self._step_times = step_times or {}
        self._base_predictions = BasePredictions(inner, self.belief.effects, measured, self._step_times)
        self._corrections = PairCorrections(self.belief.effects)
        self.stand_ins = StandInProfiles(self.belief.effects, elsewhere)

    @property
    def state(self) -> BeliefState:
        """Everything that was learned."""
        return self.belief.state

    @state.setter
    def state(self, state: BeliefState) -> None:
        self.belief.effects.state = state

    @property
    def version(self) -> str:
        """Version of the wrapped model; corrections do not change it."""
        return self._inner.version

    def knows(self, device_type: str, mode: str) -> str:
        """Empty when the wrapped model knows this domain or enough of its pairs were observed, else why not."""
        unknown_domain = self._inner.knows(device_type, mode)
        domain = self.state.domains.get((device_type, mode))
        if not unknown_domain or (domain is not None and domain.pair_count >= MIN_DOMAIN_PAIRS):
            return ""
        observed = f"; {domain.pair_count} of {MIN_DOMAIN_PAIRS} pairs were observed" if domain else ""
        return unknown_domain + observed

    def _is_trained_on(self, device_type: str, mode: str) -> bool:
        return not self._inner.knows(device_type, mode)

    def _may_extrapolate(self, batch: PairBatch | MatrixBatch) -> bool:
        """Whether the wrapped model may extrapolate: by request, or because enough of a new domain was observed."""
        domain = batch.device_type, batch.mode
        return batch.allow_extrapolation or not (self._is_trained_on(*domain) or self.knows(*domain))

    # --- learning ---------------------------------------------------------------------------------------------------

    def observe(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Learn from one window.

        A solo window teaches the job's solo rate; a shared window without a known solo rate stays pending until then.
        From the windows of a muted reporter nothing is learned.
        """
        state = self.state
        state.observation_count += 1
        if self._operator_weight(window) <= 0.0:
            state.down_weighted_count += 1
            return LearningResult(ObservationResult.QUARANTINED, f"reporter {window.reporter!r} is muted", weight=0.0)
        if not window.company:
            return self._learn_solo(window, resolve)
        solo_key = window.workload, window.device_type
        if math.isnan(window_slowdown(window, state.solo_rates.get(solo_key))) and len(window.company) == 1:
            self._keep_pending(solo_key, window)
            return LearningResult(
                ObservationResult.PENDING_SOLO,
                f"no solo window of {window.workload} on {window.device_type} yet: this one is applied after the first",
            )
        return self._learn_shared(window, resolve)

    def weigh_reporter(self, order: ReporterWeight) -> None:
        """Learn from later windows of a reporter with this weight."""
        self.state.reporter_weights[order.reporter] = order.weight

    def _operator_weight(self, window: Progress) -> float:
        return self.state.reporter_weights.get(window.reporter, 1.0)

    def prefetch(self, windows: Sequence[Progress], resolve: ResolveProfile) -> None:
        """Ask the wrapped model about all pairs of these windows at once, so that `observe` finds them in the cache."""
        pairs_by_domain: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
        for window in windows:
            if len(window.company) == 1:
                pair = (window.workload, window.company[0])
                pairs_by_domain.setdefault((window.device_type, window.mode), {})[pair] = None
        for (device_type, mode), pairs in pairs_by_domain.items():
            self._base_predictions.predict(list(pairs), device_type, mode, self.stand_ins.resolver(resolve))

    def _learn_solo(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        if math.isnan(window.steps):
            return LearningResult(ObservationResult.REJECTED, "a solo window has no slowdown: send steps")
        if window.steps <= 0:
            return LearningResult(
                ObservationResult.REJECTED, "a solo window without a step teaches no rate: send a longer window"
            )
        steps_per_s = window.steps / (window.end_s - window.start_s)
        if not MIN_RATE <= steps_per_s <= MAX_RATE:
            reason = f"{steps_per_s:.3g} steps per second is no rate of a job: send steps, and times in seconds"
            return LearningResult(ObservationResult.REJECTED, reason)
        key = window.workload, window.device_type
        rate = self.state.solo_rates.get(key, SoloRate()).with_window(window.steps, window.end_s - window.start_s)
        self.state.solo_rates[key] = rate
        for pending in self.state.pending.pop(key, ()):
            self._learn_shared(pending, resolve)
        return LearningResult(ObservationResult.APPLIED)

    def _learn_shared(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        if len(window.company) != 1:
            return LearningResult(
                ObservationResult.REJECTED,
                f"a window of {len(window.company) + 1} co-located jobs teaches no pair: send windows of pairs",
            )
        slowdown = window_slowdown(window, self.state.solo_rates.get((window.workload, window.device_type)))
        if not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
            return LearningResult(
                ObservationResult.REJECTED,
                f"slowdown {slowdown:.3g} lies outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]: check steps and solo rate",
            )
        pair = (window.workload, window.company[0])
        resolver = self.stand_ins.resolver(resolve)
        (base,) = self._base_predictions.predict([pair], window.device_type, window.mode, resolver)
        if math.isnan(base.log_median):
            return self._keep_unknown(window, resolver)
        learned = self.belief.learn(
            PairObservation(
                victim=(window.workload, window.device_type, window.mode),
                neighbour=(window.company[0], window.device_type, window.mode),
                log_predicted=base.log_median,
                log_observed=math.log(slowdown),
                measured=base.measured,
                reporter=window.reporter,
                families=base.families,
                weight=self._operator_weight(window),
            )
        )
        return self._result(window, learned)

    def _keep_unknown(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Keep a window of a job without any facts until a solo window or a profile tells something of it."""
        missing = [name for name in (window.workload, *window.company) if resolve(name, window.device_type) is None]
        if not missing:
            return LearningResult(
                ObservationResult.REJECTED, f"the model cannot predict {window.device_type}/{window.mode}: retrain it"
            )
        self._keep_pending((missing[0], window.device_type), window)
        return LearningResult(
            ObservationResult.PENDING_SOLO,
            f"nothing is known of {', '.join(missing)} on {window.device_type}: kept until a window alone or a profile "
            "of each was sent",
        )

    def _keep_pending(self, key: tuple[str, str], window: Progress) -> None:
        self.state.pending[key] = (*self.state.pending.get(key, ()), window)[-MAX_PENDING_WINDOWS:]

    def _result(self, window: Progress, learned: LearnedWindow) -> LearningResult:
        """The window's weight and why it is low, or which epoch it began."""
        error_ratio = abs(math.expm1(learned.error))
        if not learned.is_outlier:
            reasons = {
                "pair": f"{window.workload} beside {window.company[0]} has changed: its level is learned anew",
                "job": f"{window.workload} has changed: its level is learned anew",
                "domain": f"the jobs on {window.device_type} have changed together: all of them are learned anew",
            }
            reason = reasons.get(learned.epoch, "")
            return LearningResult(ObservationResult.APPLIED, reason, error_ratio, learned.weight)
        self.state.down_weighted_count += 1
        reason = (
            f"{math.exp(learned.error):.3g} × the prediction, {abs(learned.error / learned.sd):.0f} standard "
            f"deviations off: learned with weight {learned.weight:.2g}, more once other windows agree"
        )
        return LearningResult(ObservationResult.QUARANTINED, reason, error_ratio, learned.weight)

    # --- snapshots --------------------------------------------------------------------------------------------------

    def snapshot(self, elsewhere: ResolveElsewhere | None = None) -> "OnlineModel":
        """A model with the present state, for any number of readers: what this one learns later does not reach it.

        Its time grows with the number of jobs, not with that of windows. `elsewhere`: as in the constructor, of the
        catalogue that its readers use; None for that of this model.
        """
        copied = OnlineModel.__new__(OnlineModel)
        copied._inner, copied._saved, copied._elsewhere = self._inner, None, elsewhere or self._elsewhere
        copied.belief = Belief(self.belief.prior, self.state.copy(), self._is_trained_on)
        copied._base_predictions, copied._step_times = self._base_predictions, self._step_times
        copied._corrections = PairCorrections(copied.belief.effects)
        copied.stand_ins = self.stand_ins.of_snapshot(copied.belief.effects, copied._elsewhere)
        return copied

    def set_savepoint(self) -> None:
        """Let `restore_savepoint` return to the present state, until the next savepoint."""
        self._saved = self.state.copy()

    def restore_savepoint(self) -> None:
        """Unlearn everything since the savepoint: what could not be stored must not be known."""
        if self._saved is not None:
            self.state, self._saved = self._saved, None

    # --- predicting -------------------------------------------------------------------------------------------------

    @property
    def _has_learned(self) -> bool:
        return bool(self.state.domains)

    def predict_pairs(self, batch: PairBatch) -> Prediction:
        """The wrapped model's answer times exp(correction), its interval moved along and as wide as the belief."""
        batch = replace(batch, allow_extrapolation=self._may_extrapolate(batch))
        answer = self._inner.predict_pairs(batch)
        if not self._has_learned or len(batch) == 0:
            return answer
        keys: list[WorkloadKey] = [(job.workload, batch.device_type, batch.mode) for job in batch.jobs]
        # 1. Observed pairs that are too novel for the wrapped model, and unprofiled jobs, get an uncorrected answer.
        if not (batch.allow_extrapolation or self.knows(batch.device_type, batch.mode)):
            answer = with_observed_pairs(answer, batch, keys, self.state, self._inner)
        median, lower, upper = answer.median.copy(), answer.lower.copy(), answer.upper.copy()
        source, reason = list(answer.source), list(answer.reason)
        unprofiled = self.stand_ins.mask(keys, batch.jobs)
        for k in np.flatnonzero(unprofiled[batch.victim] | unprofiled[batch.neighbour]).tolist():
            pair = keys[batch.victim[k]], keys[batch.neighbour[k]]
            lower[k], median[k], upper[k] = (
                self.stand_ins.slowdown(*pair, level) for level in (LOWER_LEVEL, 0.5, UPPER_LEVEL)
            )
            source[k], reason[k] = Source.MODEL, ""
        # 2. The correction.
        measured_neighbours = self._base_predictions.measured_neighbours
        is_current = [not contradicts(job, self._step_times) for job in batch.jobs]
        measured = np.array(
            [
                is_current[i] and is_current[j] and keys[j][0] in measured_neighbours.get(keys[i], ())
                for i, j in zip(batch.victim.tolist(), batch.neighbour.tolist(), strict=True)
            ]
        )
        families = [job.family for job in batch.jobs]
        corrections = self._corrections.pair_beliefs(
            keys, families, batch.victim, batch.neighbour, np.log(median), measured
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

    def predict_matrix(self, batch: MatrixBatch, *, quantile: float = 0.5) -> MatrixPrediction:
        """Both matrices of the wrapped model, corrected like pairs."""
        batch = replace(batch, allow_extrapolation=self._may_extrapolate(batch))
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
                self.state,
                lambda: self._inner.predict_matrix(extrapolated, quantile=quantile),
            )
        median = answer
        if quantile != 0.5:
            median = self._inner.predict_matrix(extrapolated)
        unprofiled_victims = self.stand_ins.mask(victims, batch.victims)
        unprofiled_neighbours = self.stand_ins.mask(neighbours, batch.neighbours)
        for i, j in zip(*np.nonzero(unprofiled_victims[:, None] | unprofiled_neighbours), strict=True):
            for matrix, level in ((answer, quantile), (median, 0.5)):
                matrix.victim_slowdown[i, j] = self.stand_ins.slowdown(victims[i], neighbours[j], level)
                matrix.neighbour_slowdown[i, j] = self.stand_ins.slowdown(neighbours[j], victims[i], level)
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
        """The corrections of victims beside neighbours, of which `median` is the prediction."""
        families = [job.family for job in jobs[0]], [job.family for job in jobs[1]]
        rows, columns = (np.array([not contradicts(job, self._step_times) for job in side]) for side in jobs)
        return self._corrections.matrix_beliefs(
            *keys,
            families,
            np.log(median.astype(np.float64)),
            measured_cells(self._base_predictions.measured_neighbours, *keys) & rows[:, None] & columns,
            with_variances=quantile != 0.5,
        )

    @property
    def alarm_count(self) -> int:
        """Changes found so far: of pairs, of jobs and of whole domains."""
        return self.state.alarm_count

    # --- state ------------------------------------------------------------------------------------------------------

    def drifting_workloads(self) -> tuple[str, ...]:
        """Sorted workloads whose recent windows speak for a change that is not decided yet."""
        return tuple(sorted({key[0] for key, history in self.state.histories.items() if history.is_changing}))

    def summary(self) -> dict[str, int]:
        """Counts of what this state was built from, for GetModel."""
        state = self.state
        return {
            "observations": state.observation_count,
            "pending_solo": sum(map(len, state.pending.values())),
            "solo_rates": len(state.solo_rates),
            "corrected_jobs": len(state.own_shift),
            "corrected_pairs": state.pair_count,
            "quarantined": state.down_weighted_count,
            "alarms": state.alarm_count,
        }
