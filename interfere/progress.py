"""Mark the steps of a running job in an append-only spool file, and read such a file.

Standard library only and one file: copy it into a container that has no interfere. In the job::

    from interfere import progress

    for batch in progress.wrap(loader):  # or progress.step() at the end of each step
        ...

Nothing happens unless the environment names a spool file in INTERFERE_PROGRESS. The spool is JSON lines, one a record::

    {"writer": "host:pid:start", "unix_s": 1700000000.25, "monotonic_s": 5123.75, "steps": 37}

It says: at this time a step ended, and this process had then finished 37 steps since it started. Two records of one
writer give the exact mean time of the steps between them; a lost record costs resolution, never a step. Every process
that marks steps is a writer of its own, after a fork too; all append whole lines to one file, so it belongs on a local
disk.

Laws: marking never raises and never ends the job (the first failure is one line on standard error); at most one record
every INTERFERE_PROGRESS_EVERY_S (default 1 s), and never more than 1 % of the time is spent writing them; no file stays
open between records (a daemon that closes every descriptor is safe); threads, forks and signal handlers may mark.
Law: marks are written into a regular file of this user or of root alone. A link is not followed, and a FIFO is not
waited for: in a folder that other users may write into, nobody can send marks elsewhere or stop the job.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import socket
import stat
import sys
import threading
import time
from typing import Any, Iterable, Iterator, NamedTuple  # noqa: UP035 - runs as it is on a job's old Python too

SPOOL_VARIABLE, INTERVAL_VARIABLE = "INTERFERE_PROGRESS", "INTERFERE_PROGRESS_EVERY_S"
DEFAULT_EVERY_S = 1.0  # about 100 bytes a record: 9 MB a day
PAUSE_FACTOR = 100  # pause between records, in multiples of the time that writing one takes: writing costs 1 % at most
RETRY_S = 60.0  # pause after a failure: a full disk may be freed, and trying costs microseconds


class Mark(NamedTuple):
    """One record of a spool: how many steps a writer had finished at a time when a step ended."""

    writer: str
    unix_s: float
    monotonic_s: float  # CLOCK_MONOTONIC: one clock for all processes of a host, never set back
    steps: float  # finished by this writer since it started


class Spool(NamedTuple):
    """The records that `read` found, and where to read on."""

    marks: list[Mark]
    offset: int  # read from here next time
    skipped: int  # whole lines that are no records


class RefusedFileError(OSError):
    """A file that is a link, is no regular file, has a second name, or belongs to another user."""


def open_regular(path: str | os.PathLike[str], flags: int, users: tuple[int, ...] | None = None) -> int:
    """Open a regular file that has one name and belongs to one of the users (None: to anybody).

    Returns its descriptor. A link is not followed, and a FIFO is not waited for. Raises RefusedFileError for a file
    that is not as described, and OSError where it cannot be opened.
    """
    for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RefusedFileError("it is a link, and links are not followed") from None
        if error.errno == errno.ENXIO:
            raise RefusedFileError("it is no regular file") from None
        raise
    status = os.fstat(handle)
    refusal = ""
    if not stat.S_ISREG(status.st_mode):
        refusal = "it is no regular file"
    elif users is not None and status.st_uid not in users:
        refusal = f"it belongs to user {status.st_uid} and not to user {users[0]}"
    elif status.st_nlink > 1:
        refusal = "it has a second name (a hard link)"
    if refusal:
        os.close(handle)
        raise RefusedFileError(refusal)
    return handle


class Writer:
    """Count the steps of one process and write a record now and then. Its methods never raise."""

    def __init__(self, path: str, every_s: float = DEFAULT_EVERY_S) -> None:
        self.path, self.every_s = path, every_s
        self.lock = threading.RLock()  # re-entrant: a signal handler may mark while a mark is being made
        self.steps: float = 0
        self.last_cost_s = 0.0  # time that writing the newest record took
        # Times of the monotonic clock: of the newest step, of the step in the newest record, of the next record.
        self.last_step_s = self.recorded_step_s = self.next_record_s = 0.0
        self.warned = self.ends_in_torn_line = False
        self.id = f"{socket.gethostname()}:{os.getpid()}:{time.time_ns():x}"

    def step(self, n: float = 1) -> None:
        """Count `n` more steps as finished now, and write a record when one is due."""
        with self.lock:
            try:
                self.steps += n
                self.last_step_s = time.monotonic()
                if self.last_step_s >= self.next_record_s:
                    self._record()
            except Exception as error:  # the job goes on, whatever it handed us
                self._report_failure(error)

    def flush(self) -> None:
        """Write a record of the steps counted since the last one, with the time of the last step."""
        with self.lock:
            try:
                if self.last_step_s > self.recorded_step_s:
                    self._record()
            except Exception as error:  # as above
                self._report_failure(error)

    def _record(self) -> None:
        begin_s = time.monotonic()
        last_step_unix_s = time.time() - begin_s + self.last_step_s
        mark = Mark(self.id, round(last_step_unix_s, 6), round(self.last_step_s, 6), self.steps)
        line = json.dumps(mark._asdict(), allow_nan=False).encode() + b"\n"
        users = (os.geteuid(), 0) if hasattr(os, "geteuid") else None
        handle = open_regular(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, users)
        try:
            if self.ends_in_torn_line:
                line = b"\n" + line
            # One write a line: the lines of several writers never mix.
            self.ends_in_torn_line = os.write(handle, line) < len(line)
        finally:
            os.close(handle)
        self.recorded_step_s = self.last_step_s
        # A disk is slow twice in a row; a process that had to wait for a processor in the middle of a record is not.
        cost_s = time.monotonic() - begin_s
        self.next_record_s = self.last_step_s + max(self.every_s, PAUSE_FACTOR * min(cost_s, self.last_cost_s))
        self.last_cost_s = cost_s

    def _report_failure(self, error: Exception) -> None:
        """Try again after `RETRY_S`; print the first failure."""
        self.next_record_s = time.monotonic() + RETRY_S
        if self.warned:
            return
        self.warned = True
        with contextlib.suppress(Exception):  # there may be no standard error left
            sys.stderr.write(f"interfere: step marks are lost, the job goes on: {self.path}: {error}\n")


_writer: Writer | None = None
_initialised = False
_listener: Any = None


def listen(after_step: Any) -> None:
    """Call a function without arguments after each step of this process: gap filling learns where steps begin."""
    global _listener  # noqa: PLW0603 - the one of this process
    _listener = after_step


def step(n: float = 1) -> None:
    """Mark `n` more steps (batches, requests) as finished. Does nothing when INTERFERE_PROGRESS is not set."""
    if _writer is not None:
        _writer.step(n)
    elif not _initialised:
        _initialise()
        if _writer is not None:
            _writer.step(n)
    if _listener is not None:
        _listener()


def wrap(iterable: Iterable[Any]) -> MarkingIterable:
    """Return an iterable of the same items that marks a step after each: `for batch in progress.wrap(loader)`."""
    return MarkingIterable(iterable)


class MarkingIterable:
    """Mark a step whenever the loop asks for the next item; every other attribute is that of the wrapped iterable."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            step()

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # raises TypeError where the wrapped iterable has no length

    def __bool__(self) -> bool:
        return bool(self._iterable)

    def __getattr__(self, name: str) -> Any:
        if name == "_iterable":  # while being unpickled: nothing is wrapped yet
            raise AttributeError(name)
        return getattr(self._iterable, name)


