"""Keeps what a command prints in a log of bounded size, and counts the steps in it by a regular expression.

Laws: however much is printed, the head and the tail stay, and the log says how many bytes between them were dropped;
the head is on disk at once.
"""

import re
from collections import deque
from pathlib import Path
from typing import BinaryIO

HEAD_BYTES = TAIL_BYTES = 256 << 10  # each about 3,000 lines: start-up and its warnings, and what went wrong at the end
LINE_BYTES = 4 << 10  # of a line that is searched: a step's line is shorter, and the time of a pattern stays bounded
LAST_LINES = 5


class BoundedLog:
    """Writes the head and the tail of an endless stream of bytes into one file."""

    def __init__(self, path: Path) -> None:
        self.file: BinaryIO = path.open("wb", buffering=0)
        self.head_room_bytes = HEAD_BYTES
        self.tail: deque[bytes] = deque()
        self.tail_bytes = self.dropped_bytes = 0

    def add(self, chunk: bytes) -> None:
        """Append a chunk; beyond the head, the oldest bytes of the tail are dropped."""
        head, tail = chunk[: self.head_room_bytes], chunk[self.head_room_bytes :]
        if head:
            self.file.write(head)
            self.head_room_bytes -= len(head)
        if not tail:
            return
        self.tail.append(tail)
        self.tail_bytes += len(tail)
        while self.tail_bytes - len(self.tail[0]) >= TAIL_BYTES:
            dropped = len(self.tail.popleft())
            self.tail_bytes -= dropped
            self.dropped_bytes += dropped

    def close(self) -> None:
        """Write the tail, after a line that says how much is missing before it."""
        tail = b"".join(self.tail)
        self.dropped_bytes += max(0, len(tail) - TAIL_BYTES)
        if self.dropped_bytes:
            self.file.write(f"\n[interfere dropped {self.dropped_bytes} bytes of output here]\n".encode())
        self.file.write(tail[-TAIL_BYTES:])
        self.file.close()


class StepScanner:
    """Counts the steps in a stream: each match is one step, or as many as its captured counter advanced.

    A counter that goes back began anew (another epoch); one that repeats (another rank) adds no step.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = re.compile(pattern.encode())
        self.open_line = b""
        self.counter: int | None = None

    def count_steps(self, chunk: bytes) -> int:
        """Steps in the lines that `chunk` completes; a carriage return ends a line too, as progress bars do."""
        *lines, open_line = re.split(rb"[\r\n]", self.open_line + chunk)
        self.open_line = open_line[:LINE_BYTES]
        return sum(self._steps_of(match) for line in lines for match in self.pattern.finditer(line[:LINE_BYTES]))

    def _steps_of(self, match: re.Match[bytes]) -> int:
        if not self.pattern.groups:
            return 1
        text = match[1] or b""
        if not text.isdigit():
            return 0
        counter, previous = int(text), self.counter
        self.counter = counter
        if previous is None:
            return 1
        return counter - previous if counter >= previous else counter


def last_lines(path: Path) -> str:
    """The last few lines of a log that are not empty, as one printable line; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4 * LINE_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip()[:200] for line in re.split(r"[\r\n]", text) if line.strip()]
    joined = " | ".join(lines[-LAST_LINES:])
    return "".join(character if character.isprintable() else "?" for character in joined)
