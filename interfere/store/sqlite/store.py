"""Opening of the store in one SQLite file: its lock, and what is done about damage before the first read."""

from pathlib import Path

from interfere.errors import InterfereError, UnfitError
from interfere.store.checked_rows import unreadable_rows
from interfere.store.database import EvictionListener
from interfere.store.row_kinds import OBSERVATION, PROFILE, ROW_KINDS
from interfere.store.sqlite.file import FileLock, SqliteFile, require_sound_wal
from interfere.store.store import MAX_DECISIONS, Store


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
