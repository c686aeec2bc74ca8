"""Executes pairs of jobs under each way of sharing one device, and compares with what the planner predicted.

Definitions, for a pair and a schedule, over the R measured steps of the high job ("high"; the low one runs throughout):

- T_alone = gap_0 + Σ run_k + Σ gap_k over the kernels of high as executed here, with gap_0 before the first one; W =
  time in which a kernel of high was ready and waited. slowdown = (T_alone + W) / T_alone, so it counts waiting only.
- fit(g) = mean over the kernels p of low's step of the time that low runs in a gap of g seconds, starting with kernel p
  and going on in launch order, with its own gaps, as long as the next kernel ends in time.
- gap use = time in the gaps of high in which low ran ÷ Σ fit(g) over the gaps g of high: 1 where low got all the time
  into which its kernels fit, more where a kernel also ran that did not end in time; NaN where none fits.
- low rate = time that low ran ÷ (T_alone + W), in gaps or not.
- The predicted slowdown and gap use are those of a replay of the rounds that were measured alone, by the same planner.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from interfere.records import NAN
from interfere.reports.document import Column, Document, Items, Section, Sentence, Tone, table_of
from interfere.reports.numbers import COUNT, TIMES, percent
from interfere.sharing.executed_job import ExecutedJob, MeasuredJob
from interfere.sharing.operator_interception import operators_on_one_core
from interfere.timeline.kernel_schedulers import SingleQueueScheduler, TimeSliceScheduler
from interfere.timeline.mode_comparison import HIGH_PRIORITY, LOW_PRIORITY
from interfere.timeline.priority_scheduler import FillingRule, PriorityGapFillingScheduler
from interfere.timeline.replay_engine import replay
from interfere.timeline.streams import ExecutedStream, KernelScheduler, ReplayResult
from interfere.timeline.timelines import Timeline

MAX_SLOWDOWN, MIN_GAP_USE = 1.10, 0.5  # what a pair must keep


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSchedule:
    """A way of sharing, and whether its planner knows kernels by their place in the step or by identity alone."""

    name: str
    scheduler: KernelScheduler
    by_place: bool = True


SCHEDULES = (
    SharingSchedule(name="one queue", scheduler=SingleQueueScheduler()),
    SharingSchedule(name="time slices", scheduler=TimeSliceScheduler()),
    SharingSchedule(name="priority, no prediction", scheduler=PriorityGapFillingScheduler(rule=FillingRule.ANY)),
    SharingSchedule(name="FIKIT, identity", scheduler=PriorityGapFillingScheduler(), by_place=False),
    SharingSchedule(name="FIKIT, place", scheduler=PriorityGapFillingScheduler()),
    SharingSchedule(name="wait budget", scheduler=PriorityGapFillingScheduler(rule=FillingRule.BUDGET)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOutcome:
    """The figures of one pair under one schedule, as the module defines them."""

    high: str
    low: str
    schedule: str
    slowdown: float
    gap_use: float
    predicted_slowdown: float
    predicted_gap_use: float
    low_rate: float
    fit_s: float
    gap_s: float  # of high


def execute_pair(high: MeasuredJob, low: MeasuredJob, schedule: SharingSchedule, rounds: int) -> PairOutcome:
    """Execute `rounds` steps of the high job beside the low one, and replay the same from what was measured alone."""
    with (
        operators_on_one_core(),
        ExecutedJob(
            high.workload,
            rounds=rounds,
            segment_starts=high.segment_starts,
            table=high.table(by_place=schedule.by_place),
        ) as high_job,
        ExecutedJob(
            low.workload, rounds=None, segment_starts=low.segment_starts, table=low.table(by_place=schedule.by_place)
        ) as low_job,
    ):
        executed = replay(
            [
                ExecutedStream(source=high_job, priority=HIGH_PRIORITY, rounds=rounds),
                ExecutedStream(source=low_job, priority=LOW_PRIORITY, rounds=None),
            ],
            schedule.scheduler,
        )
        gaps_s = [high_job.first_gap_s, *(kernel.gap_s for each in high_job.executed_rounds for kernel in each)]
    predicted = replay(
        [
            high.predicted_stream(HIGH_PRIORITY, by_place=schedule.by_place, endless=False),
            low.predicted_stream(LOW_PRIORITY, by_place=schedule.by_place, endless=True),
        ],
        schedule.scheduler,
    )
    fit_s = math.fsum(fitting_s(low.rounds[-1], gap_s) for gap_s in gaps_s)
    predicted_gaps_s = [high.first_gap_s, *(kernel.gap_s for kernel in high.all_rounds.kernels)]
    predicted_fit_s = math.fsum(fitting_s(low.rounds[-1], gap_s) for gap_s in predicted_gaps_s)
    return PairOutcome(
        high=high.workload.name,
        low=low.workload.name,
        schedule=schedule.name,
        slowdown=_waiting_slowdown(executed),
        gap_use=_ratio(executed.outcomes[0].gap_used_s, fit_s),
        predicted_slowdown=_waiting_slowdown(predicted),
        predicted_gap_use=_ratio(predicted.outcomes[0].gap_used_s, predicted_fit_s),
        low_rate=_ratio(executed.outcomes[1].executed_s, executed.end_s),
        fit_s=fit_s,
        gap_s=math.fsum(gaps_s),
    )


def execute_pairs(
    highs: Sequence[MeasuredJob],
    lows: Sequence[MeasuredJob],
    rounds: int,
    *,
    note: Callable[[str], None] = lambda _: None,
) -> list[PairOutcome]:
    """Execute every high job beside every low one under each schedule, and `note` each pair that is through."""
    outcomes: list[PairOutcome] = []
    for high, low in product(highs, lows):
        outcomes += [execute_pair(high, low, schedule, rounds) for schedule in SCHEDULES]
        note(f"{high.workload.name} beside {low.workload.name}")
    return outcomes


def fitting_s(low: Timeline, gap_s: float) -> float:
    """Return the mean time that the kernels of `low` run in a gap, over all kernels that may come first."""
    kernels, run_s = low.kernels, 0.0
    for first in range(len(kernels)):
        clock_s, place = 0.0, first
        while clock_s + kernels[place].duration_s <= gap_s:
            run_s += kernels[place].duration_s
            clock_s += kernels[place].duration_s + kernels[place].gap_s
            place = (place + 1) % len(kernels)
    return run_s / len(kernels)


def _waiting_slowdown(result: ReplayResult) -> float:
    high = result.outcomes[0]
    return 1 + _ratio(high.waited_s, high.alone_s)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else NAN


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSummary:
    """What one schedule reached over all pairs."""

    schedule: str
    pairs: int
    slowdown_median: float
    slowdown_max: float
    kept_frac: float  # pairs in which the high job took at most MAX_SLOWDOWN
    fitting_pairs: int  # in which a kernel of low fits into a gap of high at all
    gap_use_median: float
    used_frac: float  # of these: low ran for MIN_GAP_USE of the time into which its kernels fit, or more
    low_rate_median: float
    slowdown_error: float  # median of |predicted / executed - 1|
    gap_use_error: float  # the same, of gap use


def summarise(outcomes: Sequence[PairOutcome]) -> tuple[ModeSummary, ...]:
    """Return one summary for each schedule, in the order of their first outcome."""
    summaries = []
    for schedule in dict.fromkeys(outcome.schedule for outcome in outcomes):
        rows = [outcome for outcome in outcomes if outcome.schedule == schedule]
        fitting = [row for row in rows if row.fit_s > 0]
        summaries.append(
            ModeSummary(
                schedule=schedule,
                pairs=len(rows),
                slowdown_median=median(row.slowdown for row in rows),
                slowdown_max=max(row.slowdown for row in rows),
                kept_frac=sum(row.slowdown <= MAX_SLOWDOWN for row in rows) / len(rows),
                fitting_pairs=len(fitting),
                gap_use_median=median(row.gap_use for row in fitting) if fitting else NAN,
                used_frac=_ratio(sum(row.gap_use >= MIN_GAP_USE for row in fitting), len(fitting)),
                low_rate_median=median(row.low_rate for row in rows),
                slowdown_error=median(abs(row.predicted_slowdown / row.slowdown - 1) for row in rows),
                gap_use_error=_median_error([row for row in fitting if row.gap_use > 0]),
            )
        )
    return tuple(summaries)


def _median_error(rows: Sequence[PairOutcome]) -> float:
    return median(abs(row.predicted_gap_use / row.gap_use - 1) for row in rows) if rows else NAN


SUMMARY_COLUMNS = (
    Column("schedule", of="schedule"),
    Column("pairs", COUNT, of="pairs"),
    Column("high, median", TIMES, of="slowdown_median"),
    Column("high, worst", TIMES, of="slowdown_max"),
    Column(f"high ≤ {MAX_SLOWDOWN:.2f}", percent(), of="kept_frac"),
    Column("pairs that fit", COUNT, of="fitting_pairs"),
    Column("gap use, median", percent(), of="gap_use_median"),
    Column(f"gap use ≥ {MIN_GAP_USE:.0%}", percent(), of="used_frac"),
    Column("low rate, median", percent(), of="low_rate_median"),
    Column("error, high", percent(1), of="slowdown_error"),
    Column("error, gap use", percent(1), of="gap_use_error"),
)
PAIR_COLUMNS = (
    Column("high", of="high"),
    Column("low", of="low"),
    Column("schedule", of="schedule"),
    Column("slowdown", TIMES, of="slowdown"),
    Column("predicted", TIMES, of="predicted_slowdown"),
    Column("gap use", percent(), of="gap_use"),
    Column("predicted", percent(), of="predicted_gap_use"),
)
COLUMN_MEANINGS = (
    "high: time of the high job beside the low one ÷ alone, waiting only",
    "gap use: time in the gaps of the high job in which the low job ran ÷ the part of it into which its kernels fit",
    "low rate: time that the low job ran ÷ all time",
    "error: median of |predicted ÷ executed - 1|, predicted by the same planner from the jobs alone",
)


def filling_document(outcomes: Sequence[PairOutcome]) -> Document:
    """Return the report of executed pairs: a summary of each schedule, then every pair."""
    return Document(
        "Gap filling, executed",
        (
            Sentence(
                "Every operator really ran, on a clock of measured CPU time; hosts have processors of their own.",
                tone=Tone.LEAD,
            ),
            table_of("Schedules", SUMMARY_COLUMNS, summarise(outcomes)),
            table_of("Pairs", PAIR_COLUMNS, outcomes),
            Section("How to read this page", (Items(COLUMN_MEANINGS),)),
        ),
    )
