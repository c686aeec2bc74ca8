"""List, register or remove the job profiles of a server."""

import math
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Target, Work, connect, note_mistyped_workloads
from interfere.commands.output import JsonFlag, emit
from interfere.errors import NotFoundError
from interfere.reports.document import text_table

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command("list")
def list_(
    workload: Annotated[str, typer.Option(help="Only of this workload.")] = "",
    device_type: Annotated[str, typer.Option(help="Only on this device type.")] = "",
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """List the profiles of a server, including those that it cannot use."""
    with connect(target) as client:
        profiles = client.list_profiles(workload=workload, device_type=device_type)
        if workload and not profiles:
            note_mistyped_workloads(client, (workload,))
    rows = []
    for each in profiles:
        step_time = "" if math.isnan(each.step_time_s) else f"{each.step_time_s:.4g}"
        marks = ["newest"] * each.newest + ["registered"] * each.registered
        marks += [f"set aside: {each.problem}"] if each.problem else []
        rows.append((each.profile_id, each.workload, each.device_type, each.source, step_time, ", ".join(marks)))
    table = text_table("", ("profile", "workload", "device type", "source", "step time, s", ""), rows)
    emit({"profiles": profiles}, [table], as_json=as_json)


@app.command()
def register(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Jobs alone as .csv, .parquet or .json; or a table.")],
    columns: Annotated[list[str] | None, typer.Option("--column", help="ROLE=COLUMN of a sheet. Repeatable.")] = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type, where the file does not say it.")] = "",
    source: Annotated[str, typer.Option(help="Who measured, where the file does not say it.")] = "user",
    work: Work = DEFAULT_WORK,
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Register what is known of jobs alone with a server: all of the file, or nothing where one is wrong."""
    from interfere.data.importers.spreadsheet.sheet import parse_map
    from interfere.data.loading import read_profiles

    facts = read_profiles(file, work, mapping=parse_map(columns or ()), device_type=device, source=source)
    with connect(target) as client:
        ids = client.register_profiles(facts)
    rows = [(i, each.workload, each.device_type, each.source) for i, each in zip(ids, facts, strict=True)]
    table = text_table("", ("profile", "workload", "device type", "source"), rows)
    names = ("profile_id", "workload", "device_type", "source")
    emit({"registered": [dict(zip(names, row, strict=True)) for row in rows]}, [table], as_json=as_json)


@app.command()
def remove(
    profile_ids: Annotated[list[str], typer.Argument(help="Ids of `interfere profiles list`.")],
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove registered profiles; the previous profile of the workload becomes its newest again."""
    with connect(target) as client:
        removed = client.remove_profiles(profile_ids)
    if missing := sorted(set(profile_ids) - set(removed)):
        raise NotFoundError("not registered", value=", ".join(missing), remedy="interfere profiles list")
    emit({"removed": list(removed)}, f"removed: {', '.join(removed)}", as_json=as_json)
