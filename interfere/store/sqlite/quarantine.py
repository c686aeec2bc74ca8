"""The quarantine of a store: rows that cannot be read are moved into a table of their own, so that no reader meets them
twice.

Law: only rows that were given are moved. Every other row stays, and the indexes of the table agree with it again.
"""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress

from interfere.store.checked_rows import UnreadableRow

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
