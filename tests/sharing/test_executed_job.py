"""Jobs that really run, one operator at a time: what is seen at launch, segments, results, ends and failures."""

import threading

import pytest

from interfere.errors import UnfitError
from interfere.sharing.executed_job import ExecutedJob, find_segment_starts, in_segments, measure_job, measure_rounds
from interfere.timeline.priority_scheduler import FillingRule, PriorityGapFillingScheduler
from interfere.timeline.replay_engine import replay
from interfere.timeline.streams import ExecutedStream
from interfere.timeline.timelines import PredictionTable, Timeline
from tests.sharing import sample_workloads
from tests.timeline.examples import US, kernel


def test_operators_are_known_by_name_shapes_and_place_with_the_waits_of_the_job_as_gaps() -> None:
    rounds = measure_rounds(sample_workloads.waiting(), 3)
    assert [[one.identity.name for one in measured.kernels] for measured in rounds] == [
        ["aten.mm.default(8x8, 8x8)", "aten.mm.default(16x16, 16x16)"]
    ] * 3
    assert all(measured.kernels[1].gap_s >= sample_workloads.PAUSE_S for measured in rounds)


def test_a_job_that_waits_before_its_first_operator_is_predicted_to_launch_late() -> None:
    for waits_first in (True, False):
        job = measure_job(sample_workloads.waiting(waits_first=waits_first), 3)
        for endless in (True, False):
            stream = job.predicted_stream(1, by_place=True, endless=endless)
            assert (stream.first_gap_s >= sample_workloads.PAUSE_S) == waits_first


def test_backward_passes_and_optimizer_steps_are_seen() -> None:
    (measured,) = measure_rounds(sample_workloads.training(), 1)
    names = [one.identity.name.partition("(")[0] for one in measured.kernels]
    assert names.count("aten.mm.default") == 2  # forward, and the gradient of the weights
    assert "aten.sub_.Tensor" in names


def test_a_job_computes_the_same_beside_another_as_alone() -> None:
    alone: list[float] = []
    shared: list[float] = []
    measure_rounds(sample_workloads.training(alone), 8)
    with (
        ExecutedJob(sample_workloads.training(shared), rounds=8) as high,
        ExecutedJob(sample_workloads.waiting(), rounds=None) as low,
    ):
        result = replay(
            [ExecutedStream(source=high, priority=1, rounds=8), ExecutedStream(source=low, rounds=None)],
            PriorityGapFillingScheduler(rule=FillingRule.ANY),
        )
    assert shared == alone
    assert result.outcomes[0].finished
    assert result.outcomes[0].kernels == sum(len(kernels) for kernels in high.executed_rounds)


def test_the_threads_of_jobs_end_with_them() -> None:
    before = set(threading.enumerate())
    with ExecutedJob(sample_workloads.waiting(), rounds=None) as job:
        job.begin()
        job.execute()
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) == before
    with ExecutedJob(sample_workloads.waiting(), rounds=None):
        pass  # never begun


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.timeout(60)
def test_a_job_that_runs_operators_while_it_is_stopped_ends_all_the_same(swallows: bool) -> None:
    before = set(threading.enumerate())
    with ExecutedJob(sample_workloads.stubborn(swallows=swallows), rounds=None) as job:
        job.begin()
        for _ in range(4):
            job.execute()
    assert set(threading.enumerate()) == before


def test_a_failure_of_a_job_is_raised_where_it_was_executed() -> None:
    with pytest.raises(OSError, match="disk"):
        measure_rounds(sample_workloads.failing(), 9)


def test_a_job_without_operators_is_refused() -> None:
    with pytest.raises(UnfitError, match="no operator"):
        measure_rounds(sample_workloads.without_operators(), 3)


def test_segments_end_where_they_are_long_enough_and_at_gaps() -> None:
    sizes = ((400, 0), (700, 0), (10, 0), (10, 500), (10, 0))  # microseconds of run and gap
    measured = Timeline(name="x", kernels=tuple(kernel(run, gap, name=f"k{k}") for k, (run, gap) in enumerate(sizes)))
    starts = find_segment_starts([measured], segment_s=1e-3)
    got = in_segments(measured, starts)
    assert [(one.identity.name, round(one.duration_s / US), round(one.gap_s / US)) for one in got.kernels] == [
        ("k0", 1100, 0),
        ("k2", 20, 500),
        ("k4", 10, 0),
    ]


def test_segments_keep_the_total_time_with_the_host_between_their_operators() -> None:
    measured = Timeline(name="x", kernels=tuple(kernel(300, 20, name="same") for _ in range(10)))
    got = in_segments(measured, find_segment_starts([measured], segment_s=1e-3))
    assert len(got.kernels) == 3
    assert got.solo_s == pytest.approx(measured.solo_s)
    # One operator has several places in the step: a segment is found again by its identity and place.
    with_table = PredictionTable([got], by_place=True).predict_round(got)
    assert [one.run_s for one in with_table] == pytest.approx([one.duration_s for one in got.kernels])


def test_a_job_launches_the_segments_that_were_measured() -> None:
    workload = sample_workloads.training()
    measured = measure_rounds(workload, 4)
    starts = frozenset(list(find_segment_starts(measured, segment_s=1e-9))[::3])
    with ExecutedJob(workload, rounds=3, segment_starts=starts) as job:
        job.begin()
        while not job.execute().is_last:
            pass
    expected = [one.identity for one in in_segments(measured[0], starts).kernels]
    first = job.executed_rounds[1:]  # the segment that crosses the start of a round is no other than that of the first
    assert all([one.identity for one in kernels][-len(expected) + 1 :] == expected[1:] for kernels in first)
