"""Progress of jobs from counters: its uninterrupted runs, the time in which a job was stepping, and the steps it made.

Laws: a run holds no gap and no reset; steps are counted between two samples inside the window, never interpolated.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.monitoring.samples import GAP, Floats, SampleSeries, sampling_interval_s

IDLE_S = 60.0  # a job without a step for so long at an edge of a window is loading or finishing: that time is left out
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobProgress:
    """The cumulative steps of a job over time."""

    times_s: Floats  # float64[n]
    steps: Floats  # float64[n], not decreasing but for resets
    interval_s: float  # between two samples, usually
    lag_s: float = 0.0  # how far back a sample looks: the range of a rate

    def runs(self) -> list[Interval]:
        """Return the spans of time without a gap and without a reset, from the first to the last sample of each
        span."""
        if len(self.times_s) < 2:
            return []
        ends = (np.diff(self.times_s) > GAP * self.interval_s) | (np.diff(self.steps) < 0)
        firsts = np.append(0, np.flatnonzero(ends) + 1)
        lasts = np.append(np.flatnonzero(ends), len(self.times_s) - 1)
        return [
            (float(self.times_s[first]), float(self.times_s[last]))
            for first, last in zip(firsts, lasts, strict=True)
            if last > first
        ]

    def stepping_span(self, window: Interval) -> Interval | None:
        """Return the part of a window without idle time of `IDLE_S` or more at its edges; None where the job made no
        step."""
        times_s, steps = self._inside(window)
        moves = np.flatnonzero(np.diff(steps) > 0)
        if not len(moves):
            return None
        first, last = int(moves[0]), int(moves[-1]) + 1
        starts_late = times_s[first] - window[0] >= IDLE_S
        ends_early = window[1] - times_s[last] >= IDLE_S
        # From the sample that shows the first step: a slow job's first step is not counted over less time than it took.
        start_s = float(times_s[first + 1]) if starts_late else window[0]
        return start_s, float(times_s[last]) if ends_early else window[1]

    def measure(self, window: Interval) -> "MeasuredSteps | None":
        """Return the steps made in a window; None where it holds fewer than two samples, a reset, or no step."""
        times_s, steps = self._inside(window)
        if len(times_s) < 2 or (np.diff(steps) < 0).any() or not steps[-1] > steps[0]:
            return None
        return MeasuredSteps(
            start_s=float(times_s[0]), end_s=float(times_s[-1]), steps=float(steps[-1] - steps[0]), samples=len(times_s)
        )

    def _inside(self, window: Interval) -> tuple[Floats, Floats]:
        low = np.searchsorted(self.times_s, window[0] + self.lag_s, "left")
        high = np.searchsorted(self.times_s, window[1], "right")
        return self.times_s[low:high], self.steps[low:high]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """The steps of a job between two samples of its counter."""

    start_s: float
    end_s: float
    steps: float
    samples: int

    @property
    def rate(self) -> float:
        """The progress of the job in steps per second."""
        return self.steps / (self.end_s - self.start_s)


def progress_of_job(series: Sequence[SampleSeries], *, is_counter: bool, lag_s: float = 0.0) -> JobProgress | None:
    """Return the progress of a job from its series; None where no series has two samples.

    Several processes of a job step together, so the series with the most steps counts. With `is_counter` off, the
    values of the series are steps per second, and are summed over time.
    """
    best: tuple[float, JobProgress] | None = None
    for each in series:
        if len(each.times_s) < 2:
            continue
        interval_s = sampling_interval_s(each.times_s)
        steps = each.values if is_counter else _integral(each, GAP * interval_s)
        increase = float(np.clip(np.diff(steps), 0.0, None).sum())
        if best is None or increase > best[0]:
            best = increase, JobProgress(times_s=each.times_s, steps=steps, interval_s=interval_s, lag_s=lag_s)
    return best[1] if best else None


def _integral(series: SampleSeries, max_gap_s: float) -> Floats:
    """Return the number of steps up to each sample of a series of steps per second; a gap adds no steps."""
    elapsed_s = np.diff(series.times_s)
    added = np.where(elapsed_s > max_gap_s, 0.0, elapsed_s * np.clip(series.values[1:], 0.0, None))
    return np.append(0.0, np.cumsum(added))


def intersect(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Return the intersections of two sorted lists of time spans, in order of time."""
    common, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        low, high = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if low < high:
            common.append((low, high))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common
