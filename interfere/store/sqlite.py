"""The store in one SQLite file: write-ahead log, every write one transaction, synced before it is acknowledged."""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from interfere.errors import ConflictError, InterfereError, UnavailableError, UnfitError
from interfere.records import JobProfile, Progress
from interfere.store.lock import FileLock
from interfere.store.protocol import StoredDecision
from interfere.store.rows import profile_text, read_profile, read_window, window_text

FORMAT = 1  # PRAGMA user_version
KEEP_DECISIONS = 10_000  # a retry comes within minutes; at one decision a second this is almost three hours
BUSY_S = 2.0  # wait for a backup tool's lock before giving up
_SCHEMA = """
CREATE TABLE profile (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, content TEXT NOT NULL);
CREATE TABLE observation (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, content TEXT NOT NULL);
CREATE TABLE decision (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, snapshot_id TEXT NOT NULL,
    digest TEXT NOT NULL, content BLOB NOT NULL, UNIQUE (scope, snapshot_id));
"""


class SqliteStore:
    """Implements `interfere.store.protocol.Store`. Thread-safe; one process a file."""

    def __init__(self, path: Path, *, keep_decisions: int = KEEP_DECISIONS) -> None:
        """Opens or makes the file. Raises UnfitError when it is in use, not ours, damaged or cannot be written."""
        self._lock: FileLock | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path.with_name(path.name + ".lock"))
        except OSError as error:
            raise UnfitError(
                f"the store cannot be made ({error.strerror})", value=path, remedy="give a writable place: --store FILE"
            ) from None
        self._file = _File(path)
        try:
            self._file.prepare()
        except InterfereError:
            self.close()
            raise
        self.profiles = SqliteProfiles(self._file)
        self.observations = SqliteObservations(self._file)
        self.decisions = SqliteDecisions(self._file, keep_decisions)

    def close(self) -> None:
        """Close the file and let another server have it."""
        self._file.close()
        if self._lock:
            self._lock.release()


class _File:
    """One connection, one lock, and what SQLite's errors mean."""

    def __init__(self, path: Path) -> None:
        self._path, self._mutex = path, threading.Lock()
        with self._meaning():
            self._connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)

    def prepare(self) -> None:
        """Make the tables in a new file; refuse one that is not ours."""
        with self.transaction() as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if version == 0 and tables == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {FORMAT}")
            elif version != FORMAT:
                raise UnfitError(
                    "not a store of this version",
                    value=f"{self._path}, format {version}, this program writes {FORMAT}",
                    remedy="give another file: --store FILE",
                )
        with self._meaning():
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing."""
        with self._mutex, self._meaning():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """For queries."""
        with self._mutex, self._meaning():
            yield self._connection

    def close(self) -> None:
        with self._mutex:
            self._connection.close()

    @contextmanager
    def _meaning(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_LOCKED")):
                raise UnavailableError(
                    f"the store cannot be written now ({error})", value=self._path, remedy="free the disk, then retry"
                ) from None
            raise self._unfit(error) from None
        except sqlite3.IntegrityError as error:
            raise ConflictError("an id is stored already", value=str(error), remedy="use a new id") from None
        except sqlite3.DatabaseError as error:
            raise self._unfit(error) from None

    def _unfit(self, error: sqlite3.Error) -> UnfitError:
        return UnfitError(
            f"the store cannot be used ({error})", value=self._path, remedy="give another file: --store FILE"
        )


class SqliteProfiles:
    """Implements `ProfileBook`."""

    def __init__(self, file: _File) -> None:
        self._file = file

    def put(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store all or none; the last stored is the newest."""
        rows = [(profile.profile_id, profile_text(profile)) for profile in profiles]
        with self._file.transaction() as connection:
            connection.executemany("REPLACE INTO profile (id, content) VALUES (?, ?)", rows)
        return tuple(profile_id for profile_id, _ in rows)

    def all(self) -> Iterator[JobProfile]:
        """Every profile, oldest first."""
        with self._file.reading() as connection:
            rows = connection.execute("SELECT content FROM profile ORDER BY seq").fetchall()
        return (read_profile(text) for (text,) in rows)


class SqliteObservations:
    """Implements `ObservationBook`."""

    def __init__(self, file: _File) -> None:
        self._file = file

    def append(self, windows: Sequence[Progress]) -> None:
        """Store all or none."""
        rows = [(window.observation_id, window_text(window)) for window in windows]
        with self._file.transaction() as connection:
            connection.executemany("INSERT INTO observation (id, content) VALUES (?, ?)", rows)

    def find(self, observation_ids: Iterable[str]) -> dict[str, Progress]:
        """Those of the ids that are stored."""
        found: dict[str, Progress] = {}
        with self._file.reading() as connection:
            for some in _chunks(observation_ids, 500):  # far below SQLite's limit of host parameters
                marks = ",".join("?" * len(some))
                rows = connection.execute(f"SELECT id, content FROM observation WHERE id IN ({marks})", some)  # noqa: S608 - question marks only
                found.update((key, read_window(text)) for key, text in rows)
        return found

    def all(self) -> Iterator[Progress]:
        """Every window, in the order of arrival."""
        with self._file.reading() as connection:
            rows = connection.execute("SELECT content FROM observation ORDER BY seq").fetchall()
        return (read_window(text) for (text,) in rows)

    def count(self) -> int:
        """How many there are."""
        with self._file.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM observation").fetchone()[0])


class SqliteDecisions:
    """Implements `DecisionBook`."""

    def __init__(self, file: _File, keep: int) -> None:
        self._file, self._keep = file, keep

    def put(self, decision: StoredDecision) -> None:
        """Store one, forget those past the newest `keep`."""
        row = (decision.scope, decision.snapshot_id, decision.digest, decision.content)
        with self._file.transaction() as connection:
            connection.execute("INSERT INTO decision (scope, snapshot_id, digest, content) VALUES (?, ?, ?, ?)", row)
            connection.execute("DELETE FROM decision WHERE seq <= (SELECT max(seq) FROM decision) - ?", (self._keep,))

    def find(self, scope: str, snapshot_id: str) -> StoredDecision | None:
        """The decision of a snapshot."""
        with self._file.reading() as connection:
            row = connection.execute(
                "SELECT digest, content FROM decision WHERE scope = ? AND snapshot_id = ?", (scope, snapshot_id)
            ).fetchone()
        return row and StoredDecision(scope=scope, snapshot_id=snapshot_id, digest=row[0], content=row[1])


def _chunks(items: Iterable[str], size: int) -> Iterator[list[str]]:
    todo = list(items)
    return (todo[start : start + size] for start in range(0, len(todo), size))
