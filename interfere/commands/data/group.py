"""Import, list, check and describe tables of measurements."""

import math
import webbrowser
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from interfere.commands.data import importing, transfer
from interfere.commands.data.importing import check_target_folder, report_document, report_table, write_and_report
from interfere.commands.options import DEFAULT_WORK, StoreFile, Work
from interfere.commands.output import JsonFlag, emit, keeps_when_interrupted, progress_note
from interfere.data.importers.spreadsheet.sheet import (
    Conditions,
    Decimal,
    Shape,
    SpreadsheetOptions,
    Victims,
    parse_map,
)
from interfere.extensions import ExtensionKind, extensions, load_or_explain
from interfere.records.checks import METRICS
from interfere.reports.document import Part, Sentence, Tone, text_table
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

if TYPE_CHECKING:
    from interfere.data.facts import SourceFact
    from interfere.data.importers.spreadsheet.columns import ColumnUse
    from interfere.records import JobProfile

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)
Folder = Annotated[Path | None, typer.Argument(help="Folder of a table, or of several with a manifest.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A folder, or a table of the workspace or shipped.")]
Page = Annotated[Path | None, typer.Option("--out", help="The HTML file. Default: WORK/cards/TABLE.html.")]
Open = Annotated[bool, typer.Option("--open", help="Show the page in the browser.")]
Workload = Annotated[str, typer.Argument(help="Name of the workload.")]
OptionalTable = Annotated[
    str, typer.Argument(metavar="TABLE", help="A table's folder or name. Default: what the server knows.")
]
Model = Annotated[
    Path | None,
    typer.Option("--model", help="Model it serves: a folder, cpu or gpu. Default: WORK/models/champion, else cpu."),
]
DeviceType = Annotated[str, typer.Option(help="Only on this device type.")]
Name = Annotated[str, typer.Argument(help="gavel, lucid, venus, parvagpu, orion or echo: `interfere data sources`.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the files. Default: WORK/public/NAME.", show_default=False)]
Pairs = Annotated[Path, typer.Argument(help="CSV or Parquet file of pairs, long or as a matrix.")]
Roles = Annotated[list[str] | None, typer.Argument(metavar="[ROLE=COLUMN]...", help="More of --column.")]
Profiles = Annotated[Path | None, typer.Option(help="CSV or Parquet file of the jobs alone: one row a job.")]
Map = Annotated[list[str] | None, typer.Option("--column", help="ROLE=COLUMN, such as victim=job_a. Repeatable.")]
MapProfile = Annotated[list[str] | None, typer.Option(help="ROLE=COLUMN of --profiles. Repeatable.")]
Value = Annotated[str, typer.Option(help="What a matrix holds: slowdown, speed, throughput, step_time_ms, ...")]
Source = Annotated[str, typer.Option(help="Who measured: imports of one source into one folder replace each other.")]
TableFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder to write. Default: WORK/tables/NAME.", show_default=False)
]
_UNITS = (("_per_step", ""), ("_s", "s"), ("_bytes", "bytes"), ("_frac", "share"), ("_w", "W"))


def _table_folders(work: Path) -> list[Path]:
    """Return the folders of the shipped tables, if any, then the folders of the workspace's tables."""
    from interfere.data.loading import shipped_table, shipped_tables
    from interfere.errors import NotFoundError

    try:
        shipped = [shipped_table(name) for name in shipped_tables()]
    except NotFoundError:
        shipped = []
    return shipped + sorted(path.parent for path in (work / "tables").glob("*/pairs.parquet"))


@app.command("list")
def list_tables(work: Work = DEFAULT_WORK, as_json: JsonFlag = False) -> None:
    """List the shipped tables and those of the workspace."""
    from interfere.data.tables import read_table

    rows = []
    for path in _table_folders(work):
        table = read_table(path)
        counts = {"jobs": len(table.jobs), "pairs": len(table.pairs), "group_rows": len(table.groups)}
        rows.append({"name": table.name, **counts, "folder": str(path)})
    cells = (tuple(map(str, row.values())) for row in rows)
    grid = text_table("", ("table", "jobs", "pairs", "rows of groups", "folder"), cells)
    emit({"tables": rows}, [grid] if rows else "no tables yet: interfere profile campaign", as_json=as_json)


