"""Real workers on a real core are started, stopped and read, and gone afterwards; failures of users' code are named."""

import math
import os
import time
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import UnfitError
from interfere.profiling.design.placement import choose_layout
from interfere.profiling.trace import busy_intervals, covered_s, running_intervals, whole_steps
from interfere.profiling.worker_pool import InstanceKey, WorkerPool
from interfere.records import WorkloadGroup
from tests.profiling.processes import all_gone, descendants

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")
BUSY, WAITING = (f"tests.profiling.sample_workloads:{name}" for name in ("BUSY", "waiting"))


def pool(tmp_path: Path, *names: str, mode: str = "timeslice", groups: tuple[WorkloadGroup, ...] = ()) -> WorkerPool:
    return WorkerPool(names, groups=groups, layout=choose_layout(mode, None), log=tmp_path / "workers.log")


def test_a_block_runs_its_windows_as_planned_on_one_core(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, WAITING) as workers:
        pids = [worker.pid for worker in workers.workers.values()]
        assert [os.sched_getaffinity(pid) for pid in pids] == [set(workers.layout.cores)] * 2
        processes = descendants(os.getpid())
        run = workers.run_block((BUSY, WAITING), alone_s=0.5, shared_s=0.5)
        (first, second), windows = run.traces, run.windows
        assert [sorted(w.running) for w in windows] == [[0], [0, 1], [1], [0, 1]]
        assert -1 < run.drift_frac < math.inf
        assert len(running_intervals(first)) == 2, "stopped once, while the other is measured alone"
        assert len(running_intervals(second)) == 1
        b = windows[2]
        assert covered_s(running_intervals(first), b.start_s, b.end_s) == 0.0
        for window in windows[1::2]:
            for trace in (first, second):
                assert covered_s(running_intervals(trace), window.start_s, window.end_s) > 0.05
                assert whole_steps(trace, window.start_s, window.end_s) is not None
        assert len(busy_intervals(second)) > 5, "its pauses are in the trace"
        assert (np.diff(first[:, :3], axis=0) >= 0).all(), "time, CPU time and steps only grow"
    assert len(processes) == 3
    assert all_gone(processes)


def test_a_stopped_worker_uses_no_cpu(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY) as workers:
        process = descendants(os.getpid())[-1]
        before = sum(process.cpu_times()[:2])
        time.sleep(1.0)
        assert sum(process.cpu_times()[:2]) - before <= 0.05, "ticks of 10 ms"
        assert len(workers.workers[InstanceKey(BUSY, 0)].collect_trace()) == 0


def test_a_self_pair_has_a_second_instance_that_is_built_when_needed(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, groups=((BUSY, BUSY),)) as workers:
        second = workers.workers[InstanceKey(BUSY, 1)]
        assert second.pid == 0
        traces = workers.run_block((BUSY, BUSY), alone_s=0.15, shared_s=0.15).traces
        assert second.pid not in (0, workers.workers[InstanceKey(BUSY, 0)].pid)
        assert all(len(trace) > 2 for trace in traces)


def test_a_block_of_three_measures_each_alone_and_all_together(tmp_path: Path) -> None:
    members = (BUSY, WAITING, BUSY)
    with pool(tmp_path, BUSY, WAITING, groups=(members,)) as workers:
        run = workers.run_block(members, alone_s=0.3, shared_s=0.6)
        assert [sorted(w.running) for w in run.windows] == [[0], [0, 1, 2], [1], [2], [0, 1, 2]]
        assert len({worker.pid for worker in workers.group_workers(members)}) == 3, "copies have processes of their own"
        for k, trace in enumerate(run.traces):
            for window in run.windows:
                ran_s = covered_s(running_intervals(trace), window.start_s, window.end_s)
                assert (ran_s > 0.05) if k in window.running else (ran_s == 0.0)


def test_in_mode_priority_the_second_job_alone_yields(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, mode="priority", groups=((BUSY, BUSY),)) as workers:
        first, second = workers.group_workers((BUSY, BUSY))
        assert os.sched_getscheduler(first.pid) == os.SCHED_OTHER
        assert os.sched_getscheduler(second.pid) == os.SCHED_IDLE
        assert os.sched_getaffinity(first.pid) == os.sched_getaffinity(second.pid) == {first.core}


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="spatial sharing needs two cores"
)
def test_in_mode_spatial_each_job_has_a_core_of_its_own(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, mode="spatial", groups=((BUSY, BUSY),)) as workers:
        run = workers.run_block((BUSY, BUSY), alone_s=0.1, shared_s=0.1)
        assert len(set(run.cores)) == 2
        pinned = [os.sched_getaffinity(worker.pid) for worker in workers.group_workers((BUSY, BUSY))]
        assert pinned == [{core} for core in run.cores]


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("failing", "no such data set"),
        ("nothing", "did not return a Workload"),
        ("absent", "AttributeError"),
        ("dying", "ended by itself"),
    ],
)
def test_a_workload_that_fails_is_named_and_no_process_is_left(tmp_path: Path, job: str, said: str) -> None:
    broken = pool(tmp_path, BUSY, f"tests.profiling.sample_workloads:{job}")
    before = descendants(os.getpid())
    with pytest.raises(UnfitError, match=said) as caught, broken:
        pass
    assert job in str(caught.value)
    assert caught.value.remedy
    assert all_gone([p for p in descendants(os.getpid()) if p not in before])
