"""Turns of callers: whoever has used least gets the next free place, however many calls another caller has waiting.

This is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) with one flow per caller. What a call costs is
measured, because it is not known before: the time that it held its place is charged to its caller when it ends. Until
then its caller is charged what its last call cost.

Law 1: a caller whose calls are few waits for at most one call of each place, whatever others have waiting. Law 2: a
place is never free while a call waits that may take it, but for the rest between two calls of a caller. Law 3: a
caller that was idle is owed nothing for that time.

`DecisionTurns` orders decisions: one at a time in a scope, few at once in total, callers in turn. `CallQueues` holds a
queue for each kind of work, so that one kind cannot hold up another. Law 4: decisions of one scope are made one after
another, so that no decision is computed in vain. Law 5: a scope never takes all places of the queue, and has at most
one decision among those that wait for a processor, which are served in turn by caller. So neither a scope nor a caller
gains by many requests. Law 6: a request that is interrupted while it waits leaves its queue within `POLL_S`.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from interfere.config import Settings
from interfere.errors import LimitError
from interfere.serving.calls.callers import MAX_THREADS
from interfere.serving.calls.transfers import Transfers
from interfere.serving.metrics import Metrics
from interfere.time_budget import check_interruption

POLL_S = 0.05  # between two questions whether the caller still waits
RETRY_S = 0.2  # hint to callers refused because they have too many calls: most calls take milliseconds
REFUSED_AFTER_S = 1.0  # so that refused calls that are sent again at once take a tenth of what calls do
RECENT_S = 10.0  # a caller that had a call within it is still beside the others: schedulers ask every few seconds
# A place stays empty for it between two calls of a caller that has more waiting while others are beside it. Without it,
# 180 calls in flight keep the interpreter so busy that the one thread which takes calls from the network falls behind,
# and everybody waits in its order: a polite caller 123 ms, with it 2 ms (idle: 1.6). The greedy one gets two thirds of
# the calls that it gets alone.
REST_S = 0.001
FIRST_COST_S = 0.001  # charged for the first call of a caller

_caller: ContextVar[str] = ContextVar("caller", default="")


@contextmanager
def calling(caller: str) -> Iterator[None]:
    """Let `current_caller` return this caller inside the block."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


def current_caller() -> str:
    """Return the caller whose call this thread answers; empty outside of a call."""
    return _caller.get()


class _Turn:
    """Whether a call may begin. (A lock is forty times as quick to make as a threading.Event.)"""

    __slots__ = ("_waiting", "charged_s")

    def __init__(self) -> None:
        self.charged_s = 0.0  # what the caller was charged for the call when it began
        self._waiting = threading.Lock()
        self._waiting.acquire()

    def begin(self) -> None:
        """Let the call begin."""
        self._waiting.release()

    def wait(self, timeout_s: float) -> bool:
        """Return whether the call may begin, within a time. Do not ask again once it may."""
        return self._waiting.acquire(timeout=timeout_s)


class _Flow:
    """The calls of one caller."""

    __slots__ = ("cost_s", "finish_s", "running", "waiting")

    def __init__(self, finish_s: float) -> None:
        self.waiting: deque[_Turn] = deque()
        self.running, self.cost_s, self.finish_s = 0, FIRST_COST_S, finish_s


