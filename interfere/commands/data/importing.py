"""Import published tables, traces, profiler exports and monitoring data: one command a format.

Each writes a folder with `jobs.parquet` and `pairs.parquet`, or `trace.parquet`, and a `card.md` that counts and
explains every row that differs from what was published.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.data import importing_traces
from interfere.commands.data.import_report import Out, write_and_report
from interfere.commands.output import JsonFlag, progress_note
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.data.importers.import_result import ImportResult

Name = Annotated[str, typer.Option("--workload", help="Workload of a single file; default: the file's name.")]
StepTime = Annotated[float | None, typer.Option(min=1e-9, help="Measured time of one step, of a single file.")]

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Static = Annotated[
    bool, typer.Option(help="Trace known architectures for the static facts that a table of speeds lacks; needs torch.")
]


app.command()(importing_traces.helios)
app.command()(importing_traces.philly)
app.command("csv")(importing_traces.job_csv)
app.command()(importing_traces.pods)
app.command()(importing_traces.sacct)


@app.command()
def gavel(
    path: Annotated[Path, typer.Argument(help="Gavel's oracle_throughputs.json or simulation_throughputs.json.")],
    out: Out,
    static: Static = True,
    as_json: JsonFlag = False,
) -> None:
    """Import Gavel's throughputs of training jobs, alone and in pairs."""
    from interfere.data.importers.gavel import import_gavel

    write_and_report(out, _with_static(import_gavel(path), static=static), as_json=as_json)


@app.command()
def lucid(
    path: Annotated[Path, typer.Argument(help="Folder with Lucid's colocate_info.csv and single_data.csv.")],
    out: Out,
    static: Static = True,
    as_json: JsonFlag = False,
) -> None:
    """Import Lucid's pairs and solo profiles on an RTX 3090."""
    from interfere.data.importers.lucid import import_lucid

    write_and_report(out, _with_static(import_lucid(path), static=static), as_json=as_json)


@app.command()
def parvagpu(
    path: Annotated[Path, typer.Argument(help="Folder with ParvaGPU's prof_data, or one of its files.")],
    out: Out,
    as_json: JsonFlag = False,
) -> None:
    """Import ParvaGPU's inference throughputs in MIG slices of an A100: two copies are a pair, more a group."""
    from interfere.data.importers.parvagpu import import_parvagpu

    write_and_report(out, import_parvagpu(path), as_json=as_json)


@app.command()
def nsight(
    path: Annotated[Path, typer.Argument(help="CSV of Nsight Compute (raw or details page), or a folder of them.")],
    out: Out,
    device: Annotated[str, typer.Option("--device-type", help="Device type; default: the one the file names.")] = "",
    name: Name = "",
    steps: Annotated[int, typer.Option(min=1, help="Steps that each file covers.")] = 1,
    step_time_s: StepTime = None,
    as_json: JsonFlag = False,
) -> None:
    """Import kernel tables from Nsight Compute: one profile a file."""
    _import_kernels("nsight", path, out, as_json, step_time_s, device_type=device, name=name, steps=steps)


@app.command("torch-profiler")
def torch_profiler(
    path: Annotated[Path, typer.Argument(help="Trace of torch.profiler (*.json, *.json.gz), or a folder of them.")],
    out: Out,
    device: Annotated[str, typer.Option("--device-type", help="Device type; default: the one the trace names.")] = "",
    name: Name = "",
    steps: Annotated[int, typer.Option(min=1, help="Steps of a trace that marks none by profiler.step().")] = 1,
    step_time_s: StepTime = None,
    as_json: JsonFlag = False,
) -> None:
    """Import traces of the PyTorch profiler: kernels with gaps, busy and idle stretches; one profile a file."""
    _import_kernels("torch-profiler", path, out, as_json, step_time_s, device_type=device, name=name, steps=steps)


