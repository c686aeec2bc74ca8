"""Measure jobs alone and together on this machine, into a table."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table as Grid

from interfere.commands.output import JsonFlag, emit, err, progress_note
from interfere.commands.profile.programs import command
from interfere.commands.profile.static import static
from interfere.errors import InvalidInputError

if TYPE_CHECKING:
    from interfere.data.tables import Table
    from interfere.profiling.campaign import CampaignConfig, CampaignProgress

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)

app.command()(command)

NOTE_EVERY_S = 10.0  # lines of progress where standard error is no terminal


class DeviceKind(StrEnum):
    """What can be measured here."""

    CPU = "cpu"


Device = Annotated[DeviceKind, typer.Option(help="cpu: one core, shared in time slices.")]
Names = Annotated[str, typer.Option("--workloads", help="Names or module:factory, by commas; or eight, twelve, all.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the table. Default: WORK/tables/NAME.")]
Name = Annotated[str, typer.Option(help="Name of the table in the workspace.")]
Work = Annotated[Path, typer.Option(envvar="INTERFERE_WORK", help="The workspace.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random order of pairs.")]
Core = Annotated[int | None, typer.Option(min=0, help="The core to share. Default: the idlest.")]
Quick = Annotated[bool, typer.Option("--quick", help="Exactly PASSES blocks a pair, however wide the interval.")]
Passes = Annotated[int, typer.Option(min=1, help="Blocks of every pair, each in its own pass.")]
MaxBlocks = Annotated[int, typer.Option(min=1, help="At most so many blocks while the interval is wide.")]
BlockS = Annotated[float, typer.Option(min=0.4, help="Seconds of a block: alone, together, alone, together.")]
SoloS = Annotated[float, typer.Option(min=0.4, help="Seconds of each workload alone.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Refuse a folder that holds measurements instead of resuming.")]
HOME = Path("interfere-work")


@contextmanager
def campaign_bar() -> Iterator[Callable[["CampaignProgress"], None]]:
    """A progress bar with the time left on standard error; where that is no terminal, a line now and then."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:g}/{task.total:g}"))
    with Progress(*columns, console=err, refresh_per_second=2, disable=not err.is_terminal) as bar:
        task: TaskID = bar.add_task("starting", total=1)
        last = -NOTE_EVERY_S

        def report(now: "CampaignProgress") -> None:
            nonlocal last
            left = f"{int(now.seconds_left) // 60}:{int(now.seconds_left) % 60:02d} left"
            bar.update(task, completed=now.done, total=max(1, now.total), description=f"{left} · {now.text}")
            if now.warning:
                err.print(f"warning: {now.warning}", style="yellow", soft_wrap=True)
            if not err.is_terminal and time.monotonic() - last >= NOTE_EVERY_S:
                last = time.monotonic()
                progress_note(f"{now.done}/{now.total} · {left} · {now.text}")

        yield report


@app.command()
def solo(
    workloads: Names = "all",
    device: Device = DeviceKind.CPU,
    out: Out = None,
    name: Name = "alone",
    work: Work = HOME,
    core: Core = None,
    solo_s: SoloS = 2.0,
    as_json: JsonFlag = False,
) -> None:
    """Profile workloads alone: step time, busy and idle stretches, memory, FLOPs, operators."""
    from interfere.profiling import campaign
    from interfere.profiling.workloads import expand_names

    config = campaign.CampaignConfig(
        out=out or work / "tables" / name,
        workloads=expand_names(workloads),
        pairs=(),
        core=core,
        solo_s=solo_s,
        campaign=f"{device}-solo",
    )
    _measure(config, as_json=as_json)


