"""Step marks of a running job: a call or a wrapper in the job, one append-only spool file, and its reader.

Standard library only and one file: copy it into a container that has no interfere. In the job::

    from interfere import progress

    for batch in progress.wrap(loader):  # or progress.step() at the end of each step
        ...

Nothing happens unless the environment names a spool file in INTERFERE_PROGRESS. The spool is JSON lines, one a record::

    {"writer": "host:pid:start", "unix_s": 1700000000.25, "monotonic_s": 5123.75, "steps": 37}

"at this moment, the moment a step ended, this process had finished 37 steps since its first". Two records of one writer
give the exact mean time of the steps between them; a lost record costs resolution, never a step. Every process that
marks steps is a writer of its own, after a fork too; all append whole lines to one file, so it belongs on a local disk.

Laws: marking never raises and never ends the job (the first failure is one line on standard error); at most one record
every INTERFERE_PROGRESS_EVERY_S (default 1 s), and never more than 1 % of the time is spent writing them; no file stays
open between records (a daemon that closes every descriptor is safe); threads, forks and signal handlers may mark.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import sys
import threading
import time
from typing import Any, Iterable, Iterator, NamedTuple  # noqa: UP035 - runs as it is on a job's old Python too

SPOOL, EVERY = "INTERFERE_PROGRESS", "INTERFERE_PROGRESS_EVERY_S"
DEFAULT_EVERY_S = 1.0  # about 100 bytes a record: 9 MB a day
COST = 100  # the next record waits this many times what the last one took: a slow disk costs 1 % at most
RETRY_S = 60.0  # after a failure: a full disk may be freed, and trying costs microseconds


class Mark(NamedTuple):
    """One record of a spool."""

    writer: str
    unix_s: float
    monotonic_s: float  # CLOCK_MONOTONIC: one clock for all processes of a host, never set back
    steps: float  # finished by this writer so far


class Spool(NamedTuple):
    """What `read` found."""

    marks: list[Mark]
    offset: int  # read from here next time
    skipped: int  # whole lines that are no records


class Writer:
    """Counts the steps of one process and writes a record now and then. Its methods never raise."""

    def __init__(self, path: str, every_s: float = DEFAULT_EVERY_S) -> None:
        self.path, self.every_s = path, every_s
        self.lock = threading.RLock()  # re-entrant: a signal handler may mark while a mark is being made
        self.steps: float = 0
        self.due = self.last = self.written = 0.0
        self.warned = self.torn = False
        self.id = f"{socket.gethostname()}:{os.getpid()}:{time.time_ns():x}"

    def step(self, n: float = 1) -> None:
        """`n` more steps are finished, now."""
        with self.lock:
            try:
                self.steps += n
                self.last = time.monotonic()
                if self.last >= self.due:
                    self._record()
            except Exception as error:  # the job goes on, whatever it handed us
                self._failed(error)

    def flush(self) -> None:
        """Write what was counted after the last record, with the time of its last step."""
        with self.lock:
            try:
                if self.last > self.written:
                    self._record()
            except Exception as error:  # as above
                self._failed(error)

    def _record(self) -> None:
        begin = time.monotonic()
        mark = Mark(self.id, round(time.time() - begin + self.last, 6), round(self.last, 6), self.steps)
        line = json.dumps(mark._asdict(), allow_nan=False).encode() + b"\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        handle = os.open(self.path, flags, 0o644)
        try:
            if self.torn:
                line = b"\n" + line
            self.torn = os.write(handle, line) < len(line)  # one write: lines of several writers never mix
        finally:
            os.close(handle)
        self.written = self.last
        self.due = self.last + max(self.every_s, COST * (time.monotonic() - begin))

    def _failed(self, error: Exception) -> None:
        self.due = time.monotonic() + RETRY_S
        if self.warned:
            return
        self.warned = True
        with contextlib.suppress(Exception):  # there may be no standard error left
            sys.stderr.write(f"interfere: step marks are lost, the job goes on: {self.path}: {error}\n")


_writer: Writer | None = None
_begun = False


def step(n: float = 1) -> None:
    """`n` more steps (batches, requests) are finished. Does nothing when INTERFERE_PROGRESS is not set."""
    if _writer is not None:
        _writer.step(n)
    elif not _begun:
        _begin()
        if _writer is not None:
            _writer.step(n)


def wrap(iterable: Iterable[Any]) -> Wrapped:
    """The same items, one step marked after each: `for batch in progress.wrap(loader)`."""
    return Wrapped(iterable)


class Wrapped:
    """An iterable that marks a step whenever the loop asks for its next item. Everything else is the wrapped one's."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            step()

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # raises TypeError like the wrapped one

    def __bool__(self) -> bool:
        return bool(self._iterable)

    def __getattr__(self, name: str) -> Any:
        if name == "_iterable":  # while being unpickled: nothing is wrapped yet
            raise AttributeError(name)
        return getattr(self._iterable, name)


def read(path: str | os.PathLike[str], offset: int = 0) -> Spool:
    """Records from `offset` on, in the order written; no file yet is an empty spool.

    A torn last line stays unread until it is whole. Raises OSError where the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            content = file.read()
    except FileNotFoundError:
        return Spool([], offset, 0)
    end = content.rfind(b"\n") + 1
    marks, skipped = [], 0
    for line in content[:end].split(b"\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            marks.append(Mark(str(row["writer"]), float(row["unix_s"]), float(row["monotonic_s"]), float(row["steps"])))
        except (ValueError, KeyError, TypeError):
            skipped += 1
    return Spool(marks, offset + end, skipped)


def _begin() -> None:
    """Look at the environment: once a process, and again in every child of a fork."""
    global _writer, _begun  # noqa: PLW0603 - the one counter of this process
    path = os.environ.get(SPOOL)
    try:
        every_s = max(0.0, float(os.environ.get(EVERY, "") or DEFAULT_EVERY_S))
    except ValueError:
        every_s = DEFAULT_EVERY_S
    if path:
        _writer = Writer(path, every_s)
    _begun = True


def _flush() -> None:
    if _writer is not None:
        _writer.flush()


def _forget() -> None:
    global _writer, _begun  # a child counts for itself, under a lock of its own
    _writer, _begun = None, False


atexit.register(_flush)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
