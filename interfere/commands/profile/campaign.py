"""Measure workloads alone, in pairs or in groups: `interfere profile solo`, `pairs` and `campaign`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work, parse_pair
from interfere.commands.output import JsonFlag, emit
from interfere.commands.profile.console import (
    block_documents,
    group_documents,
    measurement_cells,
    measuring_progress,
    pair_cells,
    pair_documents,
)
from interfere.reports.document import Part, Sentence, Tone, text_table
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.data.tables import Table
    from interfere.profiling.measurer import MeasuredTable
    from interfere.profiling.workload_profiler import WorkloadConfig


GROUP_COUNT = 120  # of each size, unless told otherwise


class DeviceType(StrEnum):
    """The device types that can be measured here."""

    CPU = "cpu"


Device = Annotated[DeviceType, typer.Option("--device-type", help="Device type. cpu: one core, shared in time slices.")]
Names = Annotated[str, typer.Option("--jobs", help="Names or module:factory, by commas; or eight, twelve, all.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the table. Default: WORK/tables/NAME.")]
Name = Annotated[str, typer.Option(help="Name of the table in the workspace.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random order of pairs.")]
Core = Annotated[int | None, typer.Option(min=0, help="The core to share. Default: the idlest.")]
Quick = Annotated[bool, typer.Option("--quick", help="Exactly PASSES blocks a pair, however wide the interval.")]
Passes = Annotated[int, typer.Option(min=1, help="Blocks of every pair, each in its own pass.")]
MaxBlocks = Annotated[int, typer.Option(min=1, help="At most so many blocks while the interval is wide.")]
BlockS = Annotated[float, typer.Option(min=0.4, help="Seconds of a block: alone, together, alone, together.")]
SoloS = Annotated[float, typer.Option(min=0.4, help="Seconds of each workload alone.")]
Mode = Annotated[
    SharingMode,
    typer.Option(
        help="How the jobs share. timeslice: one core; priority: one core, the first job first; spatial: two cores."
    ),
]
GroupSizes = Annotated[
    list[int] | None,
    typer.Option(
        "--group-size", min=3, help="Measure groups of so many jobs instead of pairs; may be given several times."
    ),
]
GroupCounts = Annotated[
    list[int] | None,
    typer.Option(min=1, help=f"How many groups, one for each --group-size. Default: {GROUP_COUNT} or all there are."),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Refuse a folder that holds measurements instead of resuming.")]


def solo(
    workloads: Names = "all",
    device: Device = DeviceType.CPU,
    out: Out = None,
    name: Name = "alone",
    work: Work = DEFAULT_WORK,
    core: Core = None,
    solo_s: SoloS = 2.0,
    as_json: JsonFlag = False,
) -> None:
    """Profile workloads alone: step time, busy and idle stretches, memory, FLOPs, operators."""
    from interfere.profiling.workload_profiler import WorkloadConfig
    from interfere.profiling.workloads import expand_names

    config = WorkloadConfig(
        out=out or work / "tables" / name,
        workloads=expand_names(workloads),
        pairs=(),
        core=core,
        solo_s=solo_s,
        campaign=f"{device}-solo",
    )
    _measure(config, as_json=as_json)


def pairs(
    pair: Annotated[list[str], typer.Argument(help="Pairs as victim+neighbour; both directions are measured.")],
    device: Device = DeviceType.CPU,
    out: Out = None,
    name: Name = "chosen-pairs",
    work: Work = DEFAULT_WORK,
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
    from interfere.profiling.workload_profiler import WorkloadConfig

    chosen_pairs = tuple(parse_pair(text) for text in pair)
    config = WorkloadConfig(
        out=out or work / "tables" / name,
        workloads=tuple(dict.fromkeys(workload for both in chosen_pairs for workload in both)),
        pairs=chosen_pairs,
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


def campaign(
    workloads: Names = "eight",
    device: Device = DeviceType.CPU,
    out: Out = None,
    name: Name = "mine",
    work: Work = DEFAULT_WORK,
    mode: Mode = DEFAULT_MODE,
    groups: GroupSizes = None,
    group_count: GroupCounts = None,
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
    """Profile workloads alone and in all pairs, or in groups of three and more. Killed and run again, it goes on."""
    from interfere.profiling.workload_profiler import WorkloadConfig
    from interfere.profiling.workloads import expand_names

    names = expand_names(workloads)
    config = WorkloadConfig(
        out=out or work / "tables" / name,
        workloads=names,
        mode=mode,
        pairs=() if groups else None,
        groups=_chosen_groups(names, groups or [], group_count or [], seed),
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


def _chosen_groups(
    workloads: tuple[str, ...], sizes: list[int], counts: list[int], seed: int
) -> tuple[tuple[str, ...], ...]:
    """Return balanced groups of each size. Raises InvalidInputError where counts and sizes do not match."""
    from math import comb

    from interfere.errors import InvalidInputError
    from interfere.profiling.schedule import balanced_groups

    if counts and len(counts) != len(sizes):
        raise InvalidInputError(
            "--group-count does not match --group-size",
            value=f"{len(counts)} counts for {len(sizes)} sizes",
            remedy="give one count for each size, in the same order, or none",
        )
    wanted = counts or [min(GROUP_COUNT, comb(len(workloads) + size - 1, size)) for size in sizes]
    return tuple(
        members
        for size, count in zip(sizes, wanted, strict=True)
        for members in balanced_groups(workloads, size=size, count=count, seed=seed)
    )


def workloads(as_json: JsonFlag = False) -> None:
    """List the built-in workloads."""
    from interfere.profiling.workloads import BUILT_IN

    rows = [{"name": workload.name, "description": workload.description} for workload in BUILT_IN.values()]
    table = text_table("", ("name", "what it does"), (tuple(row.values()) for row in rows))
    emit({"workloads": rows}, [table], as_json=as_json)


def _measure(config: "WorkloadConfig", *, as_json: bool) -> None:
    from interfere.profiling.measurer import measure

    with measuring_progress(config.out) as report:
        measured = measure(config, report)
    emit(_document(config, measured), _results(config, measured.table), as_json=as_json)
    if measured.failures:
        raise typer.Exit(1)


def _document(config: "WorkloadConfig", measured: "MeasuredTable") -> dict[str, object]:
    from dataclasses import asdict

    from interfere.data.quality import group_quality, table_quality
    from interfere.data.tables import table_digest

    table = measured.table
    figures = asdict(table_quality(table))
    figures["rows_by_status"] = dict(figures["rows_by_status"])
    fields = ("workload", "step_time_s", "step_time_sd_s", "busy_frac")
    return {
        "table": str(config.out),
        "sha256": table_digest(config.out),
        "jobs": [{name: getattr(job, name) for name in fields} for job in table.jobs],
        "pairs": pair_documents(table.pairs),
        "groups": group_documents(table.groups),
        "quality": figures,
        "group_quality": [
            asdict(each) | {"rows_by_status": dict(each.rows_by_status)} for each in group_quality(table)
        ],
        "blocks": block_documents(measured.blocks),
        "failures": [asdict(failure) for failure in measured.failures],
    }


def _results(config: "WorkloadConfig", table: "Table") -> list[Part]:
    """Return the groups or the pairs as people read them; the jobs where none was measured."""
    headings = ("slowdown", "95 % interval", "status")
    if config.groups:
        rows = ((row.victim, ", ".join(row.company), *measurement_cells(row)) for row in table.groups)
        shown = text_table("", ("victim", "company", *headings), rows)
    elif table.pairs:
        shown = text_table("", ("victim", "neighbour", *headings), map(pair_cells, table.pairs))
    else:
        jobs = ((job.workload, f"{job.step_time_s * 1e3:.2f} ms", f"{job.busy_frac:.0%}") for job in table.jobs)
        shown = text_table("", ("workload", "step alone", "busy"), jobs)
    return [shown, Sentence(f"{config.mode.properties.cpu_setting} · wrote {config.out}", tone=Tone.NOTE)]
