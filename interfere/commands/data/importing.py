"""Import published tables, traces of jobs, profiler exports and monitoring data: one command a format.

Each writes a folder with `jobs.parquet` and `pairs.parquet`, or `trace.parquet`, and a `card.md` that counts and
explains every row that differs from what was published.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from interfere.commands.options import with_options
from interfere.commands.output import JsonFlag, emit, progress_note
from interfere.extensions import ExtensionKind, extensions, find_extension, help_line, is_reference
from interfere.reports.document import Table, text_table
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.data.importers.import_result import ImportResult
    from interfere.data.importers.site_traces import WorkloadMap


# --- where an import is written, and the report about it --------------------------------------------------------------


def check_target_folder(out: Path) -> Path:
    """Return the folder of `--out`. Raises ConflictError where the folder holds other files, before anything is
    read."""
    from interfere.data.importers.import_writer import check_target

    check_target(out)
    return out


Out = Annotated[
    Path, typer.Option("--out", callback=check_target_folder, help="Folder to write: new, empty, or an earlier import.")
]


def import_with(name: str, path: Path) -> "ImportResult":
    """Return what another package's importer reads.

    Raises UnfitError where the importer cannot be loaded, fails, or returns anything but an `ImportResult`.
    """
    from interfere.data.importers.import_result import ImportResult
    from interfere.errors import InterfereError, UnfitError

    importer = find_extension(ExtensionKind.IMPORTER, name)
    try:
        imported = importer(path)
    except InterfereError:
        raise
    except Exception as error:
        value = f"{path}: {type(error).__name__}: {error}"
        raise UnfitError(f"the importer {name} fails", value=value, remedy="repair the importer") from error
    if not isinstance(imported, ImportResult):
        raise UnfitError(f"the importer {name} returns no ImportResult", value=type(imported).__name__)
    return imported


def write_and_report(out: Path, imported: "ImportResult", *, as_json: bool) -> None:
    """Write the import, and print the imported rows, the rows left out, and the checksums of the source files."""
    from interfere.data.importers.import_writer import write_import

    files = write_import(out, imported)
    document = report_document(imported) | {"files": [str(path) for path in files]}
    emit(document, [report_table(imported, files)], as_json=as_json)


def _counts(imported: "ImportResult") -> dict[str, int]:
    """Return the number of imported records of each kind, by the name of the kind."""
    if imported.trace is not None:
        return {"jobs": len(imported.trace.jobs)}
    infeasible = sum(not pair.feasible for pair in imported.pairs)
    counts = {"jobs": len(imported.jobs), "pairs": len(imported.pairs)}
    counts |= {"feasible": len(imported.pairs) - infeasible, "infeasible": infeasible}
    counts |= {"rows of groups": len(imported.groups)} if imported.groups else {}
    return counts | ({"extras": len(imported.extras)} if imported.extras else {})


def report_document(imported: "ImportResult") -> dict[str, Any]:
    """Return the imported rows, the rows left out, and the source files as a JSON document."""
    from interfere.data.importers.import_writer import compare_with_published

    read = [
        {"file": str(f.path), "sha256": f.sha256, "published": compare_with_published(f, imported.source_format)}
        for f in imported.files
    ]
    notices = [
        {"fate": n.treatment.value, "count": n.count, "what": n.subject, "why": n.reason, "rows": list(n.rows)}
        for n in imported.notices
    ]
    return {"kind": imported.source_format, "read": read, **_counts(imported), "notices": notices}


def report_table(imported: "ImportResult", files: Sequence[Path] = ()) -> Table:
    """Return the import report as a table to print."""
    from interfere.data.importers.import_writer import compare_with_published

    rows = [("imported", str(count), name) for name, count in _counts(imported).items()]
    for notice in imported.notices:
        what = "; ".join(filter(None, (notice.subject, notice.row_ranges)))
        rows.append((notice.treatment.value, str(notice.count), what))
    rows += [
        ("read", "", f"{file.path.name}: {compare_with_published(file, imported.source_format)}")
        for file in imported.files
    ]
    rows += [("wrote", "", str(path)) for path in files]
    return text_table("", ("", "count", "what"), rows)


class ImportGroup(TyperGroup):
    """The imports of ours, and those of other packages: by the name of an entry point, or `package:function`."""

    # `ctx` is Click's context, whose class has no one name: some versions of typer bring a Click of their own.

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all imports, ours first."""
        return list(dict.fromkeys((*super().list_commands(ctx), *extensions(ExtensionKind.IMPORTER))))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the import of a name; the code of another package is run only where the import runs."""
        ours = super().get_command(ctx, cmd_name)
        entry = extensions(ExtensionKind.IMPORTER).get(cmd_name)
        if ours is not None or not (entry or is_reference(cmd_name)):
            return ours

        def run(
            path: Annotated[Path, typer.Argument(help="File or folder that the importer reads.")],
            out: Out,
            as_json: JsonFlag = False,
        ) -> None:
            write_and_report(out, import_with(cmd_name, path), as_json=as_json)

        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(cmd_name, help=help_line(entry) if entry else f"Import with {cmd_name}.")(run)
        return typer.main.get_command(single)


app = typer.Typer(cls=ImportGroup, help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


# --- commands: one a format ------------------------------------------------------------------------------------------


def imports(name: str) -> Callable[[Callable[..., "ImportResult"]], Callable[..., "ImportResult"]]:
    """Return a decorator that makes the command `interfere data import NAME` of a function that reads files.

    The command has the options of the function, `--out` and `--json`. It writes what the function returns and reports
    about it.
    """

    def decorate(read: Callable[..., "ImportResult"]) -> Callable[..., "ImportResult"]:
        def command(imported: "ImportResult", out: Out, as_json: JsonFlag = False) -> None:
            write_and_report(out, imported, as_json=as_json)

        command.__doc__ = read.__doc__
        app.command(name)(with_options("imported", read)(command))
        return read

    return decorate


Workloads = Annotated[
    Path | None,
    typer.Option(
        help="CSV `pattern,workload`: regular expressions of job names. Default: the name itself.", show_default=False
    ),
]


def _workload_map(workloads: Path | None) -> "WorkloadMap | None":
    from interfere.data.importers.site_traces import read_workload_map

    return None if workloads is None else read_workload_map(workloads)


@imports("helios")
def helios(
    path: Annotated[Path, typer.Argument(help="Job CSV of a Helios cluster, or Lucid's of Venus.")],
    vc_config: Annotated[Path | None, typer.Option(help="CSV with the nodes of each virtual cluster: vc, num.")] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Devices of one node.")] = 8,
) -> "ImportResult":
    """Import a job trace of SenseTime's Helios clusters."""
    from interfere.data.importers.published_traces import import_helios

    return import_helios(path, vc_config=vc_config, gpus_per_node=gpus_per_node)


