"""The posterior over slowdowns, updated by one observation window of a pair at a time; no clock, I/O or profiles.

Every window is learned with a weight between 0 and 1 under heavy-tailed noise, whose variance is learned per stream.
If windows agree with one another but not with the posterior, a new epoch begins: of one pair, of one job
(`change_points`) or of the whole domain (`interfere.predict.field.smoothing`).

Law: the state is the fold of its windows in their order; equal windows give equal states.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from interfere.predict.field.smoothing import Smoother
from interfere.predict.online import shifts
from interfere.predict.online.belief_state import (
    NO_EFFECT,
    BeliefState,
    DomainBelief,
    DomainKey,
    NuisanceEffect,
    PairObservation,
    RecentWindow,
    ReporterRecord,
    Update,
)
from interfere.predict.online.change_points import JobHistory, LevelTest
from interfere.predict.online.effects import Effects, Expectation
from interfere.predict.online.noise import StreamNoise, student_weight
from interfere.predict.online.prior import ResidualPrior
from interfere.sharing_modes import SharingMode

# A window is told to its reporter as down-weighted where it is an outlier of its stream, or its stream has seven times
# the noise of others.
LOW_STUDENT_WEIGHT, LOW_WEIGHT = 0.1, 0.02
MAX_ERROR_SD = 3.0  # standard deviations: larger errors of a window are clipped to this value
REPORTER_DECAY = 0.995  # per window of the reporter: about its last two hundred windows count
# A reporter may begin an epoch by itself when its windows usually agreed, or when it has reported this often.
MIN_TRUST, MIN_TRUSTED_WINDOWS = 0.3, 100.0
CONTRADICTED_WEIGHT = 0.3  # a window with less Student weight contradicts what was believed


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedWindow:
    """The result of learning one window."""

    weight: float  # information relative to a usual window: Student's weight, times the domain's ÷ the stream's noise
    is_outlier: bool
    error: float  # log observed - log of the corrected prediction before the window
    sd: float  # expected standard deviation of `error` before the window
    epoch: str = ""  # "pair", "job" or "domain" where a new epoch began with this window
    since: int = 0  # windows of the domain since its stack changed, where a new epoch of it began


class Belief:
    """Learns windows into a `BeliefState`. Not thread-safe; readers use a copy of the state."""

    def __init__(
        self, prior: ResidualPrior, state: BeliefState, knows: Callable[[str, SharingMode], bool] = lambda *_: True
    ) -> None:
        """Set the prior and the state to update; `knows` tells whether the model was trained on a domain."""
        self.prior, self.effects = prior, Effects(prior, state, knows)
        self._smoother = Smoother(self.effects)

    @property
    def state(self) -> BeliefState:
        """Return the state that learning updates."""
        return self.effects.state

    def domain(self, key: DomainKey) -> DomainBelief:
        """Return the posterior of a domain, or the prior for a domain without windows."""
        return self.state.domains.get(key) or self.effects.fresh_domain(key)

    def learn(self, observation: PairObservation) -> LearnedWindow:
        """Learn one window of a pair and return what was learned."""
        learned = self._learn_window(observation)
        return self._smoothed(observation, learned)

    def _learn_window(self, observation: PairObservation) -> LearnedWindow:
        """Learn one window by itself."""
        state, domain_key = self.state, shifts.domain_of(observation.victim)
        domain = self.domain(domain_key)
        # 1. Compare the window with what is expected of its jobs, its reporter and its device.
        expected = self.effects.expected(observation, domain)
        told_error = observation.log_observed - observation.log_predicted - expected.mean
        nuisance = self._nuisance(observation)
        corrected = replace(observation, log_observed=observation.log_observed - nuisance.mean)
        first_error = error = told_error - nuisance.mean
        stream_key = observation.reporter, observation.victim
        stream = state.streams.get(stream_key, StreamNoise())
        noise_before = stream.variance(domain.noise_var) + nuisance.variance
        first_sd = math.sqrt(expected.variance + noise_before)
        # 2. Begin a new epoch of the job or of the pair where its windows agree on another level.
        epoch = ""
        if test := self._level_test(corrected, error, expected.variance, noise_before):
            epoch = "job" if test.several_neighbours else "pair"
            domain = self._begin_epoch(corrected, domain, test, error)
            state.alarm_count += 1
            stream = StreamNoise(test.noise_var * stream.window_count, stream.window_count)
            expected = self.effects.expected(observation, domain)
            error = corrected.log_observed - observation.log_predicted - expected.mean
        # 3. Learn the noise of the stream, and then the window with its weight.
        stream = stream.with_window(error, expected.variance, domain.noise_var)
        state.streams[stream_key] = stream
        noise_var = stream.variance(domain.noise_var) + nuisance.variance
        student = student_weight(error, expected.variance + noise_var)
        information = student * min(1.0, domain.noise_var / noise_var)
        domain = self._learn_effects(corrected, domain, expected, noise_var)
        self._record_reporter(observation, information)
        # 4. Keep the window among the domain's recent ones.
        domain = replace(
            domain,
            window_count=domain.window_count + 1,
            contradictions=domain.contradictions + (student < CONTRADICTED_WEIGHT),
        )
        self._keep(observation, domain, first_error, expected.variance)
        return LearnedWindow(
            weight=observation.weight * information,
            is_outlier=student < LOW_STUDENT_WEIGHT or information < LOW_WEIGHT,
            error=told_error,
            sd=first_sd,
            epoch=epoch,
        )

    def _nuisance(self, observation: PairObservation) -> NuisanceEffect:
        """Return what a window's reporter and device add to it, as far as the last smoothing told."""
        nuisances = self.state.nuisances.get(shifts.domain_of(observation.victim))
        return nuisances.of(observation) if nuisances else NO_EFFECT

    def _keep(self, observation: PairObservation, domain: DomainBelief, error: float, variance: float) -> None:
        """Store a domain with one more recent window."""
        window = RecentWindow(observation, error, variance)
        key = shifts.domain_of(observation.victim)
        self.state.domains[key] = replace(domain, recent=(*domain.recent, window))

    def _smoothed(self, observation: PairObservation, learned: LearnedWindow) -> LearnedWindow:
        """Explain the recent windows of a window's domain together where that is due."""
        key = shifts.domain_of(observation.victim)
        domain = self.state.domains[key]
        if not self._smoother.is_due(domain):
            return learned
        self.state.domains[key], since = self._smoother.smooth(key, domain)
        if not since:
            return learned
        self.state.alarm_count += 1
        for stream_key in [each for each in self.state.streams if shifts.domain_of(each[1]) == key]:
            del self.state.streams[stream_key]
        for victim in [each for each in self.state.histories if shifts.domain_of(each) == key]:
            del self.state.histories[victim]
        for state in (self.state, self.state.anchors[key]):  # what looked like changes of jobs was that of the stack
            state.changed_jobs = {each for each in state.changed_jobs if shifts.domain_of(each) != key}
        return replace(learned, epoch="domain", since=since)

    def learn_group(self, observations: Sequence[PairObservation]) -> LearnedWindow:
        """Learn one window of a job beside several others, given as one observation per pair.

        The weights of the observations add up to at most one window. Noise, reporter and epochs are updated only by
        the pair with the largest weight; the other pairs only update the effects.
        """
        leading, *others = sorted(observations, key=lambda each: (-each.weight, each.neighbour))
        learned = self._learn_window(leading)
        for observation in others:
            domain = self.domain(shifts.domain_of(leading.victim))
            stream = self.state.streams.get((observation.reporter, observation.victim), StreamNoise())
            expected = self.effects.expected(observation, domain)
            nuisance = self._nuisance(observation)
            noise_var = stream.variance(domain.noise_var) + nuisance.variance
            corrected = replace(observation, log_observed=observation.log_observed - nuisance.mean)
            error = corrected.log_observed - observation.log_predicted - expected.mean
            self._keep(
                observation, self._learn_effects(corrected, domain, expected, noise_var), error, expected.variance
            )
        learned = self._smoothed(leading, learned)
        return replace(learned, weight=learned.weight * sum(each.weight for each in observations) / leading.weight)

    def _learn_effects(
        self, observation: PairObservation, domain: DomainBelief, expected: Expectation, noise_var: float
    ) -> DomainBelief:
        """Update the effects by one window with Student's noise of this variance; return the domain's posterior."""
        error = observation.log_observed - observation.log_predicted - expected.mean
        total_var = expected.variance + noise_var
        student = student_weight(error, total_var)
        bound = MAX_ERROR_SD * math.sqrt(total_var)
        update = Update(
            error=min(max(error, -bound), bound),
            variance=expected.variance + noise_var / student,
            weight=observation.weight,
            forgetting=observation.weight * student * min(1.0, domain.noise_var / noise_var),
        )
        return self.effects.learn(observation, domain, update)

    # --- epochs of jobs and pairs -----------------------------------------------------------------------------------

    def _level_test(
        self, observation: PairObservation, error: float, prediction_var: float, noise_var: float
    ) -> LevelTest | None:
        """Return the change-point test of the job if this window makes it find a new level, else None."""
        state, reporter = self.state, observation.reporter
        history = state.histories.get(observation.victim, JobHistory()).with_window(
            reporter, error, prediction_var, noise_var, observation.neighbour[0]
        )
        test = history.agreed_change(reporter)
        if test is not None and not self._may_begin_epoch(reporter):
            test = None
        state.histories[observation.victim] = history.restarted() if test else history
        return test

    def _may_begin_epoch(self, reporter: str) -> bool:
        """Return whether the windows of a reporter may begin an epoch of a job."""
        record = self.state.reporters.get(reporter)
        if len(self.state.reporters) <= 1 or record is None:
            return record is not None or not self.state.reporters
        return record.trust >= MIN_TRUST or record.window_count >= MIN_TRUSTED_WINDOWS

    def _begin_epoch(
        self, observation: PairObservation, domain: DomainBelief, test: LevelTest, error: float
    ) -> DomainBelief:
        """Move the job (or the pair, if all windows were of one pair) to its new level, but never past this window.

        Earlier windows of the former level are no longer among the recent ones.
        """
        change = math.copysign(min(abs(test.mean), abs(error)), error)
        if test.several_neighbours:
            shifts.begin_job_epoch(self.state, observation.victim, domain, change, test.variance)
        else:
            self.effects.begin_pair_epoch(observation, domain, change, test.variance)
        return self._smoother.forget_former_level(observation, domain, test)

    # --- reporters and domains --------------------------------------------------------------------------------------

    def _record_reporter(self, observation: PairObservation, weight: float) -> None:
        record = self.state.reporters.get(observation.reporter, ReporterRecord())
        self.state.reporters[observation.reporter] = replace(
            record,
            weight_sum=REPORTER_DECAY * record.weight_sum + weight,
            window_count=REPORTER_DECAY * record.window_count + 1.0,
        )
