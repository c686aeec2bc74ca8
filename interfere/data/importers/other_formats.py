"""Recognises text of another format than rows of columns, so that an error can name it and what was seen in it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interfere.errors import TableError

DELIMITERS = {",": "commas", "\t": "tabs", "|": "vertical bars", ";": "semicolons"}
MAX_SEEN = 200  # characters of names that an error repeats


def refuse_other_format(path: Path, text: str, columns: Sequence[str], *, delimiter: str, header: bool) -> None:
    """Raise TableError where a text that should hold rows of columns is JSON or markup, or where, without a header, its
    first row is separated by another delimiter."""
    start = text.lstrip("\ufeff \t\r\n")
    expected = f"rows of columns separated by {DELIMITERS[delimiter]}"
    remedy = f"give a file with the columns {', '.join(columns)}"
    if start.startswith(("{", "[")) and (seen := _seen_in_json(start)):
        pods = "; for Kubernetes' pods: `interfere data import pods`" if "items" in seen else ""
        raise TableError(f"{path.name}: JSON, not {expected}", value=f"{seen} in {path}", remedy=remedy + pods)
    if start.startswith("<"):
        raise TableError(
            f"{path.name}: markup (HTML or XML), not {expected}", value=f"{start[:40]!r} in {path}", remedy=remedy
        )
    if header or not start:
        return
    first_row = start.splitlines()[0]
    other = max(DELIMITERS, key=first_row.count)
    if delimiter not in first_row and other in first_row:
        names = ", ".join(field.strip() for field in first_row.split(other))[:MAX_SEEN]
        raise TableError(
            f"{path.name}, row 1: columns separated by {DELIMITERS[other]}, not by {DELIMITERS[delimiter]}",
            value=f"columns seen: {names} in {path}",
            remedy=remedy,
        )


def _seen_in_json(text: str) -> str:
    """The keys of a JSON document, or of its first object, in words; empty where it is none."""
    for candidate in (text, text.splitlines()[0]):  # the whole document, or one a line
        try:
            return _keys_in_words(json.loads(candidate))
        except (ValueError, RecursionError):
            continue
    inside = text[1:].lstrip()
    return f"{text[:40]!r}, which breaks off" if inside.startswith(('"', "{", "[")) else ""


def _keys_in_words(document: Any) -> str:
    if isinstance(document, dict):
        return f"keys seen: {', '.join(document)[:MAX_SEEN] or 'none'}"
    if isinstance(document, list) and document and isinstance(document[0], dict):
        return f"a list of objects, keys seen: {', '.join(document[0])[:MAX_SEEN]}"
    return f"a list of {len(document)}" if isinstance(document, list) else ""
