"""The threads that run calls: each kind of work has its own, so that none can take those of another.

Law 1: a stream never holds a thread of a unary call, a decision none of a prediction, nothing those of health checks.
Law 2: every queue is bounded; what finds it full is refused at once.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from interfere.config import Settings

CONTROL_THREADS = 2  # health checks: microseconds each; refusals have a thread of their own, as they come in floods
STREAM_THREADS = 4  # a client that resolves names by reflection holds one for some milliseconds
WRITE_THREADS = 2  # one writes, one reads the next request
WATCH_THREADS = 2  # send the first status of a health watch; a client that does not read holds one
MAX_WATCHES = 1_000  # open health watches; they hold no thread
_WRITES = frozenset({"ReportObservations", "RegisterProfiles", "RemoveProfiles"})
# Calls that may compute for long; the others answer in milliseconds.
_DECISIONS = frozenset({"Match", "RankPlacements", "Explain", "GetObservationLog", "LoadModel", "RollbackModel"})


class BoundedExecutor(ThreadPoolExecutor):
    """A thread pool that knows how many of its tasks run or wait."""

    def __init__(self, name: str, *, threads: int, capacity: int | None = None) -> None:
        """`capacity`: tasks that may run or wait; None for any number."""
        super().__init__(max_workers=threads, thread_name_prefix=name)
        self._capacity, self._load, self._mutex = capacity, 0, threading.Lock()

    @property
    def full(self) -> bool:
        """Whether another task would exceed the capacity."""
        return self._capacity is not None and self._load >= self._capacity

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a task; it counts until it has ended or was dropped."""
        with self._mutex:
            self._load += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: object) -> None:
        with self._mutex:
            self._load -= 1


class Executors:
    """The executor of every method."""

    def __init__(self, settings: Settings) -> None:
        capacity = settings.max_concurrent_rpcs
        self.control = BoundedExecutor("control", threads=CONTROL_THREADS)
        self.refusals = BoundedExecutor("refusal", threads=1)
        self.streams = BoundedExecutor("stream", threads=STREAM_THREADS, capacity=STREAM_THREADS)
        self.watches = BoundedExecutor("watch", threads=WATCH_THREADS, capacity=MAX_WATCHES)
        self._reads = BoundedExecutor("read", threads=settings.threads, capacity=capacity)
        self._writes = BoundedExecutor("write", threads=WRITE_THREADS, capacity=capacity)
        # Most of these threads wait for their scope's turn, see `serving.calls.turns`.
        self._decisions = BoundedExecutor("decision", threads=capacity, capacity=capacity)

    def of_method(self, name: str) -> BoundedExecutor:
        """The executor of a unary method of the policy service."""
        if name in _WRITES:
            return self._writes
        return self._decisions if name in _DECISIONS else self._reads
