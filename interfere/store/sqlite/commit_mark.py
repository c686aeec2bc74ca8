"""How many transactions a store has acknowledged, noted in a small file beside it, which no cut log takes along.

The store counts its transactions in a table, the file repeats the count after each commit. It is written without a
sync: it survives the end of the process, and after a power cut it may be behind.

Law: the noted count is at most that of the transactions that were committed. A store that counts fewer has lost some.
"""

import os
import secrets
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

COUNTS = "transactions (store TEXT NOT NULL, number INTEGER NOT NULL)"
SUFFIX = "-mark"
_FORMAT = "interfere-mark {store} {transactions:020d} {observation:020d}\n"
_LAST_OBSERVATION = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'observation'"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMark:
    """The state that a store had committed at some moment."""

    store: str  # a random name that the store keeps, also in its copies
    transactions: int
    observation: int  # sequence number of the last one

    def missing_from(self, present: "CommitMark") -> str:
        """Return what a store that is `present` has lost since this mark, in words; empty where nothing is missing."""
        lost = self.transactions - present.transactions
        if self.store != present.store or lost <= 0:
            return ""
        first = present.observation + 1
        which = f", among them the observations {first} to {self.observation}" if self.observation >= first else ""
        return (
            f"{lost} acknowledged transactions are missing{which}: its write-ahead log was cut or removed, or an older "
            "copy was put in its place"
        )


def count_transactions(connection: sqlite3.Connection) -> None:
    """Make the table that counts, if it is not there, inside an open transaction."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS {COUNTS}")
    if not connection.execute("SELECT 1 FROM transactions").fetchone():
        connection.execute("INSERT INTO transactions VALUES (?, 0)", (secrets.token_hex(8),))


def present_mark(connection: sqlite3.Connection) -> CommitMark | None:
    """Return what a store has committed; None for a store that does not count."""
    with suppress(sqlite3.DatabaseError):
        row = connection.execute("SELECT store, number FROM transactions").fetchone()
        (observation,) = connection.execute(_LAST_OBSERVATION).fetchone()
        return CommitMark(store=str(row[0]), transactions=int(row[1]), observation=int(observation)) if row else None
    return None


def read_mark(store: Path) -> CommitMark | None:
    """Return the mark beside a store; None where there is none that can be read."""
    with suppress(OSError, ValueError):
        word, name, transactions, observation = mark_path(store).read_text(encoding="ascii").split()
        if word == _FORMAT.split(maxsplit=1)[0]:
            return CommitMark(store=name, transactions=int(transactions), observation=int(observation))
    return None


def mark_path(store: Path) -> Path:
    """Return the path of the mark beside a store."""
    return store.with_name(store.name + SUFFIX)


class MarkFile:
    """The mark of a store that is open for writing. A mark that cannot be written is left as it is: it only lags."""

    def __init__(self, store: Path) -> None:
        """Open the file, private to its owner, or make it."""
        self._descriptor = -1
        with suppress(OSError):
            self._descriptor = os.open(mark_path(store), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    def write(self, mark: CommitMark) -> None:
        """Note what was committed, in one write of a fixed length."""
        line = _FORMAT.format(store=mark.store, transactions=mark.transactions, observation=mark.observation)
        with suppress(OSError):
            os.pwrite(self._descriptor, line.encode("ascii"), 0)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
