"""Measure jobs alone and together on this machine."""

import math
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.options import DEFAULT_WORK, Work, parse_pair, with_options
from interfere.commands.output import JsonFlag, emit, keeps_when_interrupted, progress_note
from interfere.commands.profile.console import (
    Core,
    Out,
    measure_and_print,
    measurement_cells,
    measuring_settings,
    pair_cells,
)
from interfere.commands.profile.programs import command
from interfere.reports.document import Part, Sentence, Table, Tone, text_table
from interfere.reports.numbers import format_digits, format_duration, format_gib
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.profiling.measurer import MeasuredTable
    from interfere.records import JobProfile


app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)
app.command()(command)
MIB = float(2**20)
MAX_OPERATORS = 8  # of a traced model, in the table that is printed
GROUP_COUNT = 120  # of each size, unless told otherwise


Names = Annotated[str, typer.Option("--jobs", help="Names or module:factory, by commas; or eight, twelve, all.")]
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


@app.command()
def solo(
    workloads: Names = "all",
    out: Out = None,
    name: Annotated[str, typer.Option(help="Name of the table in the workspace.")] = "alone",
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
        campaign="cpu-solo",
    )
    measure_and_print(config, _results, config.mode.properties.cpu_setting, as_json=as_json)


@app.command()
@with_options("settings", partial(measuring_settings, name="chosen-pairs"))
def pairs(
    pair: Annotated[list[str], typer.Argument(help="Pairs as victim+neighbour; both directions are measured.")],
    settings: dict[str, Any],
    block_s: BlockS = 2.2,
    solo_s: SoloS = 2.0,
    as_json: JsonFlag = False,
) -> None:
    """Measure a few chosen pairs, and profile their workloads first."""
    from interfere.profiling.workload_profiler import WorkloadConfig

    chosen_pairs = tuple(parse_pair(text) for text in pair)
    config = WorkloadConfig(
        **settings,
        workloads=tuple(dict.fromkeys(workload for both in chosen_pairs for workload in both)),
        pairs=chosen_pairs,
        block_s=block_s,
        solo_s=solo_s,
        campaign="cpu-pairs",
    )
    measure_and_print(config, _results, config.mode.properties.cpu_setting, as_json=as_json)


@app.command()
@with_options("settings", measuring_settings)
def campaign(
    *,
    workloads: Names = "eight",
    settings: dict[str, Any],
    mode: Mode = DEFAULT_MODE,
    groups: GroupSizes = None,
    group_count: GroupCounts = None,
    block_s: BlockS = 2.2,
    solo_s: SoloS = 2.0,
    as_json: JsonFlag = False,
) -> None:
    """Profile workloads alone and in all pairs, or in groups of three and more. Killed and run again, it goes on."""
    from interfere.profiling.workload_profiler import WorkloadConfig
    from interfere.profiling.workloads import campaign_pairs, check_names, expand_names

    names = expand_names(workloads)
    check_names(names)
    pairs = None if mode.properties.orders_jobs else campaign_pairs(names)
    config = WorkloadConfig(
        **settings,
        workloads=names,
        mode=mode,
        pairs=() if groups else pairs,
        groups=_chosen_groups(names, groups or [], group_count or [], settings["seed"]),
        block_s=block_s,
        solo_s=solo_s,
        campaign="cpu-all",
    )
    measure_and_print(config, _results, config.mode.properties.cpu_setting, as_json=as_json)


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


