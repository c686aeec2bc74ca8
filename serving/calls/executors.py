"""The thread pools that run calls, one for each kind of work, so that one kind cannot take the threads of another.

Law 1: a stream never holds a thread of a unary call, a decision never a thread of a prediction, and no call a thread of
health checks. Law 2: every queue is bounded, and a call that finds its queue full is refused at once. The bytes of
large requests in the server are bounded as well; small requests are never refused for their size, because the queues
bound their number. Law 3: a call gets a thread only once its request has arrived.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from interfere.config import Settings
from interfere.errors import InterfereError, LimitError
from interfere.serving.calls.receiving import Receiver, UnreadCall, unread_call

SMALL_BYTES = 2**20  # a snapshot of 1,000 devices is 130 KB
MESSAGES_AT_ONCE = 4  # of the largest size; each takes some times its bytes once it is parsed
MEMORY_RETRY_S = 1.0  # hint to refused callers


CONTROL_THREADS = 2  # of a release of gRPC whose calls wait in threads; refusals have one of their own, as they flood
STREAM_THREADS = 4  # a client that resolves names by reflection holds one for some milliseconds
RETRY_S = 0.2  # hint to callers refused because a queue is full: most calls take milliseconds
WRITE_THREADS = 2  # one writes, one reads the next request
WATCH_THREADS = 2  # send the first status of a health watch; a client that does not read holds one
MAX_WATCHES = 1_000  # open health watches; they hold no thread
_WRITES = frozenset({"ReportObservations", "RegisterProfiles", "RemoveProfiles"})
# Calls that may compute for long; the others answer in milliseconds.
_DECISIONS = frozenset({"Match", "RankPlacements", "Explain", "GetObservationLog", "LoadModel", "RollbackModel"})


class BoundedExecutor(ThreadPoolExecutor):
    """A thread pool that knows how many of its tasks run or wait."""

    def __init__(self, name: str, *, threads: int, capacity: int | None = None) -> None:
        """Make a pool of `threads`. `capacity`: number of tasks that may run or wait; None for any number."""
        super().__init__(max_workers=threads, thread_name_prefix=name)
        self._capacity, self._load, self._mutex = capacity, 0, threading.Lock()

    @property
    def full(self) -> bool:
        """Whether another task would exceed the capacity."""
        return self._capacity is not None and self._load >= self._capacity

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a task in the pool. The task counts as load until it has ended or was cancelled."""
        with self._mutex:
            self._load += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._ended)
        return future

    def _ended(self, _: object) -> None:
        with self._mutex:
            self._load -= 1


class RefusalExecutor(BoundedExecutor):
    """A pool of one thread that refuses calls without reading their requests."""

    def __init__(self) -> None:
        super().__init__("refusal", threads=1)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a task. A gRPC call is answered at once by its behaviour, which gets an empty request."""
        if (call := unread_call(fn, args)) is None:
            return super().submit(fn, *args, **kwargs)
        return super().submit(call.respond_with, call.behaviour, b"")

    def refuse(self, call: UnreadCall, error: InterfereError) -> None:
        """Answer a call with the status of an error."""
        super().submit(call.respond_with, call.behaviour.refuse_with(error), b"")


class Admission:
    """What every call passes before it gets a thread: it is received, and refused where the server holds too much.

    Large requests are counted, so that their bytes stay within a limit. Thread-safe.
    """

    def __init__(self, max_message_bytes: int, stopping: threading.Event) -> None:
        self.receiver, self.refusals = Receiver(stopping), RefusalExecutor()
        self._max_bytes, self._mutex = MESSAGES_AT_ONCE * max_message_bytes, threading.Lock()
        self.large_bytes = 0  # of the large requests that the server holds now

    def take(self, size: int) -> None:
        """Count a request until it is released. Raises LimitError where the counted requests have too many bytes
        already."""
        if size <= SMALL_BYTES:
            return
        with self._mutex:
            if self.large_bytes + size > self._max_bytes:
                raise LimitError(
                    "too many large requests at once",
                    value=f"{(self.large_bytes + size) / 2**20:.0f} MiB",
                    remedy=f"at most {self._max_bytes / 2**20:.0f} MiB wait together: send them one after another",
                    retry_after_s=MEMORY_RETRY_S,
                )
            self.large_bytes += size

    def release(self, size: int) -> None:
        """Stop counting a request that `take` counted."""
        if size > SMALL_BYTES:
            with self._mutex:
                self.large_bytes -= size


class CallExecutor(BoundedExecutor):
    """A thread pool that runs gRPC calls, each once its request has arrived.

    The behaviour (handler function) of a call has an attribute `refuse_with`: a function that takes an error and
    returns a behaviour. That behaviour answers the call with the status of the error.
    """

    def __init__(self, name: str, admission: Admission, *, threads: int, capacity: int | None = None) -> None:
        super().__init__(name, threads=threads, capacity=capacity)
        self._admission = admission

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a task. A gRPC call runs later, once its request has arrived; the future returned for a call is done
        at once."""
        if (call := unread_call(fn, args)) is None:
            return super().submit(fn, *args, **kwargs)
        self._admission.receiver.receive(call, self._run, self._admission.refusals.refuse)
        begun: Future[Any] = Future()
        begun.set_result(None)
        return begun

    def _run(self, call: UnreadCall, request: Any) -> None:
        size = len(request) if isinstance(request, bytes) else 0
        try:
            if self.full:
                raise busy()
            self._admission.take(size)
        except LimitError as error:
            self._admission.refusals.refuse(call, error)
            return
        self._begin(call, request).add_done_callback(lambda _: self._admission.release(size))

    def _begin(self, call: UnreadCall, request: Any) -> Future[Any]:
        return super().submit(call.respond_with, call.behaviour, request)


class ControlExecutor(CallExecutor):
    """Runs control calls, such as health checks, in the thread that receives them: they take microseconds and need
    no pool."""

    def _begin(self, call: UnreadCall, request: Any) -> Future[Any]:
        call.respond_with(call.behaviour, request)
        ended: Future[Any] = Future()
        ended.set_result(None)
        return ended


def busy() -> LimitError:
    """Return the error for a call that finds its queue full."""
    return LimitError("the server is busy", remedy="send fewer requests at once; retry later", retry_after_s=RETRY_S)


class Executors:
    """The thread pools of the server: each kind of method has one."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        capacity = settings.max_concurrent_rpcs
        self.admission = Admission(settings.message_mib * 2**20, stopping)
        self.streams = BoundedExecutor("stream", threads=STREAM_THREADS, capacity=STREAM_THREADS)
        self.control = ControlExecutor("control", self.admission, threads=CONTROL_THREADS)
        self.watches = CallExecutor("watch", self.admission, threads=WATCH_THREADS, capacity=MAX_WATCHES)
        self._reads = CallExecutor("read", self.admission, threads=settings.threads, capacity=capacity)
        self._writes = CallExecutor("write", self.admission, threads=WRITE_THREADS, capacity=capacity)
        # Most of these threads wait for their scope's turn, see `interfere.serving.calls.turns`.
        self._decisions = CallExecutor("decision", self.admission, threads=capacity, capacity=capacity)

    def of_method(self, name: str) -> BoundedExecutor:
        """Return the pool in which a unary method of the policy service runs."""
        if name in _WRITES:
            return self._writes
        return self._decisions if name in _DECISIONS else self._reads
