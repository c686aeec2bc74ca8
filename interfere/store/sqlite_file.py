"""One SQLite file: its database schema and its upgrades, its transactions, and its errors as errors of ours."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interfere.errors import ConflictError, UnavailableError, UnfitError

FORMAT = 5  # the version of the schema, in PRAGMA user_version
LOCK_TIMEOUT_S = 2.0  # a backup tool may hold the file this long
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
# Format 2 had neither audits nor ledgers, format 3 had no ledgers, format 4 no grants.
_UPGRADES = {
    1: f"{_UPGRADE_OF_1}{_AUDITS};{_LEDGERS};{_GRANTED}",
    2: f"{_AUDITS};{_LEDGERS};{_GRANTED}",
    3: f"{_LEDGERS};{_GRANTED}",
    4: _GRANTED,
}


class SqliteFile:
    """One connection behind one lock; SQLite's errors are raised as UnavailableError, ConflictError or UnfitError."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path, self._mutex, self._read_only = path, threading.Lock(), read_only
        uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        with self._translated_errors():
            self._connection = sqlite3.connect(
                uri, uri=True, timeout=LOCK_TIMEOUT_S, check_same_thread=False, isolation_level=None
            )

    def prepare_schema(self) -> None:
        """Create the tables in a new file, or upgrade those of an older format.

        Raises UnfitError for a file that is not an interfere store of a known format.
        """
        if self._read_only:
            with self.read_connection() as connection:
                self._require_format(connection.execute("PRAGMA user_version").fetchone()[0])
            return
        with self.transaction() as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            table_count = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            script = _SCHEMA if version == 0 and table_count == 0 else _UPGRADES.get(version)
            if script is None:
                self._require_format(version)
            else:
                for statement in filter(str.strip, script.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {FORMAT}")
        with self._translated_errors():
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")

    def _require_format(self, version: int) -> None:
        if version != FORMAT:
            raise UnfitError(
                "not a store of this version",
                value=f"{self._path}, format {version}, this program writes {FORMAT}",
                remedy="give another file: --store FILE",
            )

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one transaction: committed at the end, rolled back on any exception."""
        with self._mutex, self._translated_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def read_connection(self) -> Iterator[sqlite3.Connection]:
        """A connection for queries, without a transaction."""
        with self._mutex, self._translated_errors():
            yield self._connection

    def close(self) -> None:
        """Close the connection."""
        with self._mutex:
            self._connection.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_LOCKED")):
                raise UnavailableError(
                    f"the store cannot be written now ({error})", value=self._path, remedy="free the disk, then retry"
                ) from None
            raise self._unusable(error) from None
        except sqlite3.IntegrityError as error:
            raise ConflictError("an id is stored already", value=str(error), remedy="use a new id") from None
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: sqlite3.Error) -> UnfitError:
        return UnfitError(
            f"the store cannot be used ({error})", value=self._path, remedy="give another file: --store FILE"
        )
