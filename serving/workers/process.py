"""The process of one worker: a replica of the server's core on the same store, which computes one answer at a time.

It learns by replaying the log that the server writes, and commits decisions to the same store by the revision of their
ledger, as a second server would. It ends as soon as the server does, whatever it is computing.
"""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from interfere.errors import CancelledError, InterfereError
from interfere.serving.metrics import Metrics
from interfere.serving.service import PolicyCore
from interfere.serving.servicer import PolicyServicer
from interfere.serving.state import load_served_model
from interfere.serving.workers.frames import Answered, Ask, Failed, Knowing, Ready, receive, send
from interfere.serving.workers.memory import leave_out_what_stays, return_freed_memory
from interfere.store.sqlite import SqliteStore
from interfere.time_budget import interruptible
from interfere.v1 import policy_pb2 as pb
from interfere.wire.errors import status_of

NICENESS = 5  # of workers, below the server itself: answers that clients wait for in milliseconds come first
OOM_SCORE = 500  # where memory runs out, the kernel ends a worker, not the server


class _CountingMetrics(Metrics):
    """Records what is to be counted, for the server to count."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[tuple[str, tuple[Any, ...]]] = []

    def count_made_decision(self, *arguments: Any) -> None:
        self.counts.append(("count_made_decision", arguments))

    def set_granules(self, *arguments: Any) -> None:
        self.counts.append(("set_granules", arguments))

    def count_deadlines(self, *arguments: Any) -> None:
        self.counts.append(("count_deadlines", arguments))

    def count_evictions(self, what: str, count: int) -> None:
        if count:
            self.counts.append(("count_evictions", (what, count)))


class Worker:
    """Answers requests from the pipe."""

    def __init__(self, store_path: Path, time_budget_s: float, first: Knowing, computation: "_Computation") -> None:
        self._metrics, self._computation = _CountingMetrics(), computation
        self._core = PolicyCore(
            model=load_served_model(first.model_folder),
            store=SqliteStore(store_path, shared=True, on_eviction=self._metrics.count_evictions),
            metrics=self._metrics,
            time_budget_s=time_budget_s,
        )
        self._servicer = PolicyServicer(self._core)
        self._core.warm_up()

    def answer(self, ask: Ask) -> Answered | Failed:
        """The answer to one request."""
        self._metrics.counts.clear()
        self._computation.begin_request()
        try:
            self._catch_up(ask.knowing)
            request = pb.DESCRIPTOR.services_by_name["PolicyService"].methods_by_name[ask.method].input_type.name
            message = getattr(pb, request).FromString(ask.request)
            with self._computation.interruptible():  # what was learned half would be learned twice
                answer = getattr(self._servicer, ask.method)(message, None).SerializeToString()
        except InterfereError as error:
            return Failed(code=error.code, status=status_of(error).SerializeToString())
        except Exception:
            return Failed(traceback=traceback.format_exc())
        return Answered(answer=answer, counts=tuple(self._metrics.counts))

    def _catch_up(self, knowing: Knowing) -> None:
        if self._core.state.version != knowing.model_version:
            self._core.use_model(load_served_model(knowing.model_folder))
        self._core.catch_up(knowing.last_sequence, knowing.profiles_digest, relearning=knowing.relearning)


class _Computation:
    """The computation of one answer, which SIGUSR1 interrupts. The server sends this signal when no caller waits any
    longer.

    The signal handler raises an exception at once. A solver callback may swallow it, because no exception may cross the
    solver. Therefore every search also checks for the interruption.
    """

    def __init__(self) -> None:
        self._running = self._interrupted = False
        signal.signal(signal.SIGUSR1, self._interrupt)

    def begin_request(self) -> None:
        """Forget signals that came after the last request was answered."""
        self._interrupted = False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the signal interrupt the block, at once where it came earlier in this request."""
        self._running = True
        try:
            self._check()
            with interruptible(self._check):
                yield
        finally:
            self._running = False

    def _interrupt(self, *_: object) -> None:
        self._interrupted = True
        if self._running:
            self._check()

    def _check(self) -> None:
        if self._interrupted:
            raise CancelledError("nobody waits for this answer any longer")


def run(store_path: Path, time_budget_s: float, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
    """Answer until the pipe is closed."""
    computation, asks = _Computation(), _Mailbox()
    first = receive(incoming)
    if not isinstance(first, Knowing):
        return
    worker = Worker(store_path, time_budget_s, first, computation)
    leave_out_what_stays()
    threading.Thread(target=_read, args=(incoming, asks.put), daemon=True).start()
    send(outgoing, Ready())
    while True:
        send(outgoing, worker.answer(asks.take()))


def _read(incoming: IO[bytes], put: Callable[[Ask], None]) -> None:
    """Take requests from the server; end the process at once where the server is gone."""
    with suppress(Exception):
        while (ask := receive(incoming)) is not None:
            put(ask)
    os._exit(0)


class _Mailbox:
    """Hands one request at a time from the reading thread to the computing thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._ask: Ask | None = None

    def put(self, ask: Ask) -> None:
        with self._condition:
            self._ask = ask
            self._condition.notify()

    def take(self) -> Ask:
        with self._condition:
            while self._ask is None:
                self._condition.wait()
            ask, self._ask = self._ask, None
            return ask


def main() -> None:
    """Run a worker on standard input and output; everything else that is printed goes to standard error."""
    return_freed_memory()
    os.nice(NICENESS)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a whole process group: the server alone looks for a model then
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(KeyboardInterrupt):  # Ctrl-C reaches the whole process group; the server ends this process
        run(Path(sys.argv[1]), float(sys.argv[2]), sys.stdin.buffer, outgoing)


if __name__ == "__main__":
    main()
