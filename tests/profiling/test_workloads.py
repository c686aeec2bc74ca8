"""Every built-in runs, waits as it says, and can be found; so can a user's own."""

import subprocess
import sys
import time

import pytest

from interfere.errors import InvalidInputError, NotFoundError
from interfere.profiling.workloads import BUILT_IN, EIGHT, TWELVE, check_names, expand_names, find_workload, needs_torch
from tests.profiling import sample_workloads


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_runs_and_waits_alike_in_every_step(name: str) -> None:
    workload = find_workload(name)
    assert workload.name == name
    step = workload.build()
    waits: list[list[float]] = []
    for _ in range(3):
        waits.append([])
        step(waits[-1].append)
    assert waits[0] == waits[1] == waits[2], "steps must be alike, or windows are not comparable"
    assert all(0 < wait <= 0.008 for wait in waits[0])
    assert ("always busy" in workload.description) == (not waits[0])
    begin_s = time.process_time()
    step(waits[-1].append)
    assert time.process_time() - begin_s < 1.0


def test_half_of_the_built_ins_wait() -> None:
    waiting = [name for name, workload in BUILT_IN.items() if "always busy" not in workload.description]
    assert len(BUILT_IN) >= 12
    assert len(waiting) >= len(BUILT_IN) / 2


def test_declared_work_is_finite_and_torch_work_is_left_to_the_counter() -> None:
    for workload in BUILT_IN.values():
        declared = workload.operator != ""
        assert declared != (workload.framework == "torch")


def test_names_and_sets() -> None:
    assert expand_names("all") == tuple(BUILT_IN)
    assert expand_names(" gemm , stream") == ("gemm", "stream")
    assert set(EIGHT) < set(TWELVE) < set(BUILT_IN)
    assert (len(EIGHT), len(TWELVE)) == (8, 12)
    with pytest.raises(InvalidInputError, match="no workload"):
        expand_names(" , ")


def test_unknown_and_repeated_names_are_refused() -> None:
    with pytest.raises(NotFoundError, match="one of resnet-train"):
        check_names(("gemn",))
    with pytest.raises(InvalidInputError, match="twice: gemm"):
        check_names(("gemm", "gemm"))
    check_names(("gemm", "my.module:job"))


def test_a_users_own() -> None:
    assert find_workload("tests.profiling.sample_workloads:BUSY") is sample_workloads.BUSY
    assert find_workload("tests.profiling.sample_workloads:waiting").name == "waiting"
    assert not needs_torch("tests.profiling.sample_workloads:waiting")
    with pytest.raises(InvalidInputError, match="did not return a Workload: str"):
        find_workload("tests.profiling.sample_workloads:nothing")


def test_looking_up_imports_nothing_heavy() -> None:
    code = "import sys, interfere.profiling.workloads as w; w.expand_names('all'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
