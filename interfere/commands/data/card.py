"""Describe a table in the terminal, and as a page to look at."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import JsonFlag, emit, progress_note

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="A folder, or a table of the workspace or shipped.")]
Page = Annotated[Path | None, typer.Option("--out", help="The HTML file. Default: WORK/cards/TABLE.html.")]
Open = Annotated[bool, typer.Option("--open", help="Show the page in the browser.")]


def card(
    table_name: TableName,
    page: Page = None,
    show: Open = False,
    work: Work = DEFAULT_WORK,
    as_json: JsonFlag = False,
) -> None:
    """Describe a table: what was measured, where, and how far to trust it. Computed anew from its rows."""
    from interfere.data.cards.dataset_card import CARD_FILE, dataset_card
    from interfere.data.cards.table_page import table_document
    from interfere.data.loading import table_folder
    from interfere.data.tables import read_table, table_digest
    from interfere.reports.html_page import write_html_page
    from interfere.reports.json_document import json_document
    from interfere.reports.markdown import markdown

    folder = table_folder(table_name, work)
    table = read_table(folder)
    notes = (folder / CARD_FILE).read_text(encoding="utf-8", errors="replace") if (folder / CARD_FILE).is_file() else ""
    path = page or work / "cards" / f"{table.name}.html"
    document, summary = table_document(table, sha256=table_digest(folder), notes=notes), dataset_card(table)
    write_html_page(path, document)
    facts = {"card": markdown(summary), "page": str(path), "document": json_document(document)} if as_json else {}
    emit(facts, summary, as_json=as_json)
    if not as_json:
        progress_note(f"wrote {path}")
    if show and not webbrowser.open(path.resolve().as_uri()):
        progress_note("no browser found here: open the page from a machine that has one")
