"""Renders a document as Markdown: what is kept beside tables and models as a card. Figures are left out."""

from collections.abc import Iterator

from interfere.reports.document import (
    Code,
    Document,
    Folded,
    Items,
    Part,
    Section,
    Sentence,
    Table,
    Terms,
    Tiles,
    Toned,
    Verbatim,
    Words,
    cell_text,
)
from interfere.reports.numbers import DASH, NBSP


def markdown(document: Document) -> str:
    """Return the document as Markdown."""
    blocks = [f"# {_words(document.title)}", *_blocks(document.parts, level=2)]
    return "\n\n".join(blocks).replace(NBSP, " ") + "\n"


def _blocks(parts: tuple[Part, ...], level: int) -> Iterator[str]:
    for part in parts:
        match part:
            case Section():
                yield f"{'#' * level} {part.title}"
                yield from _blocks(part.parts, level + 1)
            case Sentence():
                yield " ".join(filter(None, (f"**{part.lead}**" if part.lead else "", _words(part.text))))
            case Items():
                marks = (f"{k}." if part.ordered else "-" for k in range(1, len(part.items) + 1))
                yield "\n".join(f"{mark} {_words(item)}" for mark, item in zip(marks, part.items, strict=True))
            case Terms():
                yield "\n".join(f"- {name}: {_words(text or DASH)}" for name, text in part.entries)
            case Verbatim():
                yield f"```\n{part.text}\n```"
            case Tiles():
                lines = (
                    f"- {tile.text} {tile.label}{f' ({tile.detail})' if tile.detail else ''}" for tile in part.tiles
                )
                yield "\n".join(lines)
            case Table():
                yield markdown_table(part)
            case Folded():
                yield from _blocks(part.parts, level)


def _words(words: Words) -> str:
    pieces = (words,) if isinstance(words, str) else words
    return "".join(f"`{piece}`" if isinstance(piece, Code) else piece for piece in pieces)


def markdown_table(table: Table) -> str:
    """Return a table alone as Markdown."""
    rules = ("---:" if column.form is not None else "---" for column in table.columns)
    lines = [_row(column.title for column in table.columns), f"|{'|'.join(rules)}|"]
    for row in table.rows:
        cells = zip(row, table.columns, strict=True)
        lines.append(_row(_bold(cell_text(cell, column), isinstance(cell, Toned)) for cell, column in cells))
    return "\n".join(lines)


def _row(cells: "Iterator[str]") -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |"


def _bold(text: str, is_bold: bool) -> str:
    return f"**{text}**" if is_bold else text
