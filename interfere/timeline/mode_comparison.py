"""Compares the sharing modes for two jobs: what each job pays, and what filling the gaps of one with the other gains.

Definitions, for one mode. The job of high priority ("high") runs `rounds` times, the one of low priority ("low") all
the while. slowdown = time beside the other ÷ time alone of the same kernels. gap use = time in which low ran while high
had no kernel ready ÷ all such time. overhang = time in which a kernel of high was ready and waited. speed-up = time of
high in a single queue ÷ time of high. relative rate = speed of low ÷ its speed in a single queue. completion = time of
low in a single queue ÷ time of low, both jobs started together with equal solo times (FIKIT's job completion times).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from interfere.devices import CPU_CORE
from interfere.records import NAN, JobProfile
from interfere.reports.document import (
    Axis,
    Box,
    Colour,
    Column,
    Document,
    Items,
    Lane,
    Lanes,
    Section,
    Sentence,
    Series,
    Tone,
    table_of,
)
from interfere.reports.numbers import COUNT, DURATION, TIMES, format_duration, percent
from interfere.timeline.kernel_schedulers import FIKIT_OVERHEAD_FRAC, SingleQueueScheduler
from interfere.timeline.replay_engine import replay
from interfere.timeline.streams import ExecutionSpan, KernelScheduler, KernelStream
from interfere.timeline.timelines import KernelPrediction, PredictionTable, Timeline, timeline_from_profile

HIGH_PRIORITY, LOW_PRIORITY = 1, 0
MEASURED_ROUNDS = 10  # of each job alone, before a scheduler knows its means
MIN_HIGH_LAUNCHES = 1_000  # of high; twice as many change Orion's speed-ups and completions by 1.2 % at most
MAX_HIGH_SOLO_S = 4.0  # of high alone, where one round is shorter: some thousand slices of a CPU core
MAX_LAUNCHES = 20_000  # of both jobs, where one round of high has fewer: about a second of computing per mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeResult:
    """The figures of one mode, as the module defines them; NaN where a job made no progress."""

    mode: str
    high_slowdown: float
    low_slowdown: float
    high_speedup: float
    low_relative_rate: float
    low_completion: float
    filled: int  # kernels of low that began in a gap of high
    gap_use_frac: float
    overhang_frac: float  # of the time of high alone
    idle_frac: float  # of the time of the device
    spans: tuple[ExecutionSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScenario:
    """A high and a low job, by priority, that share a device. Tuples hold the value of the high job first."""

    high: Timeline
    low: Timeline
    # What a scheduler knows of the kernels; empty: the truth.
    predicted: tuple[tuple[KernelPrediction, ...], tuple[KernelPrediction, ...]] = ((), ())
    # Whether hosts wait for each kernel, as one that reads every result, or a process that computes and sleeps.
    hosts_wait: tuple[bool, bool] = (False, False)
    rounds: int = 0  # of high; 0: chosen by the number of launches

    @property
    def measurement_s(self) -> float:
        """The time for which both jobs run alone, one after the other, until a scheduler knows the means of their
        kernels."""
        return MEASURED_ROUNDS * (1 + FIKIT_OVERHEAD_FRAC) * (self.high.solo_s + self.low.solo_s)

    @property
    def oversized_low_kernels(self) -> int:
        """Number of kernels of the low job that are longer than every gap of the high job.

        Kernels keep their launch order, so with exact predictions such a kernel blocks the low job until the high job
        has finished.
        """
        longest_gap_s = max(kernel.gap_s for kernel in self.high.kernels)
        return sum(kernel.duration_s > longest_gap_s for kernel in self.low.kernels)

    def streams(self, *, low_ends: bool) -> tuple[KernelStream, KernelStream]:
        """Return both jobs as streams; the low job has as much work alone as the high job if `low_ends`, else it is
        endless."""
        rounds = self.rounds or _default_rounds(self.high, self.low)
        low_rounds = max(1, round(rounds * self.high.solo_s / self.low.solo_s)) if low_ends else None
        high = KernelStream(
            timeline=self.high,
            priority=HIGH_PRIORITY,
            rounds=rounds,
            predicted=self.predicted[0],
            host_waits=self.hosts_wait[0],
        )
        low = KernelStream(
            timeline=self.low,
            priority=LOW_PRIORITY,
            rounds=low_rounds,
            predicted=self.predicted[1],
            host_waits=self.hosts_wait[1],
        )
        return high, low


def scenario_from_profiles(high: JobProfile, low: JobProfile) -> PairScenario:
    """Return the scenario of two profiled jobs, whose kernels a scheduler knows by the means of their identities."""
    timelines = (timeline_from_profile(high), timeline_from_profile(low))
    predicted = tuple(PredictionTable([timeline]).predict_round(timeline) for timeline in timelines)
    on_core = high.device_type == CPU_CORE.name
    return PairScenario(
        high=timelines[0], low=timelines[1], predicted=(predicted[0], predicted[1]), hosts_wait=(on_core, on_core)
    )


def compare_sharing_modes(
    scenario: PairScenario, modes: Sequence[KernelScheduler], *, record_spans_until_s: float = 0.0
) -> tuple[ModeResult, ...]:
    """Return the result of each mode, with the spans that begin before `record_spans_until_s`. Pure: no clock, no
    state."""
    # 1. Replay the baseline, a single queue: with an endless low job, and with one of as much work as high.
    endless_low, bounded_low = scenario.streams(low_ends=False), scenario.streams(low_ends=True)
    single_queue = SingleQueueScheduler()
    baseline_high, baseline_low = replay(endless_low, single_queue).outcomes
    baseline_low_s = replay(bounded_low, single_queue).outcomes[1].elapsed_s
    # 2. Replay each mode in the same way, and compare.
    results: list[ModeResult] = []
    for mode in modes:
        result = replay(endless_low, mode, record_spans_until_s=record_spans_until_s)
        high, low = result.outcomes
        low_s = replay(bounded_low, mode).outcomes[1].elapsed_s
        results.append(
            ModeResult(
                mode=mode.name,
                high_slowdown=high.slowdown,
                low_slowdown=low.slowdown,
                high_speedup=baseline_high.elapsed_s / high.elapsed_s,
                low_relative_rate=low.speed / baseline_low.speed if baseline_low.speed > 0 else NAN,
                low_completion=baseline_low_s / low_s,
                filled=low.filled,
                gap_use_frac=high.gap_used_s / high.gap_s if high.gap_s > 0 else NAN,
                overhang_frac=high.waited_s / high.alone_s,
                idle_frac=result.idle_s / result.end_s,
                spans=result.spans,
            )
        )
    return tuple(results)


def _default_rounds(high: Timeline, low: Timeline) -> int:
    """Return rounds of the high job: enough of its launches and a whole low round, but not too many launches in all."""
    low_launches = high.solo_s / low.solo_s * len(low.kernels)  # in one round of high, if neither job waited
    wanted = max(math.ceil(MIN_HIGH_LAUNCHES / len(high.kernels)), math.ceil(low.solo_s / high.solo_s))
    max_by_launches = int(MAX_LAUNCHES / (len(high.kernels) + low_launches))
    return max(1, min(wanted, max_by_launches, int(MAX_HIGH_SOLO_S / high.solo_s)))


# --- the comparison as a document -------------------------------------------------------------------------------------


SHOWN_KERNELS = 40  # of high alone: as many as a reader can follow
HIGH, LOW, FILL = 0, 1, 2  # places among the series
KERNEL_SERIES = (
    Series(name="high job"),
    Series(name="low job", colour=Colour.ORANGE),
    Series(name="low job, begun in a gap of the high one", colour=Colour.GREEN),
)
MODE_DESCRIPTIONS = {
    "exclusive": "one job after the other",
    "timeslice": "round robin of contexts, as on a GPU without MPS",
    "fair": "Linux's slices of one CPU core (EEVDF)",
    "queued": "one queue, kernels run in the order of their launch, without priorities; 32 launches ahead at most",
    "unpredicted": "the high job first, any kernel of the low one in its gaps",
    "priority": "the high job first, its gaps filled with kernels of the low one that fit (FIKIT)",
    "filling": "the same, with kernels whose expected wait is within the budget of the high job",
}
COLUMNS = (
    Column("mode", of="mode"),
    Column("high", TIMES, of="high_slowdown"),
    Column("low", TIMES, of="low_slowdown"),
    Column("gain", TIMES, of="high_speedup"),
    Column("low rate", TIMES, of="low_relative_rate"),
    Column("low done", TIMES, of="low_completion"),
    Column("filled", COUNT, of="filled"),
    Column("gap use", percent(), of="gap_use_frac"),
    Column("overhang", percent(), of="overhang_frac"),
    Column("idle", percent(), of="idle_frac"),
)
COLUMN_MEANINGS = (
    "high, low: slowdown, the time beside the other ÷ time alone; the low job runs all the while",
    "gain: time of high in one queue ÷ its time here; low rate: speed of low here ÷ its speed in one queue",
    "low done: completion time of low in one queue ÷ here, both started together with the same work alone",
    "filled: low kernels begun in a gap of the high job; gap use: share of its gaps in which the low job ran",
    "overhang: time in which a kernel of the high job waited ÷ its time alone; idle: share of time in which no job ran",
)


def shown_window_s(high: Timeline) -> float:
    """Return the time that the charts show: `SHOWN_KERNELS` kernels of the high job alone."""
    shown = high.kernels[:SHOWN_KERNELS]
    return max(1e-6, math.fsum(kernel.duration_s + kernel.gap_s for kernel in shown))


def explanatory_notes(scenario: PairScenario) -> tuple[str, ...]:
    """Return notes on the meaning of the columns, and on the source of the two timelines."""
    oversized, kernels = scenario.oversized_low_kernels, len(scenario.low.kernels)
    warning = f"{oversized} of {kernels} low kernels are longer than every gap of the high job: filling stops at these"
    measurement = (
        f"priority, filling: both jobs first run alone for {format_duration(scenario.measurement_s)}, until their "
        f"kernels are measured; interception of launches costs {FIKIT_OVERHEAD_FRAC:.0%} of a job's time, FIKIT's worst"
    )
    origins = (_origin(scenario.high), _origin(scenario.low))
    return (*COLUMN_MEANINGS, *origins, measurement, *([warning] if oversized else []))


def comparison_document(scenario: PairScenario, results: Sequence[ModeResult]) -> Document:
    """Return the report: figures of each mode, its first kernels where spans were recorded, and the columns'
    meaning."""
    high, low, window_s = scenario.high, scenario.low, shown_window_s(scenario.high)
    charts = tuple(kernel_lanes(result, scenario, window_s) for result in results)
    return Document(
        f"{high.name} (high) beside {low.name} (low)",
        (
            Sentence(
                "Replayed, not measured: what the two timelines alone say about sharing one device.", tone=Tone.LEAD
            ),
            table_of("Sharing modes", COLUMNS, results),
            Section(f"The first {format_duration(window_s)}", charts, is_detail=True),
            Section("How to read this page", (Items(explanatory_notes(scenario)),)),
        ),
    )


def kernel_lanes(result: ModeResult, scenario: PairScenario, window_s: float) -> Lanes:
    """Return the kernels of both jobs over time, with one lane for each job."""
    names = (scenario.high.name, scenario.low.name)

    def boxes(stream: int) -> tuple[Box, ...]:
        return tuple(
            Box(
                start=span.start_s,
                end=span.end_s,
                series=HIGH if span.stream == 0 else FILL if span.in_gap else LOW,
                label=f"{names[stream]}, kernel {span.kernel}: {format_duration(span.end_s - span.start_s)}",
            )
            for span in result.spans
            if span.stream == stream
        )

    return Lanes(
        title=f"{result.mode}: {MODE_DESCRIPTIONS.get(result.mode, '')}",
        axis=Axis(title="time since both started", form=DURATION, low=0.0, high=window_s),
        series=KERNEL_SERIES,
        lanes=(Lane(label="high", boxes=boxes(0)), Lane(label="low", boxes=boxes(1))),
    )


def _origin(timeline: Timeline) -> str:
    """Return a sentence on the number of kernels of a timeline, its times, and the source of its order and gaps."""
    busy, solo = format_duration(timeline.busy_s), format_duration(timeline.solo_s)
    return (
        f"{timeline.name}: {len(timeline.kernels)} kernels a round, {busy} busy of {solo} alone; "
        f"order {timeline.order}; gaps {timeline.gaps}."
    )
