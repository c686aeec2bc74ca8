"""What the commands of `interfere profile` show in the terminal: a bar while they measure, then the table."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from interfere.commands.output import err, progress_note
from interfere.time_left import time_left_line

if TYPE_CHECKING:
    from interfere.profiling.measurer import MeasuringProgress
    from interfere.records import GroupMeasurement, MeasuredBlock, PairMeasurement

NOTE_EVERY_S = 10.0  # between lines of progress where standard error is no terminal
_FIELDS = ("slowdown", "lower", "upper", "status", "reason")


@contextmanager
def measuring_progress(out: Path) -> Iterator[Callable[["MeasuringProgress"], None]]:
    """Show the progress of measuring on standard error: a bar with the time left, or a line every `NOTE_EVERY_S`.

    Yields the function that takes the progress. Ctrl-C goes on to the caller, after a line that says how to resume.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:g}/{task.total:g}"))
    with Progress(*columns, console=err, refresh_per_second=2, disable=not err.is_terminal) as bar:
        task: TaskID = bar.add_task("starting", total=1)
        last_note_s = -NOTE_EVERY_S

        def report(progress: "MeasuringProgress") -> None:
            nonlocal last_note_s
            text = time_left_line(progress.seconds_left, progress.text)
            bar.update(task, completed=progress.done, total=max(1, progress.total), description=text)
            if progress.warning:
                err.print(f"warning: {progress.warning}", style="yellow", soft_wrap=True)
            if not err.is_terminal and time.monotonic() - last_note_s >= NOTE_EVERY_S:
                last_note_s = time.monotonic()
                progress_note(f"{progress.done}/{progress.total} · {text}")

        try:
            yield report
        except KeyboardInterrupt:
            progress_note(f"interrupted; the same command goes on from what {out} holds")
            raise


def pair_documents(pairs: Sequence["PairMeasurement"]) -> list[dict[str, object]]:
    """Return the measured pairs for programs, without their passes and provenance."""
    names = ("victim", "neighbour", "important", *_FIELDS)
    return [{name: getattr(pair, name) for name in names} for pair in pairs]


def group_documents(groups: Sequence["GroupMeasurement"]) -> list[dict[str, object]]:
    """Return the rows of measured groups for programs, without their passes and provenance."""
    return [{name: getattr(row, name) for name in ("victim", "company", *_FIELDS)} for row in groups]


def block_documents(blocks: Sequence["MeasuredBlock"]) -> list[dict[str, object]]:
    """Return for programs how each measurement was disturbed: by other programs, and how many slices were dropped."""
    return [
        {
            "jobs": [side.workload for side in block.sides],
            "pass": block.pass_index + 1,
            "taken_frac": block.steal_frac,
            "clock_range": block.drift_frac,
            "slices": sum(len(side.slices) for side in block.sides),
            "slices_counted": sum(side.slices_counted for side in block.sides),
            "reason": block.reason,
        }
        for block in blocks
    ]


def pair_cells(pair: "PairMeasurement") -> tuple[str, str, str, str, str]:
    """Return victim, neighbour, slowdown, interval and status of a measured pair for people; a dash for no value."""
    important = {"victim": " (important)", "neighbour": " (behind it)"}.get(pair.important, "")
    return pair.victim + important, pair.neighbour, *measurement_cells(pair)


def measurement_cells(row: "PairMeasurement | GroupMeasurement") -> tuple[str, str, str]:
    """Return slowdown, interval and status for people; a dash for no value."""
    slowdown = f"{row.slowdown:.2f} ×" if row.status.value == "ok" else "–"
    interval = f"{row.lower:.2f}-{row.upper:.2f}" if isfinite(row.lower) else "–"
    return slowdown, interval, row.reason or row.status.value
