"""Turns of callers, without a server: who gets the next place, who is refused, who leaves."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from interfere.errors import CancelledError, LimitError
from interfere.serving.calls import fair_queue
from interfere.serving.calls.fair_queue import FairQueue
from interfere.time_budget import interruptible
from tests.waiting import PATIENCE_S, wait_until


class Calls:
    """Calls in threads, each of which holds its place until it is let go."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue, self.begun, self._threads = queue, list[str](), list[threading.Thread]()
        self._go_on = threading.Semaphore(0)

    def add(self, caller: str, count: int) -> None:
        """Add calls of a caller, and return once they run or wait."""
        for _ in range(count):
            before = self._known(caller)
            self._threads.append(threading.Thread(target=self._call, args=(caller,)))
            self._threads[-1].start()
            wait_until(lambda known=before: self._known(caller) == known + 1)

    def let_go(self) -> None:
        """Let one call end, and return once the next has begun."""
        count = len(self.begun)
        self._go_on.release()
        wait_until(lambda: len(self.begun) > count)

    def end(self) -> None:
        for _ in self._threads:
            self._go_on.release()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _known(self, caller: str) -> int:
        flow = self.queue._flows.get(caller)
        return flow.running + len(flow.waiting) if flow else 0

    def _call(self, caller: str) -> None:
        with self.queue.turn(caller):
            self.begun.append(caller)
            self._go_on.acquire()


@contextmanager
def calls_of(queue: FairQueue) -> Iterator[Calls]:
    calls = Calls(queue)
    try:
        yield calls
    finally:
        calls.end()


def test_a_caller_with_few_calls_waits_for_one_call_of_another_with_many() -> None:
    with calls_of(FairQueue(1)) as calls:
        calls.add("greedy", 30)
        calls.add("polite", 1)
        calls.let_go()
        assert calls.begun == ["greedy", "polite"]


def test_callers_with_many_calls_share_the_places() -> None:
    with calls_of(FairQueue(1)) as calls:
        calls.add("a", 30)
        calls.add("b", 30)
        for _ in range(20):
            calls.let_go()
        shares = Counter(calls.begun)
        assert min(shares.values()) >= 1


def test_a_reserved_place_is_free_for_whoever_else_comes() -> None:
    with calls_of(FairQueue(4, reserved=1)) as calls:
        calls.add("greedy", 30)
        assert calls.begun == ["greedy"] * 3
        calls.add("polite", 1)
        wait_until(lambda: calls.begun == ["greedy"] * 3 + ["polite"])


def test_too_many_calls_of_one_caller_are_refused_and_nobody_elses() -> None:
    with calls_of(FairQueue(1, most_of_caller=2)) as calls:
        calls.add("greedy", 2)
        with pytest.raises(LimitError) as caught, calls.queue.turn("greedy"):
            pass
        assert caught.value.retry_after_s
        calls.add("polite", 2)
        calls.let_go()
        assert calls.begun == ["greedy", "polite"]


def test_a_caller_that_gives_up_leaves_the_queue() -> None:
    def raise_cancelled() -> None:
        raise CancelledError("nobody waits")

    queue = FairQueue(1)
    with queue.turn("a"):
        with interruptible(raise_cancelled), pytest.raises(CancelledError), queue.turn("b"):
            pass
        assert set(queue._flows) == {"a"}
    assert not queue._flows
    with queue.turn("b"):
        pass


def test_a_call_that_may_not_begin_holds_up_nobody() -> None:
    barred = {"unread"}
    queue = FairQueue(1, may_begin=lambda caller: caller not in barred)
    with calls_of(queue) as calls:
        calls.add("unread", 1)
        calls.add("polite", 1)
        assert calls.begun == ["polite"]
        calls._go_on.release()
        wait_until(lambda: "polite" not in queue._flows)
        barred.clear()
        queue.look_again()
        wait_until(lambda: calls.begun == ["polite", "unread"])


def test_places_rest_between_calls_of_a_caller_with_many_beside_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes calls from the network meanwhile. Whoever has no other call waiting is not kept."""
    monkeypatch.setattr(fair_queue, "REST_S", 0.05)
    queue = FairQueue(4, reserved=1)
    with queue.turn("polite"):
        pass
    start_s = time.monotonic()
    with calls_of(queue) as calls:
        calls.add("greedy", 5)
        for _ in range(4):
            calls.let_go()
    assert time.monotonic() - start_s >= 4 * 0.05


def test_callers_that_had_no_call_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_queue, "RECENT_S", 0.0)
    queue = FairQueue(4, reserved=1)
    with queue.turn("polite"):
        pass
    with calls_of(queue) as calls:
        calls.add("greedy", 5)
        assert calls.begun == ["greedy"] * 3
