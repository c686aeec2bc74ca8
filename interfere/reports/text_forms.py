"""Renders a document as Markdown, for the cards beside tables and models, and as JSON, for programs.

Markdown leaves figures out. In JSON numbers are numbers, in the unit that their column names. Front matter is metadata
in YAML before Markdown, which Hugging Face reads.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from interfere.reports.document import (
    Code,
    Document,
    Folded,
    HeatMap,
    Items,
    Link,
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
    words_text,
)
from interfere.reports.numbers import DASH, NBSP, NumberFormat
from interfere.strict_json import json_value


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
    lines = [_line(column.title for column in table.columns), f"|{'|'.join(rules)}|"]
    for row in table.rows:
        texts = (cell_text(cell, column) for cell, column in zip(row, table.columns, strict=True))
        lines.append(
            _line(f"**{text}**" if isinstance(cell, Toned) else text for cell, text in zip(row, texts, strict=True))
        )
    return "\n".join(lines)


def _line(cells: "Iterator[str]") -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |"


FENCE = "---\n"


def front_matter(metadata: Mapping[str, Any]) -> str:
    """Return metadata as YAML between its marks: every value in JSON's form, which YAML reads too."""
    lines = (f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in metadata.items())
    return f"{FENCE}{''.join(lines)}{FENCE}\n"


def without_front_matter(text: str) -> str:
    """Return Markdown without the metadata in front of it."""
    return text.split(FENCE, 2)[2].lstrip() if text.startswith(FENCE) and text.count(FENCE) > 1 else text


# --- JSON -------------------------------------------------------------------------------------------------------------


def json_document(document: Document) -> dict[str, Any]:
    """Return the document as JSON, with the `kind` of each part, such as a sentence, a table or a figure."""
    return {"title": document.title_text, "parts": [_part(part) for part in document.parts]}


def _part(part: Part) -> dict[str, Any]:
    content: dict[str, Any]
    match part:
        case Section():
            content = {"title": part.title, "parts": [_part(inner) for inner in part.parts]}
        case Folded():
            content = {"summary": part.summary, "parts": [_part(inner) for inner in part.parts]}
        case Sentence():
            lead = {"lead": part.lead} if part.lead else {}
            content = {**lead, "text": words_text(part.text), "tone": part.tone.value}
        case Items():
            content = {"items": [words_text(item) for item in part.items], "ordered": part.ordered}
        case Terms():
            content = {"entries": {name: words_text(text) for name, text in part.entries}}
        case Table():
            columns = [{"heading": c.heading, "unit": c.form.quantity if c.form else None} for c in part.columns]
            rows = [
                [cell.text if isinstance(cell, Toned | Link) else _plain(cell) for cell in row] for row in part.rows
            ]
            content = {"title": part.title, "columns": columns, "rows": rows}
        case HeatMap():
            cells = [[_plain(part.cells[row, column]) for column in part.columns] for row in part.rows]
            content = {"title": part.title, "rows": part.rows, "columns": part.columns, "cells": cells}
        case _:
            content = {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
    return {"kind": type(part).__name__.lower(), **content}


def _plain(value: Any) -> Any:
    """Return a value of a document as JSON: a record becomes an object, a number format the unit of its numbers."""
    plain: Any = json_value(value)
    if isinstance(value, NumberFormat):
        plain = value.quantity
    elif isinstance(value, Enum):
        plain = value.value
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        plain = {name: _plain(inner) for name, inner in value._asdict().items()}
    elif isinstance(value, tuple):
        plain = [_plain(inner) for inner in value]
    elif is_dataclass(value) and not isinstance(value, type):
        plain = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return plain
