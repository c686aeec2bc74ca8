"""Import, list, check and describe tables of measurements."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Grid

from interfere.commands.data import importing as data_import
from interfere.commands.data.card import card
from interfere.commands.output import JsonFlag, emit

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)
app.add_typer(data_import.app, name="import")

Work = Annotated[Path, typer.Option(envvar="INTERFERE_WORK", help="The workspace.")]
Folder = Annotated[Path | None, typer.Argument(help="Folder of a table, or of several with a manifest.")]


def _tables(work: Path) -> list[Path]:
    from interfere.data.shipped_tables import shipped_table, shipped_tables
    from interfere.errors import NotFoundError

    try:
        shipped = [shipped_table(name) for name in shipped_tables()]
    except NotFoundError:
        shipped = []
    return shipped + sorted(path.parent for path in (work / "tables").glob("*/pairs.parquet"))


@app.command("list")
def list_tables(work: Work = Path("interfere-work"), as_json: JsonFlag = False) -> None:
    """Shipped tables and those of the workspace."""
    from interfere.data.tables import read_table

    grid, rows = Grid("table", "jobs", "pairs", "folder"), []
    for path in _tables(work):
        table = read_table(path)
        rows.append({"name": table.name, "jobs": len(table.jobs), "pairs": len(table.pairs), "folder": str(path)})
        grid.add_row(*map(str, rows[-1].values()))
    emit({"tables": rows}, grid if rows else "no tables yet: interfere profile campaign", as_json=as_json)


@app.command()
def sources(as_json: JsonFlag = False) -> None:
    """Public tables that can be imported: upstream address, licence, sha256."""
    from dataclasses import asdict

    from interfere.data.public_tables import public_tables

    text = "\n\n".join(
        f"{t.kind}: {t.file}, {t.what}\n  from {t.upstream}\n  licence {t.licence}\n  sha256 {t.sha256}"
        + (f"\n  {t.note}" if t.note else "")
        for t in public_tables()
    )
    emit({"sources": [asdict(table) for table in public_tables()]}, text, as_json=as_json)


@app.command()
def check(folder: Folder = None, as_json: JsonFlag = False) -> None:
    """Check tables against their schema and, where there is one, their manifest. Default: the shipped ones."""
    from interfere.data.shipped_tables import MANIFEST, check_manifest, datasets_folder
    from interfere.data.tables import read_table, table_digest

    root = folder or datasets_folder()
    files = check_manifest(root) if (root / MANIFEST).is_file() else 0
    paths = sorted(path.parent for path in root.glob("*/pairs.parquet")) if files else [root]
    tables = {path: read_table(path) for path in paths}
    rows = [{"folder": str(p), "pairs": len(t.pairs), "sha256": table_digest(p)} for p, t in tables.items()]
    text = "\n".join(f"ok: {row['folder']} ({row['pairs']} pairs, sha256 {str(row['sha256'])[:16]})" for row in rows)
    emit({"tables": rows, "manifest_files": files}, text, as_json=as_json)


app.command()(card)


@app.command()
def manifest(folder: Annotated[Path, typer.Argument(help="Folder of tables.")], as_json: JsonFlag = False) -> None:
    """Write the sha256 manifest of a folder of tables."""
    from interfere.data.shipped_tables import check_manifest, write_manifest

    path = write_manifest(folder)
    files = check_manifest(folder)
    emit({"manifest": str(path), "files": files}, f"wrote {path} ({files} files)", as_json=as_json)
