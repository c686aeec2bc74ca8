"""Ask a server who holds how much device memory in a scope, and who uses more than that."""

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.markup import escape  # names are free text: [/x] is no markup
from rich.table import Table

from interfere.commands.options import Target, connect
from interfere.commands.output import JsonFlag, emit

if TYPE_CHECKING:
    from interfere.records import GrantTables

app = typer.Typer(add_completion=False)


@app.command()
def grants(
    scope: Annotated[str, typer.Option(help="Cluster or partition, as in the snapshots sent to match.")] = "default",
    target: Target = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server who holds how much device memory in a scope, and who uses more than that.

    As of the last snapshot with now_s: devices that state granule_bytes or an oversubscription_ratio above 1 hand out
    their memory, and every job that runs or is planned there holds whole granules of it.
    """
    from interfere.records.documents import to_document

    with connect(target) as client:
        tables = client.grants(scope=scope)
    emit(to_document(tables), _page(tables), as_json=as_json)


def _page(tables: "GrantTables") -> Group | str:
    """Return one table of the devices and one of the grants on them."""
    if not tables.devices:
        return escape(f"scope {tables.scope}: no device grants memory (granule_bytes, oversubscription_ratio)")
    title = escape(f"scope {tables.scope} at {tables.now_s:g} s: what devices hand out")
    device_headings = ("device", "granules", "granted", "free", "granule", "ratio")
    devices = Table(*device_headings, title=title, title_justify="left")
    for device in tables.devices:
        counts = (str(device.granules), str(device.granted), str(device.free))
        ratio = f"{device.oversubscription_ratio:g}"
        devices.add_row(escape(device.device_id), *counts, _gib(device.granule_bytes), ratio)
    grant_headings = ("job", "device", "granules", "memory", "since, s", "last use", "times exceeded")
    granted = Table(*grant_headings, title="who holds it", title_justify="left")
    for grant in tables.grants:
        since = "" if math.isnan(grant.since_s) else f"{grant.since_s:g}"
        last_use = "to start" if grant.planned else _gib(grant.last_use_bytes)
        memory = (str(grant.granules), _gib(grant.bytes))
        row = (grant.job_id, grant.device_id, *memory, since, last_use, str(grant.times_exceeded))
        granted.add_row(*map(escape, row))
    return Group(devices, granted)


def _gib(memory_bytes: float) -> str:
    return "" if math.isnan(memory_bytes) else f"{memory_bytes / 2**30:.3g} GiB"
