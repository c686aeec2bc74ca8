"""The stages of a run: what each is for, how long it takes, and what of it is kept when the run is ended before it.

Law: a run that was killed and is started again repeats no stage that had ended, and a finished run starts anew.
"""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.commands.output import err, progress_note
from interfere.commands.quickstart.stages import Progress
from interfere.file_writing import write_atomically
from interfere.strict_json import json_value
from interfere.time_left import clock_text

NOTE_EVERY_S = 10.0  # between lines of progress where standard error is no terminal
KEPT_SHARE = 0.2  # of the expected time: a stage that takes less was kept from before, and says nothing of the pace
SETTINGS, FINISHED = "settings.json", "report.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of a run. A run with equal settings continues where an earlier run ended."""

    workload_set: str
    workloads: tuple[str, ...]
    seed: int = 0  # which pairs are held out, which random pairing is run
    longer: int = 1  # how many times as long to measure


class RunPlan:
    """Counts the stages of a run, and prints the remaining time of each stage and of the run."""

    def __init__(self, expected_s: Mapping[str, float], now_s: Callable[[], float] = time.monotonic) -> None:
        """Start counting. `expected_s` gives the stages in order, with their seconds on an otherwise idle machine."""
        self._expected_s, self._now_s = dict(expected_s), now_s
        self._spent_s = self._planned_s = 0.0  # in the stages that have ended
        self._ended: list[str] = []

    @contextmanager
    def stage(self, text: str) -> Iterator[Progress]:
        """Print that a stage begins; yields what takes its progress."""
        name = list(self._expected_s)[len(self._ended)]
        begin_s = self._now_s()
        next_note_s = begin_s + NOTE_EVERY_S
        number = f"[{len(self._ended) + 1}/{len(self._expected_s)}]"
        expected_s = self._expected_s[name] * self._pace
        left = f"about {clock_text(expected_s)} of {clock_text(expected_s + self._later_s)} left"
        progress_note(f"\n{number} {text} · {left}")
        with err.status("") as status:

            def progress(seconds_left: float, doing: str) -> None:
                nonlocal next_note_s
                in_all = clock_text(seconds_left + self._later_s)
                line = f"{number} {clock_text(seconds_left)} left of this stage, {in_all} in all · {doing}"
                if err.is_terminal:
                    status.update(line)
                elif self._now_s() >= next_note_s:
                    next_note_s = self._now_s() + NOTE_EVERY_S
                    progress_note(f"      {line}")

            yield progress
        self._ended.append(name)
        spent_s = self._now_s() - begin_s
        if spent_s > KEPT_SHARE * self._expected_s[name]:
            self._spent_s += spent_s
            self._planned_s += self._expected_s[name]

    @property
    def text(self) -> str:
        """Return how long the run takes."""
        return f"About {math.ceil(sum(self._expected_s.values()) / 60)} minutes in {len(self._expected_s)} stages"

    def usual_s(self, *names: str) -> float:
        """Return the seconds that stages take at the pace of this run; 0 for stages that it does not have."""
        return sum(self._expected_s.get(name, 0.0) for name in names) * self._pace

    @property
    def _pace(self) -> float:
        """Return the ratio of actual to expected duration of the stages so far."""
        return max(1.0, self._spent_s / self._planned_s) if self._planned_s else 1.0

    @property
    def _later_s(self) -> float:
        """Seconds of the stages after this one."""
        later = list(self._expected_s)[len(self._ended) + 1 :]
        return sum(self._expected_s[each] for each in later) * self._pace


class RunFolder:
    """The folder of a run: the results of each stage, one JSON file each."""

    def __init__(self, folder: Path, tables: tuple[Path, ...], settings: RunSettings) -> None:
        """Open an unfinished run with these settings in this folder, or else begin a new run.

        `tables` are folders of measurements that belong to the run.
        """
        self.folder, self._settings = folder, json_value(asdict(settings))
        if self._read(SETTINGS) != self._settings or (folder / FINISHED).exists():
            for earlier in (folder, *tables):
                shutil.rmtree(earlier, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        self._write(SETTINGS, self._settings)

    def once(self, name: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return the result of a stage: read from its file, or computed now and written there."""
        kept = self._read(f"{name}.json")
        if kept is None:
            self._write(f"{name}.json", dict(compute()))
            kept = self._read(f"{name}.json")
        assert kept is not None
        return kept

    def has(self, name: str) -> bool:
        """Return whether a stage has ended."""
        return (self.folder / f"{name}.json").exists()

    def finish(self, report: Mapping[str, Any]) -> Path:
        """Write the report, after which the next run begins anew, and return its path."""
        return self._write(FINISHED, report)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        document: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        return document

    def _write(self, name: str, document: Mapping[str, Any]) -> Path:
        text = json.dumps(json_value(document), indent=2) + "\n"
        write_atomically(self.folder / name, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
        return self.folder / name
