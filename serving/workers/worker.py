"""One worker process as the server sees it, and the number of the last abandoned call, which both see.

Law: once the server has abandoned a call, every later look of the worker sees it. A message or a signal gives no such
law: a process that has no processor, or that is stopped, gets them when its computation has gone on.
"""

import mmap
import os
import select
import signal
import struct
import threading
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from interfere.serving.workers.fork_server import ForkServer

_NUMBER = struct.Struct("=q")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class AbandonedCalls:
    """The greatest number of a call that nobody waits for, in memory that the server shares with one worker.

    It is 0 at first. The calls of a worker are numbered from 1 on.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """Share new memory, or the memory behind a file descriptor of another process."""
        self.descriptor = os.memfd_create("interfere-abandoned-calls") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, _NUMBER.size)
        self._memory = mmap.mmap(self.descriptor, _NUMBER.size)

    def abandon(self, number: int) -> None:
        """Abandon the calls up to a number."""
        _NUMBER.pack_into(self._memory, 0, number)

    def includes(self, number: int) -> bool:
        """Whether a call is abandoned."""
        return bool(number <= _NUMBER.unpack_from(self._memory)[0])

    def close(self) -> None:
        """Release the memory in this process."""
        self._memory.close()
        os.close(self.descriptor)


class WorkerProcess:
    """A worker that computes one answer at a time.

    The pipe to it carries pickled records: both ends are this program on this machine, and nobody else can write to
    it. A thread of the server writes and reads the pipe, because a stopped process lets both wait without end.
    """

    def __init__(self, fork_server: ForkServer) -> None:
        """Fork a worker. Raises OSError where that fails."""
        self._abandoned = AbandonedCalls()
        self._pipe, theirs = Pipe()
        try:
            with theirs:
                self.pid, self._handle = fork_server.fork((theirs.fileno(), self._abandoned.descriptor))
        except OSError:
            self._pipe.close()
            self._abandoned.close()
            raise
        self._exit = select.poll()
        self._exit.register(self._handle, select.POLLIN)
        self._calls: SimpleQueue[tuple[Any, Future[Any]] | None] = SimpleQueue()
        self.last_call = 0  # the number of the last call that was submitted
        self._thread = threading.Thread(target=_exchange, args=(self._pipe, self._calls), name="worker", daemon=True)
        self._thread.start()

    def submit(self, message: Any) -> "Future[Any]":
        """Send a message. The future gives the answer; None where the worker ended before."""
        answer: Future[Any] = Future()
        self._calls.put((message, answer))
        return answer

    def abandon(self, number: int) -> None:
        """Interrupt the computation of a call, at the latest before its decision is stored."""
        self._abandoned.abandon(number)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGUSR1)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return bool(self._exit.poll(0))

    def cpu_s(self) -> float:
        """Return the processor time of the process so far, in seconds; 0 where it has ended."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S  # utime and stime, see proc(5)

    def kill(self) -> None:
        """Kill the process, also in the middle of a computation."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def end(self) -> None:
        """Kill the process, wait until it has ended, and release its resources. Call it once."""
        self.kill()
        self._exit.poll()
        self._calls.put(None)
        self._thread.join()
        self._pipe.close()
        self._abandoned.close()
        os.close(self._handle)


def _exchange(pipe: "Connection[Any, Any]", calls: "SimpleQueue[tuple[Any, Future[Any]] | None]") -> None:
    """Send each message, and give its answer to its future, until there is no message."""
    while (call := calls.get()) is not None:
        message, future = call
        answer = None
        with suppress(OSError, EOFError):
            pipe.send(message)
            answer = pipe.recv()
        future.set_result(answer)
