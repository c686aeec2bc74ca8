"""Has the slowdown of a job changed for good? If so, a new epoch of the job begins.

Against the present belief stands a second hypothesis: since some window, all windows of the job are shifted by one
constant. Its running log likelihood ratio is a cumulative sum (Page 1954, "Continuous inspection schemes") with a
bounded share of every window; it starts again whenever the present belief explains the windows better.

Law 1: a single window never decides that a job has changed. Law 2: where other reporters lately reported on the job,
one reporter alone does not decide, however often it repeats itself; what others reported long ago no longer counts.
"""

from dataclasses import dataclass, field, replace

from interfere.predict.online.noise import student_log_density, student_weight

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
