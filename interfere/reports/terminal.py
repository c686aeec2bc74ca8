"""Renders a document for a terminal or a pipe, readable from 60 columns on, without colours where they are not wanted.

Laws: no cell is cut: a table that is too wide is continued below with its first column again; without a terminal, or
with NO_COLOR, a text has no escape sequence. Figures and details are left out: the page has them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from interfere.reports.document import (
    VERDICTS,
    Cell,
    Column,
    Document,
    Estimate,
    Folded,
    Items,
    Part,
    Section,
    Sentence,
    Table,
    Terms,
    Tiles,
    Tone,
    Toned,
    Verbatim,
    cell_text,
    words_text,
)
from interfere.reports.numbers import DASH, NBSP, count_noun

if TYPE_CHECKING:  # rich takes a tenth of a second to import
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table as RichTable
    from rich.text import Text

STYLES = {Tone.LEAD: "bold", Tone.NOTE: "dim", Tone.GOOD: "green", Tone.BAD: "red", Tone.UNSURE: "yellow"}
MIN_NAME, MIN_TEXT = 34, 18  # characters to which the first and another column of text may be narrowed
MAX_WORD = 30  # characters of a word that is kept on one line
NARROWEST_NAME = 12  # where a single other column leaves no more
GAP = 2  # characters between two columns


class TerminalDocument:
    """A document, or some of its parts, that a rich console can print."""

    def __init__(self, document: "Document | Sequence[Part]") -> None:
        self.document = document

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Yield what the console prints, for its width."""
        from rich.text import Text

        parts: Sequence[Part]
        if isinstance(self.document, Document):
            yield Text(self.document.title_text, style="bold")
            parts = self.document.parts
        else:
            parts = self.document
        yield from _parts(parts, options.max_width)


def _parts(parts: Sequence[Part], width: int, heading: str = "") -> "Iterator[RenderableType]":
    """Yield the printable parts of a section. A table with the name of its section gets no title of its own."""
    from rich.padding import Padding
    from rich.text import Text

    for part in parts:
        match part:
            case Section():
                shown = [] if part.is_detail else list(_parts(part.parts, width, part.title))
                if shown:
                    yield Text()
                    yield Text(part.title, style="bold")
                    yield from shown
            case Sentence():
                text = Text(f"{part.lead} " if part.lead else "", style="bold")
                style = STYLES.get(part.tone, "")
                text.append(words_text(part.text), style=f"bold {style}" if part.tone in VERDICTS else style)
                yield text
            case Items():
                marks = (f"{k}." if part.ordered else "•" for k in range(1, len(part.items) + 1))
                yield from (_hanging(mark, words_text(item), 2) for mark, item in zip(marks, part.items, strict=True))
            case Terms():
                for name, words in part.entries:
                    yield Text.assemble((f"{name}: ", "dim"), words_text(words or DASH))
            case Verbatim():
                yield Padding(Text(part.text), (0, 0, 0, 2))
            case Tiles():
                for tile in part.tiles:
                    detail = f" ({tile.detail})" if tile.detail else ""
                    yield _hanging("•", Text.assemble((tile.text, "bold"), f" {tile.label}{detail}"), 2)
            case Table():
                yield from _table(part, width, has_title=part.title != heading)
            case Folded():
                continue


def _hanging(mark: str, text: "str | Text", indent: int) -> "RichTable":
    """Return a list item, indented so that its second and later lines begin below its first word."""
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=indent + len(mark), justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(mark, Text(text) if isinstance(text, str) else text)
    return grid


def _table(table: Table, width: int, *, has_title: bool) -> "Iterator[RenderableType]":
    """Yield a table in pieces that fit the width, then a line on how many rows are left out, if any."""
    from rich.text import Text

    shown = [k for k, column in enumerate(table.columns) if not column.is_detail]
    rows = table.rows if table.fold is None else table.rows[: table.fold]
    cells = [[_brief(row[k], table.columns[k]) for k in shown] for row in rows]
    styles = [[STYLES[cell.tone] if isinstance(cell := row[k], Toned) else "" for k in shown] for row in rows]
    titles = [table.columns[k].title for k in shown]
    is_text = [table.columns[k].form is None for k in shown]
    natural = [max([_length(titles[k]), *(_length(row[k]) for row in cells)]) for k in range(len(shown))]
    least = [
        min(natural[k], max(MIN_TEXT if k else MIN_NAME, min(MAX_WORD, _longest_word(row[k] for row in cells))))
        if is_text[k]
        else max([_longest_word([titles[k]]), *(_length(row[k]) for row in cells)])
        for k in range(len(shown))
    ]
    for piece, columns in enumerate(_pieces(least, width)):
        widths = _fitted([natural[k] for k in columns], [least[k] for k in columns], width)
        grid = _grid("(continued)" if piece else table.title if has_title else "")
        for k, wide in zip(columns, widths, strict=True):
            style = "bold" if k == 0 and is_text[0] else ""
            grid.add_column(
                titles[k], width=wide, justify="left" if is_text[k] else "right", overflow="fold", style=style
            )
        for row, style_row in zip(cells, styles, strict=True):
            grid.add_row(*(Text(row[k].replace(NBSP, " "), style=style_row[k]) for k in columns))
        yield grid
    if left_out := len(table.rows) - len(rows):
        yield Text(f"  and {count_noun(left_out, 'other row')}: --json has all", style="dim")


def _brief(cell: Cell, column: Column) -> str:
    value = cell.value if column.is_brief and isinstance(cell, Estimate) else cell
    return cell_text(value, column)


def _grid(title: str) -> "RichTable":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    return RichTable(
        title=Text(title, style="italic") if title else None,
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        title_justify="left",
    )


def _longest_word(texts: Iterable[str]) -> int:
    return max([0, *(_length(word) for text in texts for word in text.split(" "))])


def _length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _pieces(least: Sequence[int], width: int) -> Iterable[list[int]]:
    """Return the columns of each piece of a table: the first column, and as many further columns as fit."""
    pieces = [[0]]
    for k in range(1, len(least)):
        inside = [*pieces[-1], k]
        if _sum(least[i] for i in inside) > width and len(pieces[-1]) > 1:
            pieces.append([0, k])
        else:
            pieces[-1] = inside
    return pieces


def _fitted(natural: list[int], least: list[int], width: int) -> list[int]:
    """Return the widths of the columns of a piece of a table. The widest columns are narrowed until all columns fit."""
    widths = list(natural)
    for floor in (least, [min(least[0], NARROWEST_NAME), *least[1:]]):
        while _sum(widths) > width:
            room = [wide - low for wide, low in zip(widths, floor, strict=True)]
            if not any(room):
                break
            widest = max(range(len(widths)), key=lambda k: (room[k] > 0, widths[k]))
            widths[widest] -= 1
    return widths


def _sum(widths: Iterable[int]) -> int:
    known = list(widths)
    return sum(known) + GAP * (len(known) - 1)
