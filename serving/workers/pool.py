"""The pool of worker processes: forks workers, sends a request to one, interrupts it, and replaces a worker that ended.

Law 1: an answer is the answer of one worker, or an error; what a worker computes after its call was abandoned is
discarded. Law 2: a caller is released when its call is over, whatever its worker does. Law 3: a worker is judged by its
processor time, never by time on the wall: on a busy host its successor would be as slow.
"""

import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.errors import InterfereError, UnavailableError
from interfere.serving.calls.fair_queue import current_caller
from interfere.serving.kept_decisions import Decided
from interfere.serving.metrics import Metrics
from interfere.serving.workers.fork_server import ForkServer
from interfere.serving.workers.worker import WorkerProcess
from interfere.store.store import StoreAddress
from interfere.time_budget import check_interruption
from interfere.wire.errors import error_from_status

_log = logging.getLogger(__name__)
POLL_S = 0.02
WORKER_COMMAND = (sys.executable, "-P", "-m", "interfere.serving.workers.process")
OBEY_CPU_S = 3.0  # processor time of an interrupted worker until it is killed; it obeys in milliseconds
SPARE_WORKERS = 1  # ready to take the place of a worker that ended, or that has no processor
RESTART_S = 1.0  # after a worker ended before it was ready
MAX_SCOPES = 1_000  # whose workers are remembered
LEARNING_TIMEOUT_S = 3_600.0  # of learning a log of tens of millions of entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowing:
    """The state that a worker must have before it computes: the model, the profiles, and the least entry of the log."""

    model_folder: Path
    model_version: str
    last_sequence: int
    profiles_digest: str
    model_beside: str = ""  # version of another model that is served too, to some scopes
    relearning: bool = False  # the server learns the log again, and will store the result
    reporters: Mapping[str, frozenset[str]] | None = None  # who may report now, for which scopes; see `DecisionMaker`


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request that a worker computes the answer to."""

    method: str
    request: bytes
    knowing: Knowing
    number: int  # of the calls of this worker, from 1 on


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The bytes of an answer, and the calls of metrics that the server makes on behalf of the worker."""

    answer: bytes
    counts: tuple[tuple[str, tuple[Any, ...]], ...] = ()  # method of `Metrics`, its arguments
    decided: Decided | None = None  # that the server logs


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A refusal as a google.rpc.Status, or the traceback of an unexpected error."""

    code: str = ""
    status: bytes = b""
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A call that was abandoned because no answer came in time."""

    waited_s: float
    cpu_s: float  # processor time that the worker got for the call

    @property
    def text(self) -> str:
        """The reason in words."""
        return (
            f"no processor time: the workers got {self.cpu_s:.1f} s of a processor in {self.waited_s:.1f} s for this "
            "decision, so that the server answers with the greedy plan, without a search"
        )


class WorkerError(Exception):
    """An unexpected error of a worker; the text is the traceback of the worker."""


