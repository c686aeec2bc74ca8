"""Marks and samples of known runs give the known profiles, slowdowns and reasons to refuse."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.profiling.block_analysis import MeasurementWindow
from interfere.profiling.programs.run_analysis import (
    RunRecording,
    analyse_pair,
    analyse_solo,
    core_steal_frac,
    run_recording,
)
from interfere.progress import Mark

ALONE, SHARED, OTHER = (
    MeasurementWindow(running=frozenset(who), start_s=s, end_s=s + 4.0)
    for who, s in (({0}, 2.0), ({0, 1}, 8.0), ({1}, 14.0))
)


def recorded_run(
    name: str, begin: float, end: float, *, step_s: float, shared_step_s: float, busy: float = 0.5, stolen: float = 0.0
) -> RunRecording:
    """A job whose steps take longer from 7 s to 12.5 s; it and a third process keep the core busy."""
    times, now = [], begin
    while now < end:
        now += shared_step_s if 7.0 <= now < 12.5 else step_s
        times.append(now)
    marks = [Mark("w", 1.7e9 + t, t, k + 1.0) for k, t in enumerate(times)]
    samples = [
        {
            "monotonic_s": t,
            "cpu_s": busy * (min(max(t, begin), end) - begin),
            "core_busy_s": 100 + t * stolen,
            "private_bytes": 1000 + int(t),
            "strayed": 0,
        }
        for t in np.arange(0.0, 20.0, 0.1)
    ]
    return run_recording(name, marks, samples, begin, end)


def pair() -> tuple[RunRecording, RunRecording]:
    first = recorded_run("one", 0.0, 13.0, step_s=0.05, shared_step_s=0.075, busy=0.5, stolen=1.0)
    second = recorded_run("other", 6.0, 19.0, step_s=0.02, shared_step_s=0.05, busy=0.5, stolen=1.0)
    return first, second


def test_a_block_gives_both_slowdowns() -> None:
    analysis = analyse_pair(pair(), (ALONE, SHARED, OTHER), 0.0, pinned=False)
    assert analysis.reason == ""
    assert [side.slowdown for side in analysis.sides] == pytest.approx([1.5, 2.5])
    assert [side.overlap_frac for side in analysis.sides] == pytest.approx([1.0, 1.0])
    assert np.isnan(analysis.steal_frac)


def test_what_others_took_of_the_core_is_what_we_did_not_use() -> None:
    first, second = pair()
    assert core_steal_frac((first, second), [SHARED]) == pytest.approx(0.0, abs=1e-6), "0.5 + 0.5 of a busy core"
    assert core_steal_frac((first, second), [ALONE]) == pytest.approx(0.5, abs=1e-6)
    assert np.isnan(core_steal_frac((replace(first, samples=np.empty((0, 3))), second), [ALONE]))
    analysis = analyse_pair((first, second), (ALONE, SHARED, OTHER), 0.0, pinned=True)
    assert analysis.steal_frac == pytest.approx(1 / 3, abs=1e-3)
    assert "other processes took 33% of the core" in analysis.reason


@pytest.mark.parametrize(
    ("change", "drift", "said"),
    [
        ({}, 0.04, "the clock drifted +4.0%"),
        ({"max_strayed": 2}, 0.0, "one: 2 of its processes left the core"),
        ({"trace": recorded_run("one", 0.0, 13.0, step_s=0.3, shared_step_s=0.4).trace}, 0.0, "one: 13 whole steps"),
        (
            {"trace": recorded_run("one", 0.0, 8.5, step_s=0.02, shared_step_s=0.02).trace},
            0.0,
            "other: the other ran 11% of the time",
        ),
        (
            {"trace": recorded_run("one", 0.0, 13.0, step_s=0.02, shared_step_s=0.003).trace},
            0.0,
            "slowdown 0.15 is out of",
        ),
    ],
)
def test_a_block_is_refused_for_its_reason(change: dict[str, object], drift: float, said: str) -> None:
    first, second = (replace(run, samples=run.samples * (1, 1, 0.5)) for run in pair())
    runs = (replace(first, **change), second)  # type: ignore[arg-type]  # fields by name
    assert said in analyse_pair(runs, (ALONE, SHARED, OTHER), drift, pinned=True).reason


def test_bursts_of_output_are_found_out() -> None:
    marks = [Mark("w", 0.0, t, 50 * t) for t in (1.0, 3.0, 5.0)]
    burst = run_recording("one", marks, [], 0.0, 13.0)
    analysis = analyse_solo([(burst, replace(ALONE, end_s=6.0))], "abacus", pinned=False)
    assert analysis.profile is None
    assert "2 marks in a window, 6 needed" in analysis.reason


def test_a_profile_is_the_mean_over_whole_steps_of_all_starts() -> None:
    runs = [
        (recorded_run("one", 0.0, 7.0, step_s=s, shared_step_s=s, busy=0.5, stolen=0.5), ALONE) for s in (0.04, 0.05)
    ]
    analysis = analyse_solo(runs, "cpu-core", pinned=True)
    profile = analysis.profile
    assert profile is not None
    assert (analysis.reason, profile.source, profile.workload) == ("", "command", "one")
    assert 0.04 < profile.step_time_s < 0.05
    assert profile.step_time_sd_s == pytest.approx(np.std([0.04] * 5 + [0.05] * 5, ddof=1))
    assert profile.busy_frac == pytest.approx(0.5)
    assert profile.memory_peak_bytes == 1019
    assert analysis.steal_frac == pytest.approx(0.0, abs=1e-6)
    unpinned = analyse_solo(runs, "h100", pinned=False)
    elsewhere = unpinned.profile
    assert elsewhere is not None
    unknown = (elsewhere.busy_frac, elsewhere.memory_peak_bytes, unpinned.steal_frac)
    assert np.isnan(unknown).all(), "host figures say nothing about another device"
    assert elsewhere.step_time_s == profile.step_time_s


def test_cpu_time_never_runs_backwards() -> None:
    samples = [
        {"monotonic_s": t, "cpu_s": c, "core_busy_s": None, "private_bytes": 1, "strayed": 0}
        for t, c in ((0.0, 0.0), (1.0, 1.0), (2.0, 0.9), (3.0, 2.0))
    ]
    facts = run_recording("one", [], samples, 0.0, 3.0)
    assert facts.samples[:, 1].tolist() == [0.0, 1.0, 1.0, 2.0]
