"""Ask a server who holds how much device memory in a scope."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from interfere.commands.options import Target, connect
from interfere.commands.output import JsonFlag, emit
from interfere.errors import NotFoundError, remedy_for_name
from interfere.records.plans import slots_text
from interfere.reports.document import Part, Sentence, text_table
from interfere.reports.numbers import format_gib

if TYPE_CHECKING:
    from interfere.records import DeviceGrants, GrantTables

app = typer.Typer(add_completion=False)


@app.command()
def grants(
    scope: Annotated[str, typer.Option(help="Cluster or partition, as in the snapshots sent to match.")] = "default",
    device: Annotated[str, typer.Option(help="One device: its id, or the UUID of its GPU. Default: all.")] = "",
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
    tables = of_device(tables, device) if device else tables
    emit(to_document(tables), _page(tables), as_json=as_json)


def of_device(tables: "GrantTables", name: str) -> "GrantTables":
    """Return the tables of one device, by its id or the last part of it, such as the UUID of its GPU.

    Raises NotFoundError for a device that grants no memory in the scope.
    """
    own = {each.device_id for each in tables.devices if name in (each.device_id, each.device_id.rpartition("/")[2])}
    if not own:
        unless_any = "" if tables.devices else "send match devices with granule_bytes, or name another --scope"
        remedy = remedy_for_name(name, [each.device_id for each in tables.devices], unless_any)
        raise NotFoundError(f"no such device grants memory in scope {tables.scope}", value=name, remedy=remedy)
    return replace(
        tables,
        devices=tuple(each for each in tables.devices if each.device_id in own),
        grants=tuple(each for each in tables.grants if each.device_id in own),
    )


def _page(tables: "GrantTables") -> list[Part]:
    """Return one table of the devices and one of the grants on them."""
    if not tables.devices:
        return [Sentence(f"scope {tables.scope}: no device grants memory (granule_bytes, oversubscription_ratio)")]
    devices = (
        (
            device.device_id,
            *map(str, (device.granules, device.granted, device.free)),
            format_gib(device.granule_bytes),
            f"{device.oversubscription_ratio:g}",
            format_gib(device.host_reserve_bytes),
        )
        for device in tables.devices
    )
    reserves: dict[str, list[DeviceGrants]] = {}
    for device in tables.devices:
        if not math.isnan(device.host_reserve_bytes):
            reserves.setdefault(device.node or "", []).append(device)
    granted = (
        (
            grant.job_id,
            grant.device_id,
            str(grant.granules),
            format_gib(grant.bytes),
            "" if math.isnan(grant.since_s) else f"{grant.since_s:.15g}",
            slots_text(grant.slots),
            "to start" if grant.planned else format_gib(grant.last_use_bytes),
            str(grant.times_exceeded),
        )
        for grant in tables.grants
    )
    title = f"scope {tables.scope} at {tables.now_s:.15g} s: what devices hand out"
    columns = ("device", "granules", "granted", "free", "granule", "ratio", "on the host")
    parts: list[Part] = [
        text_table(title, columns, devices),
        text_table(
            "who holds it",
            ("job", "device", "granules", "memory", "since, s", "slots", "last use", "times exceeded"),
            granted,
        ),
    ]
    if reserves:
        rows = (
            (node or "(no name)", str(len(on_node)), format_gib(sum(device.host_reserve_bytes for device in on_node)))
            for node, on_node in reserves.items()
        )
        title = "what hosts keep free for memory granted beyond the devices' own"
        parts.append(text_table(title, ("node", "devices", "reserved"), rows))
    return parts
