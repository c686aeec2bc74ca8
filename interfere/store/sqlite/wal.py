"""Reads SQLite's write-ahead log, to tell damage from the usual incomplete end (sqlite.org/fileformat2.html, "The WAL
File").

SQLite stops at the first frame with a wrong checksum, and silently drops all later frames. This is right for the last
transaction, which a power cut may have interrupted; but all earlier transactions were synced to disk.

Law: transactions count as lost only where at least two commits of the same log follow the first wrong frame. All but
the last of these commits were acknowledged.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

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
