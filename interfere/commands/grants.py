"""Ask a server who holds how much device memory in a scope, and who uses more than that."""

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.markup import escape  # names are free text: [/x] is no markup
from rich.table import Table

from interfere.commands.output import JsonFlag, emit

if TYPE_CHECKING:
    from interfere.wire.messages import GrantTables

app = typer.Typer(add_completion=False)


@app.command()
def grants(
    scope: Annotated[str, typer.Option(help="Cluster or partition, as in the snapshots sent to match.")] = "default",
    target: Annotated[str | None, typer.Option(help="Address of the server. Default: 127.0.0.1:50051.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask a server who holds how much device memory in a scope, and who uses more than that.

    As of the last snapshot with now_s: devices that state granule_bytes or an oversubscription_ratio above 1 hand out
    their memory, and every job that runs or is planned there holds whole granules of it.
    """
    from interfere.client import PolicyClient
    from interfere.config import load_settings
    from interfere.wire.documents import grants_document

    settings = load_settings(target=target)
    with PolicyClient(settings.target, timeout_s=settings.timeout_s) as client:
        tables = client.grants(scope=scope)
    emit(grants_document(tables), _page(tables), as_json=as_json)


def _page(tables: "GrantTables") -> Group | str:
    if not tables.devices:
        return escape(f"scope {tables.scope}: no device hands out memory (granule_bytes, oversubscription_ratio)")
    devices = Table(
        "device",
        "granules",
        "granted",
        "free",
        "granule",
        "ratio",
        title=escape(f"scope {tables.scope} at {tables.now_s:g} s: what devices hand out"),
        title_justify="left",
    )
    for one in tables.devices:
        counts = (str(one.granules), str(one.granted), str(one.free))
        devices.add_row(escape(one.device_id), *counts, _gib(one.granule_bytes), f"{one.oversubscription_ratio:g}")
    held = Table(
        "job",
        "device",
        "granules",
        "memory",
        "since, s",
        "last use",
        "times exceeded",
        title="who holds it",
        title_justify="left",
    )
    for line in tables.grants:
        since = "" if math.isnan(line.since_s) else f"{line.since_s:g}"
        use = "to start" if line.planned else _gib(line.last_use_bytes)
        row = (line.job_id, line.device_id, str(line.granules), _gib(line.bytes), since, use, str(line.times_exceeded))
        held.add_row(*map(escape, row))
    return Group(devices, held)


def _gib(memory_bytes: float) -> str:
    return "" if math.isnan(memory_bytes) else f"{memory_bytes / 2**30:.3g} GiB"
