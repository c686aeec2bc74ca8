"""Where an import is written, and the report about it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interfere.commands.output import emit
from interfere.reports.document import Table, text_table

if TYPE_CHECKING:
    from interfere.data.importers.import_result import ImportResult


def check_target_folder(out: Path) -> Path:
    """Return a folder that may be written. Raises ConflictError where it holds other files, before anything is read."""
    from interfere.data.importers.import_writer import check_target

    check_target(out)
    return out


Out = Annotated[
    Path, typer.Option("--out", callback=check_target_folder, help="Folder to write: new, empty, or an earlier import.")
]


def write_and_report(out: Path, imported: "ImportResult", *, as_json: bool) -> None:
    """Write the import, and print the imported rows, the rows left out, and the checksums of the source files."""
    from interfere.data.importers.import_writer import write_import

    files = write_import(out, imported)
    document = report_document(imported) | {"files": [str(path) for path in files]}
    emit(document, [report_table(imported, files)], as_json=as_json)


def _counts(imported: "ImportResult") -> dict[str, int]:
    """Return how many records of each kind were imported."""
    if imported.trace is not None:
        return {"jobs": len(imported.trace.jobs)}
    infeasible = sum(not pair.feasible for pair in imported.pairs)
    counts = {"jobs": len(imported.jobs), "pairs": len(imported.pairs)}
    counts |= {"feasible": len(imported.pairs) - infeasible, "infeasible": infeasible}
    counts |= {"rows of groups": len(imported.groups)} if imported.groups else {}
    return counts | ({"extras": len(imported.extras)} if imported.extras else {})


def report_document(imported: "ImportResult") -> dict[str, Any]:
    """Return the imported rows, the rows left out, and the source files as a JSON document."""
    from interfere.data.importers.import_card import compare_with_published

    read = [
        {"file": str(f.path), "sha256": f.sha256, "published": compare_with_published(f, imported.source_format)}
        for f in imported.files
    ]
    notices = [
        {"fate": n.treatment.value, "count": n.count, "what": n.subject, "why": n.reason, "rows": list(n.rows)}
        for n in imported.notices
    ]
    return {"kind": imported.source_format, "read": read, **_counts(imported), "notices": notices}


def report_table(imported: "ImportResult", files: Sequence[Path] = ()) -> Table:
    """Return the import report as a table to print."""
    from interfere.data.importers.import_card import compare_with_published

    rows = [("imported", str(count), name) for name, count in _counts(imported).items()]
    for notice in imported.notices:
        what = "; ".join(filter(None, (notice.subject, notice.row_ranges)))
        rows.append((notice.treatment.value, str(notice.count), what))
    rows += [
        ("read", "", f"{file.path.name}: {compare_with_published(file, imported.source_format)}")
        for file in imported.files
    ]
    rows += [("wrote", "", str(path)) for path in files]
    return text_table("", ("", "count", "what"), rows)
