"""Strict reading of text, CSV and JSON: nothing is coerced, guessed or skipped, and every error names its place.

Rows are numbered as an editor shows them: the header is row 1. Numbers are plain ASCII with a decimal point; a text, a
NaN, an infinity or a decimal comma in place of a number is an error. A last line without a line end means a truncated
file. A byte-order mark and CRLF line ends are accepted; any encoding but UTF-8 is an error.

Text of another format than rows of columns is recognised, so that an error can name it and what was seen in it. Files
that a user writes may have many faults: `Faults` collects them, and all are told at once.
"""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from interfere.data.importers.import_result import SourceFile
from interfere.errors import TableError, Violation

T = TypeVar("T")
D = TypeVar("D")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
MAX_FAULTS_SHOWN = 50  # in the text of an error; all are among its violations
MAX_INT32 = 2**31 - 1  # the schema stores whole numbers as int32
FETCH_AGAIN = "fetch the file again (`interfere data sources` lists the addresses)"
AS_PUBLISHED = "give the file as published: same column names, comma-separated"
FOREIGN_SIGNATURES = (  # first bytes of files that are not UTF-8 text
    (b"\x1f\x8b", "is compressed with gzip", "unpack it first: gunzip"),
    (b"PK\x03\x04", "is a zip archive", "unpack it first: unzip"),
    (b"\xff\xfe", "is UTF-16", "save it as UTF-8: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "is UTF-16", "save it as UTF-8: iconv -f UTF-16 -t UTF-8"),
)


def read_bytes(path: Path) -> tuple[bytes, SourceFile]:
    """Return the content of a file, and the file with its checksum. Raises TableError."""
    if path.is_dir():
        raise TableError("a file expected, not a folder", value=path, remedy="give one file of the folder")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TableError(
            f"{path.name} cannot be read", value=f"{path}: {error.strerror}", remedy="give a file that exists"
        ) from None
    return content, SourceFile(path=path, sha256=hashlib.sha256(content).hexdigest())


def read_text(path: Path) -> tuple[str, SourceFile]:
    """Return the content of a UTF-8 file, and the file with its checksum. Raises TableError."""
    content, source = read_bytes(path)
    for signature, problem, remedy in FOREIGN_SIGNATURES:
        if content.startswith(signature):
            raise TableError(f"{path.name}, row 1: the file {problem}", value=path, remedy=remedy)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        row, byte = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise TableError(
            f"{path.name}, row {row}, byte {byte}: not UTF-8",
            value=f"{content[error.start : error.start + 1]!r} in {path}",
            remedy="save it as UTF-8: iconv -t UTF-8",
        ) from None
    if "\0" in text:
        row = text.count("\n", 0, text.index("\0")) + 1
        raise TableError(
            f"{path.name}, row {row}: contains a NUL character",
            value=path,
            remedy="save it as UTF-8: iconv -f UTF-16LE -t UTF-8",
        )
    if not text.strip():
        raise TableError(f"{path.name}, row 1: the file is empty", value=path, remedy=FETCH_AGAIN)
    return text, source


def fault(place: str, problem: str, value: object, remedy: str) -> TableError:
    """Make the error of one place in a file, such as "pairs.csv, row 3, column slowdown"."""
    violation = Violation(field=place, what=problem, value=str(value), remedy=remedy)
    return TableError(f"{place}: {problem}", value=value, remedy=remedy, violations=(violation,))


class Faults:
    """Collects the faults in files that users write, so that all faults are reported at once."""

    def __init__(self) -> None:
        self._errors: list[TableError] = []

    def __len__(self) -> int:
        return len(self._errors)

    def read(self, reader: Callable[[], T], default: D) -> T | D:
        """Return the result of `reader`. Where it raises a TableError, keep the error and return `default`."""
        try:
            return reader()
        except TableError as error:
            self._errors.append(error)
            return default

    def add(self, place: str, problem: str, value: object, remedy: str) -> None:
        """Keep the fault of a place in a file, to be raised with all others."""
        self._errors.append(fault(place, problem, value, remedy))

    def at(self, row: "CsvRow", column: str, problem: str, remedy: str) -> None:
        """Keep the fault of a field of a CSV row, to be raised with all others."""
        self._errors.append(row.fault(column, problem, remedy))

    def raise_all(self) -> None:
        """Raise one TableError with every fault as a violation. Without faults, do nothing."""
        violations = tuple(dict.fromkeys(violation for error in self._errors for violation in _violations(error)))
        if len(violations) > 1:
            lines = "".join(f"\n  {violation}" for violation in violations[:MAX_FAULTS_SHOWN])
            more = f"\n  and {len(violations) - MAX_FAULTS_SHOWN} more" if len(violations) > MAX_FAULTS_SHOWN else ""
            remedy = "mend them, and import again"
            raise TableError(f"{len(violations)} faults{lines}{more}", remedy=remedy, violations=violations)
        if self._errors:
            raise self._errors[0]


def _violations(error: TableError) -> tuple[Violation, ...]:
    """Return the violations of an error; an error about a whole file is one violation itself."""
    place, separator, problem = error.what.partition(": ")
    field, what = (place, problem) if separator else ("file", error.what)
    return error.violations or (Violation(field=field, what=what, value=str(error.value), remedy=error.remedy),)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvRow:
    """A row of a CSV file. Its methods return a field converted to the requested type, or raise TableError."""

    path: Path
    row_number: int
    fields: dict[str, str]
    decimal: str = "."  # the sign before the fraction of a number

    def fault(self, column: str, problem: str, remedy: str) -> TableError:
        """Return the error of a field of the row, which names file, row and column."""
        place = f"{self.path.name}, row {self.row_number}{f', column {column}' if column else ''}"
        value = f"{self.fields[column]!r} in {self.path}" if column in self.fields else self.path
        return fault(place, problem, value, remedy)

    def fail(self, column: str, problem: str, remedy: str) -> NoReturn:
        """Raise the error of a field of the row, a TableError which names file, row and column."""
        raise self.fault(column, problem, remedy)

    def text(self, column: str) -> str:
        """Return a name: not empty, printable, at most 256 characters. Raises TableError."""
        value = self.fields[column]
        if not value or value != value.strip() or not value.isprintable() or len(value) > 256:
            self.fail(column, "a name expected", "give 1-256 printable characters without spaces around them")
        return value

    def number(
        self, column: str, *, low: float = -math.inf, high: float = math.inf, exclude_low: bool = False
    ) -> float:
        """Return a finite number in [low, high], or in (low, high] with `exclude_low`. Raises TableError."""
        text = self.fields[column]
        if not NUMBER.fullmatch(text):
            self.fail(column, "a number expected", "write digits with a decimal point, such as 0.97")
        value = float(text)
        if not math.isfinite(value) or value < low or value > high or (exclude_low and value == low):
            lower = f"above {low:g}" if exclude_low else f"at least {low:g}" if low > -math.inf else "finite"
            upper = f" and at most {high:g}" if high < math.inf else ""
            self.fail(column, f"must be {lower}{upper}", FETCH_AGAIN)
        return value

    def integer(self, column: str, *, low: int = 0, high: int = MAX_INT32) -> int:
        """Return the field of a column as a whole number in [low, high]. Raises TableError."""
        value = self.number(column, low=low, high=high)
        if value != int(value):
            self.fail(column, "a whole number expected", FETCH_AGAIN)
        return int(value)

    def time_s(self, column: str, form: str, remedy: str) -> float:
        """Return the unix time of a date and time in UTC, written in the `form` of strptime. Raises TableError."""
        try:
            return datetime.strptime(self.fields[column], form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            self.fail(column, f"a time such as {datetime(2026, 11, 22, 10, tzinfo=UTC):{form}} expected", remedy)


def check_unique(rows: Iterable[CsvRow], column: str, noun: str, remedy: str) -> None:
    """Raise a TableError for the first row whose name in `column` stands in an earlier row: "a second row of NOUN"."""
    seen: set[str] = set()
    for row in rows:
        name = row.text(column)
        if name in seen:
            row.fail(column, f"a second row of {noun}", remedy)
        seen.add(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFile:
    """The columns of a CSV file in order, and its rows."""

    source: SourceFile
    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]

    def unread_columns(self, *read: str) -> tuple[str, ...]:
        """Return the columns that have a name and are not among the columns that an importer read."""
        return tuple(column for column in self.columns if column and column not in read)


def read_csv(
    path: Path,
    required: Sequence[str],
    *,
    delimiter: str = ",",
    header: bool = True,
    final_line_end: bool = True,
    free_text: str = "",
    header_remedy: str = AS_PUBLISHED,
) -> CsvFile:
    """Return all rows of a CSV file that has at least the required columns; without `header` it has exactly these
    columns.

    `final_line_end`: whether the publisher's files end their last row with a line end, so that a file without it is
    truncated. `free_text`: a column that may contain the delimiter without quotes, which is supported where it is the
    last column. `header_remedy`: the remedy where a column is missing.

    Raises TableError with file and row.
    """
    text, source = read_text(path)
    refuse_other_format(path, text, required, delimiter=delimiter, header=header)
    if final_line_end:
        check_complete(path, text, text.count("\n") + 1)
    lines = io.StringIO(text.rstrip("\r\n"), newline="")
    numbered = parse_csv(path, lines, delimiter=delimiter, quoted=delimiter == ",")
    columns = tuple(required)
    if header:
        columns = tuple(name.strip() for name in next(numbered)[1])
        check_columns(path, columns, required, remedy=header_remedy)
    rows: list[CsvRow] = []
    last = len(columns) - 1
    for number, read in numbered:
        fields = read
        if free_text and len(read) > len(columns):
            if columns[last] != free_text:
                place = f"{path.name}, row {number}, column {free_text}"
                value, remedy = f"{len(read)} fields in {path}", f"export the file with {free_text} as its last column"
                raise fault(place, f"holds the delimiter {delimiter!r}", value, remedy)
            fields = [*read[:last], delimiter.join(read[last:])]
        rows.append(csv_row(path, number, fields, columns))
    if not rows:
        raise TableError(f"{path.name}, row 2: no rows below the header", value=path, remedy=FETCH_AGAIN)
    return CsvFile(source=source, columns=columns, rows=tuple(rows))


def parse_csv(
    path: Path, lines: Iterable[str], *, delimiter: str = ",", quoted: bool = True, lines_before: int = 0
) -> Iterator[tuple[int, list[str]]]:
    """Yield each row of CSV text with its number in the file, which has `lines_before` lines above the text.

    `quoted`: quotes enclose fields; otherwise they are part of them, as in the commands of tab-separated traces.
    Raises TableError for a quote that is not closed.
    """
    if quoted:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    try:
        for fields in reader:
            yield lines_before + reader.line_num, fields
    except csv.Error as error:
        place = f"{path.name}, row {lines_before + reader.line_num}"
        raise TableError(f"{place}: not valid CSV ({error})", value=path, remedy="close the quotes") from None


def csv_row(path: Path, number: int, fields: Sequence[str], columns: Sequence[str]) -> CsvRow:
    """Make a row of its fields. Raises TableError where there are more or fewer fields than columns."""
    if len(fields) < len(columns):
        place = f"{path.name}, row {number}, column {columns[len(fields)]}"
        value = f"{len(fields)} of {len(columns)} fields in {path}"
        raise fault(place, "missing, the row is short", value, FETCH_AGAIN)
    if len(fields) > len(columns):
        problem = f"more fields than the {len(columns)} columns (a decimal comma?)"
        remedy = "write numbers with a decimal point"
        raise fault(f"{path.name}, row {number}", problem, f"{len(fields)} fields in {path}", remedy)
    return CsvRow(path=path, row_number=number, fields=dict(zip(columns, fields, strict=True)))


def check_complete(path: Path, last_line: str, row: int) -> None:
    """Raise TableError for a last line without a line end: the file is truncated."""
    if not last_line.endswith(("\n", "\r")):
        problem, remedy = "the last row has no line end: the file is truncated", "or end the row if it is complete"
        value = f"{last_line[-40:]!r} in {path}"
        raise fault(f"{path.name}, row {row}", problem, value, f"{FETCH_AGAIN}, {remedy}")


def check_columns(
    path: Path, columns: Sequence[str], required: Sequence[str], row: int = 1, *, remedy: str = AS_PUBLISHED
) -> None:
    """Raise TableError for a header that lacks a required column or names one twice."""
    for name in required:
        if name not in columns:
            value = f"found {', '.join(columns)[:200]} in {path}"
            raise fault(f"{path.name}, row {row}, column {name}", "missing", value, remedy)
    for name in columns:
        if name and columns.count(name) > 1:
            raise fault(f"{path.name}, row {row}, column {name}", "named twice", path, "drop one")


class _KeyValuePairs(list[tuple[str, Any]]):
    """The key-value pairs of a JSON object, in which a duplicate key can still be seen."""


def read_json(path: Path) -> tuple[Any, SourceFile]:
    """Return the content of a JSON file, and the file with its checksum.

    Raises TableError for text that is no JSON and for a key that occurs twice in an object.
    """
    text, source = read_text(path)
    try:
        return _without_duplicate_keys(path, json.loads(text, object_pairs_hook=_KeyValuePairs), ()), source
    except json.JSONDecodeError as error:
        raise TableError(
            f"{path.name}, row {error.lineno}, column {error.colno}: not valid JSON ({error.msg})",
            value=path,
            remedy=FETCH_AGAIN,
        ) from None
    except TableError:
        raise
    except (RecursionError, ValueError) as error:
        raise TableError(
            f"{path.name}: JSON that cannot be read", value=f"{path}: {error}", remedy=FETCH_AGAIN
        ) from None


def _without_duplicate_keys(path: Path, value: Any, keys: tuple[str, ...]) -> Any:
    if isinstance(value, _KeyValuePairs):
        values: dict[str, Any] = {}
        for key, inner in value:
            if key in values:
                fail_at_key(path, (*keys, key), "duplicate key", key, "keep one of the two")
            values[key] = _without_duplicate_keys(path, inner, (*keys, key))
        return values
    if isinstance(value, list):
        return [_without_duplicate_keys(path, inner, (*keys, str(k))) for k, inner in enumerate(value)]
    return value


def fail_at_key(path: Path, keys: Sequence[str], problem: str, value: object, remedy: str) -> NoReturn:
    """Raise the TableError of one place in a JSON file."""
    raise TableError(f"{path.name}, key {' / '.join(keys)}: {problem}", value=f"{value!r:.80} in {path}", remedy=remedy)


def require_object(path: Path, keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return `value`. Raises TableError where `value` is no JSON object."""
    if not isinstance(value, dict):
        fail_at_key(path, keys, "an object expected", value, FETCH_AGAIN)
    return value


def require_number(path: Path, keys: Sequence[str], value: Any, *, low: float = -math.inf) -> float:
    """Return `value` as a float. Raises TableError where `value` is no finite number of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fail_at_key(path, keys, "a number expected", value, FETCH_AGAIN)
    number = float(value) if abs(value) < 1e308 else math.inf
    if not math.isfinite(number) or number < low:
        fail_at_key(path, keys, f"must be finite and at least {low:g}", value, FETCH_AGAIN)
    return number


# --- text of another format than rows of columns ---------------------------------------------------------------------


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
    """Return the keys of a JSON document, or of the first object in a list, in words; "" where the text is no JSON."""
    for candidate in (text, text.splitlines()[0]):  # the whole document, or one a line
        try:
            document = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        first = document[0] if isinstance(document, list) and document else document
        return f"keys seen: {', '.join(first)[:MAX_SEEN] or 'none'}" if isinstance(first, dict) else "a list of values"
    inside = text[1:].lstrip()
    return f"{text[:40]!r}, which breaks off" if inside.startswith(('"', "{", "[")) else ""
