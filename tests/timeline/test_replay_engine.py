"""Laws that hold under every sharing mode, on drawn timelines."""

import math
from itertools import pairwise

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
from interfere.timeline.streams import ExecutionSpan, KernelScheduler, KernelStream
from interfere.timeline.timelines import Timeline
from tests.timeline.examples import LAW, MODES, US, kernel, line, predictions, timelines

ANY = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
CLOSE = 1e-9  # relative; a nanosecond in a second


def pair(high: Timeline, low: Timeline, rounds: int = 1) -> tuple[KernelStream, KernelStream]:
    return KernelStream(timeline=high, priority=1, rounds=rounds), KernelStream(timeline=low, rounds=rounds)


def in_order(spans: list[ExecutionSpan]) -> bool:
    return all((a.round, a.kernel) <= (b.round, b.kernel) and a.end_s <= b.start_s for a, b in pairwise(spans))


@ANY
@LAW
@given(job=timelines(), rounds=st.integers(1, 3))
def test_alone_a_job_takes_its_time_alone(mode: KernelScheduler, job: Timeline, rounds: int) -> None:
    got = replay([KernelStream(timeline=job, rounds=rounds)], mode)
    (one,) = got.outcomes
    assert one.finished
    assert one.elapsed_s == pytest.approx(rounds * job.solo_s, rel=CLOSE)
    assert one.slowdown == pytest.approx(1.0, rel=CLOSE)
    assert got.idle_s == pytest.approx(rounds * (job.solo_s - job.busy_s), rel=CLOSE, abs=1e-15)


@ANY
@LAW
@given(high=timelines(), low=timelines(), rounds=st.integers(1, 3))
def test_work_is_conserved_kernels_keep_their_order_and_no_job_is_sped_up(
    mode: KernelScheduler, high: Timeline, low: Timeline, rounds: int
) -> None:
    got = replay(pair(high, low, rounds), mode, record_spans_until_s=math.inf)
    for index, (job, one) in enumerate(zip((high, low), got.outcomes, strict=True)):
        assert one.kernels == rounds * len(job.kernels)
        assert one.executed_s == pytest.approx(rounds * job.busy_s, rel=CLOSE)
        assert one.alone_s == pytest.approx(rounds * job.solo_s, rel=CLOSE)
        assert one.slowdown >= 1 - CLOSE
        mine = [span for span in got.spans if span.stream == index]
        assert in_order(mine)
        assert {(span.round, span.kernel) for span in mine} == {
            (r, k) for r in range(rounds) for k in range(len(job.kernels))
        }


@ANY
@LAW
@given(high=timelines(), low=timelines())
def test_one_at_a_time_means_that_nothing_overlaps(mode: KernelScheduler, high: Timeline, low: Timeline) -> None:
    got = replay(pair(high, low), mode, record_spans_until_s=math.inf)
    assert all(a.end_s <= b.start_s + 1e-15 for a, b in pairwise(got.spans))
    assert got.end_s >= max(high.solo_s, low.solo_s, high.busy_s + low.busy_s) * (1 - CLOSE)


@pytest.mark.parametrize(
    "mode", [TimeSliceScheduler(slice_s=50 * US), SingleQueueScheduler()], ids=lambda mode: mode.name
)
@LAW
@given(high=timelines(), low=timelines())
def test_the_device_is_never_idle_while_a_kernel_waits(mode: KernelScheduler, high: Timeline, low: Timeline) -> None:
    got = replay(pair(high, low), mode)
    ran = [one.executed_s + one.waited_s + one.gap_s for one in got.outcomes]
    assert got.idle_s == pytest.approx(got.end_s - high.busy_s - low.busy_s, rel=CLOSE, abs=1e-15)
    assert all(t == pytest.approx(one.elapsed_s, rel=CLOSE) for t, one in zip(ran, got.outcomes, strict=True))


@pytest.mark.parametrize("mode", [ExclusiveScheduler(), PriorityGapFillingScheduler()], ids=lambda mode: mode.name)
@LAW
@given(jobs=st.lists(timelines(), min_size=2, max_size=3), turn=st.integers(0, 2))
def test_the_order_in_which_jobs_are_given_changes_nothing(
    mode: KernelScheduler, jobs: list[Timeline], turn: int
) -> None:
    streams = [KernelStream(timeline=job, priority=level) for level, job in enumerate(jobs)]
    turned = streams[turn:] + streams[:turn]
    one = {o.priority: o.elapsed_s for o in replay(streams, mode).outcomes}
    other = {o.priority: o.elapsed_s for o in replay(turned, mode).outcomes}
    assert one == {level: pytest.approx(t, rel=CLOSE) for level, t in other.items()}


@ANY
@LAW
@given(high=timelines(most=4), low=timelines(most=4))
def test_equal_input_gives_equal_output(mode: KernelScheduler, high: Timeline, low: Timeline) -> None:
    assert replay(pair(high, low), mode, record_spans_until_s=1.0) == replay(
        pair(high, low), mode, record_spans_until_s=1.0
    )


@ANY
def test_an_endless_job_runs_as_long_as_the_others_do(mode: KernelScheduler) -> None:
    short, long = line("short", (10, 5)), line("long", (7, 3))
    ended = replay([KernelStream(timeline=short, priority=1, rounds=4), KernelStream(timeline=long, rounds=None)], mode)
    assert ended.outcomes[0].finished
    assert not ended.outcomes[1].finished
    stopped = replay(
        [KernelStream(timeline=short, rounds=None), KernelStream(timeline=long, rounds=None)], mode, until_s=1e-3
    )
    assert stopped.end_s == 1e-3
    assert all(0 <= one.alone_s <= one.elapsed_s * (1 + CLOSE) for one in stopped.outcomes)


def test_a_job_that_starts_later_is_timed_from_its_start() -> None:
    job = line("job", (10, 5))
    got = replay([KernelStream(timeline=job), KernelStream(timeline=job, start_s=1e-3)], ExclusiveScheduler())
    assert [one.slowdown for one in got.outcomes] == [pytest.approx(1.0), pytest.approx(1.0)]
    assert got.end_s == pytest.approx(1e-3 + job.solo_s)


@pytest.mark.parametrize(
    ("streams", "match"),
    [((), "nothing to replay"), ((KernelStream(timeline=line("x", (1, 0)), rounds=None),), "no end")],
)
def test_a_replay_without_jobs_or_without_end_is_refused(streams: tuple[KernelStream, ...], match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        replay(streams, ExclusiveScheduler())


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"priority": 10}, "priority"),
        ({"rounds": 0}, "rounds"),
        ({"start_s": -1.0}, "start_s"),
        ({"predicted": predictions((1, 0), (1, 0))}, "predicted"),
    ],
)
def test_an_invalid_stream_is_refused(fields: dict[str, object], match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        KernelStream(timeline=line("x", (1, 0)), **fields)  # type: ignore[arg-type]  # wrong on purpose


def test_invalid_timelines_and_kernels_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="none"):
        Timeline(name="x", kernels=())
    for wrong in ((0.0, 0.0), (1.0, -1.0)):
        with pytest.raises(InvalidInputError):
            kernel(*wrong)