class FairQueue:
    """Places in which calls run, given to callers in turn. Thread-safe."""

    def __init__(
        self,
        at_once: int,
        *,
        reserved: int = 0,
        most_of_caller: int | None = None,
        may_begin: Callable[[str], bool] | None = None,
        always_rests: bool = False,
        on_turn: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Make a queue of `at_once` places.

        `reserved`: places that no single caller takes, unless there is but one; where it is not 0, callers that come
        beside each other have one place each, and rest between calls. `most_of_caller`: calls of one caller that may
        run or wait; None for any number. `may_begin`: whether a call of this caller may begin now; `look_again` asks
        again. `always_rests`: a place stays empty for `REST_S` after each call, for the sake of calls in other queues.
        `on_turn`: called with the seconds that a call has waited when its turn comes.
        """
        self._at_once, self._most, self._may_begin = at_once, most_of_caller, may_begin or (lambda _: True)
        self._of_caller = max(1, at_once - reserved)
        self._shares, self._always_rests, self._on_turn = reserved > 0, always_rests, on_turn
        self._seen_s: dict[str, float] = {}  # when callers last had a call, longest ago first; not before RECENT_S ago
        self._flows: dict[str, _Flow] = {}
        self._running, self._clock_s, self._mutex = 0, 0.0, threading.Lock()

    @contextmanager
    def turn(self, caller: str) -> Iterator[None]:
        """Wait for the turn of a call, and hold a place inside the block.

        Raises LimitError where the caller has too many calls already, after a moment, so that a caller that sends its
        call again at once keeps nobody else waiting. Raises what `check_interruption` raises.
        """
        entered_s = time.perf_counter()
        turn = self._enter(caller)
        if turn is None:
            time.sleep(REFUSED_AFTER_S)
            raise LimitError(
                "the server is busy",
                value=f"{self._most} calls of one caller",
                remedy="send fewer requests at once; retry later",
                retry_after_s=RETRY_S,
            )
        try:
            while not turn.wait(POLL_S):
                check_interruption()
        except BaseException:
            self._give_up(caller, turn)
            raise
        start_s = time.perf_counter()
        self._on_turn(start_s - entered_s)
        try:
            yield
        finally:
            cost_s = time.perf_counter() - start_s
            if self._has_to_rest(caller):
                time.sleep(REST_S)
            self._leave(caller, turn, cost_s)

    def look_again(self) -> None:
        """Start waiting calls whose callers may now have a place."""
        with self._mutex:
            self._begin_next()

    def _enter(self, caller: str) -> _Turn | None:
        """Add a call to the waiting ones and return the event of its turn; None where its caller has too many."""
        with self._mutex:
            self._note_seen(caller, time.monotonic())
            flow = self._flows.get(caller)
            if flow is None:
                flow = self._flows[caller] = _Flow(self._clock_s)
            if self._most is not None and flow.running + len(flow.waiting) >= self._most:
                return None
            if not flow.waiting and not flow.running:
                flow.finish_s = max(flow.finish_s, self._clock_s)
            turn = _Turn()
            flow.waiting.append(turn)
            self._begin_next()
            return turn

    def _note_seen(self, caller: str, now_s: float) -> None:
        """Note that a caller has a call, and forget callers that had none for long. The lock must be held."""
        self._seen_s.pop(caller, None)
        self._seen_s[caller] = now_s
        while now_s - self._seen_s[longest_ago := next(iter(self._seen_s))] > RECENT_S:
            del self._seen_s[longest_ago]

    def _callers_are_beside_each_other(self) -> bool:
        """Whether callers share the places. The lock must be held."""
        return self._shares and len(self._seen_s) > 1

    def _has_to_rest(self, caller: str) -> bool:
        with self._mutex:
            beside_others = self._callers_are_beside_each_other()
            return self._always_rests or (beside_others and bool(self._flows[caller].waiting))

    def _begin_next(self) -> None:
        """Give free places to the callers that have used least. The lock must be held.

        Beside other callers, each has one place: calls that wait here cost nothing, but calls that run contend for the
        interpreter with the thread that takes all calls from the network, in the order in which they come.
        """
        of_caller = 1 if self._callers_are_beside_each_other() else self._of_caller
        while self._running < self._at_once:
            ready = [
                (flow.finish_s, caller)
                for caller, flow in self._flows.items()
                if flow.waiting and flow.running < of_caller and self._may_begin(caller)
            ]
            if not ready:
                return
            self._clock_s, caller = min(ready)
            flow = self._flows[caller]
            flow.finish_s += flow.cost_s
            flow.running += 1
            self._running += 1
            turn = flow.waiting.popleft()
            turn.charged_s = flow.cost_s
            turn.begin()

    def _leave(self, caller: str, turn: _Turn, cost_s: float) -> None:
        with self._mutex:
            flow = self._flows[caller]
            flow.finish_s += cost_s - turn.charged_s
            flow.cost_s = cost_s
            flow.running -= 1
            self._running -= 1
            self._begin_next()
            self._forget_if_idle(caller, flow)

    def _give_up(self, caller: str, turn: _Turn) -> None:
        """Remove a waiting call from the queue, or free its place if it got one meanwhile."""
        with self._mutex:
            flow = self._flows[caller]
            if turn in flow.waiting:
                flow.waiting.remove(turn)
                self._forget_if_idle(caller, flow)
                return
        self._leave(caller, turn, 0.0)

    def _forget_if_idle(self, caller: str, flow: _Flow) -> None:
        """Remove a caller without calls, together with the recorded cost of its last calls. The lock must be held."""
        if not flow.running and not flow.waiting:
            del self._flows[caller]


# --- the order of decisions, and the queues of calls ------------------------------------------------------------------

WRITES_AT_ONCE = 8  # one writes, the others wait to be written next together; with 16, predictions wait longer
SHORT_AT_ONCE = 4  # of several callers; of one there is one at a time
_WRITES = frozenset({"ReportObservations", "RegisterProfiles", "RemoveProfiles"})
# Calls that may compute for long; the others answer in milliseconds.
_DECISIONS = frozenset({"Match", "RankPlacements", "Explain", "GetObservationLog", "LoadModel", "RollbackModel"})

TURN_POLL_S = 0.02
TURN_RETRY_S = 0.5  # hint to refused callers: a usual decision takes tenths of a second


class _Scope:
    """The decisions of one scope that run or wait."""

    __slots__ = ("lock", "requests")

    def __init__(self) -> None:
        self.lock, self.requests = threading.Lock(), 0


class DecisionTurns:
    """Lets decisions begin in turn, one at a time in a scope and few at once in total. Thread-safe."""

    def __init__(
        self, *, at_once: int = 2, max_waiting: int = 48, on_turn: Callable[[float], None] = lambda _: None
    ) -> None:
        """Limit decisions. `at_once`: decisions computed at the same time. `max_waiting`: requests of one scope,
        running requests included. `on_turn`: called with the seconds that a decision of a scope has waited when its
        turn comes."""
        self._slots, self._max_waiting, self._on_turn = FairQueue(at_once), max_waiting, on_turn
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
                    retry_after_s=TURN_RETRY_S,
                )
            entry.requests += 1
        entered_s = time.perf_counter()
        try:
            _wait(entry.lock.acquire)
            try:
                with self.of_anybody():
                    self._on_turn(time.perf_counter() - entered_s)
                    yield
            finally:
                entry.lock.release()
        finally:
            with self._mutex:
                entry.requests -= 1
                if not entry.requests:
                    del self._scopes[scope]

    def of_anybody(self) -> AbstractContextManager[None]:
        """Wait for the turn of a computation that changes no scope."""
        return self._slots.turn(current_caller())


def _wait(acquire: Callable[..., bool]) -> None:
    """Wait until `acquire` succeeds. Raises where the caller of the request gave up meanwhile."""
    while not acquire(timeout=TURN_POLL_S):
        check_interruption()


class CallQueues:
    """The queues of the server: each kind of method has one."""

    def __init__(self, settings: Settings, transfers: Transfers, metrics: Metrics) -> None:
        most, may_begin = settings.max_concurrent_rpcs, transfers.may_answer
        self._reads, self._writes = (
            FairQueue(at_once, reserved=1, most_of_caller=most, may_begin=may_begin, on_turn=metrics.waits(name))
            for at_once, name in ((settings.threads, "reads"), (WRITES_AT_ONCE, "writes"))
        )
        # Decisions wait for their turn in `interfere.serving.calls.fair_queue`; here the calls of a caller are bounded.
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
