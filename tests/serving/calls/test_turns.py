"""Turns of decisions: one at a time in a scope, scopes in turn, and whoever is interrupted leaves the queue."""

import threading
import time

import pytest

from interfere.errors import CancelledError, LimitError
from interfere.serving.calls.fair_queue import DecisionTurns
from interfere.time_budget import interruptible
from tests.waiting import PATIENCE_S, wait_until


def requests(turns: DecisionTurns, scope: str) -> int:
    """How many of a scope run or wait."""
    entry = turns._scopes.get(scope)
    return entry.requests if entry else 0


def test_one_scope_is_served_one_by_one_and_others_meanwhile() -> None:
    turns, mutex = DecisionTurns(at_once=2), threading.Lock()
    running: dict[str, int] = {}
    most, order = dict.fromkeys("ab", 0), list[str]()

    def decide(scope: str) -> None:
        with turns.of_scope(scope):
            with mutex:
                running[scope] = running.get(scope, 0) + 1
                most[scope] = max(most[scope], running[scope])
                order.append(scope)
            time.sleep(0.02)
            with mutex:
                running[scope] -= 1

    threads = [threading.Thread(target=decide, args=("a",)) for _ in range(12)]
    threads += [threading.Thread(target=decide, args=("b",)) for _ in range(3)]
    with turns.of_anybody(), turns.of_anybody():  # until all of them wait
        for thread in threads:
            thread.start()
        wait_until(lambda: (requests(turns, "a"), requests(turns, "b")) == (12, 3))
    for thread in threads:
        thread.join()
    assert most == {"a": 1, "b": 1}
    assert "b" in order[:6]  # twelve requests of one scope do not hold up the first of another


def test_a_scope_has_its_share_of_the_queue() -> None:
    turns, over = DecisionTurns(at_once=1, max_waiting=3), threading.Event()

    def hold() -> None:
        with turns.of_scope("a"):
            over.wait(PATIENCE_S)

    threads = [threading.Thread(target=hold) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: requests(turns, "a") == 3, "they hold and wait")
    with pytest.raises(LimitError, match="wait already") as caught, turns.of_scope("a"):
        pass
    assert caught.value.retry_after_s is not None
    over.set()
    for thread in threads:
        thread.join()
    with turns.of_scope("a"):  # everything was given back
        pass


def test_an_interrupted_request_leaves_the_queue() -> None:
    turns, held, over, left = DecisionTurns(at_once=1), threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        with turns.of_anybody():
            held.set()
            over.wait(PATIENCE_S)

    def wait() -> None:
        gave_up = time.monotonic() + 0.1

        def check() -> None:
            if time.monotonic() > gave_up:
                raise CancelledError("nobody waits")

        with pytest.raises(CancelledError), interruptible(check), turns.of_scope("a"):
            pass
        left.set()

    holder, waiter = threading.Thread(target=hold), threading.Thread(target=wait)
    holder.start()
    assert held.wait(PATIENCE_S)
    waiter.start()
    assert left.wait(PATIENCE_S)
    over.set()
    holder.join()
    with turns.of_scope("a"):
        pass
