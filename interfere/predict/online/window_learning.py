"""Learns from observation windows: solo rates from windows of a job alone, slowdowns from windows of shared devices.

A window of a job beside several others updates each of its pairs in proportion to the pair's share of the predicted
excess (`interfere.predict.groups`); all pairs together count as one window of a pair. A shared window of a
job without a solo rate or without any facts stays pending until the rate or the facts arrive.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from interfere.predict.groups import common_log_error, composed_slowdown, copy_shares, excess_shares
from interfere.predict.online.base_predictions import BasePredictions, ResolveProfile
from interfere.predict.online.belief import Belief, LearnedWindow
from interfere.predict.online.belief_state import BeliefState, DomainKey, PairObservation
from interfere.predict.online.stand_in_profiles import StandInProfiles
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, ObservationResult, Progress, ReporterWeight
from interfere.records.checks import MIN_WEIGHT
from interfere.records.solo_rates import MAX_RATE, MIN_RATE, SoloRate, window_slowdown

MAX_PENDING_WINDOWS = 256  # newest pending windows per job in memory: more teach nothing more; the store keeps all
Z90 = 1.645  # standard deviations from the median to either end of a 90 % interval


class LearningResult(NamedTuple):
    """What was done with a window and why, its relative prediction error |measured / predicted - 1|, its weight."""

    result: ObservationResult
    reason: str = ""
    error_ratio: float = NAN
    weight: float = NAN  # weight in learning, between 0 and 1; NaN for a window that is not of a pair


class WindowLearner:
    """Updates the state of a belief by windows. Not thread-safe."""

    def __init__(self, belief: Belief, base_predictions: BasePredictions, stand_ins: StandInProfiles) -> None:
        self._belief, self._base_predictions, self._stand_ins = belief, base_predictions, stand_ins

    @property
    def _state(self) -> BeliefState:
        return self._belief.state

    def observe(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Learn from one window.

        A solo window teaches the job's solo rate; a shared window without a known solo rate stays pending until then.
        Windows of a muted reporter are ignored.
        """
        state = self._state
        state.observation_count += 1
        if self._operator_weight(window) <= 0.0:
            state.down_weighted_count += 1
            return LearningResult(ObservationResult.QUARANTINED, f"reporter {window.reporter!r} is muted", weight=0.0)
        if not window.company:
            return self._learn_solo(window, resolve)
        solo_key = window.workload, window.device_type
        if math.isnan(window_slowdown(window, state.solo_rates.get(solo_key))):
            self._keep_pending(solo_key, window)
            return LearningResult(
                ObservationResult.PENDING_SOLO,
                f"no solo window of {window.workload} on {window.device_type} yet: this one is applied after the first",
            )
        return self._learn_shared(window, resolve)

    def weigh_reporter(self, order: ReporterWeight) -> None:
        """Set the weight of a reporter's later windows; one so small that its shares vanish mutes the reporter."""
        self._state.reporter_weights[order.reporter] = order.weight if order.weight >= MIN_WEIGHT else 0.0

    def _operator_weight(self, window: Progress) -> float:
        return self._state.reporter_weights.get(window.reporter, 1.0)

    def prefetch(self, windows: Sequence[Progress], resolve: ResolveProfile) -> None:
        """Predict all pairs of these windows in one batch, so that `observe` finds the predictions in the cache."""
        pairs_by_domain: dict[DomainKey, dict[tuple[str, str], None]] = {}
        for window in windows:
            pairs = dict.fromkeys((window.workload, neighbour) for neighbour in window.company)
            if pairs:
                pairs_by_domain.setdefault((window.device_type, window.mode), {}).update(pairs)
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
            if self._operator_weight(pending) > 0.0:  # its reporter was not muted meanwhile
                self._learn_shared(pending, resolve)
        return LearningResult(ObservationResult.APPLIED)

    def _learn_shared(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        slowdown = window_slowdown(window, self._state.solo_rates.get((window.workload, window.device_type)))
        if not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
            return LearningResult(
                ObservationResult.REJECTED,
                f"slowdown {slowdown:.3g} lies outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]: check steps and solo rate",
            )
        resolver = self._stand_ins.resolver(resolve)
        neighbours = sorted(set(window.company))
        pairs = [(window.workload, neighbour) for neighbour in neighbours]
        bases = self._base_predictions.predict(pairs, window.device_type, window.mode, resolver)
        if any(math.isnan(base.log_median) for base in bases):
            return self._keep_unknown(window, resolver)
        observations = [
            PairObservation(
                victim=(window.workload, window.device_type, window.mode),
                neighbour=(neighbour, window.device_type, window.mode),
                log_predicted=base.log_median,
                log_observed=math.log(slowdown),
                measured=base.measured,
                reporter=window.reporter,
                device=window.device_id,
                families=base.families,
                weight=self._operator_weight(window),
                coordinates=base.coordinates,
            )
            for neighbour, base in zip(neighbours, bases, strict=True)
        ]
        if len(window.company) == 1:
            return self._result(window, self._belief.learn(observations[0]))
        return self._learn_group(window, math.log(slowdown), observations, resolve)

    def _learn_group(
        self, window: Progress, log_slowdown: float, observations: Sequence[PairObservation], resolve: ResolveProfile
    ) -> LearningResult:
        """Learn from a window of a job beside two or more neighbours; every distinct pair is updated."""
        # 1. Compose the slowdown that is expected.
        domain = self._belief.domain((window.device_type, window.mode))
        expected = [each.log_predicted + self._belief.effects.expected(each, domain).mean for each in observations]
        index_of = {each.neighbour[0]: k for k, each in enumerate(observations)}
        places = [index_of[name] for name in sorted(window.company)]
        slowdowns = [math.exp(expected[k]) for k in places]
        composition = self._base_predictions.composition(window.device_type, window.mode)
        members = [resolve(name, window.device_type) for name in (window.workload, *window.company)]
        copies = copy_shares([members], resolve)
        # 2. Share the error among the pairs.
        log_error = common_log_error(slowdowns, math.exp(log_slowdown), composition, copies)
        shares = np.bincount(places, weights=excess_shares(slowdowns))
        reach = float(composition.log_distance(0.0, len(places), copies=copies))
        learned = self._belief.learn_group(
            [
                replace(
                    each,
                    log_observed=log_of_pair + log_error,
                    weight=each.weight * float(share),
                    composition_var=(reach / Z90) ** 2,
                )
                for each, log_of_pair, share in zip(observations, expected, shares, strict=True)
            ]
        )
        # 3. Return the error of the group.
        error = log_slowdown - math.log(composed_slowdown(slowdowns, composition, copies))
        scale = abs(error / learned.error) if learned.error else 1.0
        return self._result(window, replace(learned, error=error, sd=learned.sd * scale))

    def _keep_unknown(self, window: Progress, resolve: ResolveProfile) -> LearningResult:
        """Keep a window without a prediction pending until a solo window, a profile or another model arrives."""
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
        """Return the window's weight with the reason for a low weight, or the epoch that the window began."""
        error_ratio = abs(math.expm1(learned.error))
        if not learned.is_outlier:
            reasons = {
                "pair": f"{window.workload} beside {', '.join(window.company)} has changed: its level is learned anew",
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
