"""Real workers on a real core are started, stopped and read, and gone afterwards; failures of users' code are named."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import UnfitError
from interfere.profiling import affinity
from interfere.profiling.trace import busy_intervals, covered_s, running_intervals, whole_steps
from interfere.profiling.worker_pool import WorkerPool
from tests.profiling.processes import all_gone, descendants

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")
BUSY, WAITING = (f"tests.profiling.sample_workloads:{name}" for name in ("BUSY", "waiting"))


def pool(tmp_path: Path, *names: str, self_paired: tuple[str, ...] = ()) -> WorkerPool:
    return WorkerPool(names, self_paired=self_paired, core=affinity.pick_core(), log=tmp_path / "workers.log")


def test_a_block_runs_its_windows_as_planned_on_one_core(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, WAITING) as workers:
        pids = [worker.pid for worker in workers.workers.values()]
        assert [os.sched_getaffinity(pid) for pid in pids] == [{workers.core}] * 2
        processes = descendants(os.getpid())
        run = workers.run_block(BUSY, WAITING, 0.2)
        (first, second), windows = run.traces, run.windows
        assert [w.phase for w in windows] == ["A", "AB", "B", "AB"]
        assert abs(run.drift_frac) < 0.5
        assert len(running_intervals(first)) == 2, "stopped once, while the other is measured alone"
        assert len(running_intervals(second)) == 1
        b = windows[2]
        assert covered_s(running_intervals(first), b.start_s, b.end_s) == 0.0
        for window in windows[1::2]:
            for trace in (first, second):
                assert covered_s(running_intervals(trace), window.start_s, window.end_s) > 0.15
                assert whole_steps(trace, window.start_s, window.end_s) is not None
        assert len(busy_intervals(second)) > 10, "its pauses are in the trace"
        assert (np.diff(first[:, :3], axis=0) >= 0).all(), "time, CPU time and steps only grow"
    assert len(processes) == 3
    assert all_gone(processes)


def test_a_stopped_worker_uses_no_cpu(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY) as workers:
        process = descendants(os.getpid())[-1]
        before = sum(process.cpu_times()[:2])
        time.sleep(0.5)
        assert sum(process.cpu_times()[:2]) - before <= 0.02
        assert len(workers.workers[BUSY].collect_trace()) == 0


def test_a_self_pair_has_a_second_instance_that_is_built_when_needed(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, self_paired=(BUSY,)) as workers:
        second = workers.workers[f"{BUSY}#2"]
        assert second.pid == 0
        traces = workers.run_block(BUSY, BUSY, 0.15).traces
        assert second.pid not in (0, workers.workers[BUSY].pid)
        assert all(len(trace) > 10 for trace in traces)


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
