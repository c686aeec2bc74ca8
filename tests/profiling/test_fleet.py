"""Real workers on a real core: flipped, read, and gone afterwards; failures of users' code are named."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from interfere.errors import UnfitError
from interfere.profiling import affinity
from interfere.profiling.fleet import Fleet
from interfere.profiling.solo import measure_solo
from interfere.profiling.trace import busy_stretches, covered, running_stretches, whole_steps
from tests.profiling.processes import all_gone, descendants

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")
BUSY, WAITING, SLOW = (f"tests.profiling.jobs:{name}" for name in ("BUSY", "waiting", "slow"))


def fleet(tmp_path: Path, *names: str, twins: tuple[str, ...] = ()) -> Fleet:
    return Fleet(names, twins=twins, core=affinity.pick_core(), log=tmp_path / "workers.log")


def test_a_block_is_flipped_as_planned_on_one_core(tmp_path: Path) -> None:
    with fleet(tmp_path, BUSY, WAITING) as workers:
        pids = [worker.pid for worker in workers.workers.values()]
        assert [os.sched_getaffinity(pid) for pid in pids] == [{workers.core}] * 2
        processes = descendants(os.getpid())
        (one, other), windows, drift = workers.run_block(BUSY, WAITING, 0.2)
        assert [w.phase for w in windows] == ["A", "AB", "B", "AB"]
        assert abs(drift) < 0.5
        assert len(running_stretches(one)) == 2, "held once, while the other is measured alone"
        assert len(running_stretches(other)) == 1
        b = windows[2]
        assert covered(running_stretches(one), b.start_s, b.end_s) == 0.0
        for window in windows[1::2]:
            for trace in (one, other):
                assert covered(running_stretches(trace), window.start_s, window.end_s) > 0.15
                assert whole_steps(trace, window.start_s, window.end_s) is not None
        assert len(busy_stretches(other)) > 10, "its pauses are in the trace"
        assert (np.diff(one[:, :3], axis=0) >= 0).all(), "time, CPU time and steps only grow"
    assert len(processes) == 3
    assert all_gone(processes)


def test_a_held_worker_uses_no_cpu(tmp_path: Path) -> None:
    with fleet(tmp_path, BUSY) as workers:
        process = descendants(os.getpid())[-1]
        before = sum(process.cpu_times()[:2])
        time.sleep(0.5)
        assert sum(process.cpu_times()[:2]) - before <= 0.02
        assert len(workers.workers[BUSY].collect()) == 0


def test_a_self_pair_has_a_twin_that_is_built_when_needed(tmp_path: Path) -> None:
    with fleet(tmp_path, BUSY, twins=(BUSY,)) as workers:
        twin = workers.workers[f"{BUSY}#2"]
        assert twin.pid == 0
        traces, _, _ = workers.run_block(BUSY, BUSY, 0.15)
        assert twin.pid not in (0, workers.workers[BUSY].pid)
        assert all(len(trace) > 10 for trace in traces)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("failing", "no such data set"),
        ("nothing", "gave no Workload"),
        ("absent", "AttributeError"),
        ("dying", "ended by itself"),
    ],
)
def test_a_workload_that_fails_is_named_and_no_process_is_left(tmp_path: Path, job: str, said: str) -> None:
    broken = fleet(tmp_path, BUSY, f"tests.profiling.jobs:{job}")
    before = descendants(os.getpid())
    with pytest.raises(UnfitError, match=said) as caught, broken:
        pass
    assert job in str(caught.value)
    assert caught.value.remedy
    assert all_gone([p for p in descendants(os.getpid()) if p not in before])


def test_profile_of_a_job_that_waits(tmp_path: Path) -> None:
    with fleet(tmp_path, WAITING) as workers:
        profile, steal = measure_solo(workers, WAITING, "cpu-core", seconds=1.0)
    assert 0.005 <= profile.step_time_s < 0.02, "1 ms of work and 4 ms of waiting"
    assert 0.05 < profile.busy_frac < 0.5
    assert 50 < len(profile.busy_s) <= 200
    assert np.median(profile.idle_s) == pytest.approx(0.004, rel=0.5)
    assert profile.step_time_sd_s >= 0
    assert 0 <= steal <= 1
    assert np.isnan(profile.flops_per_step)


def test_profile_of_steps_longer_than_a_window(tmp_path: Path) -> None:
    with fleet(tmp_path, SLOW) as workers:
        profile, _ = measure_solo(workers, SLOW, "cpu-core", seconds=0.4)
    assert profile.step_time_s > 0.045, "no window of 0.08 s holds enough of them: windows grew"
    assert profile.busy_frac > 0.2


def test_profiles_of_a_torch_and_a_numpy_workload(tmp_path: Path) -> None:
    with fleet(tmp_path, "vae-train", "gemm") as workers:
        vae, _ = measure_solo(workers, "vae-train", "cpu-core", seconds=0.5)
        gemm, _ = measure_solo(workers, "gemm", "cpu-core", seconds=0.5)
    # Encoder and decoder: four layers, forward 2·batch·in·out, backward twice that, less the gradient of the images.
    forward = 2 * 64 * (784 * 256 + 256 * 32 + 16 * 256 + 256 * 784)
    assert vae.flops_per_step == pytest.approx(3 * forward - 2 * 64 * 784 * 256)
    weights = 4 * (784 * 256 + 256 * 32 + 16 * 256 + 256 * 784)
    assert vae.bytes_per_step > 3 * weights, "forward, backward and Adam each read them"
    assert vae.memory_peak_bytes > 3 * weights, "weights and Adam's two moments are resident"
    assert vae.memory_working_set_bytes > 3 * weights
    assert 5 <= len(vae.kernels) <= 30
    own_s = sum(k.mean_s * k.count for k in vae.kernels)  # the profiler's own cost is in it
    assert 0.2 < own_s / (vae.step_time_s * vae.busy_frac) < 5, "seconds, and calls of one step"
    assert [kernel.name for kernel in gemm.kernels] == ["numpy::matmul"]
    assert gemm.kernels[0].mean_s * gemm.kernels[0].count <= gemm.step_time_s * 1.01
    assert gemm.flops_per_step == 4 * 2 * 384**3
