"""Measure programs that are not ours, alone and in pairs: `interfere profile command`."""

from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.options import parse_pair, with_options
from interfere.commands.output import JsonFlag, progress_note
from interfere.commands.profile.console import measure_and_print, measuring_settings, pair_cells
from interfere.errors import InvalidInputError
from interfere.reports.document import Table, text_table
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.profiling.measurer import MeasuredTable
    from interfere.profiling.nvidia_smi import Gpu
    from interfere.profiling.programs.spec import Command


@with_options("settings", partial(measuring_settings, name="commands", max_blocks=4))
def command(
    *,
    line: Annotated[list[str] | None, typer.Argument(metavar="-- PROGRAM ARGUMENT...", help="What to run.")] = None,
    workload: Annotated[
        str, typer.Option("--workload", help="Workload: what the table calls it. Default: the program's file name.")
    ] = "",
    spec: Annotated[Path | None, typer.Option(help="TOML file of several commands.")] = None,
    pair: Annotated[list[str] | None, typer.Option(help="Only this pair, as victim+neighbour; repeatable.")] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Only profiles, no pairs.")] = False,
    step_regex: Annotated[
        str, typer.Option(help="Every match in the output is a step; a captured integer is the step counter.")
    ] = "",
    warm_steps: Annotated[int | None, typer.Option(min=0, help="Steps cut after each start. Default: 5.")] = None,
    warm_s: Annotated[float | None, typer.Option(min=0, help="Seconds cut after the first step. Default: 1.")] = None,
    window_s: Annotated[float, typer.Option(min=0.5, help="Seconds of a window, or until it holds 20 steps.")] = 5.0,
    repeats: Annotated[int, typer.Option(min=1, help="Starts of each command alone.")] = 2,
    settings: dict[str, Any],
    limit_s: Annotated[float, typer.Option(min=1, help="Seconds: longest start-up, and longest window.")] = 300.0,
    grace_s: Annotated[float, typer.Option(min=0, help="Seconds between SIGTERM and SIGKILL.")] = 10.0,
    device: Annotated[
        str,
        typer.Option(
            "--device-type",
            help="Device type. cpu-core: pinned to one core. A GPU such as a100: found by nvidia-smi, pinned, refused "
            "where there is none. Any other name: not pinned, the environment decides.",
        ),
    ] = "cpu-core",
    mode: Annotated[SharingMode, typer.Option(help="How the jobs share a device.")] = DEFAULT_MODE,
    device_name: Annotated[str, typer.Option(help="The very device of that type, for the table's card.")] = "",
    gpu: Annotated[int | None, typer.Option(min=0, help="Index of the GPU where there are several of a type.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure any program: alone, and beside others named in a TOML file.

    One program: interfere profile command --workload train -- python train.py. Several and their pairs: --spec
    jobs.toml with lines like [train], command = "python train.py", step_regex = 'step (\\d+)', cwd, env, warm_steps,
    warm_s.
    Steps: interfere.progress in the program, or --step-regex on its output.
    """
    from interfere.profiling.programs.profiler import CommandConfig
    from interfere.profiling.programs.spec import pinned_to_gpu

    warm_up: dict[str, Any] = {"warm_steps": warm_steps, "warm_s": warm_s}
    commands = _commands(line or [], spec, workload, step_regex, {k: v for k, v in warm_up.items() if v is not None})
    if alone and pair:
        raise InvalidInputError("--alone measures no pairs", value=pair, remedy="leave one of the two out")
    device_type = "cpu-core" if device == "cpu" else device
    found = gpu_of(device_type, gpu)
    config = CommandConfig(
        **settings,
        commands=tuple(pinned_to_gpu(each, found.uuid) for each in commands) if found else commands,
        pairs=None if spec and not pair and not alone else tuple(parse_pair(text) for text in pair or ()),
        window_s=window_s,
        repeats=repeats,
        device_type=device_type,
        mode=mode,
        device_name=device_name or (found.provenance if found else ""),
        gpu_uuid=found.uuid if found else "",
        limit_s=limit_s,
        grace_s=grace_s,
    )
    setting = mode.properties.cpu_setting if config.on_core else f"{device_type}, {mode}"
    measure_and_print(config, _results, setting, as_json=as_json)


def gpu_of(device_type: str, index: int | None) -> "Gpu | None":
    """Return the GPU of a device type; None for a CPU core, a MIG slice and names of no known GPU.

    Raises NotFoundError where this machine has no such GPU.
    """
    from interfere.devices import GPU_NAMES
    from interfere.profiling.nvidia_smi import UNTRIED, find_gpu, gpu_processes

    if index is None and device_type not in GPU_NAMES:
        return None
    gpu = find_gpu(device_type, index)
    progress_note(f"{gpu.provenance}; {UNTRIED}")
    for process in gpu_processes(gpu.uuid):
        progress_note(
            f"warning: process {process.pid} ({process.name}) uses this GPU too: end it, or the figures are wrong"
        )
    return gpu


def _commands(
    line: list[str], spec: Path | None, name: str, step_regex: str, warm_up: dict[str, Any]
) -> "tuple[Command, ...]":
    """Return the program of the command line, or the programs of the file. Raises InvalidInputError for both or
    neither."""
    from interfere.profiling.programs.spec import Command, read_commands

    if bool(line) == bool(spec):
        raise InvalidInputError(
            "give one program or a file of several",
            value=f"{' '.join(line)!r} and --spec {spec}",
            remedy="interfere profile command -- PROGRAM ..., or --spec jobs.toml",
        )
    if spec is None:
        return (Command(name=name or Path(line[0]).name, argv=tuple(line), step_regex=step_regex, **warm_up),)
    if name or step_regex or warm_up:
        raise InvalidInputError(
            "with --spec these stand in the file",
            value="--name, --step-regex, --warm-steps or --warm-s",
            remedy="write step_regex, warm_steps and warm_s under the [name] of a command",
        )
    return read_commands(spec)


def _results(measured: "MeasuredTable") -> Table:
    """Return the commands alone, the pairs, and the commands that failed."""
    rows = []
    for job in measured.table.jobs:
        busy = f"{job.busy_frac:.0%} busy" if isfinite(job.busy_frac) else ""
        times = (f"{job.step_time_s * 1e3:.2f} ms", f"± {job.step_time_sd_s * 1e3:.2f} ms")
        rows.append((job.workload, "–", *times, busy))
    rows += map(pair_cells, measured.table.pairs)
    rows += [(failure.name, "–", "–", "–", failure.reason) for failure in measured.failures]
    return text_table("", ("command", "beside", "step or slowdown", "± or 95 % interval", ""), rows)
