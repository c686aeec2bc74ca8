"""The profiles that a server predicts from: list them, and remove what was registered by mistake."""

import math
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from interfere.commands.options import Target, connect
from interfere.commands.output import JsonFlag, emit
from interfere.errors import NotFoundError

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.command("list")
def list_(
    workload: Annotated[str, typer.Option(help="Only of this workload.")] = "",
    device_type: Annotated[str, typer.Option(help="Only on this device type.")] = "",
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """List the profiles of a server, those that it has set aside too."""
    with connect(target) as client:
        profiles = client.list_profiles(workload=workload, device_type=device_type)
    table = Table("profile", "workload", "device type", "source", "step time, s", "")
    for each in profiles:
        step_time = "" if math.isnan(each.step_time_s) else f"{each.step_time_s:.4g}"
        marks = ["newest"] * each.newest + ["registered"] * each.registered
        marks += [f"set aside: {each.problem}"] if each.problem else []
        row = (each.profile_id, each.workload, each.device_type, each.source, step_time, ", ".join(marks))
        table.add_row(*map(escape, row))
    documents = [
        {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(each).items()
        }
        for each in profiles
    ]
    emit({"profiles": documents}, table, as_json=as_json)


@app.command()
def remove(
    profile_ids: Annotated[list[str], typer.Argument(help="Ids of `interfere profiles list`.")],
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Remove registered profiles; the one before becomes the newest of its workload again."""
    with connect(target) as client:
        removed = client.remove_profiles(profile_ids)
    if missing := sorted(set(profile_ids) - set(removed)):
        raise NotFoundError("not registered", value=", ".join(missing), remedy="interfere profiles list")
    emit({"removed": list(removed)}, f"removed: {', '.join(removed)}", as_json=as_json)
