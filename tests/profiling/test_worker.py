"""What a worker records while it runs."""

import time

import pytest

from interfere.profiling.trace import Event
from interfere.profiling.worker import WAKE_UP_S, Worker


def test_a_late_wake_up_is_no_part_of_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker.__new__(Worker)  # without a pipe and a core
    worker.events, worker.steps = [], 0
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(seconds + 0.05))
    worker.pause(0.01)
    paused, resumed = worker.events
    assert (paused[3], resumed[3]) == (Event.PAUSE, Event.RESUME)
    assert resumed[0] - paused[0] == pytest.approx(0.01 + WAKE_UP_S), "the rest is waiting for the core"
