"""Each sharing mode by hand: which stream runs when, and the guarantees of this mode alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.timeline.kernel_schedulers import (
    ExclusiveScheduler,
    PriorityGapFillingScheduler,
    SingleQueueScheduler,
    TimeSliceScheduler,
)
from interfere.timeline.replay_engine import replay
from interfere.timeline.streams import KernelStream, ReplayResult
from interfere.timeline.timelines import Timeline
from tests.timeline.examples import LAW, US, line, predictions, timelines


def together(high: Timeline, low: Timeline, mode: object, **low_fields: object) -> ReplayResult:
    streams = (KernelStream(timeline=high, priority=1), KernelStream(timeline=low, **low_fields))  # type: ignore[arg-type]
    return replay(streams, mode, record_spans_until_s=math.inf)  # type: ignore[arg-type]


def stretches(got: ReplayResult, stream: int) -> list[tuple[float, float]]:
    """In microseconds."""
    return [
        (pytest.approx(span.start_s / US), pytest.approx(span.end_s / US))
        for span in got.spans
        if span.stream == stream
    ]


def test_exclusive_keeps_the_device_through_the_gaps() -> None:
    got = together(line("high", (10, 20), (5, 5)), line("low", (3, 0)), ExclusiveScheduler())
    assert stretches(got, 0) == [(0, 10), (30, 35)]
    assert stretches(got, 1) == [(40, 43)]


def test_exclusive_never_preempts_a_stream_that_has_begun() -> None:
    streams = (
        KernelStream(timeline=line("low", (10, 0), (10, 0))),
        KernelStream(timeline=line("high", (1, 0)), priority=1, start_s=5e-6),
    )
    got = replay(streams, ExclusiveScheduler(), record_spans_until_s=1.0)
    assert stretches(got, 1) == [(20, 21)]


def test_slices_are_taken_in_turn() -> None:
    got = together(line("one", (10, 0)), line("two", (10, 0)), TimeSliceScheduler(slice_s=4 * US))
    assert stretches(got, 0) == [(0, 4), (8, 12), (16, 18)]
    assert stretches(got, 1) == [(4, 8), (12, 16), (18, 20)]
    assert got.idle_s == 0.0


def test_a_context_without_work_gives_its_slice_away() -> None:
    got = together(
        line("one", (2, 10), (2, 0)), line("two", (20, 0)), TimeSliceScheduler(slice_s=100 * US, launch_ahead=1)
    )
    assert stretches(got, 0) == [(0, 2), (22, 24)]
    assert stretches(got, 1) == [(2, 22)]


def test_a_host_that_runs_ahead_has_work_when_its_slice_comes() -> None:
    """Gaps pass while the other context runs: ahead, the two kernels of one slice follow each other at once."""
    one, two = line("one", (2, 3), (2, 3), (2, 0)), line("two", (20, 0))
    ahead = together(one, two, TimeSliceScheduler(slice_s=20 * US))
    waits = together(one, two, TimeSliceScheduler(slice_s=20 * US, launch_ahead=1))
    assert stretches(ahead, 0) == [(0, 2), (22, 24), (24, 26)]
    assert stretches(waits, 0) == [(0, 2), (22, 24), (27, 29)]
    stubborn = replay(
        (KernelStream(timeline=one, host_waits=True), KernelStream(timeline=two)),
        TimeSliceScheduler(slice_s=20 * US),
        record_spans_until_s=1.0,
    )
    assert stretches(stubborn, 0) == stretches(waits, 0)


def test_a_high_priority_kernel_waits_behind_the_whole_queue() -> None:
    low = line("low", *[(10, 0)] * 4)
    high = KernelStream(timeline=line("high", (1, 0)), priority=1, start_s=11 * US)
    ahead = replay(
        [KernelStream(timeline=low), high, KernelStream(timeline=low)],
        SingleQueueScheduler(launch_ahead=3),
        record_spans_until_s=1.0,
    )
    assert stretches(ahead, 1) == [(60, 61)]
    assert ahead.outcomes[1].slowdown == pytest.approx(50.0)
    assert [one.filled for one in ahead.outcomes] == [0, 0, 0]  # what runs while it waits fills no gap of it


@pytest.mark.parametrize(
    ("launch_ahead", "begins"),
    [(1, [0, 1350, 1400, 1450]), (2, [0, 350, 1400, 1450]), (3, [0, 350, 400, 1450])],
)
def test_queues_grow_up_to_what_may_be_launched_ahead(launch_ahead: int, begins: list[float]) -> None:
    """Nobody has gaps, so hosts launch every 5 µs; the third one at 12 µs."""
    third = KernelStream(timeline=line("third", (1_000, 0)), start_s=12 * US)
    streams = (KernelStream(timeline=line("one", *[(50, 0)] * 4)), KernelStream(timeline=line("two", (300, 0))), third)
    got = replay(streams, SingleQueueScheduler(launch_ahead=launch_ahead), record_spans_until_s=1.0)
    assert [span.start_s / US for span in got.spans if span.stream == 0] == [pytest.approx(at) for at in begins]


def test_after_a_gap_a_host_launches_when_it_did_alone() -> None:
    """At 15 and 30 µs: behind the second kernel of the other job, and before its third."""
    one, two = line("one", (5, 10), (5, 10), (5, 0)), line("two", *[(30, 0)] * 3)
    got = together(one, two, SingleQueueScheduler(launch_ahead=2))
    assert stretches(got, 0) == [(0, 5), (65, 70), (70, 75)]
    assert stretches(got, 1) == [(5, 35), (35, 65), (75, 105)]


def test_a_gap_takes_the_longest_kernel_that_fits_of_the_highest_level_that_has_one() -> None:
    high = KernelStream(timeline=line("high", (10, 50), (10, 0)), priority=2)
    long, short, lower = line("long", (30, 0)), line("short", (15, 0)), line("lower", (5, 0))
    streams = [
        high,
        KernelStream(timeline=short, priority=1),
        KernelStream(timeline=long, priority=1),
        KernelStream(timeline=lower),
    ]
    got = replay(streams, PriorityGapFillingScheduler(), record_spans_until_s=1.0)
    assert stretches(got, 2) == [(10, 40)]  # the longest first
    assert stretches(got, 1) == [(40, 55)]  # then what is left of its level
    assert stretches(got, 3) == [(55, 60)]
    assert stretches(got, 0) == [(0, 10), (60, 70)]
    assert [one.filled for one in got.outcomes] == [0, 1, 1, 1]


def test_a_level_without_a_kernel_that_fits_is_passed_over() -> None:
    streams = [
        KernelStream(timeline=line("high", (10, 20), (10, 0)), priority=2),
        KernelStream(timeline=line("middle", (25, 0)), priority=1),
        KernelStream(timeline=line("low", (5, 0))),
    ]
    got = replay(streams, PriorityGapFillingScheduler(), record_spans_until_s=1.0)
    assert stretches(got, 2) == [(10, 15)]
    assert stretches(got, 1) == [(40, 65)]


def test_a_gap_under_epsilon_is_left_alone() -> None:
    high, low = line("high", (10, 20), (10, 0)), line("low", (5, 0))
    assert stretches(together(high, low, PriorityGapFillingScheduler(epsilon_s=20 * US)), 1)[0] == (10, 15)
    assert stretches(together(high, low, PriorityGapFillingScheduler(epsilon_s=21 * US)), 1)[0] == (40, 45)


def test_the_running_kernel_overhangs_a_gap_that_is_shorter_than_predicted() -> None:
    truth, predicted = line("high", (10, 12), (10, 0)), predictions((10, 40), (10, 0))
    low = line("low", (8, 0), (8, 0), (8, 0))
    got = replay(
        [KernelStream(timeline=truth, priority=1, predicted=predicted), KernelStream(timeline=low)],
        PriorityGapFillingScheduler(),
        record_spans_until_s=1.0,
    )
    assert stretches(got, 1)[:2] == [(10, 18), (18, 26)]  # the third would have fitted what was predicted
    assert stretches(got, 0) == [(0, 10), (26, 36)]
    assert got.outcomes[0].waited_s == pytest.approx(4 * US)


def test_a_gap_longer_than_predicted_is_not_filled_further() -> None:
    truth, predicted = line("high", (10, 100), (10, 0)), predictions((10, 20), (10, 0))
    low = line("low", *[(8, 0)] * 9)
    got = replay(
        [KernelStream(timeline=truth, priority=1, predicted=predicted), KernelStream(timeline=low)],
        PriorityGapFillingScheduler(),
        record_spans_until_s=1.0,
    )
    assert stretches(got, 1)[:3] == [(10, 18), (18, 26), (120, 128)]


def test_a_kernel_that_is_longer_than_predicted_overhangs() -> None:
    low = KernelStream(timeline=line("low", (30, 0)), predicted=predictions((5, 0)))
    got = replay(
        [KernelStream(timeline=line("high", (10, 12), (10, 0)), priority=1), low],
        PriorityGapFillingScheduler(),
        record_spans_until_s=1.0,
    )
    assert got.outcomes[0].waited_s == pytest.approx(18 * US)


@LAW
@given(high=timelines(), lows=st.lists(timelines(), min_size=1, max_size=3))
def test_with_exact_predictions_filling_never_slows_the_high_priority_job(high: Timeline, lows: list[Timeline]) -> None:
    streams = [
        KernelStream(timeline=high, priority=9),
        *(KernelStream(timeline=low, priority=k, rounds=None) for k, low in enumerate(lows)),
    ]
    one = replay(streams, PriorityGapFillingScheduler()).outcomes[0]
    assert one.slowdown == pytest.approx(1.0, rel=1e-9)


@LAW
@given(high=timelines(), low=timelines(), start_us=st.integers(0, 500))
def test_a_high_priority_job_that_comes_later_waits_for_one_kernel_at_most(
    high: Timeline, low: Timeline, start_us: int
) -> None:
    streams = [KernelStream(timeline=high, priority=1, start_s=start_us * US), KernelStream(timeline=low, rounds=None)]
    one = replay(streams, PriorityGapFillingScheduler()).outcomes[0]
    longest_s = max(kernel.duration_s for kernel in low.kernels)
    assert one.elapsed_s <= high.solo_s + longest_s + 1e-12


@LAW
@given(low=timelines(), high=st.lists(st.integers(1, 99), min_size=1, max_size=6))
def test_a_high_priority_job_without_gaps_leaves_others_no_progress(low: Timeline, high: list[int]) -> None:
    busy = line("busy", *[(us, 0) for us in high])
    got = replay(
        [KernelStream(timeline=busy, priority=1, rounds=5), KernelStream(timeline=low, rounds=None)],
        PriorityGapFillingScheduler(),
    )
    assert got.outcomes[1].kernels == 0
    assert math.isnan(got.outcomes[1].slowdown)


@pytest.mark.parametrize(
    ("build", "fields"),
    [
        (TimeSliceScheduler, {"slice_s": 0.0}),
        (SingleQueueScheduler, {"launch_ahead": 0}),
        (PriorityGapFillingScheduler, {"epsilon_s": math.nan}),
    ],
)
def test_invalid_settings_of_a_mode_are_refused(build: type, fields: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        build(**fields)
