"""Blocks whose slowdowns are known, each gate, and intervals by hand."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from interfere.profiling.protocol import (
    T_975,
    Estimate,
    Window,
    estimate,
    geometric_mean,
    half_width_log,
    is_settled,
    stolen_frac,
)
from tests.profiling.traces import joined, steady

WINDOWS = tuple(
    Window(phase=phase, start_s=k * 1.0, end_s=(k + 1) * 1.0) for k, phase in enumerate(("A", "AB", "B", "AB"))
)
Trace = NDArray[np.float64]


def first_job(shared_step_s: float, *, cpu_frac: float = 0.5) -> Trace:
    """10 ms alone in window 0; in windows 1 and 3 as told."""
    shared = {"step_s": shared_step_s, "cpu_frac": cpu_frac}
    return joined(steady(0.0, 1.0, step_s=0.01), steady(1.0, 2.0, **shared), steady(3.0, 4.0, **shared))


def second_job(shared_step_s: float, *, cpu_frac: float = 0.5, until_s: float = 4.0) -> Trace:
    """10 ms alone in window 2; in windows 1 and 3 as told."""
    shared = {"step_s": shared_step_s, "cpu_frac": cpu_frac}
    return joined(steady(1.0, 2.0, **shared), steady(2.0, 3.0, step_s=0.01), steady(3.0, until_s, **shared))


def read(first: Trace, second: Trace, drift: float = 0.0) -> Estimate:
    return estimate(("a", "b"), (first, second), WINDOWS, drift)


def test_slowdowns_of_a_known_block() -> None:
    result = read(first_job(0.02), second_job(0.025))
    assert result.reason == ""
    assert [s.slowdown for s in result.sides] == pytest.approx([2.0, 2.5])
    assert [s.workload for s in result.sides] == ["a", "b"]
    assert [s.overlap_frac for s in result.sides] == pytest.approx([1.0, 1.0])
    assert result.steal_frac == pytest.approx(0.0, abs=1e-6)
    assert min(s.chunks_shared for s in result.sides) >= 20


def test_longer_shared_steps_never_lower_the_slowdown() -> None:
    measured = [read(first_job(step), second_job(0.02)).sides[0].slowdown for step in (0.01, 0.013, 0.02, 0.04)]
    assert measured == sorted(measured)


def test_a_partner_that_stops_early_is_refused() -> None:
    assert "of the time" in read(first_job(0.02), second_job(0.02, until_s=3.5)).reason


def test_too_few_steps_are_refused() -> None:
    assert "longer blocks" in read(first_job(0.6), second_job(0.02)).reason
    silent = np.empty((0, 4))
    assert "longer blocks" in read(silent, second_job(0.02)).reason
    assert math.isnan(read(silent, second_job(0.02)).sides[0].slowdown)


@pytest.mark.parametrize(("drift", "refused"), [(0.029, False), (-0.029, False), (0.031, True), (-0.031, True)])
def test_a_drifting_clock_is_refused(drift: float, refused: bool) -> None:
    assert ("drifted" in read(first_job(0.02), second_job(0.02), drift).reason) is refused


def test_an_absurd_slowdown_is_refused() -> None:
    assert "out of" in read(first_job(0.001), second_job(0.02)).reason


def test_third_processes_are_seen_and_refused() -> None:
    # Both want the core all the time and have 30 % each of the shared windows: 40 % of 2 of 4 windows is gone.
    result = read(first_job(0.02, cpu_frac=0.3), second_job(0.02, cpu_frac=0.3))
    assert result.steal_frac == pytest.approx(0.2, abs=0.01)
    assert "other processes" in result.reason


def test_own_pauses_are_no_theft() -> None:
    paused = steady(0.0, 1.0, step_s=0.01, pause_s=0.006)
    assert stolen_frac([paused], WINDOWS[:1]) == pytest.approx(0.0, abs=1e-6)


def test_intervals_by_hand() -> None:
    # log 1, log e²: mean 1, sd √2, half-width 12.706 · √2 / √2.
    assert half_width_log([1.0, math.e**2]) == pytest.approx(12.706)
    assert half_width_log([1.0, math.e, math.e**2]) == pytest.approx(4.303 / math.sqrt(3))
    assert half_width_log([1.3]) == math.inf
    assert half_width_log([1.1, 1.2] * 20) == pytest.approx(1.96 * np.std(np.log([1.1, 1.2] * 20), ddof=1) / 40**0.5)
    assert list(T_975) == sorted(T_975, reverse=True)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert math.isnan(geometric_mean([]))


def test_a_pair_is_settled_when_both_sides_are() -> None:
    assert is_settled([[1.5, 1.501, 1.499], [2.0, 2.001, 2.0]])
    assert not is_settled([[1.5, 1.501, 1.499], [2.0, 2.5, 2.0]])
    assert not is_settled([[1.5]])
