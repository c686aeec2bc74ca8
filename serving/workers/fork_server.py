"""A process that has imported all that a worker needs, and forks workers in milliseconds.

The server starts it as a new program, so that it inherits neither threads nor gRPC objects, and it makes none. The one
other thread is of OpenBLAS, which stops it before a fork and starts it again when it is needed.
Law 1: it ends when the server ends, and kills its workers first. Law 2: the file descriptor of a worker (pidfd_open(2))
is made before the worker can be reaped, so that it never names another process.

Memory: by default glibc keeps one heap for each of many threads, and after it has freed a large message or matrix once
it takes later ones from these heaps too. The holes in the heaps added a fifth to the resident memory of a server within
16,000 calls, so the server's processes set the allocator and the garbage collector.
"""

import ctypes
import gc
import os
import signal
import socket
import subprocess
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

_FORK = b"f"
_PID_BYTES = 8
_MAX_DESCRIPTORS = 4


class Forked(NamedTuple):
    """A process that was forked."""

    pid: int
    descriptor: int  # of pidfd_open(2); it becomes readable when the process has ended


class ForkServer:
    """The server's end: asks the process for workers, and replaces the process where it ended. Thread-safe."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start the process. `command` runs `fork_until_closed` on the file descriptor that is its last argument."""
        self._command, self._mutex, self._closed = command, threading.Lock(), False
        self._process, self._socket = self._start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def fork(self, descriptors: Sequence[int]) -> Forked:
        """Return a new worker that has copies of some file descriptors. Raises OSError where none can be forked."""
        with self._mutex:
            for is_last in (False, True):
                try:
                    socket.send_fds(self._socket, [_FORK], descriptors)
                    answer, received, _, _ = socket.recv_fds(self._socket, _PID_BYTES, 1)
                    if received:
                        return Forked(int.from_bytes(answer), received[0])
                    raise ConnectionResetError("the process that forks workers has ended")
                except OSError:
                    if is_last or self._closed:
                        raise
                    self._end()
                    self._process, self._socket = self._start()
            raise AssertionError

    def close(self) -> None:
        """End the process and its workers."""
        self._closed = True
        self._process.kill()  # a thread that waits for a worker stops waiting
        with self._mutex:
            self._end()

    def _start(self) -> "tuple[subprocess.Popen[bytes], socket.socket]":
        """Start the process. Solvers print a banner where they are used first after a fork: nobody is to read that."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            descriptor = theirs.fileno()
            command = [*self._command, str(descriptor)]
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[descriptor]
            )
        if self._closed:
            process.kill()
        return process, ours

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.close()


def fork_until_closed(channel: socket.socket, run: Callable[[Sequence[int]], None]) -> None:
    """Fork a process that calls `run` for each request of the server, until the server closes the channel or ends.

    `run` gets the file descriptors that came with the request.
    """
    workers: set[int] = set()

    def reap(*_: object) -> None:
        """Forget the workers that have ended."""
        for pid in tuple(workers):
            with suppress(ChildProcessError):  # this function interrupted itself
                if os.waitpid(pid, os.WNOHANG)[0]:
                    workers.discard(pid)

    while True:
        signal.signal(signal.SIGCHLD, reap)
        message, descriptors, _, _ = socket.recv_fds(channel, len(_FORK), _MAX_DESCRIPTORS)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # law 2
        if not message:
            break
        pid = os.fork()
        if pid == 0:
            channel.close()
            _run_and_exit(run, descriptors)
        workers.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        handle = os.pidfd_open(pid)
        with suppress(OSError):  # the server is gone
            socket.send_fds(channel, [pid.to_bytes(_PID_BYTES)], [handle])
        os.close(handle)
        reap()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)


def _run_and_exit(run: Callable[[Sequence[int]], None], descriptors: Sequence[int]) -> None:
    """Run a worker, then end its process without running the exit handlers of the forked program."""
    try:
        run(descriptors)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)


# --- memory of the server's processes ---------------------------------------------------------------------------------

# Parameters of mallopt(3), and their values here.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
LARGE_BYTES = 512 * 1024  # from this size on, memory is mapped by itself and returned at once when it is freed
ARENAS = 2  # heaps; Python's own small objects live in neither
COLLECT_AFTER = 10_000  # objects more than before; with 50,000 a large decision takes no less time


def return_freed_memory() -> None:
    """Make the allocator return large freed blocks to the system, and let all threads share few heaps.

    Call this before threads start. Settings of the environment (MALLOC_ARENA_MAX, ...) take precedence. Without glibc
    it does nothing.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, parameter, value in (
            ("MALLOC_ARENA_MAX", _M_ARENA_MAX, ARENAS),
            ("MALLOC_MMAP_THRESHOLD_", _M_MMAP_THRESHOLD, LARGE_BYTES),
            ("MALLOC_TRIM_THRESHOLD_", _M_TRIM_THRESHOLD, LARGE_BYTES),
        ):
            if name not in os.environ:
                mallopt(parameter, value)


def leave_out_what_stays() -> None:
    """Exclude the objects that are loaded now from garbage collection (gc.freeze), and collect less often.

    The collector would traverse 60,000 objects again and again, 30 ms each time, while no thread runs. A decision makes
    many objects and no cycles of garbage: for 12,500 devices with 20,000 residents the collector took a sixth of the
    time. Call this once in a process, when everything is loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
