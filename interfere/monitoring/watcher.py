"""Watches monitoring: cell after cell, windows become observations and profiles in a server.

Laws: a cell is read when all of it, and a margin after it, has been recorded; the state file moves on when the server
has acknowledged the cell, and none is sent before the options were seen to fit what is recorded. So whatever is killed
or away in between, no window is lost and none counts twice: a cell that is sent again has the ids that it had. Memory
holds the samples of one cell and its margins, and one sum per workload.

An adapter of another scheduler gives its own SampleSource and calls `Watcher.catch_up` from its own loop.

The id of an observation depends on site, device, job and start of its window alone, so that a window that is read
again is a duplicate to the server.
"""

import hashlib
import json
import logging
import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from interfere.errors import InterfereError, InvalidInputError, UnavailableError
from interfere.file_writing import write_atomically
from interfere.monitoring.company_windows import read_span
from interfere.monitoring.naming_hints import naming_hint
from interfere.monitoring.preflight import PreflightError, ProgressCounts, check_labels, check_progress
from interfere.monitoring.reading import MEMORY, CompanyWindow, JobInWindow, SiteReading, read_cell
from interfere.monitoring.samples import SampleSource
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import SiteLabels
from interfere.records import NAN, JobProfile, Observation, ObservationAnswer, ObservationResult, Progress

_log = logging.getLogger("interfere.watch")
STATE_FORMAT = 1
BATCH = 500  # observations of one report
MIN_WAIT_S, MAX_WAIT_S, MAX_RETRY_S = 0.2, 60.0, 60.0
PREFLIGHT_WINDOWS = 10  # device time with a job, in shortest windows, from which missing progress is no start-up
PREFLIGHT_CELLS = 12  # with a job or after one: an hour at the usual five minutes, then less time has to do
PREFLIGHT_CHANGES = 1000  # of progress: more make the check no surer
SETTLE_S = 5.0  # a scrape is recorded that much after its time at the latest


