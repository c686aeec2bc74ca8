"""A store by its address: a SQLite file, a PostgreSQL database for several servers, or a store of another package."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from interfere.errors import NotFoundError, UnfitError
from interfere.extensions import ExtensionKind, find_extension
from interfere.records import ScopeLedger
from interfere.store.checked_rows import PAGE_ROWS, RowKind, UnreadableRow
from interfere.store.database import Connection, Database, EvictionListener
from interfere.store.row_kinds import OBSERVATION, ROW_KINDS
from interfere.store.sqlite.store import SqliteStore
from interfere.store.store import Store

StoreAddress = Path | str
"""The file of a SQLite store, or the address of a database: of PostgreSQL, or of another package by its scheme."""
POSTGRESQL = ("postgresql://", "postgres://")


def store_address(text: str) -> StoreAddress:
    """Return the address that a text names."""
    return text if "://" in text else Path(text)


def open_store(
    address: StoreAddress,
    *,
    read_only: bool = False,
    shared: bool = False,
    on_eviction: EvictionListener = lambda *_: None,
) -> Store:
    """Open a store, or create it. With `read_only`, read it while servers write it.

    `shared` is for worker processes of the server that holds a file; a database is always shared.
    Raises UnfitError where it cannot be used, InvalidInputError for the scheme of no installed package.
    """
    if isinstance(address, Path):
        return SqliteStore(address, read_only=read_only, shared=shared, on_eviction=on_eviction)
    if not address.startswith(POSTGRESQL):
        opener = find_extension(ExtensionKind.STORE, address.partition("://")[0], ("postgresql",))
        store: Store = opener(address, read_only=read_only, shared=shared, on_eviction=on_eviction)
        return store
    try:
        from interfere.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise UnfitError(
            f"a store in PostgreSQL needs {error.name}", remedy="pip install 'interfere-gpu[postgres]'"
        ) from None
    return PostgresStore(address, read_only=read_only, on_eviction=on_eviction)


def reset_scope(address: StoreAddress, scope: str) -> ScopeLedger:
    """Delete all decisions of a scope and return what its ledger held. This also works while a server has the store
    open.

    Raises NotFoundError where the file does not exist, or does not know the scope.
    """
    if isinstance(address, Path) and not address.exists():
        raise NotFoundError("no such store", value=address, remedy="name the server's: --store FILE, or --work FOLDER")
    store = open_store(address, shared=True)
    try:
        forgotten = store.ledgers.reset(scope)
        known = ", ".join(store.ledgers.scopes()) or "none"
    finally:
        store.close()
    if forgotten is None:
        raise NotFoundError("no decision with a clock was made in this scope", value=scope, remedy=f"one of: {known}")
    return forgotten


def copy_store(source: StoreAddress, target: StoreAddress) -> tuple[dict[str, int], list[str]]:
    """Copy every row of a store, which servers may write meanwhile, into an empty one of either kind.

    Returns the numbers of rows by table, and the rows that cannot be read, which are left out. Raises NotFoundError
    where the source does not exist, UnfitError where the target holds anything.
    """
    if isinstance(source, Path) and not source.exists():
        raise NotFoundError("no such store", value=source, remedy="name its file, or the address of its database")
    counts: dict[str, int] = {}
    left_out: list[str] = []
    with ExitStack() as stack:
        to = stack.enter_context(closing(open_store(target)))
        origin = stack.enter_context(closing(open_store(source, read_only=True)))
        reading = stack.enter_context(origin.database.snapshot())
        with to.database.transaction(serialized="observation") as writing:
            for kind in ROW_KINDS:
                if writing.execute(f"SELECT 1 FROM {kind.table} LIMIT 1").fetchone():  # noqa: S608 - our own names
                    raise UnfitError("the store to copy into is not empty", value=target, remedy="give a new one")
            for kind in ROW_KINDS:
                marks = ", ".join("?" * len(kind.columns))
                insert = f"INSERT INTO {kind.table} ({', '.join(kind.columns)}) VALUES ({marks})"  # noqa: S608
                counts[kind.table] = 0
                for rowid, checksum, *values in _every_row(origin.database, reading, kind):
                    read = kind.read_row(rowid, checksum, values)
                    if isinstance(read, UnreadableRow):
                        left_out.append(str(read))
                    else:
                        writing.execute(insert, values)
                        counts[kind.table] += 1
            registered = reading.execute("SELECT id, caller FROM registered").fetchall()
            writing.executemany("INSERT INTO registered (id, caller) VALUES (?, ?)", registered)
            to.database.set_last_number(writing, OBSERVATION.table)
    return counts, left_out


def _every_row(database: Database, connection: Connection, kind: RowKind[Any]) -> Iterator[Any]:
    """Yield the rows of a table in their order: rowid, checksum and values."""
    select = f"SELECT {database.selected(kind)} FROM {kind.table} WHERE {kind.table}.rowid > ? ORDER BY 1 LIMIT ?"  # noqa: S608
    after = 0
    while page := connection.execute(select, (after, PAGE_ROWS)).fetchall():
        yield from page
        after = page[-1][0]
