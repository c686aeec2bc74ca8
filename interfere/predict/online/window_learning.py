"""Learns from windows: of a job alone its solo rate, of a pair its slowdown; tells what was done with each.

A shared window without a solo rate, or of a job without any facts, stays pending until one comes.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from interfere.predict.online.base_predictions import BasePredictions, ResolveProfile
from interfere.predict.online.belief import Belief, LearnedWindow
from interfere.predict.online.belief_state import BeliefState, PairObservation
from interfere.predict.online.solo_rates import MAX_PENDING_WINDOWS, MAX_RATE, MIN_RATE, SoloRate, window_slowdown
from interfere.predict.online.stand_in_profiles import StandInProfiles
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, ObservationResult, Progress, ReporterWeight


class LearningResult(NamedTuple):
    """What was done with a window, why, |measured / predicted - 1| of the prediction before it, and its weight."""

    result: ObservationResult
    reason: str = ""
    error_ratio: float = NAN
    weight: float = NAN  # with which it was learned, between 0 and 1; NaN for what is no window of a pair


class WindowLearner:
    """Learns windows into the state of a belief. Not thread-safe."""

    def __init__(self, belief: Belief, base_predictions: BasePredictions, stand_ins: StandInProfiles) -> None:
        self._belief, self._base_predictions, self._stand_ins = belief, base_predictions, stand_ins

    @property
    def _state(self) -> BeliefState:
        return self._belief.state

    def observe(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Learn from one window.

        A solo window teaches the job's solo rate; a shared window without a known solo rate stays pending until then.
        From the windows of a muted reporter nothing is learned.
        """
        state = self._state
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
        self._state.reporter_weights[order.reporter] = order.weight

    def _operator_weight(self, window: Progress) -> float:
        return self._state.reporter_weights.get(window.reporter, 1.0)

    def prefetch(self, windows: Sequence[Progress], resolve: ResolveProfile) -> None:
        """Ask the wrapped model about all pairs of these windows at once, so that `observe` finds them in the cache."""
        pairs_by_domain: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
        for window in windows:
            if len(window.company) == 1:
                pair = (window.workload, window.company[0])
                pairs_by_domain.setdefault((window.device_type, window.mode), {})[pair] = None
        for (device_type, mode), pairs in pairs_by_domain.items():
            self._base_predictions.predict(list(pairs), device_type, mode, self._stand_ins.resolver(resolve))

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
        rate = self._state.solo_rates.get(key, SoloRate()).with_window(window.steps, window.end_s - window.start_s)
        self._state.solo_rates[key] = rate
        for pending in self._state.pending.pop(key, ()):
            self._learn_shared(pending, resolve)
        return LearningResult(ObservationResult.APPLIED)

    def _learn_shared(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        if len(window.company) != 1:
            return LearningResult(
                ObservationResult.REJECTED,
                f"a window of {len(window.company) + 1} co-located jobs teaches no pair: send windows of pairs",
            )
        slowdown = window_slowdown(window, self._state.solo_rates.get((window.workload, window.device_type)))
        if not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
            return LearningResult(
                ObservationResult.REJECTED,
                f"slowdown {slowdown:.3g} lies outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]: check steps and solo rate",
            )
        pair = (window.workload, window.company[0])
        resolver = self._stand_ins.resolver(resolve)
        (base,) = self._base_predictions.predict([pair], window.device_type, window.mode, resolver)
        if math.isnan(base.log_median):
            return self._keep_unknown(window, resolver)
        learned = self._belief.learn(
            PairObservation(
                victim=(window.workload, window.device_type, window.mode),
                neighbour=(window.company[0], window.device_type, window.mode),
                log_predicted=base.log_median,
                log_observed=math.log(slowdown),
                measured=base.measured,
                reporter=window.reporter,
                families=base.families,
                weight=self._operator_weight(window),
                coordinates=base.coordinates,
            )
        )
        return self._result(window, learned)

    def _keep_unknown(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Keep a window that the model predicts nothing for until a solo window, a profile or another model comes."""
        missing = [name for name in (window.workload, *window.company) if resolve(name, window.device_type) is None]
        self._keep_pending((missing[0] if missing else window.workload, window.device_type), window)
        if not missing:
            return LearningResult(
                ObservationResult.PENDING_SOLO,
                f"the model predicts nothing for {window.workload} beside {window.company[0]} on "
                f"{window.device_type}/{window.mode}: kept until another model is served",
            )
        return LearningResult(
            ObservationResult.PENDING_SOLO,
            f"nothing is known of {', '.join(missing)} on {window.device_type}: kept until a window alone or a profile "
            "of each was sent",
        )

    def _keep_pending(self, key: tuple[str, str], window: Progress) -> None:
        self._state.pending[key] = (*self._state.pending.get(key, ()), window)[-MAX_PENDING_WINDOWS:]

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
        self._state.down_weighted_count += 1
        reason = (
            f"{math.exp(learned.error):.3g} × the prediction, {abs(learned.error / learned.sd):.0f} standard "
            f"deviations off: learned with weight {learned.weight:.2g}, more once other windows agree"
        )
        return LearningResult(ObservationResult.QUARANTINED, reason, error_ratio, learned.weight)