def read(path: str | os.PathLike[str], offset: int = 0) -> Spool:
    """Return the records from `offset` on, in the order written; a file that does not exist is an empty spool.

    A torn last line stays unread until it is whole. Raises OSError where the file cannot be read or is not
    regular.
    """
    try:
        with os.fdopen(open_regular(path, os.O_RDONLY), "rb") as file:
            file.seek(offset)
            content = file.read()
    except FileNotFoundError:
        return Spool([], offset, 0)
    return read_marks(content, offset)


def read_marks(content: bytes, offset: int = 0) -> Spool:
    """Return the records of a part of a file that begins at `offset`; a line that is no record is skipped."""
    end = content.rfind(b"\n") + 1
    marks, skipped = [], 0
    for line in content[:end].split(b"\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            marks.append(Mark(str(row["writer"]), float(row["unix_s"]), float(row["monotonic_s"]), float(row["steps"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            skipped += 1
    return Spool(marks, offset + end, skipped)


def _initialise() -> None:
    """Read the environment: once a process, and again in every child of a fork."""
    global _writer, _initialised  # noqa: PLW0603 - the one counter of this process
    path = os.environ.get(SPOOL_VARIABLE)
    try:
        every_s = max(0.0, float(os.environ.get(INTERVAL_VARIABLE, "") or DEFAULT_EVERY_S))
    except ValueError:
        every_s = DEFAULT_EVERY_S
    if path:
        _writer = Writer(path, every_s)
    _initialised = True


def _flush() -> None:
    if _writer is not None:
        _writer.flush()


def _reset_in_child() -> None:
    """Give the child of a fork a lock and a step count of its own."""
    global _writer, _initialised
    _writer, _initialised = None, False


atexit.register(_flush)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
