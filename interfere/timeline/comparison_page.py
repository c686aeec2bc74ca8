"""Two jobs on one device as a page to look at: a table by sharing mode, and who runs when in its first moments.

Laws: one file with everything in it; whatever a name holds is shown as text; equal input gives equal bytes.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from interfere.data.html_page import document
from interfere.data.html_page.formatting import ratio, seconds, share
from interfere.data.html_page.html_builder import Html, tag
from interfere.data.parquet import replace_file
from interfere.timeline.mode_comparison import Meeting, ModeResult
from interfere.timeline.records import Span, Timeline

WIDTH, LEFT, RIGHT, ROW, GAP, AXIS = 1060.0, 96.0, 12.0, 26.0, 8.0, 34.0  # SVG user units
SHOWN_KERNELS = 40  # of the high job alone: what a person can follow
LEAST_MARK = 0.6  # user units: a kernel that is shorter is still seen
HIGH, LOW, FILL = "var(--suffers)", "var(--causes)", "var(--good)"
WORDS = {
    "exclusive": "one job after the other",
    "timeslice": "round robin of contexts, as a GPU shares itself",
    "fair": "Linux's slices of one CPU core (EEVDF)",
    "spatial": "both at once, dividing multiprocessors and memory bandwidth",
    "queued": "one queue, first launched first run: nobody coordinates",
    "priority": "the high job first, its gaps filled with kernels of the low one (FIKIT)",
}
COLUMNS = ("mode", "high", "low", "gain", "low rate", "low done", "filled", "gap use", "overhang", "idle")
MEANING = (
    "high, low: time beside the other ÷ time alone; the low job runs all the while",
    "gain: high time when queued ÷ here; low rate: low speed here ÷ when queued",
    "low done: time until the low job is over when queued ÷ here, both started together with the same work alone",
    "filled: low kernels begun in a gap of the high job; gap use: share of its gaps in which the low one ran",
    "overhang: time in which a kernel of the high job waited ÷ its time alone; idle: share in which nobody ran",
)


def window_s(high: Timeline) -> float:
    """How much of the replay the picture shows."""
    shown = high.kernels[:SHOWN_KERNELS]
    return max(1e-6, math.fsum(kernel.duration_s + kernel.gap_s for kernel in shown))


def table_rows(results: Sequence[ModeResult]) -> tuple[tuple[str, ...], ...]:
    """The figures of each mode as text, in the order of COLUMNS."""
    return tuple(
        (
            one.mode,
            ratio(one.high_slowdown),
            ratio(one.low_slowdown),
            ratio(one.high_speedup),
            ratio(one.low_relative_rate),
            ratio(one.low_completion),
            str(one.filled),
            share(one.gap_use_frac),
            share(one.overhang_frac),
            share(one.idle_frac),
        )
        for one in results
    )


def notes(meeting: Meeting) -> tuple[str, ...]:
    """What the columns mean, and what the two timelines are made of."""
    held, kernels = meeting.too_long, len(meeting.low.kernels)
    fits = f"{held} of {kernels} low kernels are longer than every gap of the high job: filling stops there"
    return (*MEANING, _origin(meeting.high), _origin(meeting.low), *([fits] if held else []))


def write_page(path: Path, meeting: Meeting, results: Sequence[ModeResult]) -> Path:
    """Write the page to `path`, whole or not at all. Raises UnfitError where that cannot be written."""
    text = page(meeting, results)
    replace_file(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    return path


def page(meeting: Meeting, results: Sequence[ModeResult]) -> str:
    """The whole page."""
    high, low, shown_s = meeting.high, meeting.low, window_s(meeting.high)
    head = tag("tr", *(tag("th", name, scope="col", class_="number" if k else None) for k, name in enumerate(COLUMNS)))
    rows = [
        tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell, class_="number") for cell in row[1:]))
        for row in table_rows(results)
    ]
    return document(
        f"{high.name} beside {low.name}: timelines",
        tag("h1", f"{high.name} (high) beside {low.name} (low)"),
        tag("p", "Replayed, not measured: what the two timelines alone say about sharing one device.", class_="lead"),
        tag("p", _origin(high), tag("br"), _origin(low), class_="dim"),
        tag("div", tag("table", tag("thead", head), tag("tbody", *rows), class_="plain"), class_="scroll"),
        tag("h2", f"The first {seconds(shown_s)}"),
        legend(),
        *(part for one in results for part in (_heading(one.mode), gantt(one.spans, shown_s, high.name, low.name))),
        tag("h2", "How to read this page"),
        *(tag("p", line) for line in notes(meeting)),
    )


def gantt(spans: Sequence[Span], shown_s: float, high: str, low: str) -> Html:
    """Two rows of kernels over time."""
    height = 2 * ROW + GAP + AXIS

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, at_s / shown_s)

    marks = [
        tag("text", name, x=LEFT - 8, y=row * (ROW + GAP) + ROW * 0.65, text_anchor="end")
        for row, name in enumerate(("high", "low"))
    ]
    marks.append(
        tag("text", "time since both started", x=(LEFT + WIDTH - RIGHT) / 2, y=height - 2, text_anchor="middle")
    )
    step_s = _round_step(shown_s)
    for k in range(math.floor(shown_s / step_s + 1e-9) + 1):
        at = x(k * step_s)
        marks.append(tag("line", class_="grid", x1=at, x2=at, y1=0.0, y2=2 * ROW + GAP))
        anchor = "end" if at > WIDTH - 60 else "middle"
        marks.append(tag("text", seconds(k * step_s) if k else "0", x=at, y=2 * ROW + GAP + 16, text_anchor=anchor))
    for span in spans:
        begin, end = x(span.start_s), x(span.end_s)
        colour = HIGH if span.stream == 0 else FILL if span.in_gap else LOW
        said = f"{high if span.stream == 0 else low}, kernel {span.kernel}: {seconds(span.end_s - span.start_s)}"
        marks.append(
            tag(
                "rect",
                tag("title", said),
                x=begin,
                y=span.stream * (ROW + GAP),
                width=max(LEAST_MARK, end - begin),
                height=ROW,
                fill=colour,
                stroke="var(--page)",
                stroke_width=0.4 if end - begin > 4 else 0,
            )
        )
    label = f"{high} and {low} over the first {seconds(shown_s)}: {len(spans)} stretches"
    drawn = tag("svg", *marks, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=label, width="100%")
    return tag("div", drawn, class_="scroll")


def legend() -> Html:
    """What the colours mean."""
    parts = [
        tag("span", tag("b", "■ ", style=f"color:{colour}"), text + "   ")
        for colour, text in ((HIGH, "high job"), (LOW, "low job"), (FILL, "low job, begun in a gap of the high one"))
    ]
    return tag("p", *parts)


def _heading(mode: str) -> Html:
    return tag("h3", f"{mode}: {WORDS.get(mode, '')}")


def _origin(one: Timeline) -> str:
    """What a timeline is made of, in a sentence."""
    return (
        f"{one.name}: {len(one.kernels)} kernels a round, {seconds(one.busy_s)} busy of {seconds(one.solo_s)} alone; "
        f"order {one.order}; gaps {one.gaps}."
    )


def _round_step(span_s: float) -> float:
    """1, 2 or 5 times a power of ten: five to ten ticks."""
    size = 10.0 ** math.floor(math.log10(span_s / 5))
    return next(size * k for k in (1, 2, 5, 10) if span_s / (size * k) <= 10)