class ReportSink(Protocol):
    """A receiver of observations and profiles, such as a PolicyClient. Raises UnavailableError while it is
    unreachable."""

    def observe(self, windows: Sequence[Observation]) -> Sequence[ObservationAnswer]:
        """Report windows; a second report of the same windows changes nothing."""

    def register_profiles(self, facts: Sequence[JobProfile]) -> Sequence[str]:
        """Store profiles; a second report of the same profiles changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReport:
    """The counts of windows, observations and profiles that were reported for a cell."""

    start_s: float
    end_s: float
    series: int
    windows: int
    shared_windows: int
    results: Counter[str]  # observations by the server's answer
    profiles: int
    left_out: Counter[str]
    hint: str  # where jobs were seen and none could be compared; else empty


class Watcher:
    """Reports the windows of a site to a server, cell by cell."""

    def __init__(
        self, source: SampleSource, sink: ReportSink, settings: MonitoringSettings, state: Path, *, lookback_s: float
    ) -> None:
        """Read the state file; without one, watching begins `lookback_s` before the newest sample.

        Raises InvalidInputError for a state file of other settings.
        """
        self._source, self._sink, self._settings, self._state = source, sink, settings, state
        self._lookback_s = lookback_s
        self._next_cell: int | None = None
        self._facts = SoloFacts()
        self._checked = not settings.progress
        self._read_state()

    def catch_up(self, stop: threading.Event | None = None) -> list[CellReport]:
        """Read and report every complete cell, oldest first.

        Raises UnavailableError where the source or the server is away, and PreflightError where the options do not fit
        what is recorded.
        """
        reports = []
        check_labels(self._settings, self._source.device_label_names())
        while stop is None or not stop.is_set():
            now_s = self._source.now_s()
            cell = self._cell(now_s)
            if not self._is_complete(cell, now_s):
                break
            if not self._checked and not self._check_progress(cell, now_s):
                break
            reports.append(self._report_cell(cell))
        return reports

    def _is_complete(self, cell: tuple[float, float], now_s: float) -> bool:
        return now_s >= read_span(cell, self._settings.min_window_s)[1] + SETTLE_S

    def _check_progress(self, cell: tuple[float, float], now_s: float) -> bool:
        """Return whether `cell` may be reported: no job is in it, or the complete cells from it on show that what was
        named counts the jobs' steps. False while they are too few to tell.

        Raises PreflightError where they show that it does not.
        """
        counts, busy_s, cells = ProgressCounts(), 0.0, 0
        while counts.changes < PREFLIGHT_CHANGES and self._is_complete(cell, now_s):
            reading = self._read(cell)
            counts += reading.progress
            busy_s += sum(shared.seconds for shared in reading.shared)
            if not busy_s:
                return True
            cell, cells = (cell[1], cell[1] + self._settings.cell_s), cells + 1
        if busy_s < PREFLIGHT_WINDOWS * self._settings.min_window_s and cells < PREFLIGHT_CELLS:
            return False
        check_progress(counts, self._settings, "those on devices")
        self._checked = True
        return True

    def _read(self, cell: tuple[float, float]) -> SiteReading:
        labels = SiteLabels(self._settings, self._source.device_label_names())
        block = self._source.read(*read_span(cell, self._settings.min_window_s))
        return read_cell(block, labels, self._settings, cell)

    def seconds_to_next(self) -> float:
        """Return the seconds until the next cell is complete; 0 where a complete cell waits."""
        now_s = self._source.now_s()
        cell = self._cell(now_s)
        return max(0.0, read_span(cell, self._settings.min_window_s)[1] + SETTLE_S - now_s)

    def _cell(self, now_s: float) -> tuple[float, float]:
        cell_s = self._settings.cell_s
        if self._next_cell is None:
            self._next_cell = math.floor((now_s - self._lookback_s) / cell_s)
        return self._next_cell * cell_s, (self._next_cell + 1) * cell_s

    def _report_cell(self, cell: tuple[float, float]) -> CellReport:
        # 1. Read the samples of the cell, and what they say.
        reading = self._read(cell)
        # 2. Profiles first, so that the server knows the jobs of the windows.
        facts = SoloFacts.from_json(self._facts.to_json())
        facts.add(reading.windows)
        profiles = list(facts.new_profiles())
        if profiles:
            self._sink.register_profiles(profiles)
            facts.mark_registered(profiles)
        # 3. Windows.
        observations = list(progress_observations(reading.windows, self._settings))
        results: Counter[str] = Counter()
        for first in range(0, len(observations), BATCH):
            for answer in self._sink.observe(list(observations[first : first + BATCH])):
                results[answer.result.value] += 1
                if answer.result is ObservationResult.REJECTED:
                    _log.warning("rejected: %s: %s", answer.observation_id, answer.reason)
        # 4. The cell is done.
        assert self._next_cell is not None
        self._facts, self._next_cell = facts, self._next_cell + 1
        self._write_state()
        shared = [window for window in reading.windows if len(window.jobs) > 1]
        return CellReport(
            start_s=cell[0],
            end_s=cell[1],
            series=reading.series,
            windows=len(reading.windows),
            shared_windows=len(shared),
            results=results,
            profiles=len(profiles),
            left_out=reading.left_out,
            hint=naming_hint(reading.workload_of, reading.recurring_labels, self._settings.by),
        )

    def _identity(self) -> dict[str, object]:
        """Return the settings that a state file must repeat to be continued, because ids and sums depend on them."""
        settings = self._settings
        names = ("site", "by", "mode", "cell_s", "progress")
        patterns = settings.workloads.patterns if settings.workloads is not None else ()
        workloads = {"workloads": [[pattern.pattern, name] for pattern, name in patterns]} if patterns else {}
        return {name: getattr(settings, name) for name in names} | workloads

    def _read_state(self) -> None:
        try:
            document = json.loads(self._state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise self._bad_state(str(error)) from None
        try:
            if document["format"] != STATE_FORMAT:
                raise ValueError(f"format {document['format']}")
            facts, next_cell = SoloFacts.from_json(document["facts"]), int(document["next_cell"])
            identity = document["settings"]
            checked = bool(document.get("checked"))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._bad_state(repr(error)) from None
        if identity != self._identity():
            now = self._identity()
            changed = sorted(name for name in now.keys() | identity.keys() if identity.get(name) != now.get(name))
            raise InvalidInputError(
                f"the state file is of other settings ({', '.join(changed)})",
                value=self._state,
                remedy="give the settings of before, or another --state",
            )
        self._facts, self._next_cell, self._checked = facts, next_cell, self._checked or checked

    def _write_state(self) -> None:
        document = {
            "format": STATE_FORMAT,
            "settings": self._identity(),
            "next_cell": self._next_cell,
            "checked": self._checked,
            "facts": self._facts.to_json(),
        }
        text = json.dumps(document)
        write_atomically(self._state, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))

    def _bad_state(self, problem: str) -> InvalidInputError:
        remedy = "remove it: what was reported is recognised by its ids"
        return InvalidInputError(f"the state file cannot be read ({problem})", value=self._state, remedy=remedy)


def watch(watcher: Watcher, stop: threading.Event) -> None:
    """Report cells until `stop` is set. While Prometheus or the server is away, try again at growing intervals.

    Raises PreflightError where the options do not fit what is recorded.
    """
    retry_s = 1.0
    while not stop.is_set():
        try:
            for report in watcher.catch_up(stop):
                _log.info("%s", describe(report))
            wait_s, retry_s = min(MAX_WAIT_S, watcher.seconds_to_next()), 1.0
        except UnavailableError as error:
            _log.warning("waiting: %s", error.one_line)
            wait_s, retry_s = retry_s, min(MAX_RETRY_S, 2 * retry_s)
        except PreflightError:
            raise
        except InterfereError as error:
            _log.error("not reported: %s", error.one_line)
            wait_s, retry_s = retry_s, min(MAX_RETRY_S, 2 * retry_s)
        stop.wait(max(MIN_WAIT_S, wait_s))


def describe(report: CellReport) -> str:
    """Return what was reported for a cell as a line of text."""
    results = ", ".join(f"{count} {name}" for name, count in sorted(report.results.items())) or "no observations"
    until = datetime.fromtimestamp(report.end_s, UTC).strftime("%F %T")
    text = f"until {until} UTC: {report.windows} windows, {report.shared_windows} shared; {results}"
    text += f"; {report.profiles} profiles" if report.profiles else ""
    return text + (f"; {report.hint}" if report.hint else "")


# --- observations and profiles from windows ---------------------------------------------------------------------------


MAX_ID = 256  # characters; a longer id ends in its digest
SOURCE = "dcgm"


def observation_id(site: str, window: CompanyWindow, job_id: str) -> str:
    """Return the id of a job's progress in a window; the same job and window always have the same id."""
    text = f"{site}/{window.device.id}/{job_id}/{window.start_s * 1000:.0f}"
    return text if len(text) <= MAX_ID else f"{text[: MAX_ID - 41]}/{hashlib.sha1(text.encode()).hexdigest()}"  # noqa: S324


