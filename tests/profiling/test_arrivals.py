"""Requests arrive in an open loop: on a clock made by hand, whose waits and answers take known times."""

import numpy as np
import pytest

from interfere.profiling.workloads.arrivals import STEP_S, OpenLoop


class HandClock:
    """A clock that only waits and answers move."""

    def __init__(self, answer_s: float) -> None:
        self.now_s, self.answer_s, self.waited_s = 100.0, answer_s, 0.0

    def __call__(self) -> float:
        return self.now_s

    def answer(self) -> None:
        self.now_s += self.answer_s

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.waited_s += seconds


def served(answer_s: float, *, requests_per_s: float = 1000, steps: int = 40) -> tuple[HandClock, np.ndarray]:
    clock = HandClock(answer_s)
    step = OpenLoop(clock.answer, requests_per_s=requests_per_s, clock=clock)
    for _ in range(steps):
        step(clock.wait)
    return clock, np.array(step.take_answered())


def test_arrivals_have_their_rate_exponential_gaps_and_steps_of_equal_length() -> None:
    _, requests = served(1e-6)
    gaps_s = np.diff(requests[:, 0], prepend=100.0).reshape(40, -1)
    assert gaps_s.sum(axis=1) == pytest.approx(STEP_S)
    assert len({tuple(gaps) for gaps in gaps_s.round(9)}) == 40, "the order is drawn anew for every step"
    assert gaps_s.std() == pytest.approx(gaps_s.mean(), rel=0.15), "as of an exponential distribution"


def test_arrivals_do_not_wait_for_answers() -> None:
    quick, slow = served(0.0002)[1], served(0.0008)[1]
    assert quick[:, 0] == pytest.approx(slow[:, 0])
    latency = slow[:, 1] - slow[:, 0]
    assert latency.min() == pytest.approx(0.0008)
    assert np.quantile(latency, 0.99) > 3 * 0.0008, "behind others"


def test_waits_and_answers_fill_the_time_as_long_as_it_keeps_up() -> None:
    clock, requests = served(0.0004)
    assert clock.waited_s / (clock.now_s - 100.0) == pytest.approx(0.6, abs=0.02)
    overloaded, late = served(0.0015)
    assert overloaded.waited_s < 0.01
    assert late[-1, 1] - late[-1, 0] > 0.3, "the queue grows"
    assert len(late) == len(requests)


def test_after_a_stop_it_begins_with_an_empty_queue() -> None:
    clock = HandClock(0.0001)
    step = OpenLoop(clock.answer, requests_per_s=500, clock=clock)
    step(clock.wait)
    clock.now_s += 60.0
    step.restart()
    step.take_answered()
    step(clock.wait)
    assert max(answer_s - arrival_s for arrival_s, answer_s in step.take_answered()) < 0.01
