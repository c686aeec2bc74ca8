"""The belief in slowdowns: learns from one window of a pair after another. Pure: no clock, no I/O, no profiles.

Every window is learned with a weight between 0 and 1 under heavy-tailed noise whose size is learned for its stream.
Nothing is ever frozen: where windows agree with one another but not with the belief, a new epoch begins, of one pair,
one job (`change_points.job`) or the whole domain (`change_points.domain`).

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
MAX_ERROR_SD = 3.0  # deviations: a window counts for no larger error
FIRST_VOTES = (4, 8, 16)  # windows of a domain after which its noise is voted on for the first times
REPORTER_DECAY = 0.995  # per window of the reporter: its last two hundred windows count
# A reporter may begin an epoch by itself when its windows usually agreed, or when it has reported this often.
MIN_TRUST, MIN_TRUSTED_WINDOWS = 0.3, 100.0
# A reporter that deviates from the other reporters of its jobs by more than this many times the median squared
# deviation of all reporters counts as noisier by that ratio to the power of DISTRUST.
USUAL_RATIO, DISTRUST = 2.0, 3.0
MIN_COMPARED_REPORTERS = 3
MIN_DEVIATION = 1e-6  # squared: below it, all reporters agree
COMPARE_INTERVAL = 8  # compared windows from one count of the usual deviation to the next
MAX_SQUARED_DEVIATION = 1.0  # of log slowdown: a lie of e tells as much as any larger one
DISTRUSTED_FACTOR = 4.0  # of noise variance, beyond which a reporter has no say in what has changed


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedWindow:
    """What one window taught."""

    weight: float  # information relative to a usual window: Student's weight, times the domain's ÷ the stream's noise
    is_outlier: bool
    error: float  # log observed - log of the corrected prediction before it
    sd: float  # its expected standard deviation before it
    epoch: str = ""  # "pair", "job" or "domain" where a new epoch began with this window


class Belief:
    """Learns windows into a `BeliefState`. Not thread-safe; readers use a copy of the state."""

    def __init__(
        self, prior: ResidualPrior, state: BeliefState, knows: Callable[[str, SharingMode], bool] = lambda *_: True
    ) -> None:
        """`knows`: whether the wrapped model was trained on a device type and mode."""
        self.prior, self.effects = prior, Effects(prior, state, knows)

    @property
    def state(self) -> BeliefState:
        """The state that is learned into."""
        return self.effects.state

    def domain(self, key: DomainKey) -> DomainBelief:
        """What is believed of a domain; of a new one, the prior."""
        if domain := self.state.domains.get(key):
            return domain
        noise_var = self.prior.noise_var
        return DomainBelief(
            noise_var=max(noise_var, USUAL_NOISE_VAR),
            usual_noise_var=noise_var,
            is_unseen=not self.effects.knows(key),
        )

    def learn(self, observation: PairObservation) -> LearnedWindow:
        """Learn one window."""
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
        """Learn one window of a job beside several others, from what it says of each pair.

        Their weights add up to that of a window at most. It counts as one window of its stream and its reporter, of
        the pair with the largest weight, which alone may begin an epoch; the others only move the effects.
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
        """Move the effects by one window under Student's noise of this variance; the domain's belief after it."""
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
        """The test of the job that found a new level with this window; None for most windows."""
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
        """Whether the windows of a reporter may begin an epoch of a job."""
        record = self.state.reporters.get(reporter)
        if len(self.state.reporters) <= 1 or record is None:
            return record is not None or not self.state.reporters
        return record.trust >= MIN_TRUST or record.window_count >= MIN_TRUSTED_WINDOWS

    def _begin_epoch(self, observation: PairObservation, domain: DomainBelief, test: LevelTest, error: float) -> None:
        """Move the job, or the pair where all windows were of one, to its new level, never past this window."""
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
        """Learn how far a window lies from what other reporters say of the same job; NaN where there are none."""
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

        1 where fewer than three reporters can be compared: of two that disagree, nobody can tell which is wrong.
        """
        own, usual = (
            self.state.reporters.get(reporter, ReporterRecord()).mean_square_deviation,
            self.state.usual_deviation,
        )
        if math.isnan(own) or math.isnan(usual):
            return 1.0
        return float(max(1.0, own / (USUAL_RATIO * max(usual, MIN_DEVIATION))) ** DISTRUST)

    def _vote_on_noise(self, key: DomainKey, domain: DomainBelief) -> DomainBelief:
        """The domain with its noise voted on anew, when that is due."""
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
