"""Is a job still the one that was learned? Two one-sided cumulative sums of standardised surprises.

Page's test (E. S. Page 1954, "Continuous inspection schemes", Biometrika 41), in both directions of z::

    up = max(0, up + z - SLACK),   down = max(0, down - z - SLACK),   alarm when either exceeds a threshold

After an alarm the job is frozen: its windows are kept, and teach nothing, until `RETURN` of them in a row lie where
they used to (then the alarm was a passing one) or agree with one another (then it is another job now, learned anew).
So one broken reporter cannot drag its neighbours along, and nobody has to reset anything.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

# With SLACK ½ a calm series alarms about every e^(h + 1.166) windows (Siegmund 1985, Sequential Analysis, § 2.6):
# h = 5 is every 465, as tabulated; 12 is one in 500,000 windows of one job.
SLACK = 0.5
JOB_ALARM = 12.0
ALL_ALARM = 60.0  # over all jobs: dozens of windows off by two deviations in one direction
LIMIT_Z = 5.0  # one window counts for no more
ABSURD_Z = 8.0  # a single window as far off as this is kept apart
SETTLED = 10  # windows after which a job has no more of a new one's bias: only then does it speak of all jobs
RETURN = 5  # windows of one job that decide how it goes on
ALL_RETURN = 50


class Verdict(StrEnum):
    """What to do with a window."""

    LEARN = "learn"
    HOLD = "hold"  # keep it, learn nothing
    LEARN_ANEW = "learn_anew"  # doubt what was learned, then learn


@dataclass(frozen=True, slots=True)
class Watch:
    """State of one test; `judge` gives the next one."""

    alarm: float
    needed: int
    up: float = 0.0
    down: float = 0.0
    frozen: bool = False
    alarms: int = 0
    trusted: int = 0  # windows after a new start that nothing is held against
    recent: tuple[float, ...] = ()
    windows: int = 0  # judged so far

    def judge(self, z: float) -> tuple["Watch", Verdict]:
        """Fold one standardised surprise in."""
        watch, verdict = self._judged(z)
        return replace(watch, windows=self.windows + 1), verdict

    def _judged(self, z: float) -> tuple["Watch", Verdict]:
        if self.frozen:
            return self._frozen(z)
        if self.trusted:
            return replace(self, trusted=self.trusted - 1), Verdict.LEARN
        bounded = min(max(z, -LIMIT_Z), LIMIT_Z)
        up, down = max(0.0, self.up + bounded - SLACK), max(0.0, self.down - bounded - SLACK)
        if max(up, down) > self.alarm:
            return replace(self, up=up, down=down, frozen=True, alarms=self.alarms + 1, recent=()), Verdict.HOLD
        return replace(self, up=up, down=down), Verdict.HOLD if abs(z) > ABSURD_Z else Verdict.LEARN

    def _frozen(self, z: float) -> tuple["Watch", Verdict]:
        recent = (*self.recent, z)[-self.needed :]
        middle = abs(float(np.median(recent)))
        passed = middle <= 1.0 and max(map(abs, recent)) <= ABSURD_Z
        # spread by a fifth of the shift, or by one and a half deviations: then they tell one story
        settled = float(np.std(recent)) <= max(1.5, 0.2 * middle)
        if len(recent) < self.needed or not (passed or settled):
            return replace(self, recent=recent), Verdict.HOLD
        calm = replace(self, up=0.0, down=0.0, frozen=False, recent=())
        return (calm, Verdict.LEARN) if passed else (replace(calm, trusted=self.needed), Verdict.LEARN_ANEW)


def job_watch() -> Watch:
    """For one job."""
    return Watch(alarm=JOB_ALARM, needed=RETURN)


def global_watch() -> Watch:
    """For all jobs together."""
    return Watch(alarm=ALL_ALARM, needed=ALL_RETURN)
