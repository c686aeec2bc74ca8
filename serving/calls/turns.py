"""The order in which decisions are computed: one at a time in a scope, few at once in total, callers in turn.

Law 1: decisions of one scope are made one after another, so that no decision is computed in vain. Law 2: a scope never
takes all places of the queue, and has at most one decision among those that wait for a processor. These are served in
turn by caller, so that neither a scope nor a caller gains by many requests. Law 3: a request that is interrupted while
it waits leaves the queue within `POLL_S`, here and in `fair_queue`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from interfere.errors import LimitError
from interfere.serving.calls.fair_queue import FairQueue, current_caller
from interfere.time_budget import check_interruption

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