@imports("philly")
def philly(
    path: Annotated[Path, typer.Argument(help="One of Gavel's .trace files.")],
    throughputs: Annotated[Path | None, typer.Option(help="Gavel's throughputs: they give each job its time.")] = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type whose throughputs count.")] = "v100",
) -> "ImportResult":
    """Import one of Gavel's job traces with the arrivals of Philly."""
    from interfere.data.importers.published_traces import import_philly

    return import_philly(path, throughputs=throughputs, device_type=device)


@imports("csv")
def job_csv(
    path: Annotated[Path, typer.Argument(help="CSV file with one row a job.")],
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="FIELD=COLUMN, repeatable: job_id, arrival, gpus, duration (or start and end), name, user, vc, "
            "status. A field that is left out has the column of its own name.",
            show_default=False,
        ),
    ] = None,
    workloads: Workloads = None,
) -> "ImportResult":
    """Import jobs from a CSV file as a trace: times in seconds, or as 2026-11-22T10:00:00."""
    from interfere.data.importers.site_traces import column_map, import_job_csv

    return import_job_csv(path, column_map(column or ()), workloads=_workload_map(workloads))


@imports("pods")
def pods(
    path: Annotated[Path, typer.Argument(help="Output of `kubectl get pods --all-namespaces --output json`.")],
    workloads: Workloads = None,
    name_label: Annotated[
        str, typer.Option(help="Label whose value names the job; default: the pod's name.", show_default=False)
    ] = "",
    resource: Annotated[str, typer.Option(help="Resource that counts the devices of a pod.")] = "nvidia.com/gpu",
) -> "ImportResult":
    """Import the pods of a Kubernetes cluster as a job trace."""
    from interfere.data.importers.site_traces import import_pods

    return import_pods(path, name_label=name_label, resource=resource, workloads=_workload_map(workloads))


@imports("sacct")
def sacct(
    path: Annotated[Path, typer.Argument(help="Output of the command below.")], workloads: Workloads = None
) -> "ImportResult":
    """Import the accounting of a Slurm cluster as a job trace.

    sacct --allusers --allocations --parsable2 --starttime=now-30days
    --format=JobID,User,Partition,State,Submit,Start,End,AllocTRES,JobName

    Slurm must count GPUs: AccountingStorageTRES=gres/gpu,gres/shard in slurm.conf.
    """
    from interfere.data.importers.site_traces import import_sacct

    return import_sacct(path, workloads=_workload_map(workloads))


# --- measurements and profiles ---------------------------------------------------------------------------------------

Name = Annotated[str, typer.Option("--workload", help="Workload of a single file; default: the file's name.")]
StepTime = Annotated[float | None, typer.Option(min=1e-9, help="Measured time of one step, of a single file.")]
Static = Annotated[
    bool, typer.Option(help="Trace known architectures for the static facts that a table of speeds lacks; needs torch.")
]


@imports("gavel")
def gavel(
    path: Annotated[Path, typer.Argument(help="Gavel's oracle_throughputs.json or simulation_throughputs.json.")],
    static: Static = True,
) -> "ImportResult":
    """Import Gavel's throughputs of training jobs, alone and in pairs."""
    from interfere.data.importers.gavel import import_gavel

    return _with_static(import_gavel(path)) if static else import_gavel(path)


