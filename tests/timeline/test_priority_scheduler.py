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


def preempting(rule: FillingRule, preemption_s: float) -> PriorityGapFillingScheduler:
    return PriorityGapFillingScheduler(rule=rule, wait_budget_frac=0.05, preemption_s=preemption_s)


class RecordedSource:
    """Executes nothing: its kernels take the times of a timeline."""

    def __init__(self, timeline: Timeline, rounds: int | None, first_gap_s: float = 0.0) -> None:
        self.name, self.timeline, self.rounds, self.executed = timeline.name, timeline, rounds, 0
        self.first_gap_s = first_gap_s

    def begin(self) -> float:
        return self.first_gap_s

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
@given(
    high=timelines(),
    low=timelines(),
    rounds=st.integers(1, 3),
    first_gap_s=st.sampled_from([0.0, 7 * US]),
    mode=st.sampled_from([*MODES, ANY, budget(0.1), preempting(FillingRule.BUDGET, 5 * US)]),
)
def test_executed_streams_are_scheduled_as_recorded_ones(
    high: Timeline, low: Timeline, rounds: int, first_gap_s: float, mode: KernelScheduler
) -> None:
    recorded = replay(
        [
            KernelStream(timeline=high, priority=1, rounds=rounds, first_gap_s=first_gap_s, host_waits=True),
            KernelStream(timeline=low, rounds=None, host_waits=True),
        ],
        mode,
    )
    executed = replay(
        [
            ExecutedStream(source=RecordedSource(high, rounds, first_gap_s), priority=1, rounds=rounds),
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
@given(
    gaps_s=st.lists(st.floats(0.0, 50.0), max_size=5),
    elapsed_s=st.floats(0.0, 60.0),
    run_s=st.floats(0.0, 50.0),
    preemption_s=st.floats(0.0, 50.0),
)
def test_the_expected_wait_is_a_preemption_at_most(
    gaps_s: list[float], elapsed_s: float, run_s: float, preemption_s: float
) -> None:
    wait_s = expected_wait_s(gaps_s, elapsed_s, run_s, preemption_s)
    assert 0 <= wait_s <= preemption_s + 1e-9
    assert wait_s <= expected_wait_s(gaps_s, elapsed_s, run_s) + 1e-9
    assert expected_wait_s(gaps_s, elapsed_s, run_s, run_s) == expected_wait_s(gaps_s, elapsed_s, run_s)


@LAW
@given(
    high=timelines(),
    low=timelines(),
    rule=st.sampled_from(FillingRule),
    preemption_s=st.sampled_from([0.0, 2 * US, 30 * US]),
)
def test_a_preempting_stream_waits_for_one_preemption_a_kernel_and_loses_no_work_of_the_other(
    high: Timeline, low: Timeline, rule: FillingRule, preemption_s: float
) -> None:
    streams = [KernelStream(timeline=high, priority=1, rounds=3), KernelStream(timeline=low, rounds=3)]
    high_outcome, low_outcome = replay(streams, preempting(rule, preemption_s)).outcomes
    assert high_outcome.waited_s <= preemption_s * high_outcome.kernels + 1e-9
    assert low_outcome.finished
    assert low_outcome.executed_s == pytest.approx(3 * sum(kernel.duration_s for kernel in low.kernels))


def test_a_kernel_that_is_preempted_goes_on_in_the_next_gap() -> None:
    """A kernel of 1,003 µs takes 21 gaps of 50 µs, and the high stream pays 4 µs for each."""
    high = KernelStream(timeline=line("high", (100, 50)), priority=1, rounds=100)
    low = KernelStream(timeline=line("low", (1003, 0)), rounds=None)
    result = replay([high, low], preempting(FillingRule.ANY, 4 * US))
    assert result.outcomes[0].waited_s == pytest.approx(100 * 4 * US, rel=0.02)
    assert result.outcomes[1].executed_s == pytest.approx(100 * 50 * US, rel=0.02)
    assert result.idle_s == pytest.approx(result.outcomes[0].waited_s)
    refused = replay([high, low], PriorityGapFillingScheduler(preemption_s=4 * US))
    assert refused.outcomes[1].executed_s == 0, "it does not fit, so FIKIT never starts it"


def test_the_budget_pays_for_preemptions() -> None:
    """5 % of 150 µs pay for 7.5 µs: a preemption of 4 µs in every gap, one of 30 µs in a quarter of them."""
    high = KernelStream(timeline=line("high", (100, 50)), priority=1, rounds=400)
    low = KernelStream(timeline=line("low", (60, 0)), rounds=None)
    ran = {}
    for preemption_s in (4 * US, 30 * US):
        outcomes = replay([high, low], preempting(FillingRule.BUDGET, preemption_s)).outcomes
        assert outcomes[0].waited_s <= 0.05 * outcomes[0].alone_s + preemption_s
        ran[preemption_s] = outcomes[1].executed_s / (400 * 50 * US)
    assert ran[4 * US] == pytest.approx(1, rel=0.02)
    assert 0.2 < ran[30 * US] < 0.6


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


def test_nothing_that_needs_a_prediction_runs_before_the_first_launch_of_a_job_that_has_started() -> None:
    """A low kernel of 60 µs fits into the first gap of 100 µs, but nobody knows how long that gap is."""
    low = KernelStream(timeline=line("low", (60, 0)), rounds=None)
    waited_s = {}
    for mode in (PriorityGapFillingScheduler(), budget(0.05), ANY):
        high = KernelStream(timeline=line("high", (100, 0)), priority=1, first_gap_s=100 * US, rounds=1)
        outcome = replay([high, low], mode).outcomes[0]
        waited_s[mode.rule] = outcome.waited_s
        assert outcome.alone_s == pytest.approx(200 * US)
        assert outcome.elapsed_s == pytest.approx(200 * US + outcome.waited_s)
        assert (outcome.gap_used_s > 0) == (mode.rule == FillingRule.ANY)
    assert waited_s[FillingRule.FITS] == waited_s[FillingRule.BUDGET] == 0
    assert waited_s[FillingRule.ANY] == pytest.approx(20 * US)


def test_an_invalid_budget_is_refused() -> None:
    for frac in (-0.1, math.nan):
        with pytest.raises(InvalidInputError, match="wait_budget_frac"):
            budget(frac)


def test_an_invalid_time_of_a_preemption_is_refused() -> None:
    for preemption_s in (-1e-6, math.nan):
        with pytest.raises(InvalidInputError, match="preemption_s"):
            PriorityGapFillingScheduler(preemption_s=preemption_s)
