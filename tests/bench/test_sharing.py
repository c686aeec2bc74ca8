"""What live gap filling costs a job that nobody else disturbs: interception of its operators, and turns."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import pytest

from interfere.profiling.workloads import find_workload
from interfere.sharing.live import Session
from tests.bench.history import record

STEPS, WARM_STEPS = 30, 3
JOBS = ("resnet-train", "bert-infer", "gnn-train", "lstm-train", "bert-serve", "gpt-decode", "dlrm-train", "vae-train")


def no_wait(_: float) -> None:
    """The gaps of a job are not slept: only its processor time counts."""


@contextmanager
def not_intercepted() -> Iterator[None]:
    """Operators and calls of this thread run as if there were no session."""
    from torch._C import DisableTorchFunction
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), DisableTorchFunction():
        yield


@pytest.mark.bench
@pytest.mark.parametrize("priority", ["high", "low"])
@pytest.mark.parametrize("name", JOBS)
def test_processor_time_of_steps_in_turns(name: str, priority: str, tmp_path: Path) -> None:
    """Lower quartiles of the CPU time of steps with a session and without it, taken in turn."""
    from interfere.sharing.operator_interception import operators_on_one_core

    step = find_workload(name).build()
    plain_ns, shared_ns = [], []
    with operators_on_one_core(), Session(priority, tmp_path / "core") as session:
        while not session.is_measured:
            step(no_wait)
            session.end_step()
        for _ in range(WARM_STEPS + STEPS):
            with not_intercepted():
                start_ns = time.thread_time_ns()
                step(no_wait)
                plain_ns.append(time.thread_time_ns() - start_ns)
            start_ns = time.thread_time_ns()
            step(no_wait)
            session.end_step()
            shared_ns.append(time.thread_time_ns() - start_ns)
    ratio = quantiles(shared_ns[WARM_STEPS:], n=4)[0] / quantiles(plain_ns[WARM_STEPS:], n=4)[0]
    plain_ms = quantiles(plain_ns[WARM_STEPS:], n=4)[0] / 1e6
    record(f"sharing-overhead-{priority}-{name}", {"ratio": ratio, "plain_ms": plain_ms})
    print(f"{name}, {priority}: CPU time of a step {ratio:.3f} times that without sharing")
    assert ratio < 5.0