def progress_observations(windows: Iterable[CompanyWindow], settings: MonitoringSettings) -> tuple[Progress, ...]:
    """Return the progress of every measured job, window by window.

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
    """Sums over the samples of one workload running alone on one device type."""

    gauges: dict[str, list[float]] = field(default_factory=dict)  # samples, total, largest, by field of JobProfile
    steps: float = 0.0
    seconds: float = 0.0
    windows: int = 0  # of it alone
    end_s: float = 0.0
    registered: int = 0  # windows in the profile that was last sent to the server


class SoloFacts:
    """Sums over the windows in which each workload ran alone, from which its profile is made: means, and the largest
    memory.

    The size grows with the number of workloads and with nothing else.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sums] = {}

    def add(self, windows: Iterable[CompanyWindow]) -> None:
        """Add windows. A job alone contributes all its facts; a job with neighbours only the memory that is known to be
        its own."""
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
                        sums.registered = 0
                    sums.steps += each.measured.steps
                    sums.seconds += each.measured.end_s - each.measured.start_s

    def new_profiles(self) -> tuple[JobProfile, ...]:
        """Return the profiles of workloads seen alone whose profile is new, has a new fact, or has twice the windows of
        the last.

        A workload that never ran alone gets no profile. With its memory alone a server could predict nothing, and would
        not wait for more.
        """
        return tuple(
            profile
            for key, sums in self._sums.items()
            if sums.windows and sums.windows >= 2 * sums.registered and (profile := _profile(key, sums)) is not None
        )

    def mark_registered(self, profiles: Iterable[JobProfile]) -> None:
        """Note that the server has these profiles."""
        for profile in profiles:
            sums = self._sums[profile.workload, profile.device_type]
            sums.registered = sums.windows

    def to_json(self) -> list[Any]:
        """Return the sums of all workloads as rows of a state file."""
        return [[*key, *astuple(sums)] for key, sums in self._sums.items()]

    @classmethod
    def from_json(cls, rows: Iterable[Any]) -> "SoloFacts":
        """Return the sums that a state file holds. Raises ValueError or TypeError for rows of another form."""
        facts = cls()
        for workload, device_type, gauges, steps, seconds, windows, end_s, registered in rows:
            values = {str(name): [float(number) for number in numbers] for name, numbers in gauges.items()}
            sums = _Sums(values, float(steps), float(seconds), int(windows), float(end_s), int(registered))
            facts._sums[str(workload), str(device_type)] = sums
        return facts


def _profile(key: tuple[str, str], sums: _Sums) -> JobProfile | None:
    """Return a profile of mean values; None where no fact is known, or the facts make no valid profile."""
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
