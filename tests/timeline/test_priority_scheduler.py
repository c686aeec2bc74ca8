"""The rules by which kernels fill gaps, and executed streams under every mode."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.timeline.priority_scheduler import FillingRule, PriorityGapFillingScheduler, expected_wait_s
from interfere.timeline.replay_engine import replay
from interfere.timeline.streams import ExecutedKernel, ExecutedStream, KernelScheduler, KernelStream
from interfere.timeline.timelines import KernelPrediction, Timeline
from tests.timeline.examples import LAW, MODES, US, line, timelines

ANY = PriorityGapFillingScheduler(rule=FillingRule.ANY)


def budget(frac: float) -> PriorityGapFillingScheduler:
    return PriorityGapFillingScheduler(rule=FillingRule.BUDGET, wait_budget_frac=frac)


class RecordedSource:
    """Executes nothing: its kernels take the times of a timeline."""

    def __init__(self, timeline: Timeline, rounds: int | None) -> None:
        self.name, self.timeline, self.rounds, self.executed = timeline.name, timeline, rounds, 0

    def begin(self) -> float:
        return 0.0

    @property
    def predicted_run_s(self) -> float:
        return self.timeline.kernels[self.executed % len(self.timeline.kernels)].duration_s

    @property
    def predicted_gaps_s(self) -> tuple[float, ...]:
        return (self.timeline.kernels[(self.executed - 1) % len(self.timeline.kernels)].gap_s,)

    def execute(self) -> ExecutedKernel:
        kernel = self.timeline.kernels[self.executed % len(self.timeline.kernels)]
        self.executed += 1
        is_last = self.rounds is not None and self.executed == self.rounds * len(self.timeline.kernels)
        return ExecutedKernel(run_s=kernel.duration_s, gap_s=kernel.gap_s, is_last=is_last)


@LAW
@given(high=timelines(), low=timelines(), rounds=st.integers(1, 3), mode=st.sampled_from([*MODES, ANY, budget(0.1)]))
def test_executed_streams_are_scheduled_as_recorded_ones(
    high: Timeline, low: Timeline, rounds: int, mode: KernelScheduler
) -> None:
    recorded = replay(
        [
            KernelStream(timeline=high, priority=1, rounds=rounds, host_waits=True),
            KernelStream(timeline=low, rounds=None, host_waits=True),
        ],
        mode,
    )
    executed = replay(
        [
            ExecutedStream(source=RecordedSource(high, rounds), priority=1, rounds=rounds),
            ExecutedStream(source=RecordedSource(low, None), rounds=None),
        ],
        mode,
    )
    assert executed.end_s == pytest.approx(recorded.end_s)
    for one, other in zip(executed.outcomes, recorded.outcomes, strict=True):
        assert (one.kernels, one.filled) == (other.kernels, other.filled)
        assert one.alone_s == pytest.approx(other.alone_s, abs=1e-12)
        assert one.waited_s == pytest.approx(other.waited_s, abs=1e-12)
        assert one.gap_used_s == pytest.approx(other.gap_used_s, abs=1e-12)


def test_the_expected_wait_is_conditional_on_the_gap_that_has_passed() -> None:
    gaps_s = (10.0, 20.0, 40.0)
    assert expected_wait_s(gaps_s, 0.0, 5.0) == 0
    assert expected_wait_s(gaps_s, 0.0, 15.0) == pytest.approx(5 / 3)
    assert expected_wait_s(gaps_s, 10.0, 15.0) == pytest.approx(5 / 2)  # the shortest is over
    assert expected_wait_s(gaps_s, 40.0, 15.0) == 15  # longer than ever: it may end at once
    assert expected_wait_s((), 0.0, 15.0) == 15


@LAW
@given(high=timelines(), low=timelines(), frac=st.sampled_from([0.0, 0.05, 0.3]))
def test_with_exact_predictions_the_high_stream_waits_no_longer_than_its_budget(
    high: Timeline, low: Timeline, frac: float
) -> None:
    streams = [KernelStream(timeline=high, priority=1, rounds=20), KernelStream(timeline=low, rounds=None)]
    outcome = replay(streams, budget(frac)).outcomes[0]
    assert outcome.waited_s <= frac * outcome.alone_s + 1e-9


def test_a_kernel_that_outlasts_every_gap_is_paid_for_from_the_budget() -> None:
    """FIKIT's rule gives the low stream nothing, plain priority makes the high one wait in every gap."""
    high = KernelStream(timeline=line("high", (100, 50)), priority=1, rounds=100)
    low = KernelStream(timeline=line("low", (60, 0)), rounds=None)
    waited, ran = {}, {}
    for mode in (PriorityGapFillingScheduler(), budget(0.04), ANY):
        outcomes = replay([high, low], mode).outcomes
        waited[mode.rule], ran[mode.rule] = outcomes[0].waited_s / outcomes[0].alone_s, outcomes[1].kernels
    assert (waited[FillingRule.FITS], ran[FillingRule.FITS]) == (0, 0)
    assert waited[FillingRule.ANY] == pytest.approx(10 / 150, rel=0.02)
    assert waited[FillingRule.BUDGET] == pytest.approx(0.04, rel=0.05)
    assert ran[FillingRule.BUDGET] == pytest.approx(0.6 * ran[FillingRule.ANY], rel=0.05)


def test_gaps_that_vary_are_not_taken_for_their_mean() -> None:
    """A gap of 10 or 90 µs: the mean says that 45 µs fit; half of the time they do not."""
    gaps_s = (10 * US, 90 * US)
    predicted = tuple(KernelPrediction(run_s=10 * US, gaps_s=gaps_s) for _ in range(2))
    truth = line("high", (10, 10), (10, 90))
    streams = [
        KernelStream(timeline=truth, priority=1, rounds=200, predicted=predicted),
        KernelStream(timeline=line("low", (45, 0)), rounds=None),
    ]
    by_mean = replay(streams, PriorityGapFillingScheduler()).outcomes[0]
    by_budget = replay(streams, budget(0.05)).outcomes[0]
    assert by_mean.waited_s / by_mean.alone_s > 0.25
    assert by_budget.waited_s / by_budget.alone_s <= 0.05 + 45 / (200 * 120)


def test_an_invalid_budget_is_refused() -> None:
    for frac in (-0.1, math.nan):
        with pytest.raises(InvalidInputError, match="wait_budget_frac"):
            budget(frac)
