"""The comparison of sharing modes as a document: a table of figures, and the first kernels of each mode on two lanes.

Law: names are shown as text, whatever they hold; equal input gives equal documents.
"""

import math
from collections.abc import Sequence

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
    Table,
    Tone,
)
from interfere.reports.numbers import COUNT, DURATION, TIMES, format_duration, percent
from interfere.timeline.kernel_schedulers import FIKIT_OVERHEAD_FRAC
from interfere.timeline.mode_comparison import ModeResult, PairScenario
from interfere.timeline.records import Timeline

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
    "spatial": "both at once, dividing multiprocessors and bandwidth; failed on measured kernels: rank nothing by it",
    "queued": "one queue, kernels run in the order of their launch, without priorities; 32 launches ahead at most",
    "priority": "the high job first, its gaps filled with kernels of the low one (FIKIT)",
}
COLUMNS = (
    Column("mode"),
    *(Column(name, TIMES) for name in ("high", "low", "gain", "low rate", "low done")),
    Column("filled", COUNT),
    *(Column(name, percent()) for name in ("gap use", "overhang", "idle")),
)
COLUMN_MEANINGS = (
    "high, low: slowdown, the time beside the other ÷ time alone; the low job runs all the while",
    "gain: time of high in one queue ÷ its time here; low rate: speed of low here ÷ its speed in one queue",
    "low done: completion time of low in one queue ÷ here, both started together with the same work alone",
    "filled: low kernels begun in a gap of the high job; gap use: share of its gaps in which the low job ran",
    "overhang: time in which a kernel of the high job waited ÷ its time alone; idle: share of time in which no job ran",
)


def shown_window_s(high: Timeline) -> float:
    """The time that the charts show: `SHOWN_KERNELS` kernels of the high job alone."""
    shown = high.kernels[:SHOWN_KERNELS]
    return max(1e-6, math.fsum(kernel.duration_s + kernel.gap_s for kernel in shown))


def comparison_table(title: str, results: Sequence[ModeResult]) -> Table:
    """The figures of each mode."""
    rows = tuple(
        (
            result.mode,
            result.high_slowdown,
            result.low_slowdown,
            result.high_speedup,
            result.low_relative_rate,
            result.low_completion,
            result.filled,
            result.gap_use_frac,
            result.overhang_frac,
            result.idle_frac,
        )
        for result in results
    )
    return Table(title=title, columns=COLUMNS, rows=rows)


def explanatory_notes(scenario: PairScenario) -> tuple[str, ...]:
    """Return notes on the meaning of the columns, and on the source of the two timelines."""
    oversized, kernels = scenario.oversized_low_kernels, len(scenario.low.kernels)
    warning = f"{oversized} of {kernels} low kernels are longer than every gap of the high job: filling stops at these"
    measurement = (
        f"priority: both jobs first run alone for {format_duration(scenario.measurement_s)}, until their kernels are "
        f"measured; its interception of launches costs {FIKIT_OVERHEAD_FRAC:.0%} of a job's time, FIKIT's worst"
    )
    origins = (_origin(scenario.high), _origin(scenario.low))
    return (*COLUMN_MEANINGS, *origins, measurement, *([warning] if oversized else []))


def comparison_document(scenario: PairScenario, results: Sequence[ModeResult]) -> Document:
    """The figures of each mode, its first kernels where spans were recorded, and what the columns mean."""
    high, low, window_s = scenario.high, scenario.low, shown_window_s(scenario.high)
    charts = tuple(kernel_lanes(result, scenario, window_s) for result in results)
    return Document(
        f"{high.name} (high) beside {low.name} (low)",
        (
            Sentence(
                "Replayed, not measured: what the two timelines alone say about sharing one device.", tone=Tone.LEAD
            ),
            comparison_table("Sharing modes", results),
            Section(f"The first {format_duration(window_s)}", charts, is_detail=True),
            Section("How to read this page", (Items(explanatory_notes(scenario)),)),
        ),
    )


def kernel_lanes(result: ModeResult, scenario: PairScenario, window_s: float) -> Lanes:
    """The kernels of both jobs over time, a lane each."""
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
    """A sentence that says what a timeline is made of."""
    busy, solo = format_duration(timeline.busy_s), format_duration(timeline.solo_s)
    return (
        f"{timeline.name}: {len(timeline.kernels)} kernels a round, {busy} busy of {solo} alone; "
        f"order {timeline.order}; gaps {timeline.gaps}."
    )
