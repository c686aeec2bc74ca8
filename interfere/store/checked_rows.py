"""How the rows of each table are named, read and checked: the one way from a row of the store to a record.

A row is read together with its checksum. A row without a checksum is read like one whose checksum is right.

Law: a row that cannot be read never raises. It is returned beside the records, with the reason, so that the caller can
set it aside.
"""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from interfere.errors import InterfereError

T = TypeVar("T")
_DAMAGE = (
    InterfereError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    zlib.error,
)
MAX_REASON = 200  # characters
PAGE_ROWS = 1_000  # read at once


def text_from_bytes(content: bytes) -> str:
    """Decode a text of the store without raising: a byte that is no UTF-8 becomes a lone surrogate, which no record
    has."""
    return content.decode("utf-8", "surrogateescape")


def required_bytes(content: object) -> bytes:
    """Return the bytes of a column. Raises TypeError where it holds a value of another type."""
    if not isinstance(content, bytes):
        raise TypeError(f"bytes are needed, not {type(content).__name__}")
    return content


def row_checksum(*values: object) -> int:
    """Return the CRC-32 of the values of a row. Equal numbers have the same: SQLite stores 5.0 as 5 where it can."""
    return zlib.crc32(b"\0".join(map(_value_bytes, values)))


def _value_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return b"t" + value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return b"b" + value
    return b"n" if value is None else repr(float(value)).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRow:
    """A row that cannot be read."""

    table: str
    rowid: int
    name: str  # the values of the columns that name it to a person
    key: str  # its name in the table of checksums
    reason: str
    values: tuple[Any, ...]  # of all columns of its kind

    def __str__(self) -> str:
        return f"{self.table} {self.name} cannot be read: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKind(Generic[T]):
    """The rows of one table."""

    table: str
    name: tuple[str, ...]  # the columns that name a row to a person
    key: tuple[str, ...]  # the columns that no two rows have in common
    columns: tuple[str, ...]  # all columns that count, in the order of the arguments of `parse`
    parse: Callable[..., T]
    """Makes the record of a row. Raises one of `_DAMAGE` for a damaged row."""

    def sql_name(self, row: str = "") -> str:
        """Return the SQL expression that names a row in the table of checksums. `row`: `new` or `old` in a trigger."""
        columns = [f"{row or self.table}.{column}" for column in self.key]
        return f"json_array({', '.join(columns)})" if len(columns) > 1 else f"+{columns[0]}"  # +: compared as stored

    @property
    def sql_checked(self) -> str:
        """The rowid, the stored checksum (NULL where there is none) and all columns of a row, as SQL."""
        return self.sql_row(f"(SELECT crc FROM checksum WHERE source = '{self.table}' AND name = {self.sql_name()})")  # noqa: S608

    def sql_row(self, checksum: str) -> str:
        """Return the rowid, a checksum and all columns of a row, as SQL."""
        return ", ".join([f"{self.table}.rowid", checksum, *(f"{self.table}.{column}" for column in self.columns)])

    def read_row(self, rowid: int, checksum: int | None, values: Sequence[Any]) -> T | UnreadableRow:
        """Return the record of a row, or what is wrong with the row. `values`: of all columns, in their order."""
        if checksum is not None and checksum != row_checksum(*values):
            return self.unreadable(rowid, values, "its checksum does not match")
        try:
            for value in values:
                if isinstance(value, str):
                    value.encode()  # raises UnicodeEncodeError, a ValueError, for a text that was no UTF-8
            return self.parse(*values)
        except _DAMAGE as error:
            reason = " ".join(str(error).split())[:MAX_REASON] or type(error).__name__
        return self.unreadable(rowid, values, reason)

    def unreadable(self, rowid: int, values: Sequence[Any], reason: str) -> UnreadableRow:
        """Return a row of this kind that cannot be read for a reason."""
        by_column = dict(zip(self.columns, values, strict=True))
        name = " ".join(_printable(by_column[column]) for column in self.name)
        keys = [by_column[column] for column in self.key]
        return UnreadableRow(
            table=self.table,
            rowid=rowid,
            name=name,
            key=json.dumps(keys, separators=(",", ":"), ensure_ascii=False, default=repr) if keys[1:] else str(keys[0]),
            reason=_printable(reason),
            values=tuple(values),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRows(Generic[T]):
    """The rows that a query found."""

    records: list[T]
    unreadable: list[UnreadableRow]
    last_rowid: int  # of the last row, readable or not; 0 without any

    def __len__(self) -> int:
        return len(self.records) + len(self.unreadable)


def unreadable_rows(
    connection: sqlite3.Connection, kind: RowKind[Any], condition: str = "TRUE", *, trust_checksums: bool = False
) -> Iterator[UnreadableRow]:
    """Yield the rows of a kind that cannot be read, of those that meet a condition. Damaged pages are passed over.

    With `trust_checksums`, a row with the right checksum is not looked into.
    """
    for rowid, checksum, *values in every_row(connection, kind.table, kind.sql_checked, condition):
        if trust_checksums and checksum is not None and checksum == row_checksum(*values):
            continue
        row = kind.read_row(rowid, checksum, values)
        if isinstance(row, UnreadableRow):
            yield row


def every_row(
    connection: sqlite3.Connection, table: str, selected: str, condition: str = "TRUE"
) -> Iterator[tuple[Any, ...]]:
    """Yield every row that SQLite can read, even if pages are damaged; `selected`: the rowid and further expressions.

    Where a scan fails, rows are read one by one.
    """
    select = f"SELECT {selected} FROM {table} WHERE"  # noqa: S608 - our own names
    after = -1
    while True:
        try:
            rows = connection.execute(
                f"{select} {table}.rowid > ? AND {condition} ORDER BY {table}.rowid LIMIT ?", (after, PAGE_ROWS)
            ).fetchall()
        except sqlite3.DatabaseError:
            rows = []
            for rowid in range(after + 1, after + PAGE_ROWS + 1):
                with suppress(sqlite3.DatabaseError):
                    rows += connection.execute(f"{select} {table}.rowid = ? AND {condition}", (rowid,)).fetchall()
            after += PAGE_ROWS
            yield from rows
            if not rows and not _has_rows_after(connection, table, after):
                return
            continue
        yield from rows
        if not rows:
            return
        after = int(rows[-1][0])


def _has_rows_after(connection: sqlite3.Connection, table: str, after: int) -> bool:
    try:
        return bool(connection.execute(f"SELECT max(rowid) > ? FROM {table}", (after,)).fetchone()[0])  # noqa: S608
    except sqlite3.DatabaseError:
        return False


def _printable(value: object) -> str:
    """Return a value as text that any terminal and any log shows."""
    text = str(value)[:MAX_REASON]
    return text if text.isprintable() else ascii(text)[1:-1]