@app.command()
@keeps_when_interrupted("nothing is kept: the same command measures anew")
def filling(
    high: Annotated[
        str, typer.Option(help="Jobs of high priority, by commas.")
    ] = "resnet-input,bert-serve,gpt-decode,dlrm-train,vae-train,rl-rollout",
    low: Annotated[
        str, typer.Option(help="Jobs of low priority, by commas.")
    ] = "resnet-train,bert-infer,gnn-train,lstm-train",
    steps: Annotated[
        int, typer.Option(min=2, help="Steps of each job alone, and of the high job under each schedule.")
    ] = 20,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for filling.html, the page.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Execute pairs operator by operator: the low job fills the gaps of the high one. CPU time only; load is harmless.

    Beside gap filling the table shows one queue, time slices and priority without prediction.
    """
    from interfere.profiling.workloads import expand_names, find_workload
    from interfere.reports.html_page import write_html_page
    from interfere.sharing.comparison import execute_pairs, filling_document, summarise
    from interfere.sharing.executed_job import measure_job

    highs, lows = expand_names(high), expand_names(low)
    jobs = {name: measure_job(find_workload(name), steps) for name in dict.fromkeys((*highs, *lows))}
    outcomes = execute_pairs([jobs[name] for name in highs], [jobs[name] for name in lows], steps, note=progress_note)
    document = filling_document(outcomes)
    written = str(write_html_page(out / "filling.html", document)) if out else None
    facts = {"schedules": summarise(outcomes), "pairs": outcomes}
    emit({**facts, "written": written}, document, as_json=as_json)


@app.command()
def workloads(as_json: JsonFlag = False) -> None:
    """List the built-in workloads."""
    from interfere.profiling.workloads import BUILT_IN

    rows = [{"name": workload.name, "description": workload.description} for workload in BUILT_IN.values()]
    table = text_table("", ("name", "what it does"), (tuple(row.values()) for row in rows))
    emit({"workloads": rows}, [table], as_json=as_json)


def _results(measured: "MeasuredTable") -> Table:
    """Return a table of the measured groups, else of the pairs, else of the jobs alone."""
    table, headings = measured.table, ("slowdown", "95 % interval", "status")
    if table.groups:
        rows = ((row.victim, ", ".join(row.company), *measurement_cells(row)) for row in table.groups)
        return text_table("", ("victim", "company", *headings), rows)
    if table.pairs:
        return text_table("", ("victim", "neighbour", *headings), map(pair_cells, table.pairs))
    jobs = ((job.workload, f"{job.step_time_s * 1e3:.2f} ms", f"{job.busy_frac:.0%}") for job in table.jobs)
    return text_table("", ("workload", "step alone", "busy"), jobs)


@app.command()
def static(
    model: Annotated[str, typer.Argument(help='module:factory, or a published name: "ResNet-50 (batch size 32)".')],
    device: Annotated[str, typer.Option("--device-type", help="Device type: k80 to b200.")] = "h100",
    workload: Annotated[str, typer.Option(help="Workload: the name in the profile. Default: the model's.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="Table folder to add it to; a measured job gains the static facts.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Trace a PyTorch model under fake tensors: FLOPs, traffic, memory by phase, roofline time. Nothing runs."""
    from interfere.profiling.static.profiler import StaticProfiler
    from interfere.profiling.static.profiles import add_static
    from interfere.records.documents import to_document

    profile = replace(StaticProfiler(device).profile_solo(model).profile, workload=workload or model)
    if out is not None:
        add_static(out, profile)
    emit({"profile": to_document(profile), "written": str(out) if out else None}, _costs(profile, out), as_json=as_json)


def _costs(profile: "JobProfile", out: Path | None) -> list[Part]:
    """Return a table of the costs of a step, and of the operators with the largest share of its time."""
    memory = (
        (f"{name} memory", f"{getattr(profile, f'memory_{name}_bytes') / MIB:,.0f} MiB")
        for name in ("model", "gradient", "optimizer", "activation")
    )
    operator_s: dict[str, float] = defaultdict(float)
    operator_calls: dict[str, float] = defaultdict(float)
    for kernel in profile.kernels:
        operator_s[kernel.name] += kernel.mean_s * kernel.count
        operator_calls[kernel.name] += kernel.count
    total_s = math.fsum(operator_s.values())
    largest = sorted(operator_s.items(), key=lambda item: -item[1])[:MAX_OPERATORS]
    rows = [
        ("step, by the roofline", format_duration(profile.step_time_s)),
        ("arithmetic", f"{format_digits(profile.flops_per_step / 1e9)} GFLOP a step"),
        ("memory traffic", f"{format_gib(profile.bytes_per_step)} a step"),
        *memory,
        ("peak memory", f"{profile.static_memory_peak_bytes / MIB:,.0f} MiB, without context and workspaces"),
        *(
            (name, f"{seconds / total_s:.0%} of the step, {operator_calls[name]:,.0f} calls")
            for name, seconds in largest
        ),
    ]
    table = text_table(f"{profile.workload} on {profile.device_type}, nothing run", ("what", "how much"), rows)
    return [table, *([Sentence(f"wrote {out}", tone=Tone.NOTE)] if out else [])]
