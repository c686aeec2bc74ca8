"""Damaged rows: found by a checksum (CRC-32) in a table beside the rows, and moved into a quarantine.

Triggers of each connection that writes keep the checksums, so that no statement can forget them.

Law 1: a checksum without its row names a row that was lost. Law 2: only rows that were given are moved into quarantine.
Every other row stays, and the indexes of the table agree with it again.
"""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from interfere.store.checked_rows import RowKind, UnreadableRow, every_row, row_checksum

CHECKSUMS = """
    checksum (source TEXT NOT NULL, name NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (source, name)) WITHOUT ROWID"""
NO_ROWID = -1
_MISSING = "SELECT name FROM checksum WHERE source = '{0}' EXCEPT SELECT {1} FROM {0}"


def keep_checksums(connection: sqlite3.Connection, kind: RowKind[Any]) -> None:
    """Let a connection write the checksum of every row of a kind that it inserts, updates or deletes."""
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    forget = f"DELETE FROM checksum WHERE source = '{kind.table}' AND name ="  # noqa: S608 - our own names
    values = ", ".join(f"new.{column}" for column in kind.columns)
    insert = f"INSERT INTO checksum VALUES ('{kind.table}', {kind.sql_name('new')}, row_checksum({values}))"  # noqa: S608
    # An old checksum is deleted first: `INSERT OR IGNORE` into the table would also ignore it here.
    write = f"{forget} {kind.sql_name('new')}; {insert}"
    for event, statement in {"INSERT": write, "UPDATE": write, "DELETE": f"{forget} {kind.sql_name('old')}"}.items():
        trigger = f"{kind.table}_checksum_{event}"
        connection.execute(f"CREATE TEMP TRIGGER {trigger} AFTER {event} ON main.{kind.table} BEGIN {statement}; END")


def add_checksums(connection: sqlite3.Connection, kind: RowKind[Any]) -> None:
    """Write the checksums of all rows of a kind, inside an open transaction."""
    selected = ", ".join([f"{kind.table}.rowid", kind.sql_name(), *kind.columns])
    connection.executemany(
        "REPLACE INTO checksum VALUES (?, ?, ?)",
        ((kind.table, name, row_checksum(*values)) for _, name, *values in every_row(connection, kind.table, selected)),
    )


def missing_rows(connection: sqlite3.Connection, kind: RowKind[Any]) -> list[UnreadableRow]:
    """Return the rows that have a checksum and are not in their table."""
    names = connection.execute(_MISSING.format(kind.table, kind.sql_name()))
    return [lost_row(kind.table, name) for (name,) in names]


def checksum_names(connection: sqlite3.Connection, kind: RowKind[Any]) -> set[str]:
    """Return the names of all rows of a kind that have a checksum; if pages are damaged, of those before and behind."""
    names: set[str] = set()
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            rows = connection.execute(
                f"SELECT name FROM checksum WHERE source = ? ORDER BY name {order}",  # noqa: S608 - one of two words
                (kind.table,),
            )
            for (name,) in rows:
                names.add(str(name))
            break
    return names


def forget_missing_rows(connection: sqlite3.Connection, kind: RowKind[Any]) -> None:
    """Delete the checksums of rows that are not in their table, inside an open transaction."""
    missing = _MISSING.format(kind.table, kind.sql_name())
    connection.execute(f"DELETE FROM checksum WHERE source = '{kind.table}' AND name IN ({missing})")  # noqa: S608


def lost_row(table: str, name: object, reason: str = "it is missing") -> UnreadableRow:
    """Return a row of which nothing is left but its name."""
    return UnreadableRow(table=table, rowid=NO_ROWID, name=str(name), key=str(name), reason=reason, values=())


def provide_checksums(connection: sqlite3.Connection) -> None:
    """Let a connection that only reads find a table of checksums, an empty one in a store of an earlier format."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'checksum'").fetchone():
        connection.execute(f"CREATE TEMP TABLE {CHECKSUMS}")


# --- the quarantine ---------------------------------------------------------------------------------------------------

QUARANTINE = """
    quarantine (seq INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, name TEXT NOT NULL, reason TEXT NOT NULL,
    set_aside_s REAL NOT NULL, content BLOB NOT NULL)"""
ADVICE = (
    "everything else is served; to have it back, restore a backup (interfere store restore) or report it again; "
    "what was found is kept in the table quarantine"
)
_INDEXES = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
MAX_LISTED = 50


def quarantined(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return the newest rows in quarantine, as lines for a person; none in a store of an earlier release."""
    with suppress(sqlite3.DatabaseError):
        rows = connection.execute(
            "SELECT source, name, reason FROM quarantine ORDER BY seq DESC LIMIT ?", (MAX_LISTED,)
        ).fetchall()
        return tuple(f"{table} {name}: {reason}" for table, name, reason in rows)
    return ()


def note_loss(connection: sqlite3.Connection, source: str, name: str, reason: str) -> None:
    """Record, inside an open transaction, a loss of which no data can be kept."""
    connection.execute(
        "INSERT INTO quarantine (source, name, reason, set_aside_s, content) VALUES (?, ?, ?, ?, ?)",
        (source, name, reason, time.time(), b""),
    )


def move_to_quarantine(connection: sqlite3.Connection, rows: Sequence[UnreadableRow]) -> None:
    """Move rows into the table `quarantine`, inside an open transaction.

    An indexed value may be damaged too. SQLite then finds no entry of the row in the index and refuses to delete the
    row, so the indexes of the table are made anew.
    """
    connection.executemany(
        "INSERT INTO quarantine (source, name, reason, set_aside_s, content) VALUES (?, ?, ?, ?, ?)",
        [(row.table, row.name, row.reason, time.time(), repr(row.values).encode()) for row in rows],
    )
    for table in sorted({row.table for row in rows}):
        indexes = connection.execute(_INDEXES, (table,)).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        connection.execute("PRAGMA writable_schema = ON")  # deletes a row without its entry in a UNIQUE constraint
        try:
            connection.executemany(
                f"DELETE FROM {table} WHERE rowid = ?",  # noqa: S608 - our own names
                [(row.rowid,) for row in rows if row.table == table],
            )
        finally:
            connection.execute("PRAGMA writable_schema = OFF")
        connection.execute(f"REINDEX {table}")
        for _, sql in indexes:
            connection.execute(sql)
