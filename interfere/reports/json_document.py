"""Renders a document for programs: one JSON value, in which numbers are numbers in the unit that their column names."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from interfere.reports.document import (
    Cell,
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
    Toned,
    words_text,
)
from interfere.reports.numbers import NumberFormat
from interfere.strict_json import json_value


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
            content = {"title": part.title, "columns": columns, "rows": [_row(row) for row in part.rows]}
        case HeatMap():
            cells = [[_plain(part.cells[row, column]) for column in part.columns] for row in part.rows]
            content = {"title": part.title, "rows": part.rows, "columns": part.columns, "cells": cells}
        case _:
            content = {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
    return {"kind": type(part).__name__.lower(), **content}


def _row(row: Sequence[Cell]) -> list[Any]:
    return [cell.text if isinstance(cell, Toned | Link) else _plain(cell) for cell in row]


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
