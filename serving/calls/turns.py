"""The order in which decisions are computed: one at a time in a scope, few at once in total, callers in turn; and the
queues in which calls wait, one for each kind of work, so that one kind cannot hold up another.

Law 1: decisions of one scope are made one after another, so that no decision is computed in vain. Law 2: a scope never
takes all places of the queue, and has at most one decision among those that wait for a processor. These are served in
turn by caller, so that neither a scope nor a caller gains by many requests. Law 3: a request that is interrupted while
it waits leaves the queue within `POLL_S`, here and in `fair_queue`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from interfere.config import Settings
from interfere.errors import LimitError
from interfere.serving.calls.callers import MAX_THREADS
from interfere.serving.calls.fair_queue import FairQueue, current_caller
from interfere.serving.calls.transfers import Transfers
from interfere.time_budget import check_interruption

WRITES_AT_ONCE = 2  # one writes, one parses the next request
SHORT_AT_ONCE = 4  # of several callers; of one there is one at a time
_WRITES = frozenset({"ReportObservations", "RegisterProfiles", "RemoveProfiles"})
# Calls that may compute for long; the others answer in milliseconds.
_DECISIONS = frozenset({"Match", "RankPlacements", "Explain", "GetObservationLog", "LoadModel", "RollbackModel"})

POLL_S = 0.02
RETRY_S = 0.5  # hint to refused callers: a usual decision takes tenths of a second


class _Scope:
    """The decisions of one scope that run or wait."""

    __slots__ = ("lock", "requests")

    def __init__(self) -> None:
        self.lock, self.requests = threading.Lock(), 0


class DecisionTurns:
    """Lets decisions begin in turn, one at a time in a scope and few at once in total. Thread-safe."""

    def __init__(self, *, at_once: int = 2, max_waiting: int = 48) -> None:
        """Limit decisions. `at_once`: decisions computed at the same time. `max_waiting`: requests of one scope,
        running requests included."""
        self._slots, self._max_waiting = FairQueue(at_once), max_waiting
        self._mutex = threading.Lock()
        self._scopes: dict[str, _Scope] = {}

    @contextmanager
    def of_scope(self, scope: str) -> Iterator[None]:
        """Wait for the turn of a decision that changes a scope. Raises LimitError where too many decisions of the
        scope wait."""
        with self._mutex:
            entry = self._scopes.setdefault(scope, _Scope())
            if entry.requests >= self._max_waiting:
                raise LimitError(
                    f"too many decisions of this scope wait already ({entry.requests})",
                    value=scope,
                    remedy="wait for an answer before the next snapshot is sent",
                    retry_after_s=RETRY_S,
                )
            entry.requests += 1
        try:
            _wait(entry.lock.acquire)
            try:
                with self.of_anybody():
                    yield
            finally:
                entry.lock.release()
        finally:
            with self._mutex:
                entry.requests -= 1
                if not entry.requests:
                    del self._scopes[scope]

    def of_anybody(self) -> AbstractContextManager[None]:
        """Wait for the turn of a computation that changes nothing, regardless of its scope."""
        return self._slots.turn(current_caller())


def _wait(acquire: Callable[..., bool]) -> None:
    """Wait until `acquire` succeeds. Raises where the caller of the request gave up meanwhile."""
    while not acquire(timeout=POLL_S):
        check_interruption()


class CallQueues:
    """The queues of the server: each kind of method has one."""

    def __init__(self, settings: Settings, transfers: Transfers) -> None:
        most, may_begin = settings.max_concurrent_rpcs, transfers.may_answer
        self._reads = FairQueue(settings.threads, reserved=1, most_of_caller=most, may_begin=may_begin)
        self._writes = FairQueue(WRITES_AT_ONCE, reserved=1, most_of_caller=most, may_begin=may_begin)
        # Decisions wait for their turn in `interfere.serving.calls.turns`; here the calls of a caller are bounded.
        self._decisions = FairQueue(MAX_THREADS, most_of_caller=most, may_begin=may_begin)
        # Health checks and refusals take so little that 180 of them in flight keep the thread busy that takes all calls
        # from the network: a polite caller waited 53 times as long beside calls without a token, and 8 times as long
        # beside health checks.
        self.short = FairQueue(SHORT_AT_ONCE, reserved=SHORT_AT_ONCE - 1, always_rests=True)
        for queue in (self._reads, self._writes, self._decisions):
            transfers.on_sent(queue.look_again)

    def of_method(self, name: str) -> FairQueue:
        """Return the queue of a unary method of the policy service."""
        if name in _WRITES:
            return self._writes
        return self._decisions if name in _DECISIONS else self._reads
