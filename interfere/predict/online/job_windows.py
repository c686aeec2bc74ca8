"""What the windows of one job tell by themselves: their noise, a change of its level, and its rate alone.

A stream is the windows of one job from one reporter. The variance of its noise is an inverse-gamma posterior whose
prior is the noise of the domain, with forgetting::

    noise = (PRIOR_WINDOWS · domain + Σ decay · share) / (PRIOR_WINDOWS + Σ decay)

where a window's share is the expectation of its squared noise given its error, bounded by `MAX_SHARE_RATIO` times the
variance so far and by `MAX_SHARE`. The noise of the domain is the median over all who report, learned by smoothing.

Has the slowdown of a job changed for good? If so, a new epoch of the job begins. Against the present belief stands a
second hypothesis: since some window, all windows of the job are shifted by one constant. Its running log likelihood
ratio is a cumulative sum (Page 1954, "Continuous inspection schemes") with a bounded share of every window; it starts
again whenever the present belief explains the windows better.

Solo rates, steps per second of a job by itself, turn the steps of a shared window into a slowdown.

Law 1: a single window never decides that a job has changed. Law 2: where other reporters lately reported on the job,
one reporter alone does not decide, however often it repeats itself; what others reported long ago no longer counts.
Law 3: a minority of the recent solo windows cannot move a rate beyond what the others report, however wrong it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from interfere.predict.online.prior import WorkloadKey
from interfere.records import NAN, Progress

StreamKey = tuple[str, WorkloadKey]  # reporter, victim

# Of log slowdown in one window at a site that has reported little: progress counted over minutes is noisier than the
# repeated measurements of a table.
USUAL_NOISE_VAR = 0.03**2
DECAY = 0.99  # per window of the stream: about its last hundred windows count
PRIOR_WINDOWS = 4.0  # windows that the domain's noise counts for; also bounds how unlikely a first window can look
MIN_SHARE, MAX_SHARE = 1e-6, 4.0  # squared log error: a window twice e off tells no more about noise
MAX_SHARE_RATIO = 100.0  # one window raises the variance of a new stream by no more than this
DEGREES_OF_FREEDOM = 4.0  # of Student's t for the errors: 3-5 is usual for contaminated normal errors (Lange 1989)
_LOG_NORMALISER = math.lgamma(2.5) - math.lgamma(2.0) - 0.5 * math.log(DEGREES_OF_FREEDOM * math.pi)


@dataclass(frozen=True, slots=True)
class StreamNoise:
    """Decayed sums over the windows of one stream."""

    share_sum: float = 0.0
    window_count: float = 0.0

    def variance(self, domain_var: float) -> float:
        """Noise variance of the next window's log slowdown."""
        return (PRIOR_WINDOWS * domain_var + self.share_sum) / (PRIOR_WINDOWS + self.window_count)

    def with_window(self, error: float, prediction_var: float, domain_var: float) -> "StreamNoise":
        """The sums after a window whose prediction was `error` off."""
        noise = self.variance(domain_var)
        total = prediction_var + noise
        share = (noise / total * error) ** 2 + noise * prediction_var / total
        share = max(min(share, MAX_SHARE_RATIO * noise, MAX_SHARE), MIN_SHARE)
        return StreamNoise(DECAY * self.share_sum + share, DECAY * self.window_count + 1.0)


def student_weight(error: float, variance: float) -> float:
    """Weight in (0, 1] of a window under Student's t: (ν + 1) / (ν + error² / variance), at most 1."""
    return min(1.0, (DEGREES_OF_FREEDOM + 1.0) / (DEGREES_OF_FREEDOM + error * error / variance))


def student_log_density(error: float, variance: float) -> float:
    """Log density of Student's t with `DEGREES_OF_FREEDOM` and scale² = variance."""
    tail = math.log1p(error * error / (DEGREES_OF_FREEDOM * variance))
    return _LOG_NORMALISER - 0.5 * math.log(variance) - 0.5 * (DEGREES_OF_FREEDOM + 1.0) * tail


PRIOR_VARIANCE = 1.0  # of a job's new level: threefold either way is one standard deviation
MAX_INCREMENT = 3.0  # of the log likelihood ratio by one window
MIN_WINDOWS = 3
THRESHOLD = 6.0  # log likelihood ratio; e⁶ = 400 to 1
REPORTER_DECAY = 0.98  # per window of the job by another reporter
MAX_REPORTER_WINDOWS = 25.0  # windows of a reporter that count, so that it is outdated after 80 windows by others
MIN_REPORTER_WINDOWS = 5.0  # windows of another reporter that count as a contradiction
MAX_REPORTERS = 16  # followed for one job


