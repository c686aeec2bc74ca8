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
from interfere.monitoring.device_gauges import MEMORY
from interfere.monitoring.reading import CompanyWindow, JobInWindow
from interfere.monitoring.settings import MonitoringSettings
from interfere.records import NAN, JobProfile, Progress

MAX_ID = 256  # characters; a longer id ends in its digest
SOURCE = "dcgm"


def observation_id(site: str, window: CompanyWindow, job_id: str) -> str:
    """The id of one job's progress in a window."""
    text = f"{site}/{window.device.id}/{job_id}/{window.start_s * 1000:.0f}"
    return text if len(text) <= MAX_ID else f"{text[: MAX_ID - 41]}/{hashlib.sha1(text.encode()).hexdigest()}"  # noqa: S324


def progress_observations(windows: Iterable[CompanyWindow], settings: MonitoringSettings) -> tuple[Progress, ...]:
    """The progress of every measured job, window by window.

    Windows of three jobs or more teach a server no pair and are left out, as are jobs whose labels a record refuses.
    """
    found = []
    for window in windows:
        for each in window.jobs if len(window.jobs) <= 2 else ():
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
    windows: int = 0  # of it alone
    end_s: float = 0.0


class SoloFacts:
    """Sums of what was seen of each workload alone, its profile in the making: the mean, of memory the largest.

    The size grows with the number of workloads and with nothing else.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sums] = {}
        self._registered: dict[tuple[str, str], int] = {}  # windows in the profile that was given out last

    def add(self, windows: Iterable[CompanyWindow]) -> None:
        """Add windows: all that is known of a job alone, and in company the memory that is known to be its own."""
        for window in windows:
            alone = len(window.jobs) == 1
            for each in window.jobs:
                if not alone and not each.gauges:
                    continue
                sums = self._sums.setdefault((each.job.workload, window.device.type), _Sums())
                sums.end_s = max(sums.end_s, window.end_s)
                sums.windows += alone
                for name, gauge in each.gauges.items():
                    count, total, largest = sums.gauges.get(name, [0.0, 0.0, -math.inf])
                    sums.gauges[name] = [count + gauge.samples, total + gauge.total, max(largest, gauge.largest)]
                if alone and each.measured is not None:
                    if not sums.steps:  # a new fact, which a server should not wait for
                        self._registered.pop((each.job.workload, window.device.type), None)
                    sums.steps += each.measured.steps
                    sums.seconds += each.measured.end_s - each.measured.start_s

    def new_profiles(self) -> tuple[JobProfile, ...]:
        """The profiles of workloads seen alone, where they are new, have a new fact, or twice the windows of the last.

        A workload that was never alone gets none: with its memory alone a server could predict nothing, and would not
        wait for more.
        """
        return tuple(
            profile
            for key, sums in self._sums.items()
            if sums.windows
            and sums.windows >= 2 * self._registered.get(key, 0)
            and (profile := _profile(key, sums)) is not None
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
        name: largest if name == MEMORY else total / count for name, (count, total, largest) in sums.gauges.items()
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
