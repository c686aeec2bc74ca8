"""A signal interrupts the answer that a worker computes, whenever it comes in that request, and no later one."""

import os
import signal
from collections.abc import Iterator

import pytest

from interfere.errors import CancelledError
from interfere.serving.workers.process import _Computation


@pytest.fixture
def computation() -> Iterator[_Computation]:
    before = signal.getsignal(signal.SIGUSR1)
    yield _Computation()
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_interrupts_the_computation(computation: _Computation) -> None:
    computation.begin_request()
    with pytest.raises(CancelledError), computation.interruptible():
        os.kill(os.getpid(), signal.SIGUSR1)


def test_a_signal_that_comes_while_the_worker_learns_interrupts_before_the_computation(
    computation: _Computation,
) -> None:
    """A process that waits for a processor gets it long before it computes."""
    computation.begin_request()
    os.kill(os.getpid(), signal.SIGUSR1)  # what the worker learns now, it learns to the end
    with pytest.raises(CancelledError), computation.interruptible():
        pytest.fail("the computation began")


def test_a_signal_that_came_after_an_answer_stops_no_later_request(computation: _Computation) -> None:
    computation.begin_request()
    with computation.interruptible():
        pass
    os.kill(os.getpid(), signal.SIGUSR1)
    computation.begin_request()
    with computation.interruptible():
        pass
