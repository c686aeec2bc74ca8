"""The pool of worker processes: starts workers, sends a request to one, interrupts it, and replaces a worker that
ended.

Law 1: an answer is the answer of one worker, or an error; a request is never computed twice. Law 2: a caller is
released when its call is over: a worker that does not obey an interruption is killed.
"""

import logging
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from interfere.errors import InterfereError, UnavailableError
from interfere.serving.metrics import Metrics
from interfere.time_budget import check_interruption
from interfere.wire.errors import error_from_status

_log = logging.getLogger(__name__)
POLL_S = 0.02
WORKER_COMMAND = (sys.executable, "-P", "-m", "interfere.serving.workers.process")
OBEY_S = 3.0  # until a worker that was interrupted and computes on is killed; it obeys in milliseconds of a processor
RESTART_S = 1.0  # after a worker ended before it was ready
LEARNING_TIMEOUT_S = 3_600.0  # of learning a log of tens of millions of entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowing:
    """The state that a worker must have before it computes: the model, the profiles, and the least entry of the log."""

    model_folder: Path
    model_version: str
    last_sequence: int
    profiles_digest: str
    relearning: bool = False  # the server learns the log again, and will store the result


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request that a worker computes the answer to."""

    method: str
    request: bytes
    knowing: Knowing


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The bytes of an answer, and the calls of metrics that the server makes on behalf of the worker."""

    answer: bytes
    counts: tuple[tuple[str, tuple[Any, ...]], ...] = ()  # method of `Metrics`, its arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A refusal as a google.rpc.Status, or the traceback of an unexpected error."""

    code: str = ""
    status: bytes = b""
    traceback: str = ""


class WorkerError(Exception):
    """An unexpected error of a worker; the text is the traceback of the worker."""


class _Worker(NamedTuple):
    """A worker process, and the server's end of the pipe to it.

    The pipe carries pickled records: both ends are this program on this machine, and nobody else can write to it.
    """

    process: "subprocess.Popen[bytes]"
    pipe: "Connection[Any, Any]"

    def end(self) -> None:
        """Kill the process, also in the middle of a computation."""
        self.process.kill()
        self.process.wait()
        self.pipe.close()


class WorkerPool:
    """The worker processes of a server. Thread-safe."""

    def __init__(
        self, count: int, *, store_path: Path, time_budget_s: float, knowing: Callable[[], Knowing], metrics: Metrics
    ) -> None:
        """Start the workers, which are ready about a second later. `knowing`: the state that they must have now."""
        self._arguments = str(store_path), str(time_budget_s)
        self._knowing, self._metrics = knowing, metrics
        self._condition = threading.Condition()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False
        self._started = False  # has one ever become ready, and can more be started?
        for _ in range(count):
            threading.Thread(target=self._start, name="worker-start", daemon=True).start()

    def ask(self, method: str, request: bytes, *, wait: bool = True) -> bytes | None:
        """Let a worker compute the answer to a request, and return the bytes of the answer.

        Returns None where no worker has become ready yet, or where none is free and `wait` is False. Raises the error
        that the worker raised, UnavailableError where the worker process ended, and the error that interrupted the
        wait.
        """
        worker = self._take(wait=wait)
        if worker is None:
            return None
        result, interruption = _exchange(worker, Ask(method=method, request=request, knowing=self._knowing()))
        if result is None:
            self._replace(worker)
        else:
            self._give_back(worker)
        if interruption is not None:
            raise interruption
        if isinstance(result, Answered):
            for name, arguments in result.counts:
                getattr(self._metrics, name)(*arguments)
            return result.answer
        if isinstance(result, Failed):
            if result.traceback:
                raise WorkerError(result.traceback)
            raise error_from_status(result.code, "", result.status, "decision worker")
        raise UnavailableError("the process that computed this answer has ended", value=method, remedy="retry")

    @property
    def ready(self) -> bool:
        """Whether a worker waits to be asked."""
        return bool(self._idle)

    def close(self) -> None:
        """Kill all workers, also in the middle of computations."""
        with self._condition:
            self._closed = True
            workers, self._idle = list(self._all), []
            self._condition.notify_all()
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.wait()

    # --- the pool ---------------------------------------------------------------------------------------------------

    def _take(self, *, wait: bool) -> _Worker | None:
        """Return a worker that computes nothing; None as in `ask`. Raises where the wait is interrupted."""
        while True:
            with self._condition:
                if self._idle:
                    return self._idle.pop()
                if not wait or not self._started or self._closed:
                    return None
                self._condition.wait(POLL_S)
            check_interruption()

    def _give_back(self, worker: _Worker) -> None:
        with self._condition:
            self._idle.append(worker)
            self._condition.notify()

    def _replace(self, worker: _Worker) -> None:
        """End a worker that does not answer, and start another."""
        self._end(worker)
        if not self._closed:
            _log.warning("the process of a decision worker ended, another one is started")
            threading.Thread(target=self._start, name="worker-start", daemon=True).start()

    def _end(self, worker: _Worker) -> None:
        worker.end()
        with self._condition:
            self._all.discard(worker)

    def _start(self) -> None:
        """Start a worker and wait until it is ready; where it ends before, try again."""
        for pause_s in (RESTART_S, 5 * RESTART_S, 25 * RESTART_S, None):
            with self._condition:
                if self._closed:
                    return
                worker = _start_worker(*self._arguments)
                self._all.add(worker)
            with suppress(OSError, EOFError):
                worker.pipe.send(self._knowing())
                worker.pipe.recv()  # says that the worker is ready
                self._started = True
                self._give_back(worker)
                return
            self._end(worker)
            if pause_s is None or self._closed:
                break
            time.sleep(pause_s)
        if not self._closed:
            _log.error("a decision worker does not start: its decisions are computed by the server itself")
            self._started = False


def _start_worker(*arguments: str) -> _Worker:
    """Start a worker process, with a pipe between it and the server. What it prints goes to standard error."""
    ours, theirs = Pipe()
    with theirs:
        descriptor = theirs.fileno()
        command = [*WORKER_COMMAND, *arguments, str(descriptor)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=[descriptor])
    return _Worker(process, ours)


def _exchange(worker: _Worker, ask: Ask) -> tuple[Any, InterfereError | None]:
    """Send a request to a worker. Returns its answer, and the error that interrupted the caller's wait, if any.

    The answer is None where the worker ended or has to be ended.
    """
    interruption, kill_at_s = None, math.inf
    try:
        worker.pipe.send(ask)
        while not worker.pipe.poll(POLL_S):
            if time.monotonic() > kill_at_s:
                return None, interruption
            if interruption is None:
                try:
                    check_interruption()
                except InterfereError as error:
                    interruption, kill_at_s = error, time.monotonic() + OBEY_S
                    worker.process.send_signal(signal.SIGUSR1)
        return worker.pipe.recv(), interruption
    except (OSError, EOFError):
        return None, interruption


def learn_in_process(store_path: Path, model_folder: Path) -> None:
    """Let another process learn the log with a new model and store the state, so that calls go on undisturbed.

    Where that fails, the server learns by itself.
    """
    command = [*WORKER_COMMAND, "learn", str(store_path), str(model_folder)]
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=LEARNING_TIMEOUT_S
        )
