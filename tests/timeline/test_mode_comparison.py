"""Two jobs under every sharing mode: each figure is as it is defined."""

import math

import pytest

from interfere.errors import InvalidInputError
from interfere.timeline.comparison_page import comparison_page, shown_window_s
from interfere.timeline.kernel_times import with_prediction_errors
from interfere.timeline.mode_comparison import PairScenario, compare_sharing_modes, select_sharing_modes
from interfere.timeline.records import Timeline
from tests.timeline.examples import kernel, line

NAMES = ("exclusive", "timeslice", "fair", "spatial", "queued", "priority")
HIGH = line("high <b>", *[(20, 30)] * 20)
LOW = line("low", *[(10, 0)] * 20)


def by_mode(scenario: PairScenario, *names: str) -> dict[str, object]:
    return {one.mode: one for one in compare_sharing_modes(scenario, select_sharing_modes(names, "v100"))}


def test_figures_by_mode() -> None:
    got = compare_sharing_modes(PairScenario(high=HIGH, low=LOW, rounds=10), select_sharing_modes(NAMES, "v100"))
    exclusive, _, fair, spatial, queued, priority = got
    assert [one.mode for one in got] == list(NAMES)
    assert (exclusive.high_slowdown, exclusive.gap_use_frac) == (pytest.approx(1), 0)
    assert exclusive.idle_frac == pytest.approx(0.6)
    assert math.isnan(exclusive.low_slowdown)
    assert priority.high_slowdown == pytest.approx(1)
    assert priority.gap_use_frac == pytest.approx(1)  # three kernels of 10 fill each gap of 30
    assert priority.filled == 10 * 3 * 20
    assert priority.low_slowdown == pytest.approx(50 / 30, rel=1e-3)
    assert (queued.high_speedup, queued.low_relative_rate, queued.low_completion) == (1, 1, 1)
    assert queued.high_slowdown > 1.05
    assert priority.high_speedup == pytest.approx(queued.high_slowdown)
    assert priority.overhang_frac == pytest.approx(0, abs=1e-9)
    assert queued.overhang_frac > 0.2
    assert spatial.high_slowdown > 1
    assert fair.high_slowdown > 1
    assert exclusive.low_completion < priority.low_completion <= 1 + 1e-9


def test_prediction_errors_slow_the_high_priority_job_a_little() -> None:
    wrong = (with_prediction_errors(HIGH, 0.3, 0), with_prediction_errors(LOW, 0.3, 1))
    exact = compare_sharing_modes(
        PairScenario(high=HIGH, low=LOW, rounds=10), select_sharing_modes(["priority"], "v100")
    )[0]
    off = compare_sharing_modes(
        PairScenario(high=HIGH, low=LOW, predicted=wrong, rounds=10), select_sharing_modes(["priority"], "v100")
    )[0]
    assert 1.001 < off.high_slowdown < 1.2
    assert off.overhang_frac == pytest.approx(off.high_slowdown - 1, rel=1e-3)
    assert off.gap_use_frac < exact.gap_use_frac


def test_hosts_that_wait_and_rounds_are_honoured() -> None:
    ahead = compare_sharing_modes(
        PairScenario(high=HIGH, low=LOW, rounds=3), select_sharing_modes(["timeslice"], "v100")
    )[0]
    waits = compare_sharing_modes(
        PairScenario(high=HIGH, low=LOW, rounds=3, hosts_wait=(True, True)), select_sharing_modes(["timeslice"], "v100")
    )[0]
    assert waits.high_slowdown > 2 * ahead.high_slowdown
    few = compare_sharing_modes(PairScenario(high=HIGH, low=LOW, rounds=3), select_sharing_modes(["priority"], "v100"))[
        0
    ]
    assert few.filled == 3 * 60


def test_a_kernel_longer_than_every_gap_blocks_its_job() -> None:
    held = line("low", (10, 0), (31, 0), (10, 0))
    assert [
        PairScenario(high=high, low=low).oversized_low_kernels for high, low in ((HIGH, LOW), (HIGH, held), (LOW, held))
    ] == [0, 1, 3]
    (got,) = compare_sharing_modes(
        PairScenario(high=HIGH, low=held, rounds=5), select_sharing_modes(["priority"], "v100")
    )
    assert got.filled == 1


def test_the_default_modes_are_those_that_the_device_supports() -> None:
    assert [one.name for one in select_sharing_modes((), "cpu-core")] == [
        "exclusive",
        "timeslice",
        "fair",
        "queued",
        "priority",
    ]
    assert [one.name for one in select_sharing_modes((), "v100")] == [
        "exclusive",
        "timeslice",
        "spatial",
        "queued",
        "priority",
    ]
    with pytest.raises(InvalidInputError, match="magic"):
        select_sharing_modes(["magic"], "v100")


def test_the_page_shows_every_mode_and_names_as_text() -> None:
    window_s = shown_window_s(HIGH)
    scenario = PairScenario(high=HIGH, low=LOW, rounds=3)
    results = compare_sharing_modes(scenario, select_sharing_modes((), "v100"), record_spans_until_s=window_s)
    text = comparison_page(scenario, results)
    assert text == comparison_page(scenario, results)
    assert text.count("<svg") == 5
    assert all(mode in text for mode in ("exclusive", "timeslice", "spatial", "queued", "priority"))
    assert "high &lt;b&gt;" in text
    assert "<b>," not in text
    assert "http" not in text.replace("http-equiv", "")
    priority = results[-1]
    assert all(span.start_s < window_s for span in priority.spans)
    drawn = text.split("<h3>priority")[1]
    assert drawn.count("<rect") == len(priority.spans)
    assert drawn.count("<rect") in (80, 81)  # the last one begins where the picture ends


def test_the_page_of_one_short_kernel() -> None:
    one = Timeline(name="one", kernels=(kernel(0.001),))
    scenario = PairScenario(high=one, low=one, rounds=2)
    assert "<rect" in comparison_page(
        scenario,
        compare_sharing_modes(
            scenario, select_sharing_modes(["queued"], "v100"), record_spans_until_s=shown_window_s(one)
        ),
    )