@app.command()
def pairs(
    pair: Annotated[list[str], typer.Argument(help="Pairs as victim+neighbour; both directions are measured.")],
    device: Device = DeviceKind.CPU,
    out: Out = None,
    name: Name = "chosen-pairs",
    work: Work = HOME,
    seed: Seed = 0,
    core: Core = None,
    quick: Quick = False,
    passes: Passes = 2,
    max_blocks: MaxBlocks = 6,
    block_s: BlockS = 2.2,
    solo_s: SoloS = 2.0,
    fresh: Fresh = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure a few chosen pairs, and profile their workloads first."""
    from interfere.profiling import campaign

    chosen = tuple(pair_of(text) for text in pair)
    config = campaign.CampaignConfig(
        out=out or work / "tables" / name,
        workloads=tuple(dict.fromkeys(n for p in chosen for n in p)),
        pairs=chosen,
        passes=passes,
        max_blocks=passes if quick else max(passes, max_blocks),
        block_s=block_s,
        seed=seed,
        core=core,
        resume=not fresh,
        solo_s=solo_s,
        campaign=f"{device}-pairs",
    )
    _measure(config, as_json=as_json)


@app.command()
def campaign(
    workloads: Names = "eight",
    device: Device = DeviceKind.CPU,
    out: Out = None,
    name: Name = "mine",
    work: Work = HOME,
    seed: Seed = 0,
    core: Core = None,
    quick: Quick = False,
    passes: Passes = 2,
    max_blocks: MaxBlocks = 6,
    block_s: BlockS = 2.2,
    solo_s: SoloS = 2.0,
    fresh: Fresh = False,
    as_json: JsonFlag = False,
) -> None:
    """Profile workloads alone and in all pairs. Killed and run again, it goes on."""
    from interfere.profiling import campaign
    from interfere.profiling.workloads import expand_names

    config = campaign.CampaignConfig(
        out=out or work / "tables" / name,
        workloads=expand_names(workloads),
        passes=passes,
        block_s=block_s,
        seed=seed,
        max_blocks=passes if quick else max(passes, max_blocks),
        core=core,
        resume=not fresh,
        solo_s=solo_s,
        campaign=f"{device}-all",
    )
    _measure(config, as_json=as_json)


app.command()(static)


@app.command()
def workloads(as_json: JsonFlag = False) -> None:
    """List the built-in workloads."""
    from interfere.profiling.workloads import BUILT_IN

    grid = Grid("name", "what it does")
    for workload in BUILT_IN.values():
        grid.add_row(workload.name, workload.description)
    emit(
        {"workloads": [{"name": w.name, "description": w.description} for w in BUILT_IN.values()]},
        grid,
        as_json=as_json,
    )


def pair_of(text: str) -> tuple[str, str]:
    """Two names joined by a plus. Raises InvalidInputError."""
    victim, plus, neighbour = (part.strip() for part in text.partition("+"))
    if not (victim and plus and neighbour):
        raise InvalidInputError("not a pair", value=repr(text), remedy="write victim+neighbour, e.g. gemm+stream")
    return victim, neighbour


def _measure(config: "CampaignConfig", *, as_json: bool) -> None:
    from interfere.profiling.campaign import run_campaign

    try:
        with campaign_bar() as report:
            table = run_campaign(config, report)
    except KeyboardInterrupt:
        progress_note(f"interrupted; the same command goes on from what {config.out} holds")
        raise
    emit(_document(config, table), _grid(config, table), as_json=as_json)


def _document(config: "CampaignConfig", table: "Table") -> dict[str, object]:
    from dataclasses import asdict

    from interfere.data.quality import table_quality
    from interfere.data.tables import table_digest

    figures = asdict(table_quality(table))
    figures["rows_by_status"] = dict(figures["rows_by_status"])
    rows = [
        {name: getattr(p, name) for name in ("victim", "neighbour", "slowdown", "lower", "upper", "status", "reason")}
        for p in table.pairs
    ]
    jobs = [
        {name: getattr(job, name) for name in ("workload", "step_time_s", "step_time_sd_s", "busy_frac")}
        for job in table.jobs
    ]
    digest = table_digest(config.out)
    return {"table": str(config.out), "sha256": digest, "jobs": jobs, "pairs": rows, "quality": figures}


def _grid(config: "CampaignConfig", table: "Table") -> Grid:
    if not table.pairs:
        grid = Grid("workload", "step alone", "busy", caption=f"one CPU core, time-sliced · wrote {config.out}")
        for job in table.jobs:
            grid.add_row(job.workload, f"{job.step_time_s * 1e3:.2f} ms", f"{job.busy_frac:.0%}")
        return grid
    grid = Grid("victim", "neighbour", "slowdown", "95 % interval", "status")
    grid.caption = f"one CPU core, time-sliced · wrote {config.out}"
    for pair in table.pairs:
        interval = f"{pair.lower:.2f}-{pair.upper:.2f}" if isfinite(pair.lower) else "–"
        slowdown = f"{pair.slowdown:.2f}" if pair.status.value == "ok" else "–"
        grid.add_row(pair.victim, pair.neighbour, slowdown, interval, pair.reason or pair.status.value)
    return grid
