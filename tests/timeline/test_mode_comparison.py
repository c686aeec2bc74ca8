"""Two jobs under every sharing mode: each figure is as it is defined."""

import math
from collections.abc import Sequence

import pytest

from interfere.errors import InvalidInputError
from interfere.reports.html_page import html_page
from interfere.timeline.kernel_schedulers import PriorityGapFillingScheduler, select_kernel_schedulers
from interfere.timeline.mode_comparison import (
    ModeResult,
    PairScenario,
    compare_sharing_modes,
    comparison_document,
    shown_window_s,
)
from interfere.timeline.replay_engine import replay
from interfere.timeline.streams import KernelStream
from interfere.timeline.timelines import PredictionTable, Timeline
from tests.timeline.examples import kernel, line

NAMES = ("exclusive", "timeslice", "fair", "queued", "priority")
HIGH = line("high <b>", *[(20, 30)] * 20)
LOW = line("low", *[(10, 0)] * 20)


def page(scenario: PairScenario, results: Sequence[ModeResult]) -> str:
    return html_page(comparison_document(scenario, results))


def by_mode(scenario: PairScenario, *names: str) -> dict[str, object]:
    return {one.mode: one for one in compare_sharing_modes(scenario, select_kernel_schedulers(names, "v100"))}


def test_figures_by_mode() -> None:
    got = compare_sharing_modes(PairScenario(high=HIGH, low=LOW, rounds=10), select_kernel_schedulers(NAMES, "v100"))
    exclusive, _, fair, queued, priority = got
    assert [one.mode for one in got] == list(NAMES)
    assert (exclusive.high_slowdown, exclusive.gap_use_frac) == (pytest.approx(1), 0)
    assert exclusive.idle_frac == pytest.approx(0.6)
    assert math.isnan(exclusive.low_slowdown)
    assert priority.high_slowdown == pytest.approx(1.05)  # the interception of every launch
    assert priority.gap_use_frac == pytest.approx(30 / 32.5)  # three kernels of 10 in each gap
    assert priority.filled == 10 * 3 * 20
    assert priority.low_slowdown == pytest.approx(1.05 * 50 / 30, rel=1e-3)
    assert (queued.high_speedup, queued.low_relative_rate, queued.low_completion) == (1, 1, 1)
    assert queued.high_slowdown > 1.05
    assert priority.high_speedup == pytest.approx(queued.high_slowdown / 1.05)
    assert priority.overhang_frac == pytest.approx(0, abs=1e-9)
    assert queued.overhang_frac > 0.2
    assert fair.high_slowdown > 1
    assert exclusive.low_completion < priority.low_completion <= 1 + 1e-9


def test_what_the_planner_knows_decides_how_much_of_the_gaps_it_fills() -> None:
    """Gaps after every fourth launch of one kernel: means by kernel smear them over all launches, places keep them."""
    kernels = [kernel(20, 80 if k % 4 == 3 else 0, name="a") for k in range(20)]
    high, low = Timeline(name="high", kernels=tuple(kernels)), line("low", *[(30, 0)] * 20)
    use = {}
    for by_place in (False, True):
        predicted = tuple(PredictionTable([job, job], by_place=by_place).predict_round(job) for job in (high, low))
        scenario = PairScenario(high=high, low=low, predicted=predicted, rounds=5)
        use[by_place] = compare_sharing_modes(scenario, [PriorityGapFillingScheduler()])[0].gap_use_frac
    # By identity every gap is taken for 20, too short for 30.
    assert use == {False: 0, True: pytest.approx(60 / 80)}


def test_interception_costs_each_job_its_share_of_the_time_alone() -> None:
    for frac in (0.0, 0.02, 0.05):
        mode = PriorityGapFillingScheduler(overhead_frac=frac)
        streams = [KernelStream(timeline=HIGH, priority=1, rounds=4)]
        assert replay(streams, mode).outcomes[0].slowdown == pytest.approx(1 + frac)
    with pytest.raises(InvalidInputError, match="overhead_frac"):
        PriorityGapFillingScheduler(overhead_frac=-0.1)
    scenario = PairScenario(high=HIGH, low=LOW)
    assert scenario.measurement_s == pytest.approx(10 * 1.05 * (HIGH.solo_s + LOW.solo_s))


def test_hosts_that_wait_and_rounds_are_honoured() -> None:
    ahead = compare_sharing_modes(
        PairScenario(high=HIGH, low=LOW, rounds=3), select_kernel_schedulers(["timeslice"], "v100")
    )[0]
    waits = compare_sharing_modes(
        PairScenario(high=HIGH, low=LOW, rounds=3, hosts_wait=(True, True)),
        select_kernel_schedulers(["timeslice"], "v100"),
    )[0]
    assert waits.high_slowdown > 2 * ahead.high_slowdown
    few = compare_sharing_modes(
        PairScenario(high=HIGH, low=LOW, rounds=3), select_kernel_schedulers(["priority"], "v100")
    )[0]
    assert few.filled == 3 * 60


def test_a_kernel_longer_than_every_gap_blocks_its_job() -> None:
    held = line("low", (10, 0), (34, 0), (10, 0))  # gaps of 30 are 32.5 under interception
    assert [
        PairScenario(high=high, low=low).oversized_low_kernels for high, low in ((HIGH, LOW), (HIGH, held), (LOW, held))
    ] == [0, 1, 3]
    (got,) = compare_sharing_modes(
        PairScenario(high=HIGH, low=held, rounds=5), select_kernel_schedulers(["priority"], "v100")
    )
    assert got.filled == 1


def test_the_default_modes_are_those_that_the_device_supports() -> None:
    assert [one.name for one in select_kernel_schedulers((), "cpu-core")] == [
        "exclusive",
        "timeslice",
        "fair",
        "queued",
        "unpredicted",
        "priority",
        "filling",
    ]
    assert [one.name for one in select_kernel_schedulers((), "v100")] == [
        "exclusive",
        "timeslice",
        "queued",
        "unpredicted",
        "priority",
        "filling",
    ]
    with pytest.raises(InvalidInputError, match="magic"):
        select_kernel_schedulers(["magic"], "v100")


def test_the_page_shows_every_mode_and_names_as_text() -> None:
    window_s = shown_window_s(HIGH)
    scenario = PairScenario(high=HIGH, low=LOW, rounds=3)
    results = compare_sharing_modes(scenario, select_kernel_schedulers((), "v100"), record_spans_until_s=window_s)
    text = page(scenario, results)
    assert text == page(scenario, results)
    assert text.count('<svg class="plot"') == 6
    assert all(mode in text for mode in ("exclusive", "timeslice", "queued", "priority"))
    assert "high &lt;b&gt;" in text
    assert "<b>," not in text
    assert "http" not in text.replace("http-equiv", "")
    priority = next(result for result in results if result.mode == "priority")
    assert all(span.start_s < window_s for span in priority.spans)
    drawn = text.split("<figcaption>priority")[1].partition("</figure>")[0].partition('<svg class="plot"')[2]
    assert drawn.count("<rect") == len(priority.spans)
    assert 75 < drawn.count("<rect") <= 81  # the last one begins where the picture ends


def test_the_page_of_one_short_kernel() -> None:
    one = Timeline(name="one", kernels=(kernel(0.001),))
    scenario = PairScenario(high=one, low=one, rounds=2)
    assert "<rect" in page(
        scenario,
        compare_sharing_modes(
            scenario, select_kernel_schedulers(["queued"], "v100"), record_spans_until_s=shown_window_s(one)
        ),
    )
