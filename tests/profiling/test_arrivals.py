"""Requests arrive in an open loop: on a clock made by hand, whose waits and answers take known times."""

from collections.abc import Iterator

import numpy as np
import pytest

from interfere.profiling.trace import token_times_s
from interfere.profiling.workloads.workload import STEP_S, OpenLoop


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
    assert max(each.answer_s - each.arrival_s for each in step.take_answered()) < 0.01


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_an_answer_of_tokens_has_a_time_to_the_first_and_a_time_for_each_further_one(tokens: int) -> None:
    clock = HandClock(0.0)
    first_s, further_s = 0.0004, 0.0001

    def answer() -> Iterator[None]:
        for k in range(tokens):
            clock.now_s += further_s if k else first_s
            yield

    step = OpenLoop(answer, requests_per_s=1000, clock=clock)
    for _ in range(40):
        step(clock.wait)
    requests = np.array(step.take_answered())
    ttft_s, tpot_s = token_times_s(requests, 0.0, np.inf)
    assert len(ttft_s) == len(requests)
    assert ttft_s.min() == pytest.approx(first_s)
    assert ttft_s.max() > 2 * first_s, "it includes the wait behind earlier requests"
    assert tpot_s == pytest.approx([further_s] * (len(requests) if tokens > 1 else 0))
    assert ttft_s + (tokens - 1) * further_s == pytest.approx(requests[:, 1] - requests[:, 0])
    late = requests[len(requests) // 2, 0]
    assert len(token_times_s(requests, late, np.inf)[0]) == len(requests) - len(requests) // 2


def test_an_answer_without_tokens_has_no_token_times() -> None:
    requests = served(0.0002)[1]
    assert [len(each) for each in token_times_s(requests, 0.0, np.inf)] == [0, 0]
