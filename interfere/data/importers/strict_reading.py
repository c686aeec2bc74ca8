"""Strict reading of text, CSV and JSON: nothing is coerced, guessed or skipped, and every error names its place.

Rows are numbered as an editor shows them: the header is row 1. Numbers are plain ASCII with a decimal point; a text, a
NaN, an infinity or a decimal comma in their place is an error. A last line without its end is a truncated file. A
byte-order mark and CRLF line ends are fine; any encoding but UTF-8 is an error.
"""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from interfere.data.importers.import_result import SourceFile
from interfere.errors import TableError

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
MAX_WHOLE = 2**31 - 1  # what a column of whole numbers holds at rest
RESTORE = "fetch the file again (`interfere data sources` says where from)"
FOREIGN = (  # first bytes of what is no text in UTF-8
    (b"\x1f\x8b", "is compressed with gzip", "unpack it first: gunzip"),
    (b"PK\x03\x04", "is a zip archive", "unpack it first: unzip"),
    (b"\xff\xfe", "is UTF-16", "save it as UTF-8: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "is UTF-16", "save it as UTF-8: iconv -f UTF-16 -t UTF-8"),
)


def read_text(path: Path) -> tuple[str, SourceFile]:
    """The whole file, UTF-8. Raises TableError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TableError(
            f"{path.name} cannot be read", value=f"{path}: {error.strerror}", remedy="give a file that exists"
        ) from None
    for magic, what, remedy in FOREIGN:
        if content.startswith(magic):
            raise TableError(f"{path.name}, row 1: the file {what}", value=path, remedy=remedy)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        row, byte = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise TableError(
            f"{path.name}, row {row}, byte {byte}: no UTF-8",
            value=f"{content[error.start : error.start + 1]!r} in {path}",
            remedy="save it as UTF-8: iconv -t UTF-8",
        ) from None
    if "\0" in text:
        row = text.count("\n", 0, text.index("\0")) + 1
        raise TableError(
            f"{path.name}, row {row}: holds a NUL", value=path, remedy="save it as UTF-8: iconv -f UTF-16LE -t UTF-8"
        )
    if not text.strip():
        raise TableError(f"{path.name}, row 1: the file is empty", value=path, remedy=RESTORE)
    return text, SourceFile(path=path, sha256=hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a CSV file: columns by name, errors that say where."""

    path: Path
    row: int
    fields: dict[str, str]

    def fail(self, column: str, what: str, remedy: str) -> NoReturn:
        """Raise the TableError of one field."""
        raise TableError(
            f"{self.path.name}, row {self.row}, column {column}: {what}",
            value=f"{self.fields.get(column, '')!r} in {self.path}",
            remedy=remedy,
        )

    def text(self, column: str) -> str:
        """A name: not empty, printable, at most 256 characters."""
        value = self.fields[column]
        if not value or value != value.strip() or not value.isprintable() or len(value) > 256:
            self.fail(column, "a name expected", "give 1-256 printable characters without spaces around them")
        return value

    def number(self, column: str, *, low: float = -math.inf, high: float = math.inf, above: bool = False) -> float:
        """A finite number in [low, high], or above `low` where `above`."""
        text = self.fields[column]
        if not NUMBER.fullmatch(text):
            self.fail(column, "a number expected", "write digits with a decimal point, such as 0.97")
        value = float(text)
        if not math.isfinite(value) or value < low or value > high or (above and value == low):
            side = f"above {low:g}" if above else f"at least {low:g}" if low > -math.inf else "finite"
            self.fail(column, f"must be {side}" + (f" and at most {high:g}" if high < math.inf else ""), RESTORE)
        return value

    def whole(self, column: str, *, low: int = 0, high: int = MAX_WHOLE) -> int:
        """A whole number in [low, high]."""
        value = self.number(column, low=low, high=high)
        if value != int(value):
            self.fail(column, "a whole number expected", RESTORE)
        return int(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFile:
    """A CSV file: its columns in order, its rows."""

    source: SourceFile
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def unread(self, *read: str) -> tuple[str, ...]:
        """Named columns that an importer leaves alone."""
        return tuple(column for column in self.columns if column and column not in read)


def read_csv(path: Path, needed: Sequence[str], *, delimiter: str = ",", header: bool = True) -> CsvFile:
    """All rows of a CSV file that has at least the columns `needed`; without `header` it has exactly these."""
    text, source = read_text(path)
    lines = _lines(path, text)
    if delimiter == ",":
        reader = csv.reader(lines, strict=True)
    else:  # quotes are part of the commands in tab-separated traces
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    columns = tuple(needed)
    rows: list[Row] = []
    try:
        if header:
            columns = tuple(name.strip() for name in next(reader, []))
            check_columns(path, columns, needed)
        for fields in reader:
            check_width(path, reader.line_num, fields, columns)
            rows.append(Row(path=path, row=reader.line_num, fields=dict(zip(columns, fields, strict=True))))
    except csv.Error as error:
        raise TableError(
            f"{path.name}, row {reader.line_num}: no CSV ({error})",
            value=path,
            remedy="close the quotes, or " + RESTORE,
        ) from None
    if not rows:
        raise TableError(f"{path.name}, row 2: no rows below the header", value=path, remedy=RESTORE)
    return CsvFile(source=source, columns=columns, rows=tuple(rows))


def _lines(path: Path, text: str) -> Iterator[str]:
    if not text.endswith(("\n", "\r")):
        rows = text.count("\n") + 1
        raise TableError(
            f"{path.name}, row {rows}: the last row has no line end: the file is truncated",
            value=f"{text[-40:]!r} in {path}",
            remedy=f"{RESTORE}, or end the row if it is whole",
        )
    return iter(io.StringIO(text.rstrip("\r\n"), newline=""))


def check_columns(path: Path, columns: Sequence[str], needed: Sequence[str], row: int = 1) -> None:
    """Refuse a header that lacks a column or names one twice."""
    for name in needed:
        if name not in columns:
            raise TableError(
                f"{path.name}, row {row}, column {name}: missing",
                value=f"found {', '.join(columns)[:200]} in {path}",
                remedy="give the file as published: same column names, comma-separated",
            )
    for name in columns:
        if name and columns.count(name) > 1:
            raise TableError(f"{path.name}, row {row}, column {name}: named twice", value=path, remedy="drop one")


def check_width(path: Path, row: int, fields: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse a row that is longer or shorter than the header."""
    if len(fields) < len(columns):
        raise TableError(
            f"{path.name}, row {row}, column {columns[len(fields)]}: missing, the row is short",
            value=f"{len(fields)} of {len(columns)} fields in {path}",
            remedy=RESTORE,
        )
    if len(fields) > len(columns):
        raise TableError(
            f"{path.name}, row {row}: more fields than the {len(columns)} columns (a decimal comma?)",
            value=f"{len(fields)} fields in {path}",
            remedy="write numbers with a decimal point",
        )


class _Object(list[tuple[str, Any]]):
    """A JSON object as its pairs, so that a key given twice is still there to be seen."""


def read_json(path: Path) -> tuple[Any, SourceFile]:
    """The document of a JSON file: no key twice, in dicts, lists, strings and numbers. Raises TableError."""
    text, source = read_text(path)
    try:
        return _plain(path, json.loads(text, object_pairs_hook=_Object), ()), source
    except json.JSONDecodeError as error:
        raise TableError(
            f"{path.name}, row {error.lineno}, column {error.colno}: no whole JSON ({error.msg})",
            value=path,
            remedy=RESTORE,
        ) from None
    except (RecursionError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{path.name}: no JSON of this kind", value=f"{path}: {error}", remedy=RESTORE) from None


def _plain(path: Path, value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, _Object):
        seen: dict[str, Any] = {}
        for key, inner in value:
            if key in seen:
                json_fail(path, (*keys, key), "the key is there twice", key, "keep one of the two")
            seen[key] = _plain(path, inner, (*keys, key))
        return seen
    if isinstance(value, list):
        return [_plain(path, inner, (*keys, str(k))) for k, inner in enumerate(value)]
    return value


def json_fail(path: Path, keys: Sequence[str], what: str, value: object, remedy: str) -> NoReturn:
    """Raise the TableError of one place in a JSON file."""
    raise TableError(f"{path.name}, key {' / '.join(keys)}: {what}", value=f"{value!r:.80} in {path}", remedy=remedy)


def json_object(path: Path, keys: Sequence[str], value: Any) -> dict[str, Any]:
    """`value` if it is an object."""
    if not isinstance(value, dict):
        json_fail(path, keys, "an object expected", value, RESTORE)
    return value


def json_number(path: Path, keys: Sequence[str], value: Any, *, low: float = -math.inf) -> float:
    """`value` as a finite float, at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        json_fail(path, keys, "a number expected", value, RESTORE)
    number = float(value) if abs(value) < 1e308 else math.inf
    if not math.isfinite(number) or number < low:
        json_fail(path, keys, f"must be finite and at least {low:g}", value, RESTORE)
    return number
