"""The comparison of sharing modes as an HTML page: a table of figures, and a Gantt chart of the first kernels per mode.

Laws: one file with everything in it; names are shown as text, whatever they hold; equal input gives equal bytes.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from interfere.data.html_page import html_document
from interfere.data.html_page.formatting import format_duration, format_percent, format_slowdown
from interfere.data.html_page.html_builder import Html, tag
from interfere.file_writing import write_atomically
from interfere.timeline.kernel_schedulers import FIKIT_OVERHEAD_FRAC
from interfere.timeline.mode_comparison import ModeResult, PairScenario
from interfere.timeline.records import ExecutionSpan, Timeline

WIDTH, LEFT, RIGHT, ROW, GAP, AXIS = 1060.0, 96.0, 12.0, 26.0, 8.0, 34.0  # SVG user units
SHOWN_KERNELS = 40  # of high alone: as many as a reader can follow
MIN_MARK = 0.6  # user units: a shorter kernel is drawn this wide, so that it can be seen
HIGH, LOW, FILL = "var(--suffers)", "var(--causes)", "var(--good)"
MODE_DESCRIPTIONS = {
    "exclusive": "one job after the other",
    "timeslice": "round robin of contexts, as on a GPU without MPS",
    "fair": "Linux's slices of one CPU core (EEVDF)",
    "spatial": "both at once, dividing multiprocessors and bandwidth; failed on measured kernels: rank nothing by it",
    "queued": "one queue, kernels run in the order of their launch, without priorities; 32 launches ahead at most",
    "priority": "the high job first, its gaps filled with kernels of the low one (FIKIT)",
}
COLUMNS = ("mode", "high", "low", "gain", "low rate", "low done", "filled", "gap use", "overhang", "idle")
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


def comparison_rows(results: Sequence[ModeResult]) -> tuple[tuple[str, ...], ...]:
    """The figures of each mode as text, in the order of COLUMNS."""
    return tuple(
        (
            result.mode,
            format_slowdown(result.high_slowdown),
            format_slowdown(result.low_slowdown),
            format_slowdown(result.high_speedup),
            format_slowdown(result.low_relative_rate),
            format_slowdown(result.low_completion),
            str(result.filled),
            format_percent(result.gap_use_frac),
            format_percent(result.overhang_frac),
            format_percent(result.idle_frac),
        )
        for result in results
    )


def explanatory_notes(scenario: PairScenario) -> tuple[str, ...]:
    """What the columns mean, and what the two timelines are made of."""
    oversized, kernels = scenario.oversized_low_kernels, len(scenario.low.kernels)
    warning = f"{oversized} of {kernels} low kernels are longer than every gap of the high job: filling stops at these"
    measurement = (
        f"priority: both jobs first run alone for {format_duration(scenario.measurement_s)}, until their kernels are "
        f"measured; its interception of launches costs {FIKIT_OVERHEAD_FRAC:.0%} of a job's time, FIKIT's worst"
    )
    origins = (_origin(scenario.high), _origin(scenario.low))
    return (*COLUMN_MEANINGS, *origins, measurement, *([warning] if oversized else []))


def write_comparison_page(path: Path, scenario: PairScenario, results: Sequence[ModeResult]) -> Path:
    """Write the page to `path`, whole or not at all. Raises UnfitError where that cannot be written."""
    text = comparison_page(scenario, results)
    write_atomically(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    return path


def comparison_page(scenario: PairScenario, results: Sequence[ModeResult]) -> str:
    """The HTML of the page."""
    high, low, window_s = scenario.high, scenario.low, shown_window_s(scenario.high)
    head = tag("tr", *(tag("th", name, scope="col", class_="number" if k else None) for k, name in enumerate(COLUMNS)))
    rows = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell, class_="number") for cell in row[1:]))
        for row in comparison_rows(results)
    ]
    charts = (
        part
        for result in results
        for part in (_heading(result.mode), gantt_chart(result.spans, window_s, high.name, low.name))
    )
    return html_document(
        f"{high.name} beside {low.name}: timelines",
        tag("h1", f"{high.name} (high) beside {low.name} (low)"),
        tag("p", "Replayed, not measured: what the two timelines alone say about sharing one device.", class_="lead"),
        tag("p", _origin(high), tag("br"), _origin(low), class_="dim"),
        tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="plain"), class_="scroll"),
        tag("h2", f"The first {format_duration(window_s)}"),
        colour_legend(),
        *charts,
        tag("h2", "How to read this page"),
        *(tag("p", line) for line in explanatory_notes(scenario)),
    )


def gantt_chart(spans: Sequence[ExecutionSpan], window_s: float, high: str, low: str) -> Html:
    """The kernels of both jobs over time, one row each."""
    height = 2 * ROW + GAP + AXIS

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, at_s / window_s)

    marks = [
        tag("text", name, x=LEFT - 8, y=row * (ROW + GAP) + ROW * 0.65, text_anchor="end")
        for row, name in enumerate(("high", "low"))
    ]
    marks.append(
        tag("text", "time since both started", x=(LEFT + WIDTH - RIGHT) / 2, y=height - 2, text_anchor="middle")
    )
    step_s = _tick_step_s(window_s)
    for k in range(math.floor(window_s / step_s + 1e-9) + 1):
        at = x(k * step_s)
        marks.append(tag("line", class_="grid", x1=at, x2=at, y1=0.0, y2=2 * ROW + GAP))
        anchor = "end" if at > WIDTH - 60 else "middle"
        marks.append(
            tag("text", format_duration(k * step_s) if k else "0", x=at, y=2 * ROW + GAP + 16, text_anchor=anchor)
        )
    for span in spans:
        begin, end = x(span.start_s), x(span.end_s)
        colour = HIGH if span.stream == 0 else FILL if span.in_gap else LOW
        title = (
            f"{high if span.stream == 0 else low}, kernel {span.kernel}: {format_duration(span.end_s - span.start_s)}"
        )
        marks.append(
            tag(
                "rect",
                tag("title", title),
                x=begin,
                y=span.stream * (ROW + GAP),
                width=max(MIN_MARK, end - begin),
                height=ROW,
                fill=colour,
                stroke="var(--page)",
                stroke_width=0.4 if end - begin > 4 else 0,
            )
        )
    label = f"{high} and {low} over the first {format_duration(window_s)}: {len(spans)} stretches"
    drawn = tag("svg", *marks, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=label, width="100%")
    return tag("div", drawn, class_="scroll")


def colour_legend() -> Html:
    """The meaning of the colours."""
    parts = [
        tag("span", tag("b", "■ ", style=f"color:{colour}"), text + "   ")
        for colour, text in ((HIGH, "high job"), (LOW, "low job"), (FILL, "low job, begun in a gap of the high one"))
    ]
    return tag("p", *parts)


def _heading(mode: str) -> Html:
    return tag("h3", f"{mode}: {MODE_DESCRIPTIONS.get(mode, '')}")


def _origin(timeline: Timeline) -> str:
    """A sentence that says what a timeline is made of."""
    busy, solo = format_duration(timeline.busy_s), format_duration(timeline.solo_s)
    return (
        f"{timeline.name}: {len(timeline.kernels)} kernels a round, {busy} busy of {solo} alone; "
        f"order {timeline.order}; gaps {timeline.gaps}."
    )


def _tick_step_s(span_s: float) -> float:
    """The distance of ticks: 1, 2 or 5 times a power of ten, for five to ten ticks."""
    size = 10.0 ** math.floor(math.log10(span_s / 5))
    return next(size * k for k in (1, 2, 5, 10) if span_s / (size * k) <= 10)
