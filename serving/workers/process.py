"""The process of one worker: a replica of the server's core on the same store that computes one answer at a time.

The process learns by replaying the log that the server writes. It commits decisions to the same store by the revision
of their ledger, as a second server would. It ends as soon as the server ends, also in the middle of a computation.

The program imports everything and forks workers, see `interfere.serving.workers.fork_server`. With the arguments
`learn STORE MODEL` it learns the log with a model instead, stores the state under the model's version, and ends.
"""

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from interfere.errors import CancelledError, InterfereError
from interfere.policy.site_policy import SitePolicy
from interfere.serving.metrics import Metrics
from interfere.serving.service import PolicyCore
from interfere.serving.servicer import PolicyServicer
from interfere.serving.state import load_served_model
from interfere.serving.workers.fork_server import fork_until_closed, leave_out_what_stays, return_freed_memory
from interfere.serving.workers.pool import Answered, Ask, Failed, Knowing
from interfere.serving.workers.worker import AbandonedCalls
from interfere.store.store import StoreAddress, open_store, store_address
from interfere.time_budget import interruptible
from interfere.v1 import policy_pb2 as pb
from interfere.wire.errors import status_of

NICENESS = 5  # of workers, below the server itself: answers that clients wait for in milliseconds come first
OOM_SCORE = 500  # where memory runs out, the kernel ends a worker, not the server


_COUNTED_BY_SERVER = frozenset(
    {
        "interfere_accepted_deadlines",
        "interfere_actions",
        "interfere_evictions",
        "interfere_failed_checks",
        "interfere_match_gap_ratio",
        "interfere_match_solve_seconds",
        "interfere_refusals",
    }
)
"""The metrics of decisions. The others are about the log, which the server learns itself."""


class CountingMetrics(Metrics):
    """The metrics of a worker: they record the calls that count decisions, so that the server can repeat the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[tuple[str, tuple[Any, ...]]] = []

    def add(self, name: str, count: float, *labels: str) -> None:
        if name in _COUNTED_BY_SERVER:
            self.counts.append(("add", (name, count, *labels)))

    def observe(self, name: str, value: float) -> None:
        if name in _COUNTED_BY_SERVER:
            self.counts.append(("observe", (name, value)))

    def set_granules(self, *arguments: Any) -> None:
        self.counts.append(("set_granules", arguments))


class Worker:
    """Answers the requests of the server."""

    def __init__(
        self,
        store: StoreAddress,
        time_budget_s: float,
        site_policy: SitePolicy,
        first: Knowing,
        computation: "_Computation",
    ) -> None:
        self._metrics, self._computation, self._time_budget_s = CountingMetrics(), computation, time_budget_s
        self._store = open_store(store, shared=True, on_eviction=self._metrics.count_evictions)
        self._site_policy = site_policy
        self._cores: dict[str, PolicyCore] = {}  # by the version of the model
        self._core_knowing(first).warm_up()

    def answer(self, ask: Ask) -> Answered | Failed:
        """Return the answer to one request."""
        self._metrics.counts.clear()
        self._computation.begin_request(ask.number)
        try:
            servicer = PolicyServicer(self._core_knowing(ask.knowing))
            request = pb.DESCRIPTOR.services_by_name["PolicyService"].methods_by_name[ask.method].input_type.name
            message = getattr(pb, request).FromString(ask.request)
            with self._computation.interruptible():  # what was learned half would be learned twice
                answer = getattr(servicer, ask.method)(message, None).SerializeToString()
        except InterfereError as error:
            return Failed(code=error.code, status=status_of(error).SerializeToString())
        except Exception:
            return Failed(traceback=traceback.format_exc())
        return Answered(answer=answer, counts=tuple(self._metrics.counts), decided=servicer.decided)

    def _core_knowing(self, knowing: Knowing) -> PolicyCore:
        """Return the core with a model, after it has learned what it must know. Cores of models that are not served any
        longer are dropped."""
        for version in self._cores.keys() - {knowing.model_version, knowing.model_beside}:
            del self._cores[version]
        core = self._cores.get(knowing.model_version)
        if core is None:
            core = self._cores[knowing.model_version] = PolicyCore(
                model=load_served_model(knowing.model_folder),
                store=self._store,
                metrics=self._metrics,
                time_budget_s=self._time_budget_s,
                site_policy=self._site_policy,
            )
        core.decisions.reporters = lambda: knowing.reporters
        core.catch_up(knowing.last_sequence, knowing.profiles_digest, relearning=knowing.relearning)
        return core


class _Computation:
    """The computation of one answer, which ends early once the server has abandoned its call.

    The server also sends the signal SIGUSR1, whose handler raises an exception at once. A solver callback may swallow
    the exception, because no exception may cross the solver; therefore every search also checks for the interruption,
    and so does a decision before it is stored.
    """

    def __init__(self, abandoned: AbandonedCalls) -> None:
        self._abandoned, self._number, self._running = abandoned, 0, False
        signal.signal(signal.SIGUSR1, self._interrupt)

    def begin_request(self, number: int) -> None:
        """Begin the call of this number. A signal that comes for an earlier call interrupts nothing."""
        self._number = number

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let the server interrupt the block, at once where the call was abandoned before."""
        self._running = True
        try:
            self._check()
            with interruptible(self._check):
                yield
        finally:
            self._running = False

    def _interrupt(self, *_: object) -> None:
        if self._running:
            self._check()

    def _check(self) -> None:
        if self._abandoned.includes(self._number):
            raise CancelledError("nobody waits for this answer any longer")


