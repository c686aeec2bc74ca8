"""Traces of known jobs give the known steps, times and intervals."""

import numpy as np
import pytest

from interfere.profiling.trace import (
    busy_and_idle_durations,
    busy_intervals,
    covered_s,
    cpu_time_s,
    running_intervals,
    whole_steps,
)
from tests.profiling.sample_blocks import joined, steady


def test_only_whole_steps_count() -> None:
    trace = steady(0.0, 1.0, step_s=0.1, cpu_frac=0.5)
    span = whole_steps(trace, 0.25, 0.75)
    assert span is not None
    assert (span.start_s, span.end_s, span.steps) == (pytest.approx(0.3), pytest.approx(0.7), 4)
    assert span.cpu_s == pytest.approx(0.2)
    assert span.wall_s == pytest.approx(0.4)


def test_a_window_without_a_whole_step_has_no_span() -> None:
    trace = steady(0.0, 1.0, step_s=0.4)
    assert whole_steps(trace, 0.45, 0.75) is None
    assert whole_steps(trace, 0.45, 0.85) is None


def test_a_hold_between_two_runs_is_no_step() -> None:
    trace = joined(steady(0.0, 1.0, step_s=0.1), steady(2.0, 3.0, step_s=0.1))
    assert whole_steps(trace, 1.05, 1.95) is None
    assert covered_s(running_intervals(trace), 0.0, 3.0) == pytest.approx(2.0)


def test_stretches_of_a_job_that_pauses() -> None:
    trace = steady(0.0, 0.5, step_s=0.1, pause_s=0.06)
    busy = busy_intervals(trace)
    assert busy[0] == pytest.approx([0.0, 0.04])
    assert covered_s(busy, 0.0, 0.5) == pytest.approx(5 * 0.04)
    lengths, idle = busy_and_idle_durations(trace)
    assert lengths == pytest.approx([0.04] * 5)
    assert idle == pytest.approx([0.06] * 5)
    assert len(busy_and_idle_durations(trace, limit=3)[0]) == 3


def test_stretches_of_several_runs_leave_out_the_time_between_them() -> None:
    paused = [steady(start_s, start_s + 0.5, step_s=0.1, pause_s=0.06) for start_s in (0.0, 7.0)]
    lengths, idle = busy_and_idle_durations(joined(*paused))
    assert lengths == pytest.approx([0.04] * 10)
    assert idle == pytest.approx([0.06] * 10)
    busy = [steady(start_s, start_s + 0.5, step_s=0.1) for start_s in (0.0, 7.0)]
    assert busy_and_idle_durations(joined(*busy)) == (pytest.approx((0.5,)), (0.0,))


def test_a_job_that_never_waits_is_one_stretch() -> None:
    lengths, idle = busy_and_idle_durations(steady(0.0, 0.5, step_s=0.1))
    assert lengths == pytest.approx((0.5,))
    assert idle == (0.0,)


def test_coverage_counts_overlaps_once_and_clips() -> None:
    stretches = np.array([[0.0, 2.0], [1.0, 3.0], [5.0, 9.0], [1.5, 1.6]])
    assert covered_s(stretches, 0.5, 6.0) == pytest.approx(2.5 + 1.0)
    assert covered_s(np.empty((0, 2)), 0.0, 1.0) == 0.0


def test_cpu_is_linear_between_events() -> None:
    trace = steady(0.0, 1.0, step_s=0.1, cpu_frac=0.5)
    assert cpu_time_s(trace, 0.25, 0.75) == pytest.approx(0.25)
    assert cpu_time_s(trace[:0], 0.0, 1.0) == 0.0
