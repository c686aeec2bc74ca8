"""A signal interrupts the answer that a worker computes, whenever it comes in that request, and no later one."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from interfere.errors import CancelledError
from interfere.serving.workers.process import _Computation
from interfere.serving.workers.worker import AbandonedCalls
from interfere.time_budget import check_interruption


@pytest.fixture
def abandoned() -> Iterator[AbandonedCalls]:
    """The numbers that the server shares with a worker."""
    calls = AbandonedCalls()
    yield calls
    calls.close()


@pytest.fixture
def computation(abandoned: AbandonedCalls) -> Iterator[_Computation]:
    before = signal.getsignal(signal.SIGUSR1)
    yield _Computation(abandoned)
    signal.signal(signal.SIGUSR1, before)


def interrupt(abandoned: AbandonedCalls, number: int) -> None:
    """As the server does."""
    abandoned.abandon(number)
    os.kill(os.getpid(), signal.SIGUSR1)


def test_a_signal_interrupts_the_computation(computation: _Computation, abandoned: AbandonedCalls) -> None:
    computation.begin_request(1)
    with pytest.raises(CancelledError), computation.interruptible():
        interrupt(abandoned, 1)


def test_a_signal_that_comes_while_the_worker_learns_interrupts_before_the_computation(
    computation: _Computation, abandoned: AbandonedCalls
) -> None:
    """A process that waits for a processor gets it long before it computes."""
    computation.begin_request(1)
    interrupt(abandoned, 1)  # what the worker learns now, it learns to the end
    with pytest.raises(CancelledError), computation.interruptible():
        pytest.fail("the computation began")


def test_a_signal_that_comes_before_the_request_is_read_interrupts_it(
    computation: _Computation, abandoned: AbandonedCalls
) -> None:
    """A stopped process gets the request and the signal at once when it goes on."""
    interrupt(abandoned, 1)
    computation.begin_request(1)
    with pytest.raises(CancelledError), computation.interruptible():
        pytest.fail("the computation began")


def test_a_search_that_swallowed_the_exception_is_interrupted_at_its_next_check(
    computation: _Computation, abandoned: AbandonedCalls
) -> None:
    computation.begin_request(1)
    with computation.interruptible():
        with suppress(CancelledError):
            interrupt(abandoned, 1)
        with pytest.raises(CancelledError):
            check_interruption()


def test_a_signal_that_came_after_an_answer_stops_no_later_request(
    computation: _Computation, abandoned: AbandonedCalls
) -> None:
    computation.begin_request(1)
    with computation.interruptible():
        pass
    interrupt(abandoned, 1)
    computation.begin_request(2)
    with computation.interruptible():
        check_interruption()
