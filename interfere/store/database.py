"""What the tables of a store need of their database: SQLite's file and PostgreSQL offer it.

Statements are written once, for both: parameters are `?` or `:name`, `rowid` grows in the order of insertion, and
`ON CONFLICT` stands in place of `REPLACE`. What differs is asked of the database (`text`, `number`).

Law: a write is on disk when its transaction ends without an exception, and else nothing of it is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from interfere.store.checked_rows import ReadRows, RowKind, UnreadableRow

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]
EvictionListener = Callable[[str, int], None]
"""Takes the kind and the number of the entries that were deleted to make room."""


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of changed rows."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection, for one thread at a time."""

    def execute(self, statement: str, parameters: Any = (), /) -> Cursor:
        """Run a statement."""

    def executemany(self, statement: str, rows: Iterable[Any], /) -> Cursor:
        """Run a statement once for each row of parameters."""


class Database(Protocol):
    """A database with the tables of a store. Errors are raised as errors of this project."""

    on_eviction: EvictionListener

    def transaction(self, serialized: str = "") -> AbstractContextManager[Connection]:
        """Give a connection inside one transaction, which is committed at the end and rolled back on any exception.

        `serialized`: only one transaction of this name runs at a time, of all servers on the database.
        """

    def read_connection(self) -> AbstractContextManager[Connection]:
        """Give a connection for single queries."""

    def snapshot(self) -> AbstractContextManager[Connection]:
        """Give a connection for several queries that all see the store at one moment."""

    def selected(self, kind: RowKind[Any]) -> str:
        """Return the rowid, the checksum (NULL without one) and all columns of a kind of row, as SQL."""

    def take_numbers(self, connection: Connection, table: str, count: int) -> int:
        """Take the next `count` numbers (`seq`) of a table inside an open transaction, and return the first.

        Law: numbers have no gaps, and become visible to readers in their order; so a reader that follows a table by
        number misses no row. Transactions that take numbers of one table therefore run one after the other.
        """

    def set_last_number(self, connection: Connection, table: str) -> None:
        """Let the next number of a table follow the largest one in it, after rows came with their numbers."""

    def claim(self, work: str, patience_s: float) -> AbstractContextManager[None]:
        """Wait while another server does the same work, at most for some time, and let others wait during the block.

        It only saves work that would be done twice: nothing may rely on it.
        """

    def follow(self, learn: Callable[[], None]) -> Callable[[], None]:
        """Call `learn` whenever other servers have written, until the function that is returned is called."""

    def set_aside(self, rows: Sequence[UnreadableRow]) -> None:
        """Tell the operator which rows cannot be read, and keep later readers from meeting them where that is
        possible."""

    def text(self, field: str) -> str:
        """Return the SQL expression of a text in the content of an observation; it is NULL where there is none."""

    def number(self, field: str) -> str:
        """Return the SQL expression of a number in the content of an observation; it is NULL where there is none."""

    def close(self) -> None:
        """Close all connections. May be called twice."""


def rows_of(
    database: Database,
    connection: Connection,
    kind: RowKind[T],
    clause: str,
    parameters: Parameters,
    *,
    prefix: str = "",
) -> ReadRows[T]:
    """Return the rows of a kind that a clause selects (`WHERE … ORDER BY … LIMIT …`) on a connection.

    `prefix`: a `WITH` that the clause uses.
    """
    select = f"{prefix} SELECT {database.selected(kind)} FROM {kind.table} {clause}"  # noqa: S608 - our own names
    rows = connection.execute(select, parameters).fetchall()
    read = [kind.read_row(rowid, checksum, values) for rowid, checksum, *values in rows]
    return ReadRows(
        records=[each for each in read if not isinstance(each, UnreadableRow)],
        unreadable=[each for each in read if isinstance(each, UnreadableRow)],
        last_rowid=int(rows[-1][0]) if rows else 0,
    )


def read(
    database: Database, kind: RowKind[T], clause: str = "", parameters: Parameters = (), *, prefix: str = ""
) -> ReadRows[T]:
    """Return the rows that a clause selects, and set aside those that cannot be read. `prefix`: a `WITH` before."""
    with database.read_connection() as connection:
        rows = rows_of(database, connection, kind, clause, parameters, prefix=prefix)
    database.set_aside(rows.unreadable)
    return rows
