"""How the rows of each table are named, read and checked: the one way from a row of the store to a record.

Law: a row that cannot be read never raises. It is returned beside the records, with the reason, so that the caller can
set it aside.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_Parameters = Sequence[Any] | Mapping[str, Any]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRow:
    """A row that cannot be read."""

    table: str
    rowid: int
    name: str  # the values of the columns that name it
    reason: str
    values: tuple[Any, ...]  # of all columns of its kind

    def __str__(self) -> str:
        return f"{self.table} {self.name} cannot be read: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKind(Generic[T]):
    """The rows of one table."""

    table: str
    name: tuple[str, ...]  # the columns that name a row to a person
    columns: tuple[str, ...]  # all columns, in the order of the arguments of `parse`
    parse: Callable[..., T]
    """Makes the record of a row. Raises one of `_DAMAGE` for a damaged row."""

    def read_row(self, rowid: int, values: Sequence[Any]) -> T | UnreadableRow:
        """Return the record of a row, or what is wrong with the row. `values`: of all columns, in their order."""
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
        return UnreadableRow(table=self.table, rowid=rowid, name=name, reason=_printable(reason), values=tuple(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRows(Generic[T]):
    """The rows that a query found."""

    records: list[T]
    unreadable: list[UnreadableRow]
    last_rowid: int  # of the last row, readable or not; 0 without any

    def __len__(self) -> int:
        return len(self.records) + len(self.unreadable)


def read_rows(
    connection: sqlite3.Connection,
    kind: RowKind[T],
    clause: str = "",
    parameters: _Parameters = (),
    *,
    prefix: str = "",
) -> ReadRows[T]:
    """Return the rows of a kind that a clause selects (`WHERE … ORDER BY … LIMIT …`).

    `prefix`: a `WITH` that the clause uses.
    """
    columns = ", ".join(f"{kind.table}.{column}" for column in ("rowid", *kind.columns))
    rows = connection.execute(f"{prefix} SELECT {columns} FROM {kind.table} {clause}", parameters).fetchall()  # noqa: S608 - our own names
    records: list[T] = []
    unreadable: list[UnreadableRow] = []
    for rowid, *values in rows:
        record = kind.read_row(rowid, values)
        if isinstance(record, UnreadableRow):
            unreadable.append(record)
        else:
            records.append(record)
    return ReadRows(records=records, unreadable=unreadable, last_rowid=int(rows[-1][0]) if rows else 0)


def unreadable_rows(
    connection: sqlite3.Connection, kind: RowKind[Any], condition: str = "TRUE"
) -> Iterator[UnreadableRow]:
    """Yield the rows of a kind that cannot be read, of those that meet a condition. Damaged pages are passed over."""
    for rowid, *values in every_row(connection, kind.table, kind.columns, condition):
        row = kind.read_row(rowid, values)
        if isinstance(row, UnreadableRow):
            yield row


def every_row(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], condition: str = "TRUE"
) -> Iterator[tuple[Any, ...]]:
    """Yield the rowid and these columns of every row that SQLite can read, even if pages are damaged.

    Where a scan fails, rows are read one by one.
    """
    select = f"SELECT {', '.join(['rowid', *columns])} FROM {table}"  # noqa: S608 - our own names
    after = -1
    while True:
        try:
            rows = connection.execute(
                f"{select} WHERE rowid > ? AND {condition} ORDER BY rowid LIMIT ?", (after, PAGE_ROWS)
            ).fetchall()
        except sqlite3.DatabaseError:
            rows = []
            for rowid in range(after + 1, after + PAGE_ROWS + 1):
                with suppress(sqlite3.DatabaseError):
                    rows += connection.execute(f"{select} WHERE rowid = ? AND {condition}", (rowid,)).fetchall()
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
