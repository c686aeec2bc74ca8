"""The store in one SQLite file: write-ahead log, every write one transaction, synced before it is acknowledged."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from interfere.errors import InterfereError, UnfitError
from interfere.records import JobProfile
from interfere.store.decision_audits import SqliteAccounts
from interfere.store.decisions import SqliteDecisions, SqlitePromises
from interfere.store.file_lock import FileLock
from interfere.store.json_records import profile_text, read_profile
from interfere.store.observations import SqliteObservations, SqliteSnapshots
from interfere.store.sqlite_file import SqliteFile

KEEP_DECISIONS = 10_000  # a retry comes within minutes; at one decision a second this is almost three hours


class SqliteStore:
    """Implements `interfere.store.protocols.Store`. Thread-safe; one process a file."""

    def __init__(self, path: Path, *, keep_decisions: int = KEEP_DECISIONS, read_only: bool = False) -> None:
        """Opens or makes the file; `read_only` opens it beside the server that holds it.

        Raises UnfitError when it is in use, not ours, damaged or cannot be written.
        """
        self._lock: FileLock | None = None
        if read_only:
            self._open(path, keep_decisions, read_only=True)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(path.with_name(path.name + ".lock"))
        except OSError as error:
            raise UnfitError(
                f"the store cannot be made ({error.strerror})", value=path, remedy="give a writable place: --store FILE"
            ) from None
        self._open(path, keep_decisions, read_only=False)

    def _open(self, path: Path, keep_decisions: int, *, read_only: bool) -> None:
        self._file = SqliteFile(path, read_only=read_only)
        try:
            self._file.prepare()
        except InterfereError:
            self.close()
            raise
        self.profiles = SqliteProfiles(self._file)
        self.observations = SqliteObservations(self._file)
        self.snapshots = SqliteSnapshots(self._file)
        self.accounts = SqliteAccounts(self._file)
        self.decisions = SqliteDecisions(self._file, keep_decisions)
        self.promises = SqlitePromises(self._file, self.decisions)

    def close(self) -> None:
        """Close the file and let another server have it."""
        self._file.close()
        if self._lock:
            self._lock.release()


class SqliteProfiles:
    """Implements `ProfileBook`."""

    def __init__(self, file: SqliteFile) -> None:
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
