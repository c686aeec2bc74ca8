"""Requests that arrive and answers that leave: how long they may take, and how many bytes of them a caller may hold.

A request is read, and an answer is sent, at the pace of the caller. A caller that sends a byte a second holds a thread;
one that does not read (HTTP/2 window 0) holds every answer in the server's memory, also after the call's thread is
free. Both are found by their age and cancelled, which frees what they hold.

Law 1: a request that has not arrived after `LIMIT_S` is cancelled. Of requests that take longer than `SLOW_S`, at most
`MAX_SLOW` are kept: the oldest of the caller that has most of them is cancelled. Law 2: an answer that has not left
after `LIMIT_S` is cancelled. Law 3: a caller that has `MAX_UNSENT_BYTES` of answers to read, or any where all callers
together have `MAX_ALL_UNSENT_BYTES`, gets no further answer until it has read.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from interfere.errors import InvalidInputError, LimitError

LIMIT_S = 30.0  # 64 MiB at 18 Mbit/s
SLOW_S = 1.0  # nearly all requests arrive with their call
MAX_SLOW = 8  # of the largest size: half a gigabyte
MAX_UNSENT_BYTES = 8 * 2**20  # of one caller, before its next call begins
MAX_ALL_UNSENT_BYTES = 64 * 2**20
CHECK_EVERY_S = 0.25
SMALL_BYTES = 2**20  # a snapshot of 1,000 devices is 130 KB
LARGE_AT_ONCE = 4  # of the largest size; each takes some times its bytes once it is parsed
LARGE_RETRY_S = 1.0  # hint to refused callers


class LargeRequests:
    """Bounds the bytes of large requests in the server. Small ones are never refused: their number is bounded.
    Thread-safe."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_bytes, self._mutex = LARGE_AT_ONCE * max_message_bytes, threading.Lock()
        self.bytes = 0  # of the large requests that the server holds now

    @contextmanager
    def count(self, size: int) -> Iterator[None]:
        """Count a request inside the block. Raises LimitError where the counted requests have too many bytes."""
        counted = size if size > SMALL_BYTES else 0
        with self._mutex:
            if counted and self.bytes + counted > self._max_bytes:
                raise LimitError(
                    "too many large requests at once",
                    value=f"{(self.bytes + counted) / 2**20:.0f} MiB",
                    remedy=f"at most {self._max_bytes / 2**20:.0f} MiB wait together: send them one after another",
                    retry_after_s=LARGE_RETRY_S,
                )
            self.bytes += counted
        try:
            yield
        finally:
            with self._mutex:
                self.bytes -= counted


class _Transfer:
    """A request that arrives, or an answer that leaves."""

    __slots__ = ("caller", "context", "is_cancelled", "since_s", "size")

    def __init__(self, context: grpc.ServicerContext, caller: str, size: int) -> None:
        self.context, self.caller, self.size, self.since_s = context, caller, size, time.monotonic()
        self.is_cancelled = False


class Transfers:
    """The requests that arrive and the answers that leave, of all calls. Thread-safe."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping, self._mutex = stopping, threading.Lock()
        self._requests: dict[int, _Transfer] = {}  # oldest first, as the answers are
        self._answers: dict[int, _Transfer] = {}
        self._unsent_bytes: Counter[str] = Counter()  # by caller
        self._on_sent: list[Callable[[], None]] = []
        threading.Thread(target=self._cancel_late_ones, name="transfers", daemon=True).start()

    @property
    def arriving(self) -> int:
        """Number of requests that have not arrived completely."""
        return len(self._requests)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that their callers have not read yet."""
        with self._mutex:
            return self._unsent_bytes.total()

    def on_sent(self, notify: Callable[[], None]) -> None:
        """Let `notify` be called whenever answers have left, as `may_answer` may have changed."""
        self._on_sent.append(notify)

    def may_answer(self, caller: str) -> bool:
        """Whether a caller has read enough of its answers to get another one."""
        with self._mutex:
            own = self._unsent_bytes.get(caller, 0)
            return own == 0 or (own < MAX_UNSENT_BYTES and self._unsent_bytes.total() < MAX_ALL_UNSENT_BYTES)

    def receive(self, requests: Iterator[Any], context: grpc.ServicerContext, caller: str) -> Any:
        """Return the request of a call. Raises InvalidInputError for a call without one, and grpc.RpcError where the
        call ends before the request has arrived."""
        transfer = _Transfer(context, caller, 0)
        with self._mutex:
            self._requests[id(transfer)] = transfer
        try:
            return next(requests)
        except StopIteration:
            # Whether gRPC ends the requests of a cancelled call by an error or by none, and when the call counts as
            # over, is a matter of timing.
            if transfer.is_cancelled or not context.is_active():
                raise grpc.RpcError from None
            raise InvalidInputError("the call carries no request", remedy="send one message") from None
        finally:
            with self._mutex:
                self._requests.pop(id(transfer), None)

    def send(self, answer: bytes, context: grpc.ServicerContext, caller: str) -> None:
        """Count an answer until the caller has read it, or the call is over in another way."""
        transfer = _Transfer(context, caller, len(answer))
        with self._mutex:
            self._answers[id(transfer)] = transfer
            self._unsent_bytes[caller] += transfer.size
        if not context.add_callback(lambda: self._sent(transfer)):
            self._sent(transfer)

    def _sent(self, transfer: _Transfer) -> None:
        with self._mutex:
            self._answers.pop(id(transfer), None)
            self._unsent_bytes[transfer.caller] -= transfer.size
            if self._unsent_bytes[transfer.caller] <= 0:
                del self._unsent_bytes[transfer.caller]
        for notify in self._on_sent:
            notify()

    def _cancel_late_ones(self) -> None:
        while not self._stopping.wait(CHECK_EVERY_S):
            for transfer in self._late_ones(time.monotonic()):
                transfer.is_cancelled = True
                transfer.context.cancel()  # type: ignore[no-untyped-call]

    def _late_ones(self, now_s: float) -> list[_Transfer]:
        """Return the requests and answers that take too long at a time of the monotonic clock."""
        with self._mutex:
            late = [each for each in self._answers.values() if now_s - each.since_s > LIMIT_S]
            for each in late:
                del self._answers[id(each)]  # cancelled once; its bytes count until the call is over
            requests = [(each, now_s - each.since_s) for each in self._requests.values()]
        late += [each for each, age_s in requests if age_s > LIMIT_S]
        kept = [each for each, age_s in requests if SLOW_S < age_s <= LIMIT_S]
        of_caller = Counter(each.caller for each in kept)
        while len(kept) > MAX_SLOW:
            ((most, _),) = of_caller.most_common(1)
            oldest = next(each for each in kept if each.caller == most)
            kept.remove(oldest)
            of_caller[most] -= 1
            late.append(oldest)
        return late
