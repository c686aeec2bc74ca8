"""Import published tables, traces, profiler exports and monitoring data: one command a format.

Each writes a folder with `jobs.parquet` and `pairs.parquet`, or `trace.parquet`, and a `card.md` that counts and
explains every row that differs from what was published.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as Grid

from interfere.commands.output import JsonFlag, emit, progress_note

if TYPE_CHECKING:
    from interfere.data.importers.import_result import ImportResult

Name = Annotated[str, typer.Option(help="Workload of a single file; default: the file's name.")]
StepTime = Annotated[float | None, typer.Option(min=1e-9, help="Measured time of one step, of a single file.")]

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Static = Annotated[
    bool, typer.Option(help="Trace known architectures for the facts that a table of speeds lacks; needs torch.")
]


def _check_target(out: Path) -> Path:
    """Return a folder that may be written. Raises ConflictError before anything is read where it holds other files."""
    from interfere.data.importers.import_writer import check_target

    check_target(out)
    return out


Out = Annotated[
    Path, typer.Option("--out", callback=_check_target, help="Folder to write: new, empty, or an earlier import.")
]


Workloads = Annotated[
    Path | None,
    typer.Option(
        help="CSV `pattern,workload`: regular expressions of job names. Default: the name itself.", show_default=False
    ),
]


@app.command()
def gavel(
    path: Annotated[Path, typer.Argument(help="Gavel's oracle_throughputs.json or simulation_throughputs.json.")],
    out: Out,
    static: Static = True,
    as_json: JsonFlag = False,
) -> None:
    """Import Gavel's throughputs of training jobs, alone and in pairs."""
    from interfere.data.importers.gavel import import_gavel

    _write(out, _with_static(import_gavel(path), static=static), as_json=as_json)


@app.command()
def lucid(
    path: Annotated[Path, typer.Argument(help="Folder with Lucid's colocate_info.csv and single_data.csv.")],
    out: Out,
    static: Static = True,
    as_json: JsonFlag = False,
) -> None:
    """Import Lucid's pairs and solo profiles on an RTX 3090."""
    from interfere.data.importers.lucid import import_lucid

    _write(out, _with_static(import_lucid(path), static=static), as_json=as_json)


@app.command()
def helios(
    path: Annotated[Path, typer.Argument(help="Job CSV of a Helios cluster, or Lucid's of Venus.")],
    out: Out,
    vc_config: Annotated[Path | None, typer.Option(help="CSV with the nodes of each virtual cluster: vc, num.")] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Devices of one node.")] = 8,
    as_json: JsonFlag = False,
) -> None:
    """Import a job trace of SenseTime's Helios clusters."""
    from interfere.data.importers.helios import import_helios

    imported = import_helios(path, vc_config=vc_config, gpus_per_node=gpus_per_node, name=out.resolve().name)
    _write(out, imported, as_json=as_json)


@app.command()
def philly(
    path: Annotated[Path, typer.Argument(help="One of Gavel's .trace files.")],
    out: Out,
    throughputs: Annotated[Path | None, typer.Option(help="Gavel's throughputs: they give each job its time.")] = None,
    device: Annotated[str, typer.Option(help="Device type whose throughputs count.")] = "v100",
    as_json: JsonFlag = False,
) -> None:
    """Import one of Gavel's job traces with the arrivals of Philly."""
    from interfere.data.importers.philly import import_philly

    imported = import_philly(path, throughputs=throughputs, device_type=device, name=out.resolve().name)
    _write(out, imported, as_json=as_json)


@app.command(name="csv")
def job_csv(
    path: Annotated[Path, typer.Argument(help="CSV file with one row a job.")],
    out: Out,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="FIELD=COLUMN, repeatable: job_id, arrival, gpus, duration (or start and end), name, user, vc, "
            "status. A field that is left out has the column of its own name.",
            show_default=False,
        ),
    ] = None,
    workloads: Workloads = None,
    as_json: JsonFlag = False,
) -> None:
    """Import jobs from a CSV file as a trace: times in seconds, or as 2026-11-22T10:00:00."""
    from interfere.data.importers.site_traces.job_csv import import_job_csv
    from interfere.data.importers.site_traces.workload_map import column_map, read_workload_map

    names = read_workload_map(workloads) if workloads is not None else None
    imported = import_job_csv(path, column_map(column or ()), workloads=names, name=out.resolve().name)
    _write(out, imported, as_json=as_json)


@app.command()
def pods(
    path: Annotated[Path, typer.Argument(help="Output of `kubectl get pods --all-namespaces --output json`.")],
    out: Out,
    workloads: Workloads = None,
    name_label: Annotated[
        str, typer.Option(help="Label whose value names the job; default: the pod's name.", show_default=False)
    ] = "",
    resource: Annotated[str, typer.Option(help="Resource that counts the devices of a pod.")] = "nvidia.com/gpu",
    as_json: JsonFlag = False,
) -> None:
    """Import the pods of a Kubernetes cluster as a job trace."""
    from interfere.data.importers.site_traces.pods import import_pods
    from interfere.data.importers.site_traces.workload_map import read_workload_map

    names = read_workload_map(workloads) if workloads is not None else None
    trace_name = out.resolve().name
    imported = import_pods(path, workloads=names, name_label=name_label, resource=resource, name=trace_name)
    _write(out, imported, as_json=as_json)


