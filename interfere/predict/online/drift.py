"""Drift tests: is a job still the one that was learned? Two one-sided cumulative sums of standardised residuals.

Page's test (E. S. Page 1954, "Continuous inspection schemes", Biometrika 41), in both directions of z::

    up = max(0, up + z - SLACK),   down = max(0, down - z - SLACK),   alarm when either exceeds a threshold

After an alarm the job is frozen: its windows are quarantined, which means stored without teaching anything, until the
last few of them lie where windows used to lie (then learning goes on) or agree with one another elsewhere (then the job
has changed and is learned anew). So one broken reporter cannot spoil what is known of its neighbours, and nobody has to
reset anything.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

# With SLACK ½ a stationary series alarms about every e^(h + 1.166) windows (Siegmund 1985, Sequential Analysis, § 2.6):
# h = 5 is every 465, as tabulated; 12 is one in 500,000 windows of one job.
SLACK = 0.5
JOB_THRESHOLD = 12.0
GLOBAL_THRESHOLD = 60.0  # over all jobs: dozens of windows off by two deviations in one direction
MAX_Z = 5.0  # a single window counts for no more than this
OUTLIER_Z = 8.0  # a single window beyond this is quarantined by itself
MIN_JOB_WINDOWS = 10  # windows after which a job no longer has a new job's bias and enters the global test
JOB_DECISION_WINDOWS = 5  # windows of a frozen job that decide how it goes on
GLOBAL_DECISION_WINDOWS = 50


class Verdict(StrEnum):
    """What to do with a window."""

    LEARN = "learn"
    QUARANTINE = "quarantine"  # store it, learn nothing from it
    RELEARN = "relearn"  # make what was learned uncertain again, then learn


@dataclass(frozen=True, slots=True)
class DriftTest:
    """State of the test of one job, or of all jobs together."""

    threshold: float
    decision_windows: int  # that decide how a frozen job goes on
    up: float = 0.0
    down: float = 0.0
    frozen: bool = False
    alarm_count: int = 0
    grace_windows: int = 0  # windows still exempt from the test, after a decision to relearn
    recent: tuple[float, ...] = ()  # z of the last windows while frozen
    window_count: int = 0

    def update(self, z: float) -> tuple["DriftTest", Verdict]:
        """The next state, and what to do with the window whose standardised residual is `z`."""
        state, verdict = self._next_frozen(z) if self.frozen else self._next_learning(z)
        return replace(state, window_count=self.window_count + 1), verdict

    def _next_learning(self, z: float) -> tuple["DriftTest", Verdict]:
        if self.grace_windows:
            return replace(self, grace_windows=self.grace_windows - 1), Verdict.LEARN
        bounded = min(max(z, -MAX_Z), MAX_Z)
        up, down = max(0.0, self.up + bounded - SLACK), max(0.0, self.down - bounded - SLACK)
        if max(up, down) > self.threshold:
            alarmed = replace(self, up=up, down=down, frozen=True, alarm_count=self.alarm_count + 1, recent=())
            return alarmed, Verdict.QUARANTINE
        return replace(self, up=up, down=down), Verdict.QUARANTINE if abs(z) > OUTLIER_Z else Verdict.LEARN

    def _next_frozen(self, z: float) -> tuple["DriftTest", Verdict]:
        recent = (*self.recent, z)[-self.decision_windows :]
        shift = abs(float(np.median(recent)))
        back_to_normal = shift <= 1.0 and max(map(abs, recent)) <= OUTLIER_Z
        # Spread by at most a fifth of the shift, or by one and a half deviations.
        consistent = float(np.std(recent)) <= max(1.5, 0.2 * shift)
        if len(recent) < self.decision_windows or not (back_to_normal or consistent):
            return replace(self, recent=recent), Verdict.QUARANTINE
        resumed = replace(self, up=0.0, down=0.0, frozen=False, recent=())
        if back_to_normal:
            return resumed, Verdict.LEARN
        return replace(resumed, grace_windows=self.decision_windows), Verdict.RELEARN


def job_drift_test() -> DriftTest:
    """The test of a job of which nothing was observed yet."""
    return DriftTest(threshold=JOB_THRESHOLD, decision_windows=JOB_DECISION_WINDOWS)


def global_drift_test() -> DriftTest:
    """The test of all jobs together before any observation."""
    return DriftTest(threshold=GLOBAL_THRESHOLD, decision_windows=GLOBAL_DECISION_WINDOWS)
