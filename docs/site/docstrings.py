"""Reads docstrings as this project writes them, for mkdocstrings: an extension of griffe."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import griffe

from docs.site.reference.markdown import code, plain, table

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"^[^#]*#\s(.+)$")


class ProjectDocstrings(griffe.Extension):
    """Shows examples as code, and the public fields of a class as one table with their comments."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the examples of a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Put a table of the fields below the docstring, in place of one entry for each."""
        fields = [each for each in cls.members.values() if isinstance(each, griffe.Attribute) and not each.is_private]
        fields = [each for each in fields if "property" not in each.labels]
        for each in fields:
            del cls.members[each.name]
        if fields:
            text = cls.docstring.value if cls.docstring else ""
            cls.docstring = griffe.Docstring(f"{text}\n\n{_field_table(fields)}".strip(), parent=cls)


def _field_table(fields: Sequence[griffe.Attribute]) -> str:
    rows = (
        (
            code(each.name),
            code(str(each.annotation)) if each.annotation else "",
            code(str(each.value)) if each.value else "",
            plain(each.docstring.value if each.docstring else _comment(each)),
        )
        for each in fields
    )
    return table(("field", "type", "value", "meaning"), rows)


def _comment(field: griffe.Attribute) -> str:
    if field.parent is None or field.lineno is None or not isinstance(field.filepath, Path):
        return ""
    return comment_of(field.parent.lines_collection[field.filepath], field.lineno - 1)


def comment_of(source: Sequence[str], line: int) -> str:
    """Return the comment that stands above the line with this index, and the one behind its code."""
    first = line
    while first > 0 and source[first - 1].lstrip().startswith("# "):
        first -= 1
    return " ".join(found[1] for text in source[first : line + 1] if (found := _COMMENT.match(text)))


def fenced(text: str) -> str:
    """Return a docstring with its examples as blocks of code."""
    return _EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)
