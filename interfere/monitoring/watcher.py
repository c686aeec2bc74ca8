"""Watches monitoring: cell after cell, windows become observations and profiles in a server.

Laws: a cell is read when all of it, and a margin after it, has been recorded; the state file moves on when the server
has acknowledged the cell. So whatever is killed or away in between, no window is lost and none counts twice: a cell
that is sent again has the ids that it had. Memory holds the samples of one cell and its margins, and one sum per
workload.

An adapter of another scheduler gives its own SampleSource and calls `Watcher.catch_up` from its own loop.
"""

import json
import logging
import math
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from interfere.errors import InterfereError, InvalidInputError, UnavailableError
from interfere.file_writing import write_atomically
from interfere.monitoring.company_windows import read_span
from interfere.monitoring.observations import SoloFacts, progress_observations
from interfere.monitoring.reading import read_cell
from interfere.monitoring.samples import SampleSource
from interfere.monitoring.settings import MonitoringSettings
from interfere.monitoring.site_labels import SiteLabels, naming_hint
from interfere.records import JobProfile, Observation, ObservationResult

_log = logging.getLogger("interfere.watch")
STATE_FORMAT = 1
BATCH = 500  # observations of one report
MIN_WAIT_S, MAX_WAIT_S, MAX_RETRY_S = 0.2, 60.0, 60.0
SETTLE_S = 5.0  # a scrape is recorded that much after its time at the latest


class Answer(Protocol):
    """What a server says of one observation."""

    @property
    def observation_id(self) -> str: ...
    @property
    def result(self) -> ObservationResult: ...
    @property
    def reason(self) -> str: ...


class ReportSink(Protocol):
    """Takes observations and profiles; PolicyClient is one. Raises UnavailableError where it is away."""

    def observe(self, windows: Sequence[Observation]) -> Sequence[Answer]:
        """Report windows; safe to send again."""

    def register_profiles(self, facts: Sequence[JobProfile]) -> Sequence[str]:
        """Store profiles; safe to send again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReport:
    """What became of one cell."""

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
    """Reports one site's windows to one server."""

    def __init__(
        self, source: SampleSource, sink: ReportSink, settings: MonitoringSettings, state: Path, *, lookback_s: float
    ) -> None:
        """`state` is read now; where it does not exist, watching begins `lookback_s` before the newest sample.

        Raises InvalidInputError for a state file of other settings.
        """
        self._source, self._sink, self._settings, self._state = source, sink, settings, state
        self._lookback_s = lookback_s
        self._next_cell: int | None = None
        self._facts = SoloFacts()
        self._read_state()

    def catch_up(self, stop: threading.Event | None = None) -> list[CellReport]:
        """Read and report every cell that is complete, oldest first. Raises UnavailableError where one side is away."""
        reports = []
        while stop is None or not stop.is_set():
            now_s = self._source.now_s()
            cell = self._cell(now_s)
            margin_s = read_span(cell, self._settings.min_window_s)[1] - cell[1]
            if now_s < cell[1] + margin_s + SETTLE_S:
                break
            reports.append(self._report_cell(cell))
        return reports

    def seconds_to_next(self) -> float:
        """How long until the next cell can be read; 0 where one can be read now."""
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
        labels = SiteLabels(self._settings, self._source.device_label_names())
        block = self._source.read(*read_span(cell, self._settings.min_window_s))
        reading = read_cell(block, labels, self._settings, cell)
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
        """Settings that make ids and sums: a state file of others cannot be continued."""
        settings = self._settings
        names = ("site", "by", "mode", "cell_s", "progress")
        return {name: getattr(settings, name) for name in names}

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
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._bad_state(repr(error)) from None
        if identity != self._identity():
            changed = [name for name, value in self._identity().items() if identity.get(name) != value]
            raise InvalidInputError(
                f"the state file is of other settings ({', '.join(changed)})",
                value=self._state,
                remedy="give the settings of before, or another --state",
            )
        self._facts, self._next_cell = facts, next_cell

    def _write_state(self) -> None:
        document = {
            "format": STATE_FORMAT,
            "settings": self._identity(),
            "next_cell": self._next_cell,
            "facts": self._facts.to_json(),
        }
        text = json.dumps(document)
        write_atomically(self._state, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))

    def _bad_state(self, problem: str) -> InvalidInputError:
        remedy = "remove it: what was reported is recognised by its ids"
        return InvalidInputError(f"the state file cannot be read ({problem})", value=self._state, remedy=remedy)


def watch(watcher: Watcher, stop: threading.Event) -> None:
    """Report cells until `stop` is set. Where Prometheus or the server is away, try again, less and less often."""
    retry_s = 1.0
    while not stop.is_set():
        try:
            for report in watcher.catch_up(stop):
                _log.info("%s", describe(report))
            wait_s, retry_s = min(MAX_WAIT_S, watcher.seconds_to_next()), 1.0
        except UnavailableError as error:
            _log.warning("waiting: %s", " ".join(str(error).split()))
            wait_s, retry_s = retry_s, min(MAX_RETRY_S, 2 * retry_s)
        except InterfereError as error:
            _log.error("not reported: %s", " ".join(str(error).split()))
            wait_s, retry_s = retry_s, min(MAX_RETRY_S, 2 * retry_s)
        stop.wait(max(MIN_WAIT_S, wait_s))


def describe(report: CellReport) -> str:
    """One line about a cell."""
    results = ", ".join(f"{count} {name}" for name, count in sorted(report.results.items())) or "no observations"
    text = f"until {report.end_s:.0f}: {report.windows} windows, {report.shared_windows} shared; {results}"
    text += f"; {report.profiles} profiles" if report.profiles else ""
    return text + (f"; {report.hint}" if report.hint else "")
