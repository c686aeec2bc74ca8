"""Maintenance of a store file: copy while a server writes, replace, check and repair."""

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from interfere.errors import UnavailableError, UnfitError
from interfere.store.checked_rows import UnreadableRow, every_row, text_from_bytes, unreadable_rows
from interfere.store.rows import ROW_KINDS
from interfere.store.sqlite.damaged_rows import (
    MAX_LISTED,
    add_checksums,
    checksum_names,
    lost_row,
    missing_rows,
    move_to_quarantine,
    provide_checksums,
    quarantined,
)
from interfere.store.sqlite.file import FORMAT, FileLock, create_private
from interfere.store.sqlite.lost_commits import SUFFIX, present_mark, read_mark, read_wal

TABLES = (*(kind.table for kind in ROW_KINDS), "quarantine")
SIDE_FILES = ("", "-wal", "-shm", SUFFIX)
BUSY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """The result of a check of a store."""

    path: str
    format: int
    rows: dict[str, int]  # by table
    problems: tuple[str, ...]  # empty for a sound store
    set_aside: tuple[str, ...] = ()  # rows in quarantine, newest first


def require_sound(copy: Path) -> StoreReport:
    """Return the contents of a copy of a store. Raises UnfitError where it has faults."""
    report = check(copy)
    if report.problems:
        remedy = f"take another one; of a store in use: {_REPAIR}"
        raise UnfitError("not a sound backup", value="; ".join(report.problems)[:300], remedy=remedy)
    return report


def replace_file(source: Path, store: Path, *, is_replaced: bool) -> Path | None:
    """Replace the file of a store by a copy.

    The caller holds the store's lock.

    With `is_replaced`, the store that was there is moved aside. Returns its new name; None where there was none.
    """
    with _scratch_beside(store) as scratch:
        copy_file(source, scratch)
        return put_in_place(scratch, store, old_is="before-restore" if is_replaced else "")


def check(store: Path) -> StoreReport:
    """Return the contents of a store and all its faults. The store may be in use."""
    _require_store(store)
    problems: list[str] = []
    rows: dict[str, int] = {}
    set_aside: tuple[str, ...] = ()
    version = -1
    wal = read_wal(store)
    if wal.lost_commits:
        problems.append(f"the write-ahead log is damaged: {wal.lost_commits} acknowledged transactions are behind it")
    try:
        with closing(_connect(store)) as connection:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            provide_checksums(connection)
            if version > FORMAT:
                problems.append(f"format {version} is of a newer release, this one reads {FORMAT}")
            problems += [str(text) for (text,) in connection.execute("PRAGMA integrity_check(20)") if text != "ok"]
            for table in TABLES:
                with suppress(sqlite3.DatabaseError):
                    rows[table] = int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608
            problems += map(str, _unreadable(connection))
            problems += [str(row) for kind in ROW_KINDS for row in missing_rows(connection, kind)]
            noted, present = read_mark(store), present_mark(connection)
            if noted and present and (what := noted.missing_from(present)):
                problems.append(what)
            set_aside = quarantined(connection)
    except sqlite3.DatabaseError as error:
        problems.append(str(error))
    return StoreReport(
        path=str(store), format=version, rows=rows, problems=tuple(problems[:MAX_LISTED]), set_aside=set_aside
    )


def repair(store: Path) -> tuple[StoreReport, Path]:
    """Make a damaged store usable: copy the readable rows into a new file, and move the old one aside.

    No server may hold the store. Returns the state of the new file, and the new name of the old one.
    """
    _require_store(store)
    with closing(FileLock(store)), _scratch_beside(store) as scratch:
        _salvage(store, scratch)
        kept = put_in_place(scratch, store, old_is="before-repair")
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


def copy_file(store: Path, scratch: Path) -> None:
    """Copy a SQLite file, also while it is written, into a private one without a write-ahead log."""
    _require_store(store)
    create_private(scratch)
    with _errors(store), closing(_connect(store)) as source, closing(sqlite3.connect(scratch)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")


def put_in_place(scratch: Path, target: Path, *, old_is: str = "") -> Path | None:
    """Let a file that is complete on disk take the place of the target.

    With `old_is`, a file at the target is first renamed so; returns its new name, None where none was renamed.
    """
    _sync(scratch)
    kept = move_aside(target, old_is) if old_is else None
    scratch.rename(target)
    _sync(target.parent)
    return kept


def _salvage(store: Path, target: Path) -> None:
    """Copy schema and every readable row. Of a damaged write-ahead log, that is what comes before the damage."""
    with closing(_connect(store)) as old, closing(sqlite3.connect(target)) as new:
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
            provide_checksums(old)
        unreadable = list(_unreadable(old))
        left_out = {(row.table, row.rowid) for row in unreadable}
        for table in (*TABLES, "transactions"):
            columns = _columns(old, table)
            insert = (
                f"INSERT OR IGNORE INTO {table} ({', '.join(['rowid', *columns])})"  # noqa: S608 - our own names
                f" VALUES ({', '.join('?' * (1 + len(columns)))})"
            )
            rows = every_row(old, table, ", ".join(["rowid", *columns])) if columns else ()
            new.executemany(insert, (row for row in rows if (table, row[0]) not in left_out))
        if version == FORMAT:
            for kind in ROW_KINDS:
                add_checksums(new, kind)
            move_to_quarantine(new, [*unreadable, *_missing(old, new, unreadable)])
        new.execute("COMMIT")
        new.execute(f"PRAGMA user_version = {version}")


def _missing(
    old: sqlite3.Connection, new: sqlite3.Connection, unreadable: Iterable[UnreadableRow]
) -> list[UnreadableRow]:
    """Return the rows that had a checksum and are not in the new file, other than those known to be unreadable."""
    known = {(row.table, row.key) for row in unreadable}
    return [
        lost_row(kind.table, name, "it is on a damaged page")
        for kind in ROW_KINDS
        for name in sorted(checksum_names(old, kind) - checksum_names(new, kind))
        if (kind.table, name) not in known
    ]


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns of a table, except a column that is another name of the rowid; none without such a table."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    keys = [(name, kind) for _, name, kind, _, _, key in columns if key]
    rowid = keys[0][0] if len(keys) == 1 and keys[0][1] == "INTEGER" else ""
    return [name for _, name, *_ in columns if name != rowid]


def _unreadable(connection: sqlite3.Connection) -> Iterator[UnreadableRow]:
    """Yield the rows that this release cannot read. Tables of earlier formats, which are upgraded first, are left
    out."""
    for kind in ROW_KINDS:
        with suppress(sqlite3.DatabaseError):
            if {*kind.columns} - {"seq"} <= {*_columns(connection, kind.table)} | {"seq"}:
                yield from unreadable_rows(connection, kind)


def move_aside(store: Path, why: str) -> Path | None:
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


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
    connection.text_factory = text_from_bytes
    return connection


@contextmanager
def _errors(store: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise UnavailableError("the disk is full", value=store, remedy="free the disk, then retry") from None
        raise UnfitError(f"the store cannot be read ({error})", value=store, remedy=_REPAIR) from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_REPAIR = "interfere store check, then interfere store repair"
