"""Who calls: the caller that a call is charged to, and how many calls and connections one caller may have at once."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from interfere.errors import LimitError

MAX_THREADS = 1_024  # calls of all callers that are looked at; each holds a thread, and others wait for one
MAX_CALLS_OF_CALLER = 384
MAX_WAITING_REFUSALS = 256  # of all callers; with the calls of one caller they leave a third of all places to others
MAX_CONNECTIONS = 16  # of one address, with calls
RETRY_S = 1.0  # hint to refused callers


def address_of(context: grpc.ServicerContext) -> str:
    """Return the address of the peer of a call, without its port: `ipv4:127.0.0.1`, `ipv6:[::1]` or `unix:`."""
    peer = context.peer()
    kind, _, address = peer.partition(":")
    return peer if kind == "unix" else f"{kind}:{address.rpartition(':')[0]}"


class CallLimits:
    """Counts the calls of each caller and the connections of each address. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._calls: Counter[str] = Counter()  # by caller
        self._connections: dict[str, Counter[str]] = {}  # by address: number of calls of each connection

    @contextmanager
    def count(self, caller: str, context: grpc.ServicerContext) -> Iterator[None]:
        """Count a call inside the block. Raises LimitError where its caller or its address has too many."""
        address, peer = address_of(context), context.peer()
        with self._mutex:
            connections = self._connections.get(address, Counter())
            if peer not in connections and len(connections) >= MAX_CONNECTIONS:
                raise LimitError(
                    "too many connections of one address have calls",
                    value=MAX_CONNECTIONS,
                    remedy="send calls over one connection: it carries many at once",
                    retry_after_s=RETRY_S,
                )
            if self._calls[caller] >= MAX_CALLS_OF_CALLER:
                raise LimitError(
                    "too many calls of one caller",
                    value=MAX_CALLS_OF_CALLER,
                    remedy="wait for answers before more calls are sent",
                    retry_after_s=RETRY_S,
                )
            self._calls[caller] += 1
            connections[peer] += 1
            self._connections[address] = connections
        try:
            yield
        finally:
            with self._mutex:
                _decrement(self._calls, caller)
                _decrement(connections, peer)
                if not connections:
                    self._connections.pop(address, None)


class RateLimit:
    """Lets each caller do something so many times at once, and then once in a time (a token bucket). Thread-safe."""

    def __init__(self, *, burst: int, each_s: float) -> None:
        self._burst_s, self._each_s, self._mutex = burst * each_s, each_s, threading.Lock()
        self._paid_until_s: dict[str, float] = {}  # by caller, of the monotonic clock; below now for nothing owed

    def take(self, caller: str) -> None:
        """Count one. Raises LimitError where the caller has done too many."""
        with self._mutex:
            now_s = time.monotonic()
            self._paid_until_s = {who: until_s for who, until_s in self._paid_until_s.items() if until_s > now_s}
            paid_until_s = self._paid_until_s.get(caller, now_s) + self._each_s
            if paid_until_s - now_s > self._burst_s:
                raise LimitError(
                    "too many calls of this method in a short time",
                    value=f"{self._burst_s / self._each_s:.0f}",
                    remedy=f"one every {self._each_s:g} s",
                    retry_after_s=paid_until_s - now_s - self._burst_s,
                )
            self._paid_until_s[caller] = paid_until_s


class StreamLimit:
    """Counts open streams of a kind, each of which holds a thread. Thread-safe."""

    def __init__(self, of_caller: int, in_all: int) -> None:
        self._of_caller, self._in_all, self._mutex = of_caller, in_all, threading.Lock()
        self._streams: Counter[str] = Counter()

    @contextmanager
    def count(self, caller: str) -> Iterator[None]:
        """Count a stream inside the block. Raises LimitError where there are too many."""
        with self._mutex:
            if self._streams[caller] >= self._of_caller or self._streams.total() >= self._in_all:
                raise LimitError(
                    "too many open streams",
                    value=self._streams[caller],
                    remedy="close some; ask for the health with Check",
                    retry_after_s=RETRY_S,
                )
            self._streams[caller] += 1
        try:
            yield
        finally:
            with self._mutex:
                _decrement(self._streams, caller)


def _decrement(counts: Counter[str], key: str) -> None:
    """Subtract one, and forget a key without any."""
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