def answer_until_closed(
    store: StoreAddress,
    time_budget_s: float,
    site_policy: SitePolicy,
    pipe: "Connection[Any, Any]",
    abandoned: AbandonedCalls,
) -> None:
    """Answer the requests that come through the pipe, until the server closes it or ends."""
    computation, asks = _Computation(abandoned), SimpleQueue[Ask]()
    worker = Worker(store, time_budget_s, site_policy, pipe.recv(), computation)
    leave_out_what_stays()
    threading.Thread(target=_read, args=(pipe, asks), daemon=True).start()
    pipe.send(True)  # ready
    while True:
        pipe.send(worker.answer(asks.get()))


def _read(pipe: "Connection[Any, Any]", asks: SimpleQueue[Ask]) -> None:
    """Take requests from the server; end the process at once where the server is gone."""
    with suppress(Exception):
        while True:
            asks.put(pipe.recv())
    os._exit(0)


def learn(address: StoreAddress, model_folder: Path) -> None:
    """Learn the log with a model, and store the state that was learned."""
    store = open_store(address, shared=True)
    model = load_served_model(model_folder)
    with store.checkpoints.claim(model.predictor.version):
        PolicyCore(model=model, store=store, metrics=Metrics(), time_budget_s=1.0).store_state()
    store.close()


def fork_workers(store: StoreAddress, time_budget_s: float, site_policy: SitePolicy, descriptor: int) -> None:
    """Fork workers on a store for the server at the other end of a socket, until the server ends."""

    def run(descriptors: Sequence[int]) -> None:
        os.nice(NICENESS)
        with suppress(OSError, EOFError), Connection(descriptors[0]) as pipe:  # the server is gone
            answer_until_closed(store, time_budget_s, site_policy, pipe, AbandonedCalls(descriptors[1]))

    leave_out_what_stays()
    with socket.socket(fileno=descriptor) as channel:
        fork_until_closed(channel, run)


def main() -> None:
    """Fork workers with the arguments STORE, TIME_BUDGET_S, the three names of `SitePolicy.of_names`, and the file
    descriptor of the server's socket.

    With `learn`, learn a log in their place.

    The settings of the memory allocator and of signals hold for the forked processes too.
    """
    return_freed_memory()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a whole process group: the server alone looks for a model then
    if sys.argv[1] == "learn":
        os.nice(NICENESS)
        learn(store_address(sys.argv[2]), Path(sys.argv[3]))
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the server ends this process
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    site_policy = SitePolicy.of_names(*sys.argv[3:6])  # every forked worker has it
    fork_workers(store_address(sys.argv[1]), float(sys.argv[2]), site_policy, int(sys.argv[6]))


if __name__ == "__main__":
    main()
