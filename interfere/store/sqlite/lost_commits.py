"""Lost commits: told by a count in a small file beside the store, and by damage in SQLite's write-ahead log.

The store counts its transactions in a table, the mark repeats the count after each commit. It is written without a
sync: it survives the end of the process, and after a power cut it may be behind. SQLite stops at the first frame of its
log (sqlite.org/fileformat2.html, "The WAL File") with a wrong checksum, and silently drops all later frames. This is
right for the last transaction, which a power cut may have interrupted; but all earlier ones were synced to disk.

Law 1: the noted count is at most that of the transactions that were committed. A store that counts fewer has lost some.
Law 2: transactions of a damaged log count as lost only where at least two commits of the same log follow the first
wrong frame. All but the last of these commits were acknowledged.
"""

import os
import secrets
import sqlite3
import struct
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


# --- the write-ahead log ----------------------------------------------------------------------------------------------

_HEADER, _FRAME_HEADER = struct.Struct(">8I"), struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)  # the second: checksums of big-endian words


@dataclass(frozen=True, slots=True, kw_only=True)
class WalState:
    """The state of a write-ahead log."""

    commits: int = 0  # readable transactions
    lost_commits: int = 0  # acknowledged ones behind damage
    damaged_at: int = 0  # byte at which the damage begins, where there are lost ones


def read_wal(store: Path) -> WalState:
    """Return the state of the log beside a store; an empty state where there is no log. Raises OSError."""
    path = store.with_name(f"{store.name}-wal")
    if not path.is_file():
        return WalState()
    content = path.read_bytes()
    if len(content) < _HEADER.size:
        return WalState()
    magic, _, page_bytes, _, salt1, salt2, sum1, sum2 = _HEADER.unpack_from(content)
    frame_bytes = _FRAME_HEADER.size + page_bytes
    order = ">" if magic == _MAGIC[1] else "<"
    checksum = _checksum(content[: _HEADER.size - 8], (0, 0), order)
    is_readable = magic in _MAGIC and checksum == (sum1, sum2) and page_bytes >= 512
    if not is_readable:
        # Without its header nothing of the log is read. An empty or half-written one holds no commit.
        return WalState(lost_commits=_guess_commits(content), damaged_at=0)
    commits, behind, damaged_at = 0, 0, 0
    for start in range(_HEADER.size, len(content) - frame_bytes + 1, frame_bytes):
        _, size_after_commit, frame_salt1, frame_salt2, sum1, sum2 = _FRAME_HEADER.unpack_from(content, start)
        if (frame_salt1, frame_salt2) != (salt1, salt2):
            if not damaged_at and _later_frame_fits(content, start + frame_bytes, frame_bytes, (salt1, salt2)):
                damaged_at = start  # a frame header was overwritten, not the end of this log
            if damaged_at:
                continue
            break
        if not damaged_at:
            checksum = _checksum(content[start : start + 8], checksum, order)
            checksum = _checksum(content[start + _FRAME_HEADER.size : start + frame_bytes], checksum, order)
            if checksum != (sum1, sum2):
                damaged_at = start
        if size_after_commit:
            commits, behind = (commits, behind + 1) if damaged_at else (commits + 1, behind)
    if behind < 2:
        return WalState(commits=commits)
    return WalState(commits=commits, lost_commits=behind - 1, damaged_at=damaged_at)


def _later_frame_fits(content: bytes, start: int, frame_bytes: int, salts: tuple[int, int]) -> bool:
    if start + frame_bytes > len(content):
        return False
    return bool(_FRAME_HEADER.unpack_from(content, start)[2:4] == salts)


def _guess_commits(content: bytes) -> int:
    """Return 1 where a log with a broken header contains frames at any usual page size."""
    return int(
        len(content) > _HEADER.size + _FRAME_HEADER.size + 512 and any(content[_HEADER.size : _HEADER.size + 24])
    )


def _checksum(content: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    """Return SQLite's checksum of a multiple of 8 bytes, continued from the checksum of the preceding bytes."""
    first, second = before
    words = struct.unpack(f"{order}{len(content) // 4}I", content)
    for k in range(0, len(words), 2):
        first = (first + words[k] + second) & 0xFFFFFFFF
        second = (second + words[k + 1] + first) & 0xFFFFFFFF
    return first, second