@dataclass(frozen=True, slots=True)
class LevelTest:
    """The second hypothesis for the windows of one job from one reporter."""

    log_ratio: float = 0.0
    mean: float = 0.0
    variance: float = PRIOR_VARIANCE
    window_count: int = 0
    noise_var: float = 0.0  # of the stream when the hypothesis began: its windows shall not explain themselves as noise
    neighbour: str = ""  # of the first window
    several_neighbours: bool = False

    def with_window(self, error: float, prediction_var: float, noise_var: float, neighbour: str) -> "LevelTest":
        """The test after one window; `noise_var` is that of its stream before it."""
        noise = self.noise_var or noise_var
        variance = self.variance + prediction_var + noise
        increment = student_log_density(error - self.mean, variance) - student_log_density(
            error, prediction_var + noise_var
        )
        log_ratio = self.log_ratio + min(max(increment, -MAX_INCREMENT), MAX_INCREMENT)
        if log_ratio <= 0.0:
            return NO_CHANGE
        gain = student_weight(error - self.mean, variance) * self.variance / variance
        first = self.neighbour or neighbour
        return LevelTest(
            log_ratio=log_ratio,
            mean=self.mean + gain * (error - self.mean),
            variance=self.variance * (1.0 - gain),
            window_count=self.window_count + 1,
            noise_var=noise,
            neighbour=first,
            several_neighbours=self.several_neighbours or neighbour != first,
        )

    @property
    def has_changed(self) -> bool:
        """Whether the second hypothesis has won."""
        return self.log_ratio >= THRESHOLD and self.window_count >= MIN_WINDOWS


NO_CHANGE = LevelTest()


@dataclass(frozen=True, slots=True)
class JobHistory:
    """What each reporter of one job says: its test for a change, and how many late windows it sent."""

    tests: dict[str, LevelTest] = field(default_factory=dict)
    window_counts: dict[str, float] = field(default_factory=dict)

    def with_window(
        self, reporter: str, error: float, prediction_var: float, noise_var: float, neighbour: str
    ) -> "JobHistory":
        """The history after one window of a reporter."""
        test = self.tests.get(reporter, NO_CHANGE).with_window(error, prediction_var, noise_var, neighbour)
        counts = {
            name: count * (REPORTER_DECAY if name != reporter else 1.0) for name, count in self.window_counts.items()
        }
        counts[reporter] = min(counts.get(reporter, 0.0) + 1.0, MAX_REPORTER_WINDOWS)
        if len(counts) > MAX_REPORTERS:
            counts.pop(min((name for name in counts if name != reporter), key=lambda name: counts[name]))
        tests = {name: each for name, each in self.tests.items() if name in counts} | {reporter: test}
        return JobHistory(tests, counts)

    def agreed_change(self, reporter: str) -> LevelTest | None:
        """The test of a reporter when it has won and at least half of the other late reporters lean to a change."""
        test = self.tests.get(reporter, NO_CHANGE)
        if not test.has_changed:
            return None
        others = [
            self.tests[name].log_ratio > 0.0
            for name, count in self.window_counts.items()
            if name != reporter and count >= MIN_REPORTER_WINDOWS
        ]
        return test if 2 * sum(others) >= len(others) else None

    def restarted(self) -> "JobHistory":
        """The history after a change was found: every test starts again."""
        return replace(self, tests=dict.fromkeys(self.tests, NO_CHANGE))

    @property
    def is_changing(self) -> bool:
        """Whether any reporter's windows speak for a change that has not been decided."""
        return any(
            test.log_ratio >= THRESHOLD / 2 and test.window_count >= MIN_WINDOWS - 1 for test in self.tests.values()
        )


MAX_PENDING_WINDOWS = 256  # newest pending windows per job in memory: more teach nothing more; the store keeps all
RECENT_WINDOWS = 25  # whose median is the rate: a job that became faster is believed after a dozen solo windows

# Steps per second of any job: one step in 30 years, and a thousand a nanosecond. Beyond lie wrong units and rounding.
MIN_RATE, MAX_RATE = 1e-9, 1e12

SoloKey = tuple[str, str]  # workload, device type


@dataclass(frozen=True, slots=True)
class SoloRate:
    """Steps per second in the recent windows without a neighbour, oldest first, and their median."""

    recent: tuple[float, ...] = ()
    steps_per_s: float = NAN  # NaN before the first window

    def with_window(self, steps: float, seconds: float) -> "SoloRate":
        """The rate after one more window."""
        recent = (*self.recent, steps / seconds)[-RECENT_WINDOWS:]
        return SoloRate(recent, _robust_rate(recent, self.steps_per_s))


def _robust_rate(rates: Sequence[float], known: float) -> float:
    """Return the median of the rates; of the two in the middle of an even number, the one nearer to what was known."""
    ordered = sorted(rates)
    lower, upper = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if math.isnan(known) or known <= 0:
        return lower
    log_known = math.log(known)
    return lower if abs(math.log(lower) - log_known) <= abs(math.log(upper) - log_known) else upper


def window_slowdown(window: Progress, rate: SoloRate | None) -> float:
    """Measured slowdown of a shared window: NaN while the solo rate is unknown, infinite when no step was made."""
    if not math.isnan(window.slowdown):
        return window.slowdown
    if rate is None or math.isnan(rate.steps_per_s):
        return NAN
    return rate.steps_per_s * (window.end_s - window.start_s) / window.steps if window.steps > 0 else math.inf
