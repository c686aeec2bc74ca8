"""One SQLite file: its lock, its schema with upgrades, its transactions, and SQLite's errors as errors of this
project."""

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from interfere.errors import ConflictError, InterfereError, UnavailableError, UnfitError
from interfere.store.checked_rows import RowKind, UnreadableRow, text_from_bytes
from interfere.store.database import Connection, EvictionListener
from interfere.store.rows import ROW_KINDS
from interfere.store.sqlite.damaged_rows import (
    ADVICE,
    CHECKSUMS,
    QUARANTINE,
    add_checksums,
    forget_missing_rows,
    keep_checksums,
    missing_rows,
    move_to_quarantine,
    note_loss,
    provide_checksums,
)
from interfere.store.sqlite.lost_commits import (
    CommitMark,
    MarkFile,
    count_transactions,
    present_mark,
    read_mark,
    read_wal,
)

_log = logging.getLogger(__name__)
BUSY_REMEDY = "retry: another process writes it; where that lasts, see which one has it open (fuser FILE)"
FORMAT = 6  # the version of the schema, in PRAGMA user_version
UNCHECKED_FORMAT = 5  # the same without checksums: read, not written
MAX_FULL_CHECK_BYTES = 2**28  # checked whole at start in 2 s; of a larger file the pages (1 s a GB), not the indexes
MAX_TOLD = 20  # rows that cannot be read, each in a log line of its own
LOCK_TIMEOUT_S = 2.0  # a backup tool may hold the file this long
LOCKED_RETRY_S = 0.5  # hint to callers that find it locked still: whoever writes may have no processor
_AUDITS = """
CREATE TABLE account (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, decision_id TEXT NOT NULL UNIQUE, scope TEXT NOT NULL, request BLOB NOT NULL,
    answer BLOB NOT NULL, model_version TEXT NOT NULL, learned_upto INTEGER NOT NULL, facts TEXT NOT NULL)"""
_CHECKPOINTS = """
CREATE TABLE snapshot (
    seq INTEGER NOT NULL, key TEXT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (key, seq))"""
_LEDGERS = """
CREATE TABLE ledger (scope TEXT PRIMARY KEY, revision INTEGER NOT NULL, now_s REAL NOT NULL);
CREATE TABLE promise (
    scope TEXT NOT NULL, place INTEGER NOT NULL, job_id TEXT NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (scope, place));
CREATE INDEX promise_job ON promise (job_id)"""
# The memory granules of devices (kind slots), the jobs that hold them (kind grant), and an index that finds the newest
# memory usages of a job.
_GRANTED = """
CREATE TABLE IF NOT EXISTS granted (
    scope TEXT NOT NULL, kind TEXT NOT NULL, place INTEGER NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (scope, kind, place));
CREATE INDEX IF NOT EXISTS observation_usage ON observation (
    json_extract(content, '$.job_id'), json_extract(content, '$.end_s')) WHERE kind = 'memory_usage'"""
# Promised ends (kind end) and the order of the last plan (kind order). Made when a file is opened: servers of earlier
# releases read and write the same file without it.
_PLANNED = """
    planned (scope TEXT NOT NULL, kind TEXT NOT NULL, place INTEGER NOT NULL, content TEXT NOT NULL,
    PRIMARY KEY (scope, kind, place))"""
# Who registered a profile; made when a file is opened, as above.
_REGISTERED = "registered (id TEXT PRIMARY KEY, caller TEXT NOT NULL) WITHOUT ROWID"
_SCHEMA = f"""
{_AUDITS};
CREATE TABLE profile (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, content TEXT NOT NULL);
CREATE TABLE observation (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, content TEXT NOT NULL,
    kind TEXT NOT NULL, result TEXT NOT NULL, reason TEXT NOT NULL, received_s REAL NOT NULL);
CREATE INDEX observation_kind ON observation (kind) WHERE kind <> 'progress';
CREATE TABLE decision (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, snapshot_id TEXT NOT NULL,
    digest TEXT NOT NULL, content BLOB NOT NULL, UNIQUE (scope, snapshot_id));
{_CHECKPOINTS};
{_LEDGERS};
{_GRANTED};
"""
# Format 1 kept only progress windows, without the server's answers.
_UPGRADE_OF_1 = f"""
ALTER TABLE observation ADD COLUMN kind TEXT NOT NULL DEFAULT 'progress';
ALTER TABLE observation ADD COLUMN result TEXT NOT NULL DEFAULT 'applied';
ALTER TABLE observation ADD COLUMN reason TEXT NOT NULL DEFAULT '';
ALTER TABLE observation ADD COLUMN received_s REAL NOT NULL DEFAULT 0;
CREATE INDEX observation_kind ON observation (kind) WHERE kind <> 'progress';
{_CHECKPOINTS};
"""
# Format 2 had neither audits nor ledgers, format 3 had no ledgers, format 4 no grants, format 5 no checksums.
_UPGRADES = {
    1: f"{_UPGRADE_OF_1}{_AUDITS};{_LEDGERS};{_GRANTED}",
    2: f"{_AUDITS};{_LEDGERS};{_GRANTED}",
    3: f"{_LEDGERS};{_GRANTED}",
    4: _GRANTED,
    5: "",
}


