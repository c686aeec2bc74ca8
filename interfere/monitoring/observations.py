"""Observations and profiles from windows: what a server learns from. Pure functions and one sum per workload.

Law: the id of an observation depends on site, device, job and start of its window alone, so that a window that is read
again is a duplicate to the server.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from interfere.errors import InvalidInputError
from interfere.monitoring.reading import CompanyWindow, JobInWindow
from interfere.monitoring.settings import MonitoringSettings
from interfere.records import NAN, JobProfile, Progress

MAX_ID = 256  # characters; a longer id ends in its digest
PEAK = "memory_peak_bytes"  # of this gauge the largest sample counts, of all others the mean
SOURCE = "dcgm"


def observation_id(site: str, window: CompanyWindow, job_id: str) -> str:
    """The id of one job's progress in a window."""
    text = f"{site}/{window.device.id}/{job_id}/{window.start_s * 1000:.0f}"
    return text if len(text) <= MAX_ID else f"{text[: MAX_ID - 41]}/{hashlib.sha1(text.encode()).hexdigest()}"  # noqa: S324


def progress_observations(windows: Iterable[CompanyWindow], settings: MonitoringSettings) -> tuple[Progress, ...]:
    """The progress of every measured job, window by window; a job whose labels a record refuses is left out."""
    found = []
    for window in windows:
        for each in window.jobs:
            if each.measured is not None:
                try:
                    found.append(_progress(window, each, settings))
                except InvalidInputError:
                    continue
    return tuple(found)


def _progress(window: CompanyWindow, each: JobInWindow, settings: MonitoringSettings) -> Progress:
    assert each.measured is not None
    return Progress(
        observation_id=observation_id(settings.site, window, each.job.id),
        job_id=each.job.id,
        workload=each.job.workload,
        device_type=window.device.type,
        start_s=each.measured.start_s,
        end_s=each.measured.end_s,
        company=window.neighbours(each.job.id),
        steps=each.measured.steps,
        device_id=window.device.id,
        mode=settings.mode,
        reporter=settings.site,
    )


@dataclass(slots=True)
class _Sums:
    """What was seen of one workload alone on one device type."""

    gauges: dict[str, list[float]] = field(default_factory=dict)  # samples, total, largest, by field of JobProfile
    steps: float = 0.0
    seconds: float = 0.0
    windows: int = 0
    end_s: float = 0.0


class SoloFacts:
    """Sums of what was seen of each workload alone; a profile is their mean. Its size grows with workloads alone."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sums] = {}
        self._registered: dict[tuple[str, str], int] = {}  # windows in the profile that was given out last

    def add(self, windows: Iterable[CompanyWindow]) -> None:
        """Add the windows in which a job was alone."""
        for window in windows:
            if len(window.jobs) != 1:
                continue
            only = window.jobs[0]
            sums = self._sums.setdefault((only.job.workload, window.device.type), _Sums())
            sums.windows += 1
            sums.end_s = max(sums.end_s, window.end_s)
            for name, gauge in window.gauges.items():
                count, total, largest = sums.gauges.get(name, [0.0, 0.0, -math.inf])
                sums.gauges[name] = [count + gauge.samples, total + gauge.total, max(largest, gauge.largest)]
            if only.measured is not None:
                sums.steps += only.measured.steps
                sums.seconds += only.measured.end_s - only.measured.start_s

    def new_profiles(self) -> tuple[JobProfile, ...]:
        """The profiles of workloads that were never given out, or whose windows have doubled since."""
        return tuple(
            profile
            for key, sums in self._sums.items()
            if sums.windows >= 2 * self._registered.get(key, 0) and (profile := _profile(key, sums)) is not None
        )

    def mark_registered(self, profiles: Iterable[JobProfile]) -> None:
        """Note that these profiles were given out."""
        for profile in profiles:
            key = profile.workload, profile.device_type
            self._registered[key] = self._sums[key].windows

    def to_json(self) -> list[Any]:
        """The sums, for a state file."""
        return [
            [*key, sums.gauges, sums.steps, sums.seconds, sums.windows, sums.end_s, self._registered.get(key, 0)]
            for key, sums in self._sums.items()
        ]

    @classmethod
    def from_json(cls, rows: Iterable[Any]) -> "SoloFacts":
        """The sums of a state file. Raises ValueError or TypeError where they are none."""
        facts = cls()
        for workload, device_type, gauges, steps, seconds, windows, end_s, registered in rows:
            values = {str(name): [float(number) for number in numbers] for name, numbers in gauges.items()}
            sums = _Sums(values, float(steps), float(seconds), int(windows), float(end_s))
            facts._sums[str(workload), str(device_type)] = sums
            facts._registered[str(workload), str(device_type)] = int(registered)
        return facts


def _profile(key: tuple[str, str], sums: _Sums) -> JobProfile | None:
    """A profile of means; None without any fact, or where a record refuses it."""
    facts: dict[str, Any] = {
        name: largest if name == PEAK else total / count for name, (count, total, largest) in sums.gauges.items()
    }
    step_time_s = sums.seconds / sums.steps if sums.steps > 0 else NAN
    if not facts and math.isnan(step_time_s):
        return None
    try:
        return JobProfile(
            workload=key[0],
            device_type=key[1],
            step_time_s=step_time_s,
            source=SOURCE,
            measured_at_s=sums.end_s,
            **facts,
        )
    except InvalidInputError:
        return None
