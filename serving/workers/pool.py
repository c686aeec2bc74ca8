"""The server's side of its workers: starts them, asks one, interrupts it, replaces one that ended.

Law 1: an answer is that of one worker, or an error; a request is never computed twice.
Law 2: whoever asks is released when its call is over: a worker that does not obey an interruption is killed.
"""

import logging
import math
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from interfere.errors import InterfereError, UnavailableError
from interfere.serving.metrics import Metrics
from interfere.serving.workers.frames import Answered, Ask, Failed, Knowing, Ready, receive, send
from interfere.time_budget import check_interruption
from interfere.wire.errors import error_from_status

_log = logging.getLogger(__name__)
POLL_S = 0.02
WORKER_MODULE = "interfere.serving.workers.process"
OBEY_S = 3.0  # until a worker that was interrupted and computes on is killed; it obeys in milliseconds of a processor
RESTART_S = 1.0  # after a worker ended before it was ready
_Worker = subprocess.Popen[bytes]


class WorkerError(Exception):
    """A worker met an error that nobody foresaw; the text is its traceback."""


class WorkerPool:
    """Worker processes. Thread-safe."""

    def __init__(
        self, count: int, *, store_path: Path, time_budget_s: float, knowing: Callable[[], Knowing], metrics: Metrics
    ) -> None:
        """Start the workers, which are ready about a second later. `knowing`: the state that they must have now."""
        self._command = [
            sys.executable,
            "-P",
            "-m",
            "interfere.serving.workers.process",
            str(store_path),
            str(time_budget_s),
        ]
        self._knowing, self._metrics = knowing, metrics
        self._condition = threading.Condition()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False
        self._started = False  # has one ever become ready, and can more be started?
        for _ in range(count):
            threading.Thread(target=self._start, name="worker-start", daemon=True).start()

    def ask(self, method: str, request: bytes, *, wait: bool = True) -> bytes | None:
        """The bytes of the answer; None where no worker has become ready yet, or none is free and `wait` is False.

        Raises the error that the worker raised, UnavailableError where it ended, and what an interruption raises.
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
            raise _error_of(result)
        raise UnavailableError("the process that computed this answer has ended", value=method, remedy="retry")

    @property
    def ready(self) -> bool:
        """Whether a worker waits to be asked."""
        return bool(self._idle)

    def close(self) -> None:
        """End all workers, whatever they are computing."""
        with self._condition:
            self._closed = True
            workers, self._idle = list(self._all), []
            self._condition.notify_all()
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.wait()

    # --- the pool ---------------------------------------------------------------------------------------------------

    def _take(self, *, wait: bool) -> _Worker | None:
        """A worker that computes nothing; None as `ask` says. Raises where the wait is interrupted."""
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
        worker.kill()
        worker.wait()
        with self._condition:
            self._all.discard(worker)
            closed = self._closed
        if not closed:
            _log.warning("the process of a decision worker ended, another one is started")
            threading.Thread(target=self._start, name="worker-start", daemon=True).start()

    def _start(self) -> None:
        """Start a worker and wait until it is ready; where it ends before, try again."""
        for pause_s in (RESTART_S, 5 * RESTART_S, 25 * RESTART_S, None):
            with self._condition:
                if self._closed:
                    return
                worker = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                self._all.add(worker)
            with suppress(OSError):
                incoming, outgoing = _pipes(worker)
                send(outgoing, self._knowing())
                if isinstance(receive(incoming), Ready):
                    self._started = True
                    self._give_back(worker)
                    return
            worker.kill()
            worker.wait()
            with self._condition:
                self._all.discard(worker)
            if pause_s is None or self._closed:
                break
            time.sleep(pause_s)
        if not self._closed:
            _log.error("a decision worker does not start: its decisions are computed by the server itself")
            self._started = False


def _exchange(worker: _Worker, ask: Ask) -> tuple[Any, InterfereError | None]:
    """Send a request to a worker. Returns its answer, and the error that interrupted the caller's wait, if any.

    The answer is None where the worker ended or has to be ended.
    """
    incoming, outgoing = _pipes(worker)
    interruption, kill_at_s = None, math.inf
    try:
        send(outgoing, ask)
        with selectors.DefaultSelector() as selector:
            selector.register(incoming, selectors.EVENT_READ)
            while not selector.select(POLL_S):
                if time.monotonic() > kill_at_s:
                    return None, interruption
                if interruption is None:
                    try:
                        check_interruption()
                    except InterfereError as error:
                        interruption, kill_at_s = error, time.monotonic() + OBEY_S
                        worker.send_signal(signal.SIGUSR1)
        return receive(incoming), interruption
    except OSError:
        return None, interruption


def _pipes(worker: _Worker) -> tuple[IO[bytes], IO[bytes]]:
    """Return the pipe that the worker writes to, and the pipe that it reads from."""
    return cast(IO[bytes], worker.stdout), cast(IO[bytes], worker.stdin)


def _error_of(failed: Failed) -> Exception:
    if failed.traceback:
        return WorkerError(failed.traceback)
    return error_from_status(failed.code, "", failed.status, "decision worker")
