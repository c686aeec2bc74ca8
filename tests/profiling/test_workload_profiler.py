"""Profiles of real workloads hold the facts that are known of them."""

import os
from pathlib import Path

import numpy as np
import pytest

from interfere.profiling.affinity import choose_layout
from interfere.profiling.workload_profiler import WorkerPool, WorkloadProfiler
from interfere.records import JobProfile
from interfere.sharing_modes import DEFAULT_MODE

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin processes")
WAITING, SLOW = (f"tests.profiling.sample_workloads:{name}" for name in ("waiting", "slow"))


def pool(tmp_path: Path, *names: str) -> WorkerPool:
    return WorkerPool(names, layout=choose_layout(DEFAULT_MODE, None), log=tmp_path / "workers.log")


def solo(workers: WorkerPool, name: str, seconds: float) -> tuple[JobProfile, float]:
    profiler = WorkloadProfiler(workers, "cpu-core", solo_s=seconds, block_s=0.4)
    measured = profiler.profile_solo(name)
    return measured.profile, measured.steal_frac


def test_profile_of_a_job_that_waits(tmp_path: Path) -> None:
    with pool(tmp_path, WAITING) as workers:
        profile, steal = solo(workers, WAITING, 1.0)
    assert 0.005 <= profile.step_time_s < 0.2, "1 ms of work and 4 ms of waiting"
    assert 0 < profile.busy_frac < 1
    assert 5 < len(profile.busy_s) <= 200
    assert 0.004 <= np.median(profile.idle_s) < 0.1
    if steal <= 0.1:  # else other programs had the core while it wanted to work
        assert 0.001 <= np.median(profile.busy_s) < np.median(profile.idle_s)
    assert profile.step_time_sd_s >= 0
    assert 0 <= steal <= 1
    assert np.isnan(profile.flops_per_step)


def test_profile_of_steps_longer_than_a_window(tmp_path: Path) -> None:
    with pool(tmp_path, SLOW) as workers:
        profile, _ = solo(workers, SLOW, 0.4)
    assert profile.step_time_s > 0.045, "no slice of 0.05 s holds enough of them: slices grew"
    assert profile.busy_frac > 0.2


def test_profiles_of_a_torch_and_a_numpy_workload(tmp_path: Path) -> None:
    with pool(tmp_path, "vae-train", "gemm") as workers:
        vae, _ = solo(workers, "vae-train", 0.5)
        gemm, _ = solo(workers, "gemm", 0.5)
    # Encoder and decoder: four layers, forward 2·batch·in·out, backward twice that, less the gradient of the images.
    forward = 2 * 64 * (784 * 256 + 256 * 32 + 16 * 256 + 256 * 784)
    assert vae.flops_per_step == pytest.approx(3 * forward - 2 * 64 * 784 * 256)
    weights = 4 * (784 * 256 + 256 * 32 + 16 * 256 + 256 * 784)
    assert vae.bytes_per_step > 3 * weights, "forward, backward and Adam each read them"
    assert vae.memory_peak_bytes > 3 * weights, "weights and Adam's two moments are resident"
    assert vae.memory_working_set_bytes > 3 * weights
    assert 5 <= len(vae.kernels) <= 30
    own_s = sum(k.mean_s * k.count for k in vae.kernels)  # the profiler's own cost is in it
    assert 0.05 < own_s / (vae.step_time_s * vae.busy_frac) < 50, "seconds, and calls of one step"
    assert [kernel.name for kernel in gemm.kernels] == ["numpy::matmul"]
    assert gemm.kernels[0].mean_s * gemm.kernels[0].count <= gemm.step_time_s * 1.01
    assert gemm.flops_per_step == 4 * 2 * 384**3