@app.command()
def nsys(
    path: Annotated[Path, typer.Argument(help="SQLite export of Nsight Systems, or a folder of *.sqlite.")],
    out: Out,
    device: Annotated[str, typer.Option("--device-type", help="Device type; default: the one the report names.")] = "",
    name: Name = "",
    steps: Annotated[int, typer.Option(min=1, help="Steps of a report where no --step-range is given.")] = 1,
    step_range: Annotated[str, typer.Option(help="Text of the NVTX range of one step.")] = "",
    step_time_s: StepTime = None,
    as_json: JsonFlag = False,
) -> None:
    """Import Nsight Systems reports: nsys export --type sqlite REPORT. One profile a file."""
    _import_kernels(
        "nsys",
        path,
        out,
        as_json,
        step_time_s,
        device_type=device,
        name=name,
        steps=steps,
        step_range=step_range,
    )


@app.command()
def orion(
    path: Annotated[Path, typer.Argument(help="Orion's kernel CSV of one job, or a folder of them.")],
    out: Out,
    device: Annotated[str, typer.Option("--device-type", help="Device type; Orion published V100.")] = "v100",
    name: Name = "",
    step_time_s: StepTime = None,
    as_json: JsonFlag = False,
) -> None:
    """Import Orion's kernel profiles: one profile a file."""
    _import_kernels("orion", path, out, as_json, step_time_s, device_type=device, name=name)


@app.command()
def dcgm(
    path: Annotated[
        Path, typer.Argument(help="Saved answer of Prometheus' query_range, or a folder of them (*.json).")
    ],
    out: Out,
    by: Annotated[
        str, typer.Option(help="Label that names the workload of a job; `workload`: the pod's name without its hashes.")
    ] = "workload",
    step_metric: Annotated[str, typer.Option(help="Counter of training steps, in the same files.")] = "",
    rates: Annotated[Path | None, typer.Option(help="CSV of step times alone: workload, step_time_s.")] = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type; default: by the label modelName.")] = "",
    mode: Annotated[SharingMode, typer.Option(help="How jobs share a device on this site.")] = DEFAULT_MODE,
    as_json: JsonFlag = False,
) -> None:
    """Import DCGM exporter metrics from Prometheus: profiles of jobs seen alone, slowdowns where steps are counted.

    Save the answer of: curl -G HOST/api/v1/query_range --data-urlencode 'query={__name__=~"DCGM_FI_.*|STEP_METRIC"}'
    -d start=UNIX -d end=UNIX -d step=15
    """
    from interfere.data.importers.monitoring.dcgm import import_dcgm

    imported = import_dcgm(path, by=by, step_metric=step_metric, rates=rates, device_type=device, mode=mode)
    write_and_report(out, imported, as_json=as_json)


def _import_kernels(
    format_name: str, path: Path, out: Path, as_json: bool, step_time_s: float | None, **options: Any
) -> None:
    """Import the profiles of a file or a folder, write them as a table, and report it."""
    from interfere.data.importers.kernels.kernel_files import import_kernels
    from interfere.records import NAN

    step_s = NAN if step_time_s is None else step_time_s
    write_and_report(out, import_kernels(format_name, path, step_time_s=step_s, **options), as_json=as_json)


def _with_static(imported: "ImportResult", *, static: bool) -> "ImportResult":
    """Add static profiles of the architectures that the catalogue knows; without torch, print that there are none."""
    from dataclasses import replace
    from importlib.util import find_spec

    from interfere.installation import install_line

    if not static:
        return imported
    if find_spec("torch") is None:
        progress_note(f"torch is missing: imported without static profiles ({install_line('profile')})")
        return imported
    from interfere.profiling.static.profiles import attach_static

    progress_note("tracing the architectures of the catalogue")
    attached = attach_static(imported.jobs)
    origin = (
        f"FLOPs, traffic, memory by phase and kernels of {len(attached.traced)} workloads come from a static trace of "
        "the architecture that the name stands for (source ends in +static): nothing of it was measured"
    )
    untraced = [f"no traceable architecture: {', '.join(attached.unknown)}"] if attached.unknown else []
    return replace(imported, jobs=attached.jobs, format_notes=(*imported.format_notes, origin, *untraced))
