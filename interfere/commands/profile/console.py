"""What the commands of `interfere profile` share: options, a bar while they measure, and the table in the end."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import emit, err, keeps_when_interrupted, progress_note
from interfere.reports.document import Part, Sentence, Table, Tone
from interfere.time_left import time_left_line

if TYPE_CHECKING:
    from interfere.profiling.measurer import MeasuredTable, MeasuringConfig, MeasuringProgress
    from interfere.records import GroupMeasurement, MeasuredBlock, PairMeasurement

NOTE_EVERY_S = 10.0  # between lines of progress where standard error is no terminal


Out = Annotated[Path | None, typer.Option(help="Folder of the table. Default: WORK/tables/NAME.")]
Core = Annotated[int | None, typer.Option(min=0, help="The core to share. Default: the idlest.")]


def measuring_settings(
    out: Out = None,
    name: Annotated[str, typer.Option(help="Name of the table in the workspace.")] = "mine",
    work: Work = DEFAULT_WORK,
    core: Core = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random order of pairs.")] = 0,
    passes: Annotated[int, typer.Option(min=1, help="Blocks of every pair, each in its own pass.")] = 2,
    max_blocks: Annotated[int, typer.Option(min=1, help="At most so many blocks while the interval is wide.")] = 6,
    quick: Annotated[
        bool, typer.Option("--quick", help="Exactly PASSES blocks a pair, however wide the interval.")
    ] = False,
    rounds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Campaigns, one after another: new processes and rows of its own in each. Implies --quick.",
        ),
    ] = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Refuse a folder that holds measurements instead of resuming.")
    ] = False,
) -> dict[str, Any]:
    """Return the fields of a MeasuringConfig that do not depend on how a job is run, from the values of options."""
    return {
        "out": out or work / "tables" / name,
        "core": core,
        "seed": seed,
        "passes": passes,
        "max_blocks": passes if quick or rounds > 1 else max(passes, max_blocks),
        "rounds": rounds,
        "resume": not fresh,
    }


@contextmanager
def measuring_progress(out: Path) -> Iterator[Callable[["MeasuringProgress"], None]]:
    """Show the progress of measuring on standard error: a bar with the time left, or a line every `NOTE_EVERY_S`.

    Yields the function that takes the progress. Ctrl-C says what is kept.
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

        with keeps_when_interrupted(f"measured blocks are kept in {out}: the same command goes on from them"):
            yield report


def measure_and_print(
    config: "MeasuringConfig", results: Callable[["MeasuredTable"], Table], setting: str, *, as_json: bool
) -> None:
    """Measure, then print the table that `results` returns, and the setting in words.

    Exit status 1 where a job could not be measured.
    """
    from interfere.profiling.measurer import measure

    with measuring_progress(config.out) as report:
        measured = measure(config, report)
    shown: list[Part] = [results(measured), Sentence(f"{setting} · wrote {config.out}", tone=Tone.NOTE)]
    emit(_document(config.out, measured), shown, as_json=as_json)
    if measured.failures:
        raise typer.Exit(1)


def _document(out: Path, measured: "MeasuredTable") -> dict[str, object]:
    """Return the measured table as a mapping for programs, without passes and provenance."""
    from interfere.data.quality import group_quality, table_quality
    from interfere.data.tables import table_digest

    def rows(records: Iterable[object], *names: str) -> list[dict[str, object]]:
        return [{name: getattr(record, name) for name in names} for record in records]

    table, fields = measured.table, ("slowdown", "lower", "upper", "status", "reason")
    return {
        "table": str(out),
        "sha256": table_digest(out),
        "jobs": rows(table.jobs, "workload", "step_time_s", "step_time_sd_s", "busy_frac", "memory_peak_bytes"),
        "pairs": rows(table.pairs, "victim", "neighbour", "important", *fields),
        "groups": rows(table.groups, "victim", "company", *fields),
        "quality": _quality(table_quality(table)),
        "group_quality": [_quality(each) for each in group_quality(table)],
        "blocks": [_block(block) for block in measured.blocks],
        "failures": measured.failures,
    }


def _quality(figures: Any) -> dict[str, object]:
    return asdict(figures) | {"rows_by_status": dict(figures.rows_by_status)}


def _block(block: "MeasuredBlock") -> dict[str, object]:
    """Return the disturbance of a block for programs: the share of other programs, and the number of valid slices."""
    return {
        "jobs": [side.workload for side in block.sides],
        "pass": block.pass_index + 1,
        "taken_frac": block.steal_frac,
        "clock_range": block.drift_frac,
        "slices": sum(len(side.slices) for side in block.sides),
        "slices_counted": sum(side.slices_counted for side in block.sides),
        "reason": block.reason,
    }


def pair_cells(pair: "PairMeasurement") -> tuple[str, str, str, str, str]:
    """Return victim, neighbour, slowdown, interval and status of a measured pair as text; a dash for no value."""
    important = {"victim": " (important)", "neighbour": " (behind it)"}.get(pair.important, "")
    return pair.victim + important, pair.neighbour, *measurement_cells(pair)


def measurement_cells(row: "PairMeasurement | GroupMeasurement") -> tuple[str, str, str]:
    """Return slowdown, interval and status of a measurement as text; a dash for no value."""
    slowdown = f"{row.slowdown:.2f} ×" if row.status.value == "ok" else "–"
    interval = f"{row.lower:.2f}-{row.upper:.2f}" if isfinite(row.lower) else "–"
    return slowdown, interval, row.reason or row.status.value
