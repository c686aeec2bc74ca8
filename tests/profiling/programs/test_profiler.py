"""Marks and samples of known runs give the known profiles, and tell a run that left its core."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from interfere.profiling.programs.profiler import RunRecording, run_recording, solo_measurement
from interfere.profiling.slices import CPU, Slice
from interfere.progress import Mark

ALONE = tuple(Slice(running=frozenset({0}), start_s=2.0 + k / 2, end_s=2.5 + k / 2) for k in range(8))


def samples(*, busy: float = 0.5, core_busy: float = 1.0, strayed: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "monotonic_s": t,
            "cpu_s": busy * t,
            "wait_s": (core_busy - busy) * t,
            "core_busy_s": 100 + core_busy * t,
            "private_bytes": 1000 + int(t),
            "strayed": strayed,
        }
        for t in np.arange(0.0, 8.0, 0.1)
    ]


def recorded_run(step_s: float, core: int | None = 0, sampled: Sequence[dict[str, Any]] = ()) -> RunRecording:
    times = np.arange(step_s, 7.0, step_s)
    marks = [Mark("w", 1.7e9 + t, float(t), k + 1.0) for k, t in enumerate(times)]
    return run_recording("one", marks, sampled or samples(core_busy=0.5), 0.0, 7.0, core=core)


def test_a_profile_is_the_mean_over_whole_steps_of_all_starts() -> None:
    runs = [(recorded_run(step_s), ALONE) for step_s in (0.0490, 0.0500)]
    measured = solo_measurement(runs, "cpu-core", 1e-5)
    profile = measured.profile
    assert (profile.source, profile.workload) == ("command", "one")
    assert 0.0490 < profile.step_time_s < 0.0500
    assert profile.step_time_sd_s == pytest.approx(0.0005, rel=0.1)
    assert profile.busy_frac == pytest.approx(0.5)
    assert profile.memory_peak_bytes == 1007
    assert measured.steal_frac == pytest.approx(0.0, abs=1e-6)
    unpinned = solo_measurement([(recorded_run(step_s, None), ALONE) for step_s in (0.0490, 0.0500)], "h100", 1e-5)
    unknown = (unpinned.profile.busy_frac, unpinned.profile.memory_peak_bytes, unpinned.steal_frac)
    assert np.isnan(unknown).all(), "host figures say nothing about another device"
    assert unpinned.profile.step_time_s == pytest.approx(profile.step_time_s)


def test_what_others_took_is_subtracted_from_the_step_time() -> None:
    measured = solo_measurement([(recorded_run(0.05, sampled=samples(core_busy=1.0)), ALONE)], "cpu-core", 1e-5)
    assert measured.steal_frac == pytest.approx(0.5, abs=0.01)
    assert measured.profile.step_time_s == pytest.approx(0.025, rel=0.02)
    assert measured.profile.busy_frac == pytest.approx(1.0, abs=0.02)


def test_a_run_that_left_its_core_is_told() -> None:
    strayed = samples(strayed=2)
    assert (
        recorded_run(0.05, sampled=strayed).pinning_problem
        == "one: 2 of its processes left the core they were pinned to"
    )
    assert not recorded_run(0.05).pinning_problem
    assert not recorded_run(0.05, None, strayed).pinning_problem, "elsewhere nothing is pinned"


def test_cpu_time_never_runs_backwards() -> None:
    sampled = [
        {"monotonic_s": t, "cpu_s": c, "wait_s": None, "core_busy_s": None, "private_bytes": 1, "strayed": 0}
        for t, c in ((0.0, 0.0), (1.0, 1.0), (2.0, 0.9), (3.0, 2.0))
    ]
    recording = run_recording("one", [], sampled, 0.0, 3.0, core=0)
    assert recording.samples is not None
    assert recording.samples[:, CPU].tolist() == [0.0, 1.0, 1.0, 2.0]
