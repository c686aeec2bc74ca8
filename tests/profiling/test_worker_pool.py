"""Real workers on a real core are started, stopped and read, and gone afterwards; failures of users' code are named."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import UnfitError
from interfere.profiling.affinity import choose_layout
from interfere.profiling.slices import MIN_SLICE_STEPS, slice_plan
from interfere.profiling.trace import Event, busy_intervals, covered_s, running_intervals, whole_steps
from interfere.profiling.workload_profiler import InstanceKey, WorkerPool
from interfere.records import WorkloadGroup
from interfere.sharing_modes import parse_sharing_mode
from tests.profiling.processes import all_gone, descendants

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")
BUSY, WAITING = (f"tests.profiling.sample_workloads:{name}" for name in ("BUSY", "waiting"))


def pool(tmp_path: Path, *names: str, mode: str = "timeslice", groups: tuple[WorkloadGroup, ...] = ()) -> WorkerPool:
    return WorkerPool(
        names, groups=groups, layout=choose_layout(parse_sharing_mode(mode), None), log=tmp_path / "workers.log"
    )


A, B, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})


def test_slices_run_as_planned_on_one_core(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, WAITING) as workers:
        pids = [worker.pid for worker in workers.workers.values()]
        assert [os.sched_getaffinity(pid) for pid in pids] == [set(workers.layout.cores)] * 2
        processes = descendants(os.getpid())
        run = workers.run_slices((BUSY, WAITING), [[A, BOTH, B, BOTH]], 0.2, 9.0)
        first, second = (recording.trace for recording in run.recordings)
        assert [window.running for window in run.slices] == [A, BOTH, B, BOTH]
        assert all(clock_s > 0 for window in run.slices for clocks in window.clocks for clock_s in clocks)
        assert run.slices[0].clocks[0][1] == run.slices[1].clocks[0][0], "one measurement between two slices"
        assert all(usual_s > 0 for usual_s in run.usual_clocks_s)
        assert len(running_intervals(first)) == len(running_intervals(second)) == 3
        b = run.slices[2]
        assert covered_s(running_intervals(first), b.start_s, b.end_s) == 0.0
        for window in run.slices[1::2]:
            for trace in (first, second):
                assert covered_s(running_intervals(trace), window.start_s, window.end_s) > 0.05
                assert whole_steps(trace, window.start_s, window.end_s) is not None
        assert len(busy_intervals(second)) > 5, "its pauses are in the trace"
        assert (np.diff(first[:, :3], axis=0) >= 0).all(), "time, CPU time and steps only grow"
    assert len(processes) == 3
    assert all_gone(processes)


def test_a_slice_lasts_until_every_job_has_made_its_steps(tmp_path: Path) -> None:
    slow = "tests.profiling.sample_workloads:slow"
    with pool(tmp_path, BUSY, slow) as workers:
        run = workers.run_slices((BUSY, slow), [[BOTH]], 0.05, 9.0)
    assert run.slices[0].end_s - run.slices[0].start_s > 0.25, "three steps of 50 ms on half a core"
    assert (run.recordings[1].trace[:, 3] == Event.STEP).sum() >= MIN_SLICE_STEPS


def test_after_its_time_no_further_round_begins(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY) as workers:
        assert len(workers.run_slices((BUSY,), [[A, A]] * 5, 0.05, 0.0).slices) == 2


def test_a_stopped_worker_uses_no_cpu(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY) as workers:
        process = descendants(os.getpid())[-1]
        before = sum(process.cpu_times()[:2])
        time.sleep(1.0)
        assert sum(process.cpu_times()[:2]) - before <= 0.05, "ticks of 10 ms"
        assert [len(rows) for rows in workers.workers[InstanceKey(BUSY, 0)].collect()] == [0, 0]


def test_a_self_pair_has_a_second_instance_that_is_built_when_needed(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, groups=((BUSY, BUSY),)) as workers:
        second = workers.workers[InstanceKey(BUSY, 1)]
        assert second.pid == 0
        run = workers.run_slices((BUSY, BUSY), [[A, BOTH, B]], 0.1, 9.0)
        assert second.pid not in (0, workers.workers[InstanceKey(BUSY, 0)].pid)
        assert all(len(recording.trace) > 2 for recording in run.recordings)


def test_a_block_of_three_measures_each_alone_and_all_together(tmp_path: Path) -> None:
    members = (BUSY, WAITING, BUSY)
    with pool(tmp_path, BUSY, WAITING, groups=(members,)) as workers:
        plan = slice_plan(3, 1, np.random.default_rng(0))
        run = workers.run_slices(members, plan, 0.2, 9.0)
        assert [window.running for window in run.slices] == plan[0]
        assert len({worker.pid for (worker,) in workers.group_workers(members)}) == 3, (
            "copies have processes of their own"
        )
        for k, recording in enumerate(run.recordings):
            for window in run.slices:
                ran_s = covered_s(running_intervals(recording.trace), window.start_s, window.end_s)
                assert (ran_s > 0.05) if k in window.running else (ran_s == 0.0)


def test_in_mode_priority_the_second_job_alone_yields(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, mode="priority", groups=((BUSY, BUSY),)) as workers:
        (first,), (second,) = workers.group_workers((BUSY, BUSY))
        assert os.sched_getscheduler(first.pid) == os.SCHED_OTHER
        assert os.sched_getscheduler(second.pid) == os.SCHED_IDLE
        assert os.sched_getaffinity(first.pid) == os.sched_getaffinity(second.pid) == {first.core}


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="spatial sharing needs two cores"
)
def test_in_mode_spatial_each_job_has_a_core_of_its_own(tmp_path: Path) -> None:
    with pool(tmp_path, BUSY, mode="spatial", groups=((BUSY, BUSY),)) as workers:
        cores = [recording.core for recording in workers.run_slices((BUSY, BUSY), [[BOTH]], 0.1, 9.0).recordings]
        assert len(set(cores)) == 2
        pinned = [os.sched_getaffinity(worker.pid) for (worker,) in workers.group_workers((BUSY, BUSY))]
        assert pinned == [{core} for core in cores]


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
