"""Download public tables."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, progress_note

Name = Annotated[str, typer.Argument(help="gavel, lucid, venus, parvagpu, orion or echo: `interfere data sources`.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the files. Default: WORK/public/NAME.", show_default=False)]


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
