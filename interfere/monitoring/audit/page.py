"""The report of an audit as one HTML page to pass on: no network, no script, light and dark.

Laws: the worst pair comes first; names are shown as text, whatever they hold; equal reports give equal bytes.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from interfere.data.html_page import html_document
from interfere.data.html_page.domain_summary import domain_summaries, with_sorted_rows
from interfere.data.html_page.formatting import DASH, format_percent, format_times, shorten_name
from interfere.data.html_page.heat_map import heat_map, heat_map_legend
from interfere.data.html_page.html_builder import Html, html_table, tag
from interfere.data.html_page.svg_plots import axis_ticks
from interfere.data.tables import Table
from interfere.file_writing import write_atomically
from interfere.monitoring.audit import wording
from interfere.monitoring.audit.audit import AuditReport
from interfere.monitoring.audit.report import Origin, PairCost, Side, Verdict
from interfere.records import PairMeasurement
from interfere.sharing_modes import DEFAULT_MODE

MAX_PAIRS, MAX_SHIFTS = 40, 12  # rows that are shown unfolded
BAR_WIDTH, BAR_HEIGHT, BAR_MARGIN = 240.0, 18.0, 6.0  # SVG user units
VERDICT_CLASS = {Verdict.KEEP: "good", Verdict.SEPARATE: "bad", Verdict.UNSURE: "unsure"}


def write_audit_page(path: Path, report: AuditReport, source: str) -> Path:
    """Write the page to `path`, whole or not at all. Raises UnfitError where that cannot be written."""
    text = audit_page(report, source)
    write_atomically(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    return path


def audit_page(report: AuditReport, source: str) -> str:
    """The HTML of the page."""
    header = [
        tag("h1", "What sharing GPUs costs here"),
        tag("p", wording.scope(report) + ".", class_="lead"),
        tag("p", f"{source}, {wording.span(report)}", class_="dim"),
        tag("p", tag("b", wording.headline(report)), " ", wording.total(report), class_=f"verdict {_tone(report)}"),
        _tiles(report),
    ]
    sections = [
        *_who_hurts_whom(report),
        *_heat_maps(report),
        *_workloads(report),
        *_changes(report),
        *_next_pairs(report),
        *_groups(report),
        tag("section", tag("h2", "Know before you rely on it"), *(tag("p", line) for line in wording.notes(report))),
    ]
    return html_document("What sharing GPUs costs here", tag("header", *header), *sections)


def _tone(report: AuditReport) -> str:
    if any(pair.verdict is Verdict.SEPARATE for pair in report.pairs):
        return "bad"
    return "unsure" if any(side.origin is Origin.UNKNOWN for pair in report.pairs for side in pair.sides) else "good"


def _tiles(report: AuditReport) -> Html:
    known = [pair for pair in report.pairs if all(side.origin is Origin.MEASURED for side in pair.sides)]
    separate = [pair for pair in report.pairs if pair.verdict is Verdict.SEPARATE]
    saved = sum(each.lost_before - each.lost_after for each in report.repairings)
    share = report.shared_hours / report.busy_hours if report.busy_hours else math.nan
    tiles = (
        (wording.hours(report.lost_hours), "of progress lost by sharing", "job-hours, measured and predicted"),
        (format_percent(share), "of busy device time was shared", wording.hours(report.shared_hours)),
        (f"{len(known)} of {len(report.pairs)}", "pairs measured both ways", f"{report.windows:,} windows"),
        (
            f"{len(separate)} of {len(report.pairs)}",
            "pairs faster one after the other",
            "by the ends of both intervals",
        ),
        (wording.hours(saved) if saved else DASH, "could be saved by pairing otherwise", "at most"),
    )
    return tag(
        "div",
        *(tag("div", tag("b", value), tag("span", label), tag("small", detail)) for value, label, detail in tiles),
        class_="tiles",
    )


def _who_hurts_whom(report: AuditReport) -> list[Html]:
    if not report.pairs:
        return []
    limits = _limits([side for pair in report.pairs for side in pair.sides])
    shown = _pair_table(report.pairs[:MAX_PAIRS], limits)
    parts = [
        tag("h2", "Who hurts whom"),
        tag(
            "p",
            "The worst first. Bars: 95 % interval of the slowdown, time beside ÷ time alone; dashed: predicted.",
            class_="dim",
        ),
        shown,
    ]
    if len(report.pairs) > MAX_PAIRS:
        rest = report.pairs[MAX_PAIRS:]
        parts.append(tag("details", tag("summary", f"{len(rest)} other pairs"), _pair_table(rest, limits)))
    return [tag("section", *parts, id="pairs")]


def _pair_table(pairs: Sequence[PairCost], limits: tuple[float, float]) -> Html:
    headings = ("victim", "beside", "slowdown", "95 % interval", _axis(limits), "together", "lost", "pair", "from")
    numbers = frozenset({2, 3, 5, 6})
    rows: list[tuple[str, ...]] = []
    for pair in pairs:
        first = pair.worst_side
        other = pair.sides[0] if pair.sides[1] is first else pair.sides[1]
        sides = (first, other) if pair.names[0] != pair.names[1] else (first,)
        known = all(side.origin is not Origin.UNKNOWN for side in pair.sides)
        verdict = (
            tag("span", tag("b", pair.verdict.value), class_=f"nowrap {VERDICT_CLASS[pair.verdict]}")
            if known
            else "unknown"
        )
        rows += [
            (
                _unbroken(shorten_name(side.victim)),
                _unbroken(shorten_name(side.company[0])),
                format_times(side.slowdown),
                wording.interval(side),
                _bar(side, limits),
                wording.hours(pair.device_hours) if side is first else "",
                wording.hours(side.lost_hours(side.slowdown)),
                verdict if side is first else "",
                _unbroken(wording.evidence(side)),
            )
            for side in sides
        ]
    return html_table(headings, rows, numbers=numbers, caption="Slowdowns of pairs")


def _unbroken(text: str) -> Html:
    """A text in a cell that is not wrapped: a narrow page scrolls instead."""
    return tag("span", text, class_="nowrap")


def _limits(sides: Sequence[Side]) -> tuple[float, float]:
    known = [side for side in sides if side.origin is not Origin.UNKNOWN]
    low = min([0.95, *(max(side.lower, side.slowdown / 1.6) for side in known)])
    high = max([1.2, *(min(side.upper, side.slowdown * 1.6) for side in known)])
    return low / 1.03, high * 1.03


def _x(slowdown: float, limits: tuple[float, float]) -> float:
    inside = min(limits[1], max(limits[0], slowdown))
    return BAR_MARGIN + (BAR_WIDTH - 2 * BAR_MARGIN) * math.log(inside / limits[0]) / math.log(limits[1] / limits[0])


def _axis(limits: tuple[float, float]) -> Html:
    """The scale of the bars, as the heading of their column."""
    ticks = axis_ticks(*limits, BAR_WIDTH - 2 * BAR_MARGIN)
    marks = (tag("text", f"{tick:g}", x=_x(tick, limits), y=11.0, text_anchor="middle") for tick in ticks)
    return _svg("slowdown, times alone", *marks)


def _bar(side: Side, limits: tuple[float, float]) -> Html:
    """The interval of one slowdown as a line, the slowdown as a dot."""
    middle = BAR_HEIGHT / 2
    one = tag("line", class_="one", x1=_x(1.0, limits), x2=_x(1.0, limits), y1=0.0, y2=BAR_HEIGHT)
    if side.origin is Origin.UNKNOWN:
        return _svg("unknown", one)
    ends = (_x(side.lower, limits), _x(side.upper, limits))
    stroke = "var(--causes)" if side.origin is Origin.MEASURED else "var(--dim)"
    dashes = None if side.origin is Origin.MEASURED else "3 3"
    line = tag(
        "line", x1=ends[0], x2=ends[1], y1=middle, y2=middle, stroke=stroke, stroke_width=3.0, stroke_dasharray=dashes
    )
    dot = tag("circle", cx=_x(side.slowdown, limits), cy=middle, r=4.0, fill=stroke)
    return _svg(f"{format_times(side.slowdown)}, {wording.interval(side)}", one, line, dot)


def _svg(title: str, *marks: str) -> Html:
    box = f"0 0 {BAR_WIDTH:g} {BAR_HEIGHT:g}"
    return tag(
        "svg",
        tag("title", title),
        *marks,
        viewBox=box,
        width=BAR_WIDTH,
        height=BAR_HEIGHT,
        role="img",
        aria_label=title,
    )


def _heat_maps(report: AuditReport) -> list[Html]:
    """One map a device type, of measured slowdowns beside one neighbour."""
    rows = tuple(
        PairMeasurement(
            victim=each.victim,
            neighbour=each.company[0],
            device_type=each.device_type,
            mode=DEFAULT_MODE,
            slowdown=min(100.0, max(0.2, each.slowdown)),
            lower=each.lower,
            upper=each.upper,
        )
        for each in report.estimates
        if len(each.company) == 1
    )
    if len(rows) < 2:
        return []
    domains = domain_summaries(with_sorted_rows(Table(name="audit", jobs=(), pairs=rows)))
    parts = [
        part
        for domain in domains
        for part in (tag("h3", domain.device_type), heat_map_legend(domain), heat_map(domain))
    ]
    note = "Rows: the victim, most slowed first. Columns: the job beside it, most harmful first."
    return [tag("section", tag("h2", "All measured slowdowns"), tag("p", note, class_="dim"), *parts, id="map")]


def _workloads(report: AuditReport) -> list[Html]:
    headings = ("workload", "device", "jobs", "alone", "shared", "lost", "at least", "at most", "cost unknown")
    rows = [
        (
            _unbroken(shorten_name(each.workload)),
            each.device_type,
            str(each.jobs),
            *map(
                wording.hours, (each.alone_hours, each.shared_hours, each.lost_hours, each.lost_lower, each.lost_upper)
            ),
            wording.hours(each.unknown_hours) if each.unknown_hours else "",
        )
        for each in report.workloads
    ]
    grid = html_table(headings, rows, numbers=frozenset(range(2, 9)), caption="What each workload lost")
    note = "Lost: hours in company · (1 - 1 ÷ slowdown), the progress alone that was not made."
    return [tag("section", tag("h2", "What each workload lost"), tag("p", note, class_="dim"), grid, id="workloads")]


def _changes(report: AuditReport) -> list[Html]:
    separate = [wording.separate_text(pair) for pair in report.pairs if pair.verdict is Verdict.SEPARATE]
    parts: list[Html] = []
    if separate:
        parts += [tag("h3", "Separate"), tag("ul", *(tag("li", text) for text in separate))]
    for each in report.repairings:
        rows = [
            (
                wording.pair_text(shift.names),
                wording.hours(shift.hours_before),
                wording.hours(shift.hours_after),
                "predicted" if shift.predicted else "measured",
            )
            for shift in each.shifts
        ]
        parts += [tag("h3", "Pair otherwise"), tag("p", wording.repairing_text(each)), _shifts(rows[:MAX_SHIFTS])]
        if len(rows) > MAX_SHIFTS:
            rest = rows[MAX_SHIFTS:]
            parts.append(tag("details", tag("summary", f"{len(rest)} other pairs"), _shifts(rest)))
    return [tag("section", tag("h2", "What to change"), *parts, id="change")] if parts else []


def _shifts(rows: Sequence[tuple[str, ...]]) -> Html:
    headings = ("pair", "hours now", "hours then", "slowdowns")
    return html_table(headings, rows, numbers=frozenset({1, 2}), caption="Pairs whose hours change")


def _next_pairs(report: AuditReport) -> list[Html]:
    items = [tag("li", wording.next_pair_text(each)) for each in report.next_pairs]
    return [tag("section", tag("h2", "Measure next"), tag("ol", *items), id="next")] if items else []


def _groups(report: AuditReport) -> list[Html]:
    rows = [
        (
            shorten_name(side.victim),
            " + ".join(side.company),
            format_times(side.slowdown),
            wording.interval(side),
            wording.hours(side.hours),
        )
        for side in report.groups[:MAX_PAIRS]
    ]
    headings = ("victim", "beside", "slowdown", "95 % interval", "hours")
    grid = html_table(headings, rows, numbers=frozenset({2, 3, 4}), caption="Three jobs or more on one device")
    return [tag("section", tag("h2", "Three jobs or more on one device"), grid, id="groups")] if rows else []