class WorkerPool:
    """The worker processes of a server. Thread-safe."""

    def __init__(
        self,
        count: int,
        *,
        store: StoreAddress,
        time_budget_s: float,
        site_policy_names: tuple[str, str, str],
        knowing: Callable[[], Knowing],
        metrics: Metrics,
    ) -> None:
        """Start the workers, which are ready about a second later. `count`: of workers that compute at once; `knowing`:
        the state that they must have now."""
        self._fork_server = ForkServer((*WORKER_COMMAND, str(store), str(time_budget_s), *site_policy_names))
        self._knowing, self._metrics, self._count = knowing, metrics, count
        self._condition = threading.Condition()
        self._idle: list[WorkerProcess] = []
        self._worker_of: dict[str, WorkerProcess] = {}  # by scope: it keeps what it read of it
        self._computing = 0  # workers whose callers wait for them
        self._all: set[WorkerProcess] = set()
        self._closed = False
        self._started = False  # has one ever become ready, and can more be started?
        for _ in range(count + SPARE_WORKERS):
            self._begin(self._start)

    def ask(
        self,
        method: str,
        request: bytes,
        knowing: Knowing | None = None,
        *,
        scope: str = "",
        wait: bool = True,
        within_s: float = math.inf,
    ) -> bytes | Late | None:
        """Let a worker compute the answer to a request, and return the bytes of the answer.

        `knowing`: the state that it must have; None for that of the pool. `scope`: that the request is about, which the
        worker that knows it best is asked about.

        Returns None where no worker has become ready yet, or where none is free and `wait` is False. Returns Late where
        there is no answer within `within_s` seconds on the wall. Raises the error that the worker raised,
        UnavailableError where the worker process ended, and the error that interrupted the wait.
        """
        start_s = time.monotonic()
        worker = self._take(scope, wait=wait, end_s=start_s + within_s)
        if worker is None:
            is_late = wait and time.monotonic() >= start_s + within_s
            return Late(waited_s=time.monotonic() - start_s, cpu_s=0.0) if is_late else None
        start_cpu_s = worker.cpu_s()
        worker.last_call += 1
        ask = Ask(method=method, request=request, knowing=knowing or self._knowing(), number=worker.last_call)
        answer = worker.submit(ask)
        try:
            while not _is_done(answer):
                check_interruption()
                if time.monotonic() >= start_s + within_s:
                    cpu_s = max(0.0, worker.cpu_s() - start_cpu_s)
                    self._abandon(worker, answer)
                    return Late(waited_s=time.monotonic() - start_s, cpu_s=cpu_s)
        except InterfereError:
            self._abandon(worker, answer)
            raise
        with self._condition:
            self._computing -= 1
        self._reuse(worker, answer)
        return self._answer(method, answer.result())

    @property
    def idle(self) -> int:
        """How many workers wait to be asked."""
        return len(self._idle)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The ids of the processes of the workers."""
        with self._condition:
            return tuple(worker.pid for worker in self._all)

    @property
    def fork_server_id(self) -> int:
        """The id of the process that forks workers."""
        return self._fork_server.pid

    def close(self) -> None:
        """Kill all workers, also in the middle of computations."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            workers, self._idle, self._all = list(self._all), [], set()
            self._condition.notify_all()
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.end()
        self._fork_server.close()

    # --- a call -----------------------------------------------------------------------------------------------------

    def _answer(self, method: str, result: Any) -> bytes:
        """Return the bytes of a worker's answer, and count what it counted. Raises as `ask`."""
        if isinstance(result, Answered):
            for name, arguments in result.counts:
                getattr(self._metrics, name)(*arguments)
            if result.decided is not None:
                result.decided.log(current_caller())
            return result.answer
        if isinstance(result, Failed):
            if result.traceback:
                raise WorkerError(result.traceback)
            raise error_from_status(result.code, "", result.status, "decision worker")
        raise UnavailableError("the process that computed this answer has ended", value=method, remedy="retry")

    def _abandon(self, worker: WorkerProcess, answer: "Future[Any]") -> None:
        """Interrupt a call that nobody waits for, and give its place to the next call."""
        worker.abandon(worker.last_call)
        with self._condition:
            self._computing -= 1
            self._condition.notify()
        self._begin(self._wait_until_obeyed, worker, answer)

    def _wait_until_obeyed(self, worker: WorkerProcess, answer: "Future[Any]") -> None:
        """Wait until a worker has answered an abandoned call, and discard the answer. A worker that computes on is
        replaced."""
        start_cpu_s = worker.cpu_s()
        while not _is_done(answer):
            if worker.cpu_s() - start_cpu_s > OBEY_CPU_S:
                worker.kill()
        self._reuse(worker, answer)

    # --- the pool ---------------------------------------------------------------------------------------------------

    def _take(self, scope: str, *, wait: bool, end_s: float) -> WorkerProcess | None:
        """Return a worker that computes nothing, if possible the one that was asked about the scope last; None as in
        `ask`. Raises where the wait is interrupted."""
        while True:
            with self._condition:
                while self._idle and self._computing < self._count:
                    own = self._worker_of.get(scope)
                    worker = self._idle.pop(self._idle.index(own) if own in self._idle else -1)
                    if not worker.has_ended:
                        self._computing += 1
                        self._remember(scope, worker)
                        return worker
                    self._begin(self._replace, worker)
                if not wait or not self._started or self._closed or time.monotonic() >= end_s:
                    return None
                self._condition.wait(POLL_S)
            check_interruption()

    def _remember(self, scope: str, worker: WorkerProcess) -> None:
        """Remember which worker was asked about a scope last."""
        if scope:
            if len(self._worker_of) >= MAX_SCOPES:
                self._worker_of.clear()
            self._worker_of[scope] = worker

    def _reuse(self, worker: WorkerProcess, answer: "Future[Any]") -> None:
        """Give back a worker that has answered, or replace it where it has ended."""
        if answer.result() is None:
            self._begin(self._replace, worker)
            return
        with self._condition:
            self._idle.append(worker)
            self._condition.notify()

    def _replace(self, worker: WorkerProcess) -> None:
        """End a worker that does not answer, and start another."""
        self._end(worker)
        if not self._closed:
            _log.warning("the process of a decision worker ended, another one is started")
            self._start()

    def _end(self, worker: WorkerProcess) -> None:
        with self._condition:
            if worker not in self._all:  # the pool was closed
                return
            self._all.discard(worker)
        worker.end()

    def _start(self) -> None:
        """Start a worker and wait until it is ready; where it ends before, try again."""
        for pause_s in (RESTART_S, 5 * RESTART_S, 25 * RESTART_S, None):
            with suppress(OSError):
                worker = WorkerProcess(self._fork_server)
                with self._condition:
                    is_closed = self._closed
                    if not is_closed:
                        self._all.add(worker)
                if is_closed:
                    worker.end()
                    return
                answer = worker.submit(self._knowing())
                if answer.result() is not None:
                    self._started = True
                    self._reuse(worker, answer)
                    return
                self._end(worker)
            if pause_s is None or self._closed:
                break
            time.sleep(pause_s)
        if not self._closed:
            _log.error("a decision worker does not start: its decisions are computed by the server itself")
            self._started = bool(self._all)

    def _begin(self, run: Callable[..., None], *arguments: Any) -> None:
        """Run a function in a thread of its own, because it may wait long for a worker process."""
        threading.Thread(target=run, args=arguments, name="worker-keeper", daemon=True).start()


def _is_done(answer: "Future[Any]") -> bool:
    """Whether there is an answer, after a wait of at most `POLL_S`."""
    with suppress(TimeoutError):
        answer.result(POLL_S)
    return answer.done()


def learn_in_process(store: StoreAddress, model_folder: Path) -> None:
    """Let another process learn the log with a new model and store the state, so that calls go on undisturbed.

    Where that fails, the server learns by itself.
    """
    command = [*WORKER_COMMAND, "learn", str(store), str(model_folder)]
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=LEARNING_TIMEOUT_S
        )