@app.command()
def sacct(
    path: Annotated[Path, typer.Argument(help="Output of `sacct --allusers --allocations --parsable2 --format=...`.")],
    out: Out,
    workloads: Workloads = None,
    as_json: JsonFlag = False,
) -> None:
    """Import the accounting of a Slurm cluster as a job trace.

    Needs the columns JobID,JobName,User,Partition,State,Submit,Start,End,AllocTRES.
    """
    from interfere.data.importers.site_traces.sacct import import_sacct
    from interfere.data.importers.site_traces.workload_map import read_workload_map

    names = read_workload_map(workloads) if workloads is not None else None
    _write(out, import_sacct(path, workloads=names, name=out.resolve().name), as_json=as_json)


@app.command()
def nsight(
    path: Annotated[Path, typer.Argument(help="CSV of Nsight Compute (raw or details page), or a folder of them.")],
    out: Out,
    device: Annotated[str, typer.Option(help="Device type; default: the one the file names.")] = "",
    name: Name = "",
    steps: Annotated[int, typer.Option(min=1, help="Steps that each file covers.")] = 1,
    step_time_s: StepTime = None,
    as_json: JsonFlag = False,
) -> None:
    """Import kernel tables from Nsight Compute: one profile a file."""
    from interfere.data.importers.kernels.nsight import import_nsight
    from interfere.records import NAN

    step_s = NAN if step_time_s is None else step_time_s
    imported = import_nsight(path, device_type=device, name=name, steps=steps, step_time_s=step_s)
    _write(out, imported, as_json=as_json)


@app.command()
def orion(
    path: Annotated[Path, typer.Argument(help="Orion's kernel CSV of one job, or a folder of them.")],
    out: Out,
    device: Annotated[str, typer.Option(help="Device type; Orion published V100.")] = "v100",
    name: Name = "",
    step_time_s: StepTime = None,
    as_json: JsonFlag = False,
) -> None:
    """Import Orion's kernel profiles: one profile a file."""
    from interfere.data.importers.kernels.orion import import_orion
    from interfere.records import NAN

    step_s = NAN if step_time_s is None else step_time_s
    _write(out, import_orion(path, device_type=device, name=name, step_time_s=step_s), as_json=as_json)


@app.command()
def dcgm(
    path: Annotated[
        Path, typer.Argument(help="Saved answer of Prometheus' query_range, or a folder of them (*.json).")
    ],
    out: Out,
    by: Annotated[str, typer.Option(help="Label that names the workload of a job.")] = "pod",
    step_metric: Annotated[str, typer.Option(help="Counter of training steps, in the same files.")] = "",
    rates: Annotated[Path | None, typer.Option(help="CSV of step times alone: workload, step_time_s.")] = None,
    device: Annotated[str, typer.Option(help="Device type; default: by the label modelName.")] = "",
    mode: Annotated[str, typer.Option(help="How jobs share a device on this site.")] = "timeslice",
    as_json: JsonFlag = False,
) -> None:
    """Import DCGM exporter metrics from Prometheus: profiles of jobs seen alone, slowdowns where steps are counted.

    Save the answer of: curl -G HOST/api/v1/query_range --data-urlencode 'query={__name__=~"DCGM_FI_.*|STEP_METRIC"}'
    -d start=UNIX -d end=UNIX -d step=15
    """
    from interfere.data.importers.monitoring.dcgm import import_dcgm

    imported = import_dcgm(path, by=by, step_metric=step_metric, rates=rates, device_type=device, mode=mode)
    _write(out, imported, as_json=as_json)


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


def _write(out: Path, imported: "ImportResult", *, as_json: bool) -> None:
    """Write the import and print what came in, what did not, and from which bytes."""
    from interfere.data.importers.import_card import compare_with_published
    from interfere.data.importers.import_writer import write_import

    files = write_import(out, imported)
    if imported.trace is not None:
        counts = {"jobs": len(imported.trace.jobs)}
    else:
        infeasible = sum(not pair.feasible for pair in imported.pairs)
        counts = {"jobs": len(imported.jobs), "pairs": len(imported.pairs)}
        counts |= {"feasible": len(imported.pairs) - infeasible, "infeasible": infeasible}
    read = [{"file": str(f.path), "sha256": f.sha256, "published": compare_with_published(f)} for f in imported.files]
    notices = [
        {"fate": n.treatment.value, "count": n.count, "what": n.subject, "why": n.reason} for n in imported.notices
    ]
    grid = Grid("", "count", "what")
    for name, count in counts.items():
        grid.add_row("imported", str(count), name)
    for notice in imported.notices:
        grid.add_row(notice.treatment.value, str(notice.count), notice.subject)
    for file in imported.files:
        grid.add_row("read", "", f"{file.path.name}: {compare_with_published(file)}")
    for path in files:
        grid.add_row("wrote", "", str(path))
    document = {
        "kind": imported.source_format,
        "read": read,
        **counts,
        "notices": notices,
        "files": [str(p) for p in files],
    }
    emit(document, grid, as_json=as_json)