@app.command()
def sources(as_json: JsonFlag = False) -> None:
    """List the public tables that can be imported: upstream address, licence, sha256."""
    from interfere.data.public_tables import public_tables

    text = "\n\n".join(
        f"{table.kind}: {table.file}, {table.what}\n  from {table.upstream}\n  licence {table.licence}\n"
        f"  sha256 {table.sha256}" + (f"\n  {table.note}" if table.note else "")
        for table in public_tables()
    )
    emit({"sources": public_tables()}, text, as_json=as_json)


@app.command()
def check(folder: Folder = None, as_json: JsonFlag = False) -> None:
    """Check tables against their schema and, where there is one, their manifest. Default: the shipped ones."""
    from interfere.data.loading import MANIFEST, check_manifest, datasets_folder
    from interfere.data.tables import read_table, table_digest

    root = folder or datasets_folder()
    n_files = check_manifest(root) if (root / MANIFEST).is_file() else 0
    folders = sorted(path.parent for path in root.glob("*/pairs.parquet")) if n_files else [root]
    rows = []
    for path in folders:
        table = read_table(path)
        counts = {"pairs": len(table.pairs), "group_rows": len(table.groups)}
        rows.append({"folder": str(path), **counts, "sha256": table_digest(path)})
    text = "\n".join(
        f"ok: {row['folder']} ({row['pairs']} pairs, {row['group_rows']} rows of groups, "
        f"sha256 {str(row['sha256'])[:16]})"
        for row in rows
    )
    emit({"tables": rows, "manifest_files": n_files}, text, as_json=as_json)


@app.command()
def manifest(folder: Annotated[Path, typer.Argument(help="Folder of tables.")], as_json: JsonFlag = False) -> None:
    """Write the sha256 manifest of a folder of tables."""
    from interfere.data.loading import check_manifest, write_manifest

    path = write_manifest(folder)
    n_files = check_manifest(folder)
    emit({"manifest": str(path), "files": n_files}, f"wrote {path} ({n_files} files)", as_json=as_json)


@app.command()
def card(
    table_name: TableName,
    page: Page = None,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Write the card.md of a table measured here anew from its rows.")
    ] = False,
    hub: Annotated[
        Path | None,
        typer.Option(help="Folder for README.md (Hugging Face) and croissant.json (Croissant).", show_default=False),
    ] = None,
    show: Open = False,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Describe a table: what was measured, where, and how far to trust it. Computed anew from its rows."""
    from interfere.data.cards.dataset_card import CARD_FILE, dataset_card, table_document
    from interfere.data.cards.hub import rewrite_card, write_hub_files
    from interfere.data.loading import table_folder
    from interfere.data.tables import read_table, table_digest
    from interfere.reports.html_page import write_html_page
    from interfere.reports.text_forms import json_document, markdown, without_front_matter

    folder = table_folder(table_name, work)
    table = read_table(folder)
    if rewrite:
        progress_note(f"wrote {rewrite_card(folder)}")
    notes = (folder / CARD_FILE).read_text(encoding="utf-8", errors="replace") if (folder / CARD_FILE).is_file() else ""
    path = page or work / "cards" / f"{table.name}.html"
    notes = without_front_matter(notes)
    document, summary = table_document(table, sha256=table_digest(folder), notes=notes), dataset_card(table)
    write_html_page(path, document)
    if hub is not None:
        progress_note("\n".join(f"wrote {file}" for file in write_hub_files(folder, hub)))
    facts = {"card": markdown(summary), "page": str(path), "document": json_document(document)} if as_json else {}
    emit(facts, summary, as_json=as_json)
    if not as_json:
        progress_note(f"wrote {path}")
    if show and not webbrowser.open(path.resolve().as_uri()):
        progress_note("no browser found here: open the page from a machine that has one")


@app.command()
@keeps_when_interrupted("files that were fetched whole are kept: the same command fetches the others")
def fetch(
    name: Name,
    out: Out = None,
    mirror: Annotated[str, typer.Option(help="Address under which a mirror has the files by name.")] = "",
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Download a public table by address and sha256; where the network forbids it, say what to do by hand."""
    from interfere.data.public_tables import FetchStatus, fetch_collection

    files = fetch_collection(name, out or work / "public" / name, mirror=mirror, report=progress_note)
    lines = []
    for file in files:
        what = "; ".join(filter(None, (file.reason, file.table.note)))
        lines.append(f"{file.status.value}: {file.path}{f' ({what})' if what else ''}")
        lines += [f"  by hand: {file.by_hand}"] if file.by_hand else []
    documents = [
        {
            "file": str(file.path),
            "status": file.status.value,
            "sha256": file.sha256,
            "reason": file.reason,
            "note": file.table.note,
            "by_hand": file.by_hand,
        }
        for file in files
    ]
    emit({"collection": name, "files": documents}, escape("\n".join(lines)), as_json=as_json)
    if any(file.status is FetchStatus.MISSING for file in files):
        raise typer.Exit(1)


