"""How much of what was decided is kept: the newest rows of a table, up to a number and a sum of bytes."""

import sqlite3
from collections.abc import Callable

EvictionListener = Callable[[str, int], None]
"""Told what was deleted to make room, and how many of it."""


def nobody(what: str, count: int) -> None:
    """Ignore the deleted rows."""


class NewestRows:
    """Deletes the oldest rows of a table with a growing `seq`, where they are too many or too large together."""

    def __init__(self, table: str, columns: tuple[str, ...], *, max_rows: int, max_bytes: int) -> None:
        """Keep a table within its limits. `columns`: the columns whose sizes count."""
        self._table, self._max_rows, self._max_bytes = table, max_rows, max_bytes
        size = " + ".join(f"length({column})" for column in columns)
        self._sizes = f"SELECT seq, {size} FROM {table} ORDER BY seq DESC"  # noqa: S608 - our own names
        self._unchecked_bytes = max_bytes  # written since the sizes were summed; the first write sums them

    def apply(self, connection: sqlite3.Connection, added_bytes: int) -> int:
        """Delete what is too much, inside the transaction of a write; how many rows. Sums sizes every now and then."""
        deleted = connection.execute(
            f"DELETE FROM {self._table} WHERE seq <= (SELECT max(seq) FROM {self._table}) - ?",  # noqa: S608
            (self._max_rows,),
        ).rowcount
        self._unchecked_bytes += added_bytes
        if self._unchecked_bytes <= self._max_bytes // 16:
            return deleted
        self._unchecked_bytes, total = 0, 0
        for seq, size in connection.execute(self._sizes):
            total += size
            if total > self._max_bytes:
                older = f"DELETE FROM {self._table} WHERE seq <= ?"  # noqa: S608 - our own names
                return deleted + connection.execute(older, (seq,)).rowcount
        return deleted