class SqliteFile:
    """One connection to a SQLite file, which one thread uses at a time. SQLite's errors are raised as errors of this
    project."""

    def __init__(self, path: Path, *, read_only: bool = False, on_eviction: EvictionListener = lambda *_: None) -> None:
        """Open a file. `on_eviction` is called with the kind and the number of rows deleted to make room."""
        self._path, self._mutex, self._read_only, self.on_eviction = path, threading.Lock(), read_only, on_eviction
        self._is_open = False  # errors name the file to the operator who opens it, not to clients later
        uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        if not read_only:
            create_private(path)
        with self._translated_errors():
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=LOCK_TIMEOUT_S, check_same_thread=False, isolation_level=None
            )
            self._connection.text_factory = text_from_bytes
        self._inode = path.stat().st_ino
        self._mark: MarkFile | None = None  # open once the tables are there

    def prepare_schema(self) -> None:
        """Create the tables in a new file, or upgrade those of an older format.

        Raises UnfitError for a file that is not an interfere store of a known format.
        """
        if self._read_only:
            with self.read_connection() as connection:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version != UNCHECKED_FORMAT:
                    self._require_format(version)
                if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'planned'").fetchone():
                    connection.execute(f"CREATE TEMP TABLE {_PLANNED}")
                provide_checksums(connection)
            self._is_open = True
            return
        with self.transaction() as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            table_count = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            script = _SCHEMA if version == 0 and table_count == 0 else _UPGRADES.get(version)
            if script is None:
                self._require_format(version)
            for statement in filter(str.strip, (script or "").split(";")):
                connection.execute(statement)
            for columns in (_PLANNED, _REGISTERED, QUARANTINE, CHECKSUMS):
                connection.execute(f"CREATE TABLE IF NOT EXISTS {columns}")
            count_transactions(connection)
            if script is not None:
                for kind in ROW_KINDS:
                    add_checksums(connection, kind)
                connection.execute(f"PRAGMA user_version = {FORMAT}")
        with self._mutex, self._translated_errors():
            for kind in ROW_KINDS:
                keep_checksums(self._connection, kind)
        with self._translated_errors():
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        self._is_open = True
        noted = read_mark(self._path)
        self._mark = MarkFile(self._path)
        if noted is not None:
            self._tell_missing_transactions(noted)

    def _tell_missing_transactions(self, noted: CommitMark) -> None:
        """Tell the operator, and note in the quarantine, which acknowledged transactions the store has lost."""
        with self.read_connection() as connection:
            present = present_mark(connection)
        what = noted.missing_from(present) if present else ""
        if what:
            _log.error("the store %s: %s. %s", self._path, what, ADVICE)
            with self.transaction() as connection:
                note_loss(connection, "store", self._path.name, what)

    def _require_format(self, version: int) -> None:
        if version > FORMAT:
            raise UnfitError(
                "the store was written by a newer release",
                value=f"{self._path}, format {version}, this release reads {FORMAT}",
                remedy="upgrade interfere, which keeps everything; or restore a backup of this release "
                "(interfere store restore), or start anew: --store FILE",
            )
        if version != FORMAT:
            raise UnfitError(
                "not a store of interfere",
                value=f"{self._path}, format {version}, this release writes {FORMAT}",
                remedy="give another file: --store FILE",
            )

    @contextmanager
    def transaction(self, serialized: str = "") -> Iterator[sqlite3.Connection]:  # noqa: ARG002 - all of them are
        """Give a connection inside one transaction, which is committed at the end and rolled back on any exception."""
        with self._mutex, self._translated_errors():
            self._require_same_file()
            self._connection.execute("BEGIN IMMEDIATE")
            changes, mark = self._connection.total_changes, None
            try:
                yield self._connection
                if self._mark is not None and self._connection.total_changes != changes:
                    self._connection.execute("UPDATE transactions SET number = number + 1")
                    mark = present_mark(self._connection)
                self._connection.execute("COMMIT")
                if self._mark is not None and mark is not None:
                    self._mark.write(mark)
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def read_connection(self) -> Iterator[sqlite3.Connection]:
        """Give a connection for queries, without a transaction."""
        with self._mutex, self._translated_errors():
            yield self._connection

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Give a connection for several queries that all see the store at one moment."""
        with self.read_connection() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def selected(self, kind: RowKind[Any]) -> str:
        """Return the rowid, the checksum and all columns of a kind of row, as SQL."""
        return kind.sql_checked

    def text(self, field: str) -> str:
        """Return the SQL expression of a text in the content of an observation."""
        return f"json_extract(content, '$.{field}')"

    def number(self, field: str) -> str:
        """Return the SQL expression of a number in the content of an observation."""
        return self.text(field)

    def set_last_number(self, connection: Connection, table: str) -> None:
        """Do nothing: SQLite notes the largest number by itself."""

    def take_numbers(self, connection: Connection, table: str, count: int) -> int:  # noqa: ARG002 - the rows take them
        """Return the number of the next row of a table. A transaction is the only one, and no number is used twice."""
        last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        return int(last[0]) + 1 if last else 1

    def claim(self, work: str, patience_s: float) -> AbstractContextManager[None]:  # noqa: ARG002 - there is no other
        """Wait for nothing: one server holds the file."""
        return nullcontext()

    def follow(self, learn: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - there is no other
        """Follow nobody: one server holds the file."""
        return lambda: None

    def set_aside(self, rows: Sequence[UnreadableRow]) -> None:
        """Move rows that cannot be read into quarantine, and tell the operator which rows these are.

        Where the store cannot be written now, the rows stay, and are left out wherever they are read.
        """
        if not rows:
            return
        for row in rows[:MAX_TOLD]:
            _log.error("the store %s: %s; it is set aside. %s", self._path, row, ADVICE)
        if len(rows) > MAX_TOLD:
            _log.error("the store %s: and %d more rows cannot be read", self._path, len(rows) - MAX_TOLD)
        if not self._read_only:
            with suppress(InterfereError), self.transaction() as connection:
                move_to_quarantine(connection, rows)

    def require_sound_pages(self) -> None:
        """Raise UnfitError where SQLite finds damage in the pages of the file."""
        self._refuse_damage(self._problems("quick_check"))

    def set_aside_missing_rows(self) -> None:
        """Tell which rows have a checksum and are not in their table. In a large file, only the check command does."""
        if self._path.stat().st_size > MAX_FULL_CHECK_BYTES:
            return
        with self.read_connection() as connection:
            missing = [row for kind in ROW_KINDS for row in missing_rows(connection, kind)]
        if missing:
            self.set_aside(missing)
            with self.transaction() as connection:
                for kind in ROW_KINDS:
                    forget_missing_rows(connection, kind)

    def rebuild_damaged_indexes(self) -> None:
        """Make all indexes anew where one of them does not agree with its table. Raises UnfitError where that fails.

        In a large file the indexes are not checked: `interfere store check` does.
        """
        if self._path.stat().st_size > MAX_FULL_CHECK_BYTES or not (problems := self._problems("integrity_check")):
            return
        with self._mutex, suppress(sqlite3.DatabaseError):
            self._connection.execute("REINDEX")
        self._refuse_damage(self._problems("integrity_check"))
        _log.error("the store %s: damaged indexes were made anew, no row is lost (%s)", self._path, "; ".join(problems))

    def _problems(self, pragma: str) -> list[str]:
        """Return what SQLite's own check finds."""
        with self._mutex:
            try:
                rows = self._connection.execute(f"PRAGMA {pragma}(5)").fetchall()
            except sqlite3.DatabaseError as error:
                return [str(error)]
        return [str(text) for (text,) in rows if text != "ok"]

    def _refuse_damage(self, problems: Sequence[str]) -> None:
        if problems:
            raise UnfitError(
                f"the store is damaged ({'; '.join(problems)[:300]})",
                value=self._path,
                remedy="keep every row that can be read, and be told which cannot: interfere store repair; "
                "or restore a backup: interfere store restore; or give another file: --store FILE",
            )

    def close(self) -> None:
        """Close the connection."""
        with self._mutex:
            self._connection.close()
            if self._mark is not None:
                self._mark.close()

    def _require_same_file(self) -> None:
        """Raise UnfitError where the file was removed or replaced: later writes would be lost when this process
        ends."""
        try:
            is_same = self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            is_same = False
        if not is_same:
            _log.error("the store %s was removed or replaced while process %d has it open", self._path, os.getpid())
            raise UnfitError(
                "the file of the store was removed or replaced under the server",
                remedy="restart it on this store or a backup (interfere store restore); nothing is stored until then",
            )

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_LOCKED")):
                is_locked = error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
                raise UnavailableError(
                    f"the store {'is busy' if is_locked else 'cannot be written now'} ({error})",
                    value=None if self._is_open else self._path,
                    remedy=BUSY_REMEDY if is_locked else "free the disk, then retry",
                    retry_after_s=LOCKED_RETRY_S if is_locked else None,
                ) from None
            raise self._unusable(error) from None
        except sqlite3.IntegrityError as error:
            raise ConflictError("an id is stored already", value=str(error), remedy="use a new id") from None
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: sqlite3.Error) -> UnfitError:
        if self._is_open:
            _log.error("the store %s cannot be used: %s", self._path, error)
            return UnfitError(f"the store cannot be used ({error})", remedy="the operator: interfere store check")
        return UnfitError(
            f"the store cannot be used ({error})",
            value=self._path,
            remedy="interfere store check says what is wrong, interfere store repair keeps what can be read; "
            "or give another file: --store FILE",
        )


