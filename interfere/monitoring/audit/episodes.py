"""Episodes: all windows of one job beside the same other jobs on one device, as one measurement.

Windows of one episode share what differs from run to run (input, placement, clocks), so they are not independent
measurements: an estimate counts episodes, and a long episode is one with little noise.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from interfere.monitoring.reading import CompanyWindow, NotMeasured

Company = tuple[str, ...]
"""Workloads beside a job, sorted; empty where it was alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The steps of one job beside the same other jobs."""

    workload: str
    device_type: str
    company: Company
    job_id: str
    seconds: float
    steps: float
    windows: int

    @property
    def log_rate(self) -> float:
        """Logarithm of steps per second."""
        return math.log(self.steps / self.seconds)


class EpisodeLog:
    """Adds windows up to episodes, and counts the sides of windows that could not be measured."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, tuple[str, ...]], tuple[Episode, float, float, int]] = {}
        self.not_measured: dict[NotMeasured, int] = {}
        self.windows = 0

    def add(self, windows: Iterable[CompanyWindow]) -> None:
        """Add windows, each once."""
        for window in windows:
            self.windows += 1
            ids = tuple(sorted(each.job.id for each in window.jobs))
            for each in window.jobs:
                if each.measured is None:
                    reason = each.not_measured or NotMeasured.NO_COUNTER
                    self.not_measured[reason] = self.not_measured.get(reason, 0) + 1
                    continue
                key = window.device.id, each.job.id, ids
                first = Episode(
                    workload=each.job.workload,
                    device_type=window.device.type,
                    company=window.neighbours(each.job.id),
                    job_id=each.job.id,
                    seconds=0.0,
                    steps=0.0,
                    windows=0,
                )
                episode, seconds, steps, count = self._sums.get(key, (first, 0.0, 0.0, 0))
                seconds += each.measured.end_s - each.measured.start_s
                self._sums[key] = episode, seconds, steps + each.measured.steps, count + 1

    def episodes(self) -> tuple[Episode, ...]:
        """All episodes so far."""
        return tuple(
            Episode(
                workload=each.workload,
                device_type=each.device_type,
                company=each.company,
                job_id=each.job_id,
                seconds=seconds,
                steps=steps,
                windows=count,
            )
            for each, seconds, steps, count in self._sums.values()
        )
