"""Maintenance of a store file: backup while a server writes, restore, check and repair."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from interfere.errors import InterfereError, UnavailableError, UnfitError
from interfere.records import JobProfile
from interfere.records.documents import from_json
from interfere.records.observations import OBSERVATION_TYPES
from interfere.store.sqlite_file import FORMAT, FileLock, create_private
from interfere.store.wal import read_wal

TABLES = ("profile", "observation", "decision", "ledger", "promise", "granted", "planned", "snapshot", "account")
SIDE_FILES = ("", "-wal", "-shm")
BUSY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """The result of a check of a store."""

    path: str
    format: int
    rows: dict[str, int]  # by table
    problems: tuple[str, ...]  # empty for a sound store


def backup(store: Path, target: Path) -> StoreReport:
    """Copy a store, also while a server writes it: everything that was acknowledged before is in the copy.

    Raises UnfitError where there is no store, or where the target exists.
    """
    _require_store(store)
    if target.exists():
        raise UnfitError("will not replace a file", value=target, remedy="give another name for the backup")
    try:
        with _scratch_beside(target) as scratch:
            _copy(store, scratch)
            report = check(scratch)
            if report.problems:
                raise UnfitError("the copy is not sound", value="; ".join(report.problems)[:300], remedy=_REPAIR)
            _put_in_place(scratch, target)
    except OSError as error:
        raise UnavailableError(
            f"the backup cannot be written ({error.strerror or error})",
            value=target,
            remedy="free the disk, then retry",
        ) from None
    return report


def restore(source: Path, store: Path) -> Path | None:
    """Put a backup in the place of a store that no server holds.

    Returns the new name of the store that was there before; None where there was none.
    """
    report = check(source)
    if report.problems:
        raise UnfitError("not a sound backup", value="; ".join(report.problems)[:300], remedy="take another one")
    store.parent.mkdir(parents=True, exist_ok=True)
    was_there = store.exists()
    with closing(FileLock(store)), _scratch_beside(store) as scratch:
        _copy(source, scratch)
        return _put_in_place(scratch, store, old_is="before-restore" if was_there else "")


def check(store: Path) -> StoreReport:
    """Return the contents of a store and all its faults. The store may be in use."""
    _require_store(store)
    problems: list[str] = []
    rows: dict[str, int] = {}
    version = -1
    wal = read_wal(store)
    if wal.lost_commits:
        problems.append(f"the write-ahead log is damaged: {wal.lost_commits} acknowledged transactions are behind it")
    try:
        with closing(_connect(store, "ro")) as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version > FORMAT:
                problems.append(f"format {version} is of a newer release, this one reads {FORMAT}")
            problems += [str(text) for (text,) in connection.execute("PRAGMA integrity_check(20)") if text != "ok"]
            for table in TABLES:
                with suppress(sqlite3.DatabaseError):
                    rows[table] = int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608
            problems += [f"{what} cannot be read: {reason}" for _, what, reason in _unreadable(connection)]
    except sqlite3.DatabaseError as error:
        problems.append(str(error))
    return StoreReport(path=str(store), format=version, rows=rows, problems=tuple(problems[:50]))


def repair(store: Path) -> tuple[StoreReport, Path]:
    """Make a damaged store usable: copy the readable rows into a new file, and move the old one aside.

    No server may hold the store. Returns the state of the new file, and the new name of the old one.
    """
    _require_store(store)
    with closing(FileLock(store)), _scratch_beside(store) as scratch:
        _salvage(store, scratch)
        kept = _put_in_place(scratch, store, old_is="before-repair")
        assert kept is not None
    return check(store), kept


@contextmanager
def _scratch_beside(target: Path) -> Iterator[Path]:
    """Give an empty private file beside a target. The file is removed at the end, unless it was renamed to the
    target."""
    scratch = target.with_name(f".{target.name}.part")
    try:
        create_private(scratch)
        yield scratch
    finally:
        with suppress(OSError):
            scratch.unlink()


def _copy(store: Path, scratch: Path) -> None:
    """Copy a store, also while a server writes it, into one file without a write-ahead log."""
    with _errors(store), closing(_connect(store, "ro")) as source, closing(sqlite3.connect(scratch)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")


def _put_in_place(scratch: Path, target: Path, *, old_is: str = "") -> Path | None:
    """Let a file that is complete on disk take the place of the target.

    With `old_is`, a file at the target is first renamed so; returns its new name, None where none was renamed.
    """
    _sync(scratch)
    kept = _move_aside(target, old_is) if old_is else None
    scratch.rename(target)
    _sync(target.parent)
    return kept


def _salvage(store: Path, target: Path) -> None:
    """Copy schema and every readable row. Of a damaged write-ahead log, that is what comes before the damage."""
    with closing(_connect(store, "ro")) as old, closing(sqlite3.connect(target)) as new:
        new.isolation_level = None
        new.execute("BEGIN")
        with _errors(store):
            version = int(old.execute("PRAGMA user_version").fetchone()[0])
            if version > FORMAT:
                raise UnfitError(
                    "the store is of a newer release",
                    value=f"format {version}",
                    remedy="upgrade interfere; it is sound",
                )
            statements = old.execute(
                "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC"
            ).fetchall()
            for (sql,) in statements:
                if "sqlite_sequence" not in sql:
                    new.execute(sql)
        bad = {place for place, _, _ in _unreadable(old)}
        for table in TABLES:
            for row in _rows(old, table):
                if (table, row[0]) not in bad:
                    marks = ", ".join("?" * len(row))
                    columns = ", ".join(["rowid", *_columns(old, table)])
                    new.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", row)  # noqa: S608
        new.execute("COMMIT")
        new.execute(f"PRAGMA user_version = {version}")


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[tuple[object, ...]]:
    """Yield every readable row with its rowid, even if pages are damaged. Where a scan fails, rows are read by
    rowid."""
    columns = ", ".join(["rowid", *_columns(connection, table)])
    after = -1
    while True:
        try:
            rows = connection.execute(
                f"SELECT {columns} FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT 1000",  # noqa: S608
                (after,),
            ).fetchall()
        except sqlite3.DatabaseError:
            rows, after = _rows_one_by_one(connection, table, columns, after), after + 1000
            yield from rows
            if not rows and not _has_rows_after(connection, table, after):
                return
            continue
        yield from rows
        if not rows:
            return
        after = int(rows[-1][0])


def _rows_one_by_one(connection: sqlite3.Connection, table: str, columns: str, after: int) -> list[tuple[object, ...]]:
    rows = []
    for rowid in range(after + 1, after + 1001):
        with suppress(sqlite3.DatabaseError):
            rows += connection.execute(f"SELECT {columns} FROM {table} WHERE rowid = ?", (rowid,)).fetchall()  # noqa: S608
    return rows


def _has_rows_after(connection: sqlite3.Connection, table: str, after: int) -> bool:
    try:
        return bool(connection.execute(f"SELECT max(rowid) > ? FROM {table}", (after,)).fetchone()[0])  # noqa: S608
    except sqlite3.DatabaseError:
        return False


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns of a table, except a column that is another name of the rowid."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    keys = [(name, kind) for _, name, kind, _, _, key in columns if key]
    rowid = keys[0][0] if len(keys) == 1 and keys[0][1] == "INTEGER" else ""
    return [name for _, name, *_ in columns if name != rowid]


def _unreadable(connection: sqlite3.Connection) -> Iterator[tuple[tuple[str, int], str, str]]:
    """Return the rows that this release cannot read, as (table, rowid), a description, and the reason."""
    kinds = {"profile": "''", "observation": "kind"}  # the column that states the type of a row
    for table, kind_column in kinds.items():
        with suppress(sqlite3.DatabaseError):
            rows = connection.execute(f"SELECT rowid, id, content, {kind_column} FROM {table}")  # noqa: S608 - our own names
            for rowid, id_, content, kind in rows:
                try:
                    from_json(OBSERVATION_TYPES[kind] if kind else JobProfile, content)
                except (InterfereError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                    yield (table, int(rowid)), f"{table} {str(id_)[:64]}", " ".join(str(error).split())[:200]


def _move_aside(store: Path, why: str) -> Path | None:
    """Rename a store and its side files. Returns the new name; None where there is no store."""
    if not store.exists():
        return None
    kept = store.with_name(f"{store.name}.{why}-{time.strftime('%Y%m%d-%H%M%S')}")
    for ending in SIDE_FILES:
        with suppress(FileNotFoundError):
            store.with_name(store.name + ending).rename(kept.with_name(kept.name + ending))
    return kept


def _require_store(store: Path) -> None:
    if not store.is_file():
        raise UnfitError("there is no store", value=store, remedy="give its file: --store FILE")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_S)


@contextmanager
def _errors(store: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise UnfitError(f"the store cannot be read ({error})", value=store, remedy=_REPAIR) from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_REPAIR = "interfere store check, then interfere store repair"