@imports("lucid")
def lucid(
    path: Annotated[Path, typer.Argument(help="Folder with Lucid's colocate_info.csv and single_data.csv.")],
    static: Static = True,
) -> "ImportResult":
    """Import Lucid's pairs and solo profiles on an RTX 3090."""
    from interfere.data.importers.lucid import import_lucid

    return _with_static(import_lucid(path)) if static else import_lucid(path)


@imports("parvagpu")
def parvagpu(
    path: Annotated[Path, typer.Argument(help="Folder with ParvaGPU's prof_data, or one of its files.")],
) -> "ImportResult":
    """Import ParvaGPU's inference throughputs in MIG slices of an A100: two copies are a pair, more a group."""
    from interfere.data.importers.parvagpu import import_parvagpu

    return import_parvagpu(path)


@imports("nsight")
def nsight(
    path: Annotated[Path, typer.Argument(help="CSV of Nsight Compute (raw or details page), or a folder of them.")],
    device: Annotated[str, typer.Option("--device-type", help="Device type; default: the one the file names.")] = "",
    name: Name = "",
    steps: Annotated[int, typer.Option(min=1, help="Steps that each file covers.")] = 1,
    step_time_s: StepTime = None,
) -> "ImportResult":
    """Import kernel tables from Nsight Compute: one profile a file."""
    return _kernels("nsight", path, step_time_s, device_type=device, name=name, steps=steps)


@imports("torch-profiler")
def torch_profiler(
    path: Annotated[Path, typer.Argument(help="Trace of torch.profiler (*.json, *.json.gz), or a folder of them.")],
    device: Annotated[str, typer.Option("--device-type", help="Device type; default: the one the trace names.")] = "",
    name: Name = "",
    steps: Annotated[int, typer.Option(min=1, help="Steps of a trace that marks none by profiler.step().")] = 1,
    step_time_s: StepTime = None,
) -> "ImportResult":
    """Import traces of the PyTorch profiler: kernels with gaps, busy and idle stretches; one profile a file."""
    return _kernels("torch-profiler", path, step_time_s, device_type=device, name=name, steps=steps)


@imports("nsys")
def nsys(
    path: Annotated[Path, typer.Argument(help="SQLite export of Nsight Systems, or a folder of *.sqlite.")],
    device: Annotated[str, typer.Option("--device-type", help="Device type; default: the one the report names.")] = "",
    name: Name = "",
    steps: Annotated[int, typer.Option(min=1, help="Steps of a report where no --step-range is given.")] = 1,
    step_range: Annotated[str, typer.Option(help="Text of the NVTX range of one step.")] = "",
    step_time_s: StepTime = None,
) -> "ImportResult":
    """Import Nsight Systems reports: nsys export --type sqlite REPORT. One profile a file."""
    options = {"device_type": device, "name": name, "steps": steps, "step_range": step_range}
    return _kernels("nsys", path, step_time_s, **options)


@imports("orion")
def orion(
    path: Annotated[Path, typer.Argument(help="Orion's kernel CSV of one job, or a folder of them.")],
    device: Annotated[str, typer.Option("--device-type", help="Device type; Orion published V100.")] = "v100",
    name: Name = "",
    step_time_s: StepTime = None,
) -> "ImportResult":
    """Import Orion's kernel profiles: one profile a file."""
    return _kernels("orion", path, step_time_s, device_type=device, name=name)


def _kernels(format_name: str, path: Path, step_time_s: float | None, **options: Any) -> "ImportResult":
    """Return the profiles in a file or a folder of profiler exports."""
    from interfere.data.importers.kernels.kernel_files import import_kernels
    from interfere.records import NAN

    return import_kernels(format_name, path, step_time_s=NAN if step_time_s is None else step_time_s, **options)


@imports("dcgm")
def dcgm(
    path: Annotated[
        Path, typer.Argument(help="Saved answer of Prometheus' query_range, or a folder of them (*.json).")
    ],
    by: Annotated[
        str, typer.Option(help="Label that names the workload of a job; `workload`: the pod's name without its hashes.")
    ] = "workload",
    step_metric: Annotated[str, typer.Option(help="Counter of training steps, in the same files.")] = "",
    rates: Annotated[Path | None, typer.Option(help="CSV of step times alone: workload, step_time_s.")] = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type; default: by the label modelName.")] = "",
    mode: Annotated[SharingMode, typer.Option(help="How jobs share a device on this site.")] = DEFAULT_MODE,
) -> "ImportResult":
    """Import DCGM exporter metrics from Prometheus: profiles of jobs seen alone, slowdowns where steps are counted.

    Save the answer of: curl -G HOST/api/v1/query_range --data-urlencode 'query={__name__=~"DCGM_FI_.*|STEP_METRIC"}'
    -d start=UNIX -d end=UNIX -d step=15
    """
    from interfere.monitoring.dcgm_import import import_dcgm

    return import_dcgm(path, by=by, step_metric=step_metric, rates=rates, device_type=device, mode=mode)


def _with_static(imported: "ImportResult") -> "ImportResult":
    """Add static profiles of the architectures that the catalogue knows; without torch, print that there are none."""
    from dataclasses import replace
    from importlib.util import find_spec

    from interfere.installation import install_line

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
