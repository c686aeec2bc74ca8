"""Import, list, check and describe tables of measurements."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.data import importing, own_table, transfer
from interfere.commands.data.card import card
from interfere.commands.data.facts import facts
from interfere.commands.data.fetch import fetch
from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit
from interfere.reports.document import text_table

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)
importing.app.command("table")(own_table.table)
app.add_typer(importing.app, name="import")

Folder = Annotated[Path | None, typer.Argument(help="Folder of a table, or of several with a manifest.")]


def _table_folders(work: Path) -> list[Path]:
    """Return the folders of the shipped tables, if there are any, then those of the workspace."""
    from interfere.data.shipped_tables import shipped_table, shipped_tables
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
    from dataclasses import asdict

    from interfere.data.public_tables import public_tables

    text = "\n\n".join(
        f"{table.kind}: {table.file}, {table.what}\n  from {table.upstream}\n  licence {table.licence}\n"
        f"  sha256 {table.sha256}" + (f"\n  {table.note}" if table.note else "")
        for table in public_tables()
    )
    emit({"sources": [asdict(table) for table in public_tables()]}, text, as_json=as_json)


@app.command()
def check(folder: Folder = None, as_json: JsonFlag = False) -> None:
    """Check tables against their schema and, where there is one, their manifest. Default: the shipped ones."""
    from interfere.data.shipped_tables import MANIFEST, check_manifest, datasets_folder
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


app.command()(card)
app.command()(fetch)
app.command()(facts)
app.command()(own_table.template)
app.command()(transfer.transfer)
for _entry in entry_points(group="interfere.commands.data"):  # commands of packages that this one may not import
    app.command(_entry.name)(_entry.load())


@app.command()
def manifest(folder: Annotated[Path, typer.Argument(help="Folder of tables.")], as_json: JsonFlag = False) -> None:
    """Write the sha256 manifest of a folder of tables."""
    from interfere.data.shipped_tables import check_manifest, write_manifest

    path = write_manifest(folder)
    n_files = check_manifest(folder)
    emit({"manifest": str(path), "files": n_files}, f"wrote {path} ({n_files} files)", as_json=as_json)
