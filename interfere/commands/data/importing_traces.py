"""Import traces of jobs: public ones, and what a site's own scheduler recorded."""

from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.data.import_report import Out, write_and_report
from interfere.commands.output import JsonFlag

Workloads = Annotated[
    Path | None,
    typer.Option(
        help="CSV `pattern,workload`: regular expressions of job names. Default: the name itself.", show_default=False
    ),
]


def helios(
    path: Annotated[Path, typer.Argument(help="Job CSV of a Helios cluster, or Lucid's of Venus.")],
    out: Out,
    vc_config: Annotated[Path | None, typer.Option(help="CSV with the nodes of each virtual cluster: vc, num.")] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Devices of one node.")] = 8,
    as_json: JsonFlag = False,
) -> None:
    """Import a job trace of SenseTime's Helios clusters."""
    from interfere.data.importers.lucid import import_helios

    imported = import_helios(path, vc_config=vc_config, gpus_per_node=gpus_per_node, name=out.resolve().name)
    write_and_report(out, imported, as_json=as_json)


def philly(
    path: Annotated[Path, typer.Argument(help="One of Gavel's .trace files.")],
    out: Out,
    throughputs: Annotated[Path | None, typer.Option(help="Gavel's throughputs: they give each job its time.")] = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type whose throughputs count.")] = "v100",
    as_json: JsonFlag = False,
) -> None:
    """Import one of Gavel's job traces with the arrivals of Philly."""
    from interfere.data.importers.gavel import import_philly

    imported = import_philly(path, throughputs=throughputs, device_type=device, name=out.resolve().name)
    write_and_report(out, imported, as_json=as_json)


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
    from interfere.data.importers.site_traces import column_map, import_job_csv, read_workload_map

    names = read_workload_map(workloads) if workloads is not None else None
    imported = import_job_csv(path, column_map(column or ()), workloads=names, name=out.resolve().name)
    write_and_report(out, imported, as_json=as_json)


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
    from interfere.data.importers.site_traces import import_pods, read_workload_map

    names = read_workload_map(workloads) if workloads is not None else None
    trace_name = out.resolve().name
    imported = import_pods(path, workloads=names, name_label=name_label, resource=resource, name=trace_name)
    write_and_report(out, imported, as_json=as_json)


def sacct(
    path: Annotated[Path, typer.Argument(help="Output of the command below.")],
    out: Out,
    workloads: Workloads = None,
    as_json: JsonFlag = False,
) -> None:
    """Import the accounting of a Slurm cluster as a job trace.

    sacct --allusers --allocations --parsable2 --starttime=now-30days
    --format=JobID,User,Partition,State,Submit,Start,End,AllocTRES,JobName

    Slurm must count GPUs: AccountingStorageTRES=gres/gpu,gres/shard in slurm.conf.
    """
    from interfere.data.importers.site_traces import import_sacct, read_workload_map

    names = read_workload_map(workloads) if workloads is not None else None
    write_and_report(out, import_sacct(path, workloads=names, name=out.resolve().name), as_json=as_json)
