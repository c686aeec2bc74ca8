"""Blocks of known jobs give the known slowdowns, and each quality gate refuses what it should."""

import math

import numpy as np
import pytest

from interfere.profiling.block_analysis import (
    BlockAnalysis,
    MeasurementWindow,
    analyse_block,
    core_steal_frac,
    window_plan,
)
from interfere.profiling.trace import Trace
from tests.profiling.sample_blocks import joined, steady

WINDOWS = tuple(
    MeasurementWindow(running=running, start_s=k * 1.0, end_s=(k + 1) * 1.0) for k, running in enumerate(window_plan(2))
)


def first_job(shared_step_s: float, *, cpu_frac: float = 0.5) -> Trace:
    """10 ms alone in window 0; in windows 1 and 3 as given."""
    shared = {"step_s": shared_step_s, "cpu_frac": cpu_frac}
    return joined(steady(0.0, 1.0, step_s=0.01), steady(1.0, 2.0, **shared), steady(3.0, 4.0, **shared))


def second_job(shared_step_s: float, *, cpu_frac: float = 0.5, until_s: float = 4.0) -> Trace:
    """10 ms alone in window 2; in windows 1 and 3 as given."""
    shared = {"step_s": shared_step_s, "cpu_frac": cpu_frac}
    return joined(steady(1.0, 2.0, **shared), steady(2.0, 3.0, step_s=0.01), steady(3.0, until_s, **shared))


def analyse(first: Trace, second: Trace, drift: float = 0.0) -> BlockAnalysis:
    return analyse_block(("a", "b"), (first, second), WINDOWS, drift)


def test_slowdowns_of_a_known_block() -> None:
    result = analyse(first_job(0.02), second_job(0.025))
    assert result.reason == ""
    assert [s.slowdown for s in result.sides] == pytest.approx([2.0, 2.5])
    assert [s.workload for s in result.sides] == ["a", "b"]
    assert [s.overlap_frac for s in result.sides] == pytest.approx([1.0, 1.0])
    assert result.steal_frac == pytest.approx(0.0, abs=1e-6)
    assert min(s.chunks_shared for s in result.sides) >= 20


def test_longer_shared_steps_never_lower_the_slowdown() -> None:
    measured = [analyse(first_job(step), second_job(0.02)).sides[0].slowdown for step in (0.01, 0.013, 0.02, 0.04)]
    assert measured == sorted(measured)


def test_a_neighbour_that_stops_early_is_refused() -> None:
    assert "of the time" in analyse(first_job(0.02), second_job(0.02, until_s=3.5)).reason


def test_too_few_steps_are_refused() -> None:
    assert "longer blocks" in analyse(first_job(0.6), second_job(0.02)).reason
    silent = np.empty((0, 4))
    assert "longer blocks" in analyse(silent, second_job(0.02)).reason
    assert math.isnan(analyse(silent, second_job(0.02)).sides[0].slowdown)


@pytest.mark.parametrize(("drift", "refused"), [(0.029, False), (-0.029, False), (0.031, True), (-0.031, True)])
def test_a_drifting_clock_is_refused(drift: float, refused: bool) -> None:
    assert ("drifted" in analyse(first_job(0.02), second_job(0.02), drift).reason) is refused


def test_an_absurd_slowdown_is_refused() -> None:
    assert "out of" in analyse(first_job(0.001), second_job(0.02)).reason


def test_third_processes_are_seen_and_refused() -> None:
    # Both want the core all the time and have 30 % each of the shared windows: 40 % of 2 of 4 windows is gone.
    result = analyse(first_job(0.02, cpu_frac=0.3), second_job(0.02, cpu_frac=0.3))
    assert result.steal_frac == pytest.approx(0.2, abs=0.01)
    assert "other processes" in result.reason


def test_pauses_of_the_job_itself_are_not_stolen_time() -> None:
    paused = steady(0.0, 1.0, step_s=0.01, pause_s=0.006)
    assert core_steal_frac([paused], WINDOWS[:1]) == pytest.approx(0.0, abs=1e-6)


def test_a_block_of_three_gives_three_slowdowns() -> None:
    plan = window_plan(3)
    assert [sorted(running) for running in plan] == [[0], [0, 1, 2], [1], [2], [0, 1, 2]]
    windows = [MeasurementWindow(running=r, start_s=k * 1.0, end_s=k + 1.0) for k, r in enumerate(plan)]
    traces = []
    for job, shared_step_s in enumerate((0.03, 0.04, 0.05)):
        runs = [
            steady(
                w.start_s, w.end_s, step_s=0.01 if len(w.running) == 1 else shared_step_s, cpu_frac=1 / len(w.running)
            )
            for w in windows
            if job in w.running
        ]
        traces.append(joined(*runs))
    result = analyse_block(("a", "b", "c"), traces, windows, 0.0)
    assert [s.slowdown for s in result.sides] == pytest.approx([3.0, 4.0, 5.0])
    assert result.reason == ""
    late = [traces[0], traces[1], traces[2][traces[2][:, 0] < 4.3]]
    assert "of the time" in analyse_block(("a", "b", "c"), late, windows, 0.0).reason


def test_time_stolen_from_one_of_two_cores_is_seen() -> None:
    full = joined(steady(0.0, 2.0, step_s=0.01), steady(3.0, 4.0, step_s=0.01))
    robbed = joined(steady(1.0, 4.0, step_s=0.01, cpu_frac=0.6))
    assert analyse_block(("a", "b"), (full, robbed), WINDOWS, 0.0, cores=(0, 1)).steal_frac == pytest.approx(
        0.3, abs=0.01
    )


def test_in_mode_priority_only_the_important_job_must_make_its_steps() -> None:
    waits = joined(steady(2.0, 3.0, step_s=0.01))  # it got nothing in the shared windows, not even its start
    important = joined(*(steady(start_s, start_s + 1.0, step_s=0.01) for start_s in (0.0, 1.0, 3.0)))
    measured = analyse_block(("a", "b"), (important, waits), WINDOWS, 0.0, mode="priority")
    assert measured.reason == ""
    assert measured.sides[0].slowdown == pytest.approx(1.0)
    assert math.isnan(measured.sides[1].slowdown)
    assert "of the time" in analyse_block(("a", "b"), (important, waits), WINDOWS, 0.0).reason
