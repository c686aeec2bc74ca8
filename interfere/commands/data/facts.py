"""Show what each source says of a workload, and which of them counts."""

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import text_table

if TYPE_CHECKING:
    from interfere.data.facts import SourceFact
    from interfere.records import JobProfile

Workload = Annotated[str, typer.Argument(help="Name of the workload.")]
TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="A table's folder or name. Default: what the server knows.")
]
StoreFile = Annotated[Path | None, typer.Option("--store", help="Store of a server. Default: WORK/store.db.")]
Model = Annotated[
    Path | None,
    typer.Option("--model", help="Model it serves: a folder, cpu or gpu. Default: WORK/models/champion, else cpu."),
]
DeviceType = Annotated[str, typer.Option(help="Only on this device type.")]

_UNITS = (("_per_step", ""), ("_s", "s"), ("_bytes", "bytes"), ("_frac", "share"), ("_w", "W"))


def facts(
    workload: Workload,
    table_name: TableName = "",
    store: StoreFile = None,
    model: Model = None,
    device_type: DeviceType = "",
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Show every known fact of a workload: value, unit, source, time, device type, and why it counts or not."""
    from interfere.data.extra_facts import read_extras
    from interfere.data.facts import ONLY_SOURCE, known_facts
    from interfere.data.loading import table_folder
    from interfere.data.tables import read_table
    from interfere.errors import NotFoundError

    folder = table_folder(table_name, work) if table_name else None
    profiles = read_table(folder).profiles if folder else _served_profiles(store, model, work)
    of_workload = [each for each in profiles if each.workload == workload and device_type in ("", each.device_type)]
    if not of_workload:
        known = ", ".join(sorted({each.workload for each in profiles})[:20]) or "none"
        raise NotFoundError("no profile of this workload", value=workload, remedy=f"known here: {known}")
    device_types = sorted({each.device_type for each in of_workload})
    rows = [
        fact
        for name in device_types
        for fact in known_facts([each for each in of_workload if each.device_type == name])
    ]
    cells: list[tuple[str, ...]] = []
    for row in map(_document, rows):
        value = f"{_short(row['value'])} {row['unit']}"
        counts = "yes" if row["reason"] == ONLY_SOURCE else f"{'yes' if row['wins'] else 'no'}: {row['reason']}"
        cells.append((row["device_type"], row["fact"], value, row["source"], row["measured_at"] or "", counts))
    extras = [
        {"name": extra.name, "value": extra.value, "device_type": extra.device_type, "source": extra.source}
        for extra in (read_extras(folder) if folder else ())
        if extra.workload == workload and not extra.neighbour and device_type in ("", extra.device_type)
    ]
    ignored = ("", "no: no fact that models read")
    cells += [(extra["device_type"], extra["name"], extra["value"], extra["source"], *ignored) for extra in extras]
    grid = text_table(f"Facts of {workload}", ("device", "fact", "value", "source", "measured", "counts"), cells)
    emit({"workload": workload, "facts": [_document(row) for row in rows], "extras": extras}, [grid], as_json=as_json)


def _served_profiles(store: Path | None, model: Path | None, work: Path) -> "tuple[JobProfile, ...]":
    """Return the profiles on a server: those of its model, then the registered ones, oldest first."""
    from interfere.config import Settings
    from interfere.errors import NotFoundError
    from interfere.predict.model_profiles import shipped_profiles
    from interfere.store.sqlite import SqliteStore

    settings = Settings(work=work, model=model, store=store)
    path = settings.store_path
    if store and not path.exists():
        raise NotFoundError("no such store", value=path, remedy="name a table's folder, or the server's: --store FILE")
    shipped = shipped_profiles(settings.served_folder)
    if not path.exists():
        return shipped
    opened = SqliteStore(path, read_only=True)
    try:
        return (*shipped, *opened.profiles.all())
    finally:
        opened.close()


def _document(fact: "SourceFact") -> dict[str, Any]:
    return {
        "fact": fact.name,
        "value": _value(fact.value),
        "unit": "FLOP" if "flops" in fact.name else _unit(fact.name),
        "source": fact.source,
        "kind": fact.kind.value,
        "device_type": fact.device_type,
        "measured_at_s": None if math.isnan(fact.measured_at_s) else fact.measured_at_s,
        "measured_at": _time(fact.measured_at_s),
        "wins": fact.wins,
        "reason": fact.reason,
    }


def _value(value: Any) -> Any:
    """Return a number or a text unchanged, and for a list its number of entries."""
    return len(value) if isinstance(value, tuple) else value


def _unit(name: str) -> str:
    lists = {"kernels": "kernel identities", "busy_s": "stretches", "idle_s": "stretches", "bytes_per_step": "bytes"}
    return lists.get(name) or next((unit for ending, unit in _UNITS if name.endswith(ending)), "")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _time(unix_s: float) -> str | None:
    """The time in UTC; None where it is unknown."""
    return None if math.isnan(unix_s) else datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
