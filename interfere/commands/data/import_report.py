"""Where an import is written, and the report about it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as Grid

from interfere.commands.output import emit

if TYPE_CHECKING:
    from interfere.data.importers.import_result import ImportResult


def check_target_folder(out: Path) -> Path:
    """Return a folder that may be written. Raises ConflictError before anything is read where it holds other files."""
    from interfere.data.importers.import_writer import check_target

    check_target(out)
    return out


Out = Annotated[
    Path, typer.Option("--out", callback=check_target_folder, help="Folder to write: new, empty, or an earlier import.")
]


def write_and_report(out: Path, imported: "ImportResult", *, as_json: bool) -> None:
    """Write the import and print what came in, what did not, and from which bytes."""
    from interfere.data.importers.import_writer import write_import

    files = write_import(out, imported)
    document = report_document(imported) | {"files": [str(path) for path in files]}
    grid = report_grid(imported)
    for path in files:
        grid.add_row("wrote", "", str(path))
    emit(document, grid, as_json=as_json)


def _counts(imported: "ImportResult") -> dict[str, int]:
    """How many records of each kind came in."""
    if imported.trace is not None:
        return {"jobs": len(imported.trace.jobs)}
    infeasible = sum(not pair.feasible for pair in imported.pairs)
    counts = {"jobs": len(imported.jobs), "pairs": len(imported.pairs)}
    counts |= {"feasible": len(imported.pairs) - infeasible, "infeasible": infeasible}
    counts |= {"rows of groups": len(imported.groups)} if imported.groups else {}
    return counts | ({"extras": len(imported.extras)} if imported.extras else {})


def report_document(imported: "ImportResult") -> dict[str, Any]:
    """What came in, what did not, and from which bytes, as a JSON document."""
    from interfere.data.importers.import_writer import compare_with_published

    read = [
        {"file": str(f.path), "sha256": f.sha256, "published": compare_with_published(f, imported.source_format)}
        for f in imported.files
    ]
    notices = [
        {"fate": n.treatment.value, "count": n.count, "what": n.subject, "why": n.reason, "rows": list(n.rows)}
        for n in imported.notices
    ]
    return {"kind": imported.source_format, "read": read, **_counts(imported), "notices": notices}


def report_grid(imported: "ImportResult") -> Grid:
    """The same as a table to print."""
    from interfere.data.importers.import_writer import compare_with_published

    grid = Grid("", "count", "what")
    for name, count in _counts(imported).items():
        grid.add_row("imported", str(count), name)
    for notice in imported.notices:
        what = "; ".join(filter(None, (notice.subject, notice.row_ranges)))
        grid.add_row(notice.treatment.value, str(notice.count), escape(what))
    for file in imported.files:
        grid.add_row("read", "", f"{file.path.name}: {compare_with_published(file, imported.source_format)}")
    return grid