_kept_open: list[int] = []  # descriptors of stores that other processes have locked


class FileLock:
    """An advisory lock on a store, held until `close` or until the process dies. Raises UnfitError when another process
    holds the lock.

    The lock is on the inode of the store file, so that links to the file share the lock. It is a `flock`, while SQLite
    locks with `fcntl`. A process loses its `fcntl` locks when it closes any descriptor of the file, so the descriptor
    of a store that is already locked stays open.
    """

    def __init__(
        self,
        path: Path,
        *,
        what: str = "store",
        remedy: str = "stop it, or give this one a store of its own: --store FILE",
    ) -> None:
        """Lock a store. `path`: the store file. A missing file is created empty, readable by its owner only.

        `what` and `remedy` name to the operator what another process holds.
        """
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        holder = path.with_name(f"{path.name}.lock")  # names the process
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _kept_open.append(self._descriptor)
            holder_pid = "unknown"
            with suppress(OSError):
                holder_pid = holder.read_text(encoding="utf-8", errors="replace")[:32].strip() or "unknown"
            raise UnfitError(
                f"another server (process {holder_pid}) has this {what} open", value=path, remedy=remedy
            ) from None
        with suppress(OSError):
            os.fchmod(self._descriptor, 0o600)
        with suppress(OSError), open(os.open(holder, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(str(os.getpid()))

    def close(self) -> None:
        """Release the lock, after the last connection to the store was closed. May be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def create_private(path: Path) -> None:
    """Create an empty file for its owner alone, where there is none; SQLite gives its side files the same mode."""
    with suppress(FileExistsError, OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def require_sound_wal(path: Path) -> None:
    """Raise UnfitError where SQLite would drop transactions that were acknowledged."""
    try:
        wal = read_wal(path)
    except OSError:
        return  # SQLite says why
    if wal.lost_commits:
        raise UnfitError(
            f"the write-ahead log of the store is damaged: {wal.lost_commits} acknowledged transactions are behind it",
            value=f"{path}-wal, byte {wal.damaged_at}",
            remedy="restore a backup (interfere store restore), or keep what comes before the damage "
            "(interfere store repair); the files are left as they are",
        )