@app.command()
def facts(
    workload: Workload,
    table_name: OptionalTable = "",
    store: StoreFile = None,
    model: Model = None,
    device_type: DeviceType = "",
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Show every known fact of a workload: value, unit, source, time, device type, and why it counts or not."""
    from interfere.data.facts import ONLY_SOURCE, known_facts
    from interfere.data.loading import table_folder
    from interfere.data.tables import read_extras, read_table
    from interfere.errors import NotFoundError, remedy_for_name

    folder = table_folder(table_name, work) if table_name else None
    profiles = read_table(folder).profiles if folder else _served_profiles(store, model, work)
    of_workload = [each for each in profiles if each.workload == workload and device_type in ("", each.device_type)]
    if not of_workload:
        known = sorted({each.workload for each in profiles})
        listed = f"known here: {', '.join(known[:20]) or 'none'}"
        remedy = remedy_for_name(workload, known, listed)
        raise NotFoundError("no profile of this workload", value=workload, remedy=remedy)
    device_types = sorted({each.device_type for each in of_workload})
    rows = [
        fact
        for name in device_types
        for fact in known_facts([each for each in of_workload if each.device_type == name])
    ]
    cells: list[tuple[str, ...]] = []
    for row in map(_document, rows):
        number = f"{row['value']:.4g}" if isinstance(row["value"], float) else str(row["value"])
        value = f"{number} {row['unit']}"
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
    """Return the profiles on a server: the profiles of its model, then the registered ones, oldest first."""
    from interfere.config import load_settings
    from interfere.errors import NotFoundError
    from interfere.predict.manifest import shipped_profiles
    from interfere.store.store import open_store

    settings = load_settings(work=work, model=model, store=store)
    path = settings.store_address
    if store and not store.exists():
        raise NotFoundError("no such store", value=path, remedy="name a table's folder, or the server's: --store FILE")
    shipped = shipped_profiles(settings.served_folder)
    if isinstance(path, Path) and not path.exists():
        return shipped
    opened = open_store(path, read_only=True)
    try:
        return (*shipped, *opened.profiles.all())
    finally:
        opened.close()


def _document(fact: "SourceFact") -> dict[str, Any]:
    return {
        "fact": fact.name,
        "value": len(fact.value) if isinstance(fact.value, tuple) else fact.value,
        "unit": "FLOP" if "flops" in fact.name else _unit(fact.name),
        "source": fact.source,
        "kind": fact.kind.value,
        "device_type": fact.device_type,
        "measured_at_s": None if math.isnan(fact.measured_at_s) else fact.measured_at_s,
        "measured_at": _time(fact.measured_at_s),
        "wins": fact.wins,
        "reason": fact.reason,
    }


def _unit(name: str) -> str:
    lists = {"kernels": "kernel identities", "busy_s": "stretches", "idle_s": "stretches", "bytes_per_step": "bytes"}
    return lists.get(name) or next((unit for ending, unit in _UNITS if name.endswith(ending)), "")


def _time(unix_s: float) -> str | None:
    """Return a unix time as text in UTC; None for an unknown time."""
    return None if math.isnan(unix_s) else datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


# --- own measurements in a spreadsheet ------------------------------------------------------------------------------


@importing.app.command()
def table(
    path: Pairs,
    more: Roles = None,
    profiles: Profiles = None,
    columns: Map = None,
    map_profile: MapProfile = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type, where no column says it.")] = "",
    mode: Annotated[SharingMode, typer.Option(help="Sharing mode, where no column says it.")] = DEFAULT_MODE,
    metric: Annotated[str, typer.Option(help=f"One of {', '.join(METRICS)}. Default: by column.")] = "",
    decimal: Annotated[
        Decimal | None,
        typer.Option(help="Sign before fractions. Default: a point; between semicolons as the first number has it."),
    ] = None,
    shape: Annotated[
        Shape, typer.Option(help="Long: one row a pair. Wide: a matrix. Auto: by the header.")
    ] = Shape.AUTO,
    value: Value = "",
    victims: Annotated[Victims, typer.Option(help="Where a matrix has its victims.")] = Victims.ROWS,
    source: Source = "user",
    name: Annotated[str, typer.Option(help="Name of the table. Default: that of the file.")] = "",
    out: TableFolder = None,
    work: Work = DEFAULT_WORK,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print how each column is read; write nothing.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Import own measurements: slowdowns, speeds, or throughputs or times with those alone.

    `interfere data template` writes a file to fill; docs/own-tables.md explains every column.
    """
    from interfere.data.importers.spreadsheet.own_table import read_spreadsheet

    target = out or work / "tables" / (name or path.stem)
    if not dry_run:
        check_target_folder(target)
    options = SpreadsheetOptions(
        mapping=parse_map((*(columns or ()), *(more or ()))),
        profile_mapping=parse_map(map_profile or ()),
        device_type=device,
        mode=mode,
        metric=metric,
        decimal=decimal,
        shape=shape,
        value=value,
        victims=victims,
        source=source,
    )
    result = read_spreadsheet(path, profiles, options)
    if not dry_run:
        write_and_report(target, result.imported, as_json=as_json)
        return
    document = report_document(result.imported) | {"columns": result.columns}
    emit(document, [*_column_uses(result.columns), report_table(result.imported)], as_json=as_json)


def _column_uses(uses: "tuple[ColumnUse, ...]") -> list[Part]:
    """Return how each column was understood as a table, and a note that nothing was written."""
    rows = (
        (use.file, use.column or "(every row)", use.role, use.meaning, str(use.values), use.example) for use in uses
    )
    table = text_table("", ("file", "column", "read as", "meaning", "values", "such as"), rows)
    return [table, Sentence("dry run: nothing was written", tone=Tone.NOTE)]


@app.command()
def template(
    folder: Annotated[Path, typer.Argument(help="Folder to write pairs.csv and jobs.csv into.")] = Path(),
    job: Annotated[list[str] | None, typer.Option(help="Name of a job. Repeatable.", show_default=False)] = None,
    device: Annotated[str, typer.Option("--device-type", help="Device type, such as a100-80gb.")] = "a100-80gb",
    mode: Annotated[SharingMode, typer.Option(help="How the jobs share a device.")] = DEFAULT_MODE,
    value: Annotated[str, typer.Option(help="What you measure: slowdown, speed, throughput, step_time_ms, ...")] = (
        "step_time_ms"
    ),
    shape: Annotated[Shape, typer.Option(help="Long: one row a pair. Wide: a matrix.")] = Shape.LONG,
    as_json: JsonFlag = False,
) -> None:
    """Write a spreadsheet to fill in: one file of pairs, one of the jobs alone. Cells may stay empty."""
    from interfere.data.importers.spreadsheet.own_table import EXAMPLE_JOBS, write_template
    from interfere.devices import device_type_of_product

    conditions = Conditions(device_type=device_type_of_product(device), mode=mode)
    jobs = tuple(job or EXAMPLE_JOBS)
    files = write_template(folder, jobs, device_type=conditions.device_type, mode=mode, value=value, shape=shape)
    flags = f" --device-type {conditions.device_type} --mode {mode}" if shape is Shape.WIDE else ""
    following = f"interfere data import table {files[0]} --profiles {files[1]}{flags} --name mine --dry-run"
    text = "\n".join((*(f"wrote {path}" for path in files), f"fill them in, then: {following}"))
    emit({"files": [str(path) for path in files], "next": following}, text, as_json=as_json)


app.command()(transfer.transfer)
app.add_typer(importing.app, name="import")
for _entry in extensions(ExtensionKind.DATA_COMMAND).values():  # commands of packages that this one may not import
    app.command(_entry.name)(load_or_explain(_entry, ExtensionKind.DATA_COMMAND))
