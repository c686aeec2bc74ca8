"""The posterior over slowdowns, updated by one observation window of a pair at a time; no clock, I/O or profiles.

Every window is learned with a weight between 0 and 1 under heavy-tailed noise, whose variance is learned per stream.
If windows agree with one another but not with the posterior, a new epoch begins: of one pair, of one job
(`change_points.job`) or of the whole domain (`change_points.domain`).

Law: the state is the fold of its windows in their order; equal windows give equal states.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.predict.online import shifts
from interfere.predict.online.belief_state import (
    BeliefState,
    DomainBelief,
    DomainKey,
    PairObservation,
    RecentWindow,
    ReporterRecord,
    Update,
)
from interfere.predict.online.change_points import domain as domain_change
from interfere.predict.online.change_points.job import JobHistory, LevelTest
from interfere.predict.online.effects import Effects, Expectation
from interfere.predict.online.noise import USUAL_NOISE_VAR, VOTE_INTERVAL, StreamNoise, domain_noise, student_weight
from interfere.predict.online.prior import ResidualPrior
from interfere.sharing_modes import SharingMode

# A window is told to its reporter as down-weighted where it is an outlier of its stream, or its stream has seven times
# the noise of others.
LOW_STUDENT_WEIGHT, LOW_WEIGHT = 0.1, 0.02
MAX_ERROR_SD = 3.0  # standard deviations: larger errors of a window are clipped to this value
FIRST_VOTES = (4, 8, 16)  # window counts of a domain at which its noise is first estimated from all streams
REPORTER_DECAY = 0.995  # per window of the reporter: about its last two hundred windows count
# A reporter may begin an epoch by itself when its windows usually agreed, or when it has reported this often.
MIN_TRUST, MIN_TRUSTED_WINDOWS = 0.3, 100.0
# A reporter that deviates from the other reporters of its jobs by more than this many times the median squared
# deviation of all reporters counts as noisier by that ratio to the power of DISTRUST.
USUAL_RATIO, DISTRUST = 2.0, 3.0
MIN_COMPARED_REPORTERS = 3
MIN_DEVIATION = 1e-6  # squared: below it, all reporters agree
COMPARE_INTERVAL = 8  # compared windows between two updates of the usual deviation
MAX_SQUARED_DEVIATION = 1.0  # of log slowdown: larger squared deviations are clipped to this value
DISTRUSTED_FACTOR = 4.0  # noise factor above which a reporter's windows cannot confirm a change


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedWindow:
    """The result of learning one window."""

    weight: float  # information relative to a usual window: Student's weight, times the domain's ÷ the stream's noise
    is_outlier: bool
    error: float  # log observed - log of the corrected prediction before the window
    sd: float  # expected standard deviation of `error` before the window
    epoch: str = ""  # "pair", "job" or "domain" where a new epoch began with this window


class Belief:
    """Learns windows into a `BeliefState`. Not thread-safe; readers use a copy of the state."""

    def __init__(
        self, prior: ResidualPrior, state: BeliefState, knows: Callable[[str, SharingMode], bool] = lambda *_: True
    ) -> None:
        """Set the prior and the state to update; `knows` tells whether the model was trained on a domain."""
        self.prior, self.effects = prior, Effects(prior, state, knows)

    @property
    def state(self) -> BeliefState:
        """Return the state that learning updates."""
        return self.effects.state

    def domain(self, key: DomainKey) -> DomainBelief:
        """Return the posterior of a domain, or the prior for a domain without windows."""
        if domain := self.state.domains.get(key):
            return domain
        noise_var = self.prior.noise_var
        return DomainBelief(
            noise_var=max(noise_var, USUAL_NOISE_VAR),
            usual_noise_var=noise_var,
            is_unseen=not self.effects.knows(key),
        )

    def learn(self, observation: PairObservation) -> LearnedWindow:
        """Learn one window and return what was learned."""
        state, domain_key = self.state, shifts.domain_of(observation.victim)
        domain = self.domain(domain_key)
        # 1. Compare the window with what is expected.
        expected = self.effects.expected(observation, domain)
        first_error = error = observation.log_observed - observation.log_predicted - expected.mean
        stream_key = observation.reporter, observation.victim
        stream = state.streams.get(stream_key, StreamNoise())
        noise_factor = self._noise_factor(observation.reporter)
        noise_before = stream.variance(domain.noise_var) * noise_factor
        first_sd = math.sqrt(expected.variance + noise_before)
        # 2. Begin a new epoch of the job or of the pair where its windows agree on another level.
        epoch = ""
        if test := self._level_test(observation, domain, error, expected.variance, noise_before):
            epoch = "job" if test.several_neighbours else "pair"
            self._begin_epoch(observation, domain, test, error)
            state.alarm_count += 1
            stream = StreamNoise(test.noise_var * stream.window_count, stream.window_count)
            expected = self.effects.expected(observation, domain)
            error = observation.log_observed - observation.log_predicted - expected.mean
        # 3. Learn the noise of the stream, and then the window with its weight.
        stream = stream.with_window(error, expected.variance, domain.noise_var)
        state.streams[stream_key] = stream
        noise_var = stream.variance(domain.noise_var) * noise_factor
        student = student_weight(error, expected.variance + noise_var)
        information = student * min(1.0, domain.noise_var / noise_var)
        domain = self._learn_effects(observation, domain, expected, noise_var)
        self._record_reporter(observation, information)
        # 4. Learn about the whole domain.
        window = RecentWindow(observation, first_error, expected.variance)
        domain = replace(domain, window_count=domain.window_count + 1, recent=domain_change.with_recent(domain, window))
        domain = self._vote_on_noise(domain_key, domain)
        state.domains[domain_key] = domain
        if self._stack_changed(domain_key, domain):
            epoch = "domain"
        return LearnedWindow(
            weight=observation.weight * information,
            is_outlier=student < LOW_STUDENT_WEIGHT or information < LOW_WEIGHT,
            error=first_error,
            sd=first_sd,
            epoch=epoch,
        )

    def learn_group(self, observations: Sequence[PairObservation]) -> LearnedWindow:
        """Learn one window of a job beside several others, given as one observation per pair.

        The weights of the observations add up to at most one window. Noise, reporter and epochs are updated only by
        the pair with the largest weight; the other pairs only update the effects.
        """
        leading, *others = sorted(observations, key=lambda each: (-each.weight, each.neighbour))
        learned = self.learn(leading)
        domain_key = shifts.domain_of(leading.victim)
        for observation in others:
            domain = self.domain(domain_key)
            stream = self.state.streams.get((observation.reporter, observation.victim), StreamNoise())
            expected = self.effects.expected(observation, domain)
            noise_var = stream.variance(domain.noise_var) * self._noise_factor(observation.reporter)
            self.state.domains[domain_key] = self._learn_effects(observation, domain, expected, noise_var)
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
        self,
        observation: PairObservation,
        domain: DomainBelief,
        error: float,
        prediction_var: float,
        noise_var: float,
    ) -> LevelTest | None:
        """Return the change-point test of the job if this window makes it find a new level, else None."""
        state, reporter = self.state, observation.reporter
        shift_mean, _ = shifts.expected_shift(state, observation, domain)
        history = state.histories.get(observation.victim, JobHistory())
        own, _ = shifts.own_shift(state, observation.victim, domain)
        level = observation.log_observed - observation.log_predicted - shift_mean + own
        self._compare_reporter(reporter, history.deviation(reporter, level))
        history = history.with_window(reporter, error, prediction_var, noise_var, observation.neighbour[0], level)
        distrusted = {name for name in history.window_counts if self._noise_factor(name) > DISTRUSTED_FACTOR}
        test = history.agreed_change(reporter, distrusted)
        if test is not None and (reporter in distrusted or not self._may_begin_epoch(reporter)):
            test = None
        state.histories[observation.victim] = history.restarted() if test else history
        return test

    def _may_begin_epoch(self, reporter: str) -> bool:
        """Return whether the windows of a reporter may begin an epoch of a job."""
        record = self.state.reporters.get(reporter)
        if len(self.state.reporters) <= 1 or record is None:
            return record is not None or not self.state.reporters
        return record.trust >= MIN_TRUST or record.window_count >= MIN_TRUSTED_WINDOWS

    def _begin_epoch(self, observation: PairObservation, domain: DomainBelief, test: LevelTest, error: float) -> None:
        """Move the job (or the pair, if all windows were of one pair) to its new level, but never past this window."""
        change = math.copysign(min(abs(test.mean), abs(error)), error)
        if test.several_neighbours:
            shifts.begin_job_epoch(self.state, observation.victim, domain, change, test.variance)
        else:
            self.effects.begin_pair_epoch(observation, domain, change, test.variance)

    # --- reporters and domains --------------------------------------------------------------------------------------

    def _record_reporter(self, observation: PairObservation, weight: float) -> None:
        record = self.state.reporters.get(observation.reporter, ReporterRecord())
        self.state.reporters[observation.reporter] = replace(
            record,
            weight_sum=REPORTER_DECAY * record.weight_sum + weight,
            window_count=REPORTER_DECAY * record.window_count + 1.0,
        )

    def _compare_reporter(self, reporter: str, deviation: float) -> None:
        """Record the deviation of a window from other reporters of the same job; NaN if there are no others."""
        if math.isnan(deviation):
            return
        record = self.state.reporters.get(reporter, ReporterRecord())
        self.state.reporters[reporter] = replace(
            record,
            deviation_sum=REPORTER_DECAY * record.deviation_sum + min(deviation**2, MAX_SQUARED_DEVIATION),
            compared_count=REPORTER_DECAY * record.compared_count + 1.0,
        )
        self.state.compared_count += 1
        if self.state.compared_count % COMPARE_INTERVAL == 0:
            deviations = [each.mean_square_deviation for each in self.state.reporters.values()]
            known = [deviation for deviation in deviations if not math.isnan(deviation)]
            self.state.usual_deviation = float(np.median(known)) if len(known) >= MIN_COMPARED_REPORTERS else math.nan

    def _noise_factor(self, reporter: str) -> float:
        """Return how many times the usual noise variance the windows of a reporter count as having, at least 1.

        1 if fewer than three reporters can be compared: with two reporters, the wrong one cannot be identified.
        """
        own, usual = (
            self.state.reporters.get(reporter, ReporterRecord()).mean_square_deviation,
            self.state.usual_deviation,
        )
        if math.isnan(own) or math.isnan(usual):
            return 1.0
        return float(max(1.0, own / (USUAL_RATIO * max(usual, MIN_DEVIATION))) ** DISTRUST)

    def _vote_on_noise(self, key: DomainKey, domain: DomainBelief) -> DomainBelief:
        """Return the domain, with its noise variance estimated again when an update is due."""
        interval = max(VOTE_INTERVAL, len(self.state.streams) // 4)
        if domain.window_count % interval and domain.window_count not in FIRST_VOTES:
            return domain
        by_reporter: dict[str, list[StreamNoise]] = {}
        for (reporter, victim), stream in self.state.streams.items():
            if shifts.domain_of(victim) == key:
                by_reporter.setdefault(reporter, []).append(stream)
        return replace(domain, noise_var=domain_noise(by_reporter.values(), domain.noise_var))

    def _stack_changed(self, key: DomainKey, domain: DomainBelief) -> bool:
        """Test whether the software stack has changed when that is due, and begin a new epoch of the domain if so."""
        if domain.window_count < domain.next_test:
            return False
        trusted = tuple(
            window for window in domain.recent if self._noise_factor(window.observation.reporter) <= DISTRUSTED_FACTOR
        )
        tested = replace(domain, recent=trusted)
        first_interval = domain_change.FIRST_INTERVAL
        due = replace(domain, next_test=domain.window_count + first_interval, test_interval=first_interval)
        if not domain_change.looks_changed(tested):
            self.state.domains[key] = replace(due, is_suspect=False)
            return False
        expected = any(other.epoch > domain.epoch for other in self.state.domains.values())
        noise_var = domain_change.found_change(tested, expected=expected)
        if math.isnan(noise_var):
            self.state.domains[key] = replace(
                due,
                next_test=domain.window_count + domain.test_interval,
                test_interval=min(2 * domain.test_interval, domain_change.MAX_INTERVAL),
                usual_noise_var=min(max(domain.usual_noise_var, domain.noise_var), 2.0 * domain.usual_noise_var),
                is_suspect=False,
            )
        elif not domain_change.may_be_confirmed(tested):
            self.state.domains[key] = replace(due, is_suspect=True)
        else:
            self._begin_domain_epoch(key, domain, max(noise_var, domain.usual_noise_var))
            return True
        return False

    def _begin_domain_epoch(self, key: DomainKey, domain: DomainBelief, noise_var: float) -> None:
        """Make every shift of the domain uncertain, and learn its recent windows again."""
        state = self.state
        state.alarm_count += 1
        changed = replace(
            domain,
            epoch=domain.epoch + 1,
            covariance=shifts.epoch_covariance(domain),
            noise_var=noise_var,
            usual_noise_var=noise_var,
            recent=(),
            is_suspect=False,
            next_test=domain.window_count + domain_change.RECENT_WINDOWS,
            test_interval=domain_change.FIRST_INTERVAL,
        )
        for stream_key in [each for each in state.streams if shifts.domain_of(each[1]) == key]:
            del state.streams[stream_key]
        for victim in {window.observation.victim for window in domain.recent}:
            state.histories.pop(victim, None)
        for window in domain.recent:
            observation = window.observation
            expected = self.effects.expected(observation, changed)
            error = observation.log_observed - observation.log_predicted - expected.mean
            total_var = expected.variance + noise_var * self._noise_factor(observation.reporter)
            weight = observation.weight * student_weight(error, total_var)
            update = Update(error=error, variance=total_var, weight=weight, forgetting=weight)
            changed = self.effects.learn(observation, changed, update)
        state.domains[key] = changed
