"""The server's store in one SQLite file: write-ahead log, every write one transaction, synced before it returns.

Law 1: when a write returns, it is on disk; when it raises, nothing of it is.
Law 2: observations are only ever appended, each id once, and are read back in the order in which they were appended.
Law 3: a store that is reopened reads as it was left.

Every method raises UnavailableError when the disk is full or locked, and UnfitError when it cannot be written at all.
"""

from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from interfere.errors import InterfereError, LimitError, NotFoundError, UnfitError
from interfere.records import JobProfile, ScopeLedger
from interfere.records.documents import to_json
from interfere.store.checked_rows import read_rows, unreadable_rows
from interfere.store.decisions import SqliteDecisionAudits, SqliteDecisions, SqliteLedgers
from interfere.store.observations import SqliteCheckpoints, SqliteObservations
from interfere.store.row_kinds import OBSERVATION, PROFILE, ROW_KINDS
from interfere.store.sqlite_file import EvictionListener, FileLock, SqliteFile, require_sound_wal

MAX_PROFILES = 20_000  # a site's workloads on its device types
MAX_PROFILES_OF_CALLER = MAX_PROFILES // 2  # so that no caller takes the places of all others
MAX_DECISIONS = 10_000  # a retry comes within minutes; at one decision a second this is almost three hours


class SqliteStore:
    """All repositories of a server, opened and closed together. Thread-safe; one process per file may write."""

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
        self.profiles = SqliteProfiles(self._file)
        self.observations = SqliteObservations(self._file)
        self.checkpoints = SqliteCheckpoints(self._file)
        self.audits = SqliteDecisionAudits(self._file)
        self.decisions = SqliteDecisions(self._file, max_decisions)
        self.ledgers = SqliteLedgers(self._file, self.decisions)

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


def reset_scope(path: Path, scope: str) -> ScopeLedger:
    """Delete all decisions of a scope and return what its ledger held. This also works while a server has the file
    open.

    Raises NotFoundError where the file does not exist, or does not know the scope.
    """
    if not path.exists():
        raise NotFoundError("no such store", value=path, remedy="name the server's: --store FILE, or --work FOLDER")
    file = SqliteFile(path)
    try:
        file.prepare_schema()
        ledgers = SqliteLedgers(file, SqliteDecisions(file, MAX_DECISIONS))
        forgotten = ledgers.reset(scope)
        known = ", ".join(ledgers.scopes()) or "none"
    finally:
        file.close()
    if forgotten is None:
        raise NotFoundError("no decision with a clock was made in this scope", value=scope, remedy=f"one of: {known}")
    return forgotten


class SqliteProfiles:
    """Job profiles, stored under the id of their content."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def put(self, profiles: Sequence[JobProfile], caller: str = "") -> tuple[str, ...]:
        """Store all profiles or none, and return their ids in order. A profile that is stored again becomes the
        newest. `caller`: who registers them; a profile counts for whoever registered it first.

        Raises LimitError where there are too many, of all callers or of this one.
        """
        rows = [(profile.profile_id, to_json(profile)) for profile in profiles]
        with self._file.transaction() as connection:
            connection.executemany("REPLACE INTO profile (id, content) VALUES (?, ?)", rows)
            registered = [(profile_id, caller) for profile_id, _ in rows]
            connection.executemany("INSERT OR IGNORE INTO registered VALUES (?, ?)", registered)
            counts = (
                ("too many profiles", "SELECT count(*) FROM profile", (), MAX_PROFILES),
                (
                    "too many profiles of one caller",
                    "SELECT count(*) FROM profile JOIN registered USING (id) WHERE caller = ? AND caller <> ''",
                    (caller,),
                    MAX_PROFILES_OF_CALLER,
                ),
            )
            for what, query, arguments, most in counts:
                if (count := connection.execute(query, arguments).fetchone()[0]) > most:
                    raise LimitError(what, value=count, remedy=f"at most {most:,}: interfere profiles remove")
        return tuple(profile_id for profile_id, _ in rows)

    def all(self) -> Iterator[JobProfile]:
        """Yield every profile that can be read, oldest first."""
        return (profile for _, profile in self.read() if isinstance(profile, JobProfile))

    def remove(self, profile_ids: Sequence[str]) -> tuple[str, ...]:
        """Remove profiles, and return the ids that were stored."""
        with self._file.transaction() as connection:
            connection.executemany("DELETE FROM registered WHERE id = ?", [(each,) for each in profile_ids])
            return tuple(
                profile_id
                for profile_id in profile_ids
                if connection.execute("DELETE FROM profile WHERE id = ?", (profile_id,)).rowcount
            )

    def read(self, known: Container[str] = ()) -> Iterator[tuple[str, JobProfile | str | None]]:
        """Return every id with its profile, oldest first.

        In place of an unreadable profile stands the reason. In place of a known id's profile stands None, since the
        content of an id never changes.
        """
        with self._file.snapshot() as connection:
            ids = connection.execute("SELECT seq, id FROM profile ORDER BY seq").fetchall()
            read = {
                seq: read_rows(connection, PROFILE, "WHERE seq = ?", (seq,)) for seq, id_ in ids if id_ not in known
            }
        for seq, profile_id in ids:
            if seq not in read:
                yield profile_id, None
            elif read[seq].records:
                yield profile_id, read[seq].records[0]
            else:
                row = read[seq].unreadable[0]
                yield row.name, f"cannot be read ({row.reason})"
