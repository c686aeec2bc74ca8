"""A server's store by its address: all tables of one SQLite file, of a PostgreSQL database for several servers, or of
a database of another package.

Law 1: when a write returns, it is on disk; when it raises, nothing of it is.
Law 2: observations are only ever appended, each id once, and are read back in the order in which they were appended.
Law 3: a store that is reopened reads as it was left.
Law 4: where several processes write, readers miss nothing, and no write is lost: each sees the log in one order.

Every method raises UnavailableError when the database is away, full or locked, and UnfitError when it cannot be used at
all.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from interfere.errors import InterfereError, NotFoundError, UnfitError
from interfere.extensions import ExtensionKind, find_extension
from interfere.records import ScopeLedger
from interfere.store.checked_rows import PAGE_ROWS, RowKind, UnreadableRow, unreadable_rows
from interfere.store.database import Connection, Database, EvictionListener
from interfere.store.decisions import StoredDecisionAudits, StoredDecisions, StoredLedgers
from interfere.store.observations import StoredCheckpoints, StoredObservations
from interfere.store.profiles import StoredProfiles
from interfere.store.rows import OBSERVATION, PROFILE, ROW_KINDS
from interfere.store.sqlite.file import FileLock, SqliteFile, require_sound_wal

MAX_DECISIONS = 10_000  # a retry comes within minutes; at one decision a second this is almost three hours


class Store:
    """The tables of a database. Thread-safe."""

    def __init__(self, database: Database, max_decisions: int = MAX_DECISIONS) -> None:
        self.database = database
        self.profiles = StoredProfiles(database)
        self.observations = StoredObservations(database)
        self.checkpoints = StoredCheckpoints(database)
        self.audits = StoredDecisionAudits(database)
        self.decisions = StoredDecisions(database, max_decisions)
        self.ledgers = StoredLedgers(database, self.decisions)

    def close(self) -> None:
        """Close the database. May be called twice."""
        self.database.close()


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
        from interfere.store.postgres import PostgresDatabase
    except ModuleNotFoundError as error:
        raise UnfitError(
            f"a store in PostgreSQL needs {error.name}", remedy="pip install 'interfere-gpu[postgres]'"
        ) from None
    return Store(PostgresDatabase(address, read_only=read_only, on_eviction=on_eviction))


class SqliteStore(Store):
    """The store in one file. One server holds it; worker processes of this server may write too."""

    def __init__(
        self,
        path: Path,
        *,
        max_decisions: int = MAX_DECISIONS,
        read_only: bool = False,
        shared: bool = False,
        on_eviction: EvictionListener = lambda *_: None,
    ) -> None:
        """Open the store file, or create it. With `read_only`, open it while a server holds it.

        `shared` is for worker processes of the server that holds the file: they may write, and take no lock of their
        own. `on_eviction` is called with the kind and the number of rows that were deleted to make room.

        Raises UnfitError when the file is in use, is not an interfere store, is damaged, or cannot be written.
        """
        self._lock = None if read_only or shared else _locked(path)
        self._file: SqliteFile | None = None
        try:
            self._file = SqliteFile(path, read_only=read_only, on_eviction=on_eviction)
            if self._lock is not None:
                self._file.require_sound_pages()
            self._file.prepare_schema()
            if self._lock is not None:
                _set_aside_unreadable_rows(self._file)
                self._file.set_aside_missing_rows()
                self._file.rebuild_damaged_indexes()
        except InterfereError:
            self.close()
            raise
        super().__init__(self._file, max_decisions)

    def close(self) -> None:
        """Close the file and release its lock. May be called twice."""
        for held in (self._file, self._lock):
            if held is not None:
                held.close()


def _locked(path: Path) -> FileLock:
    """Return the lock on a store whose write-ahead log is sound. Raises UnfitError, and then holds no lock."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
    except OSError as error:
        raise UnfitError(
            f"the store cannot be created ({error.strerror})", value=path, remedy="give a writable place: --store FILE"
        ) from None
    try:
        require_sound_wal(path)
    except UnfitError:
        lock.close()
        raise
    return lock


def _set_aside_unreadable_rows(file: SqliteFile) -> None:
    """Read every row once and set aside those that cannot be read, except profiles, which are listed with the reason.

    Of the observations, progress windows are left out: there may be millions of them, and no query looks inside one
    before it is read.
    """
    with file.read_connection() as connection:
        unreadable = [
            row
            for kind in ROW_KINDS
            if kind is not PROFILE
            for row in unreadable_rows(
                connection, kind, "kind <> 'progress'" if kind is OBSERVATION else "TRUE", trust_checksums=True
            )
        ]
    file.set_aside(unreadable)


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
        known = ", ".join(each.scope for each in store.ledgers.summaries()) or "none"
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
