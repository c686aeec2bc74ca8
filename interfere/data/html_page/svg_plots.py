"""Inline SVG plots: slowdowns with their intervals, the effects of each job, and memory sums of pairs.

Laws: a plot shows nothing that a table or a title beside it does not say in words; slowdown axes are logarithmic.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from interfere.data.html_page.domain_summary import MemorySummary
from interfere.data.html_page.formatting import format_bytes, format_percent, format_slowdown, format_times
from interfere.data.html_page.heat_map import describe_pair
from interfere.data.html_page.html_builder import Html, tag
from interfere.records import PairMeasurement, PairStatus

TICKS = (0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, 100.0)
WIDTH, LEFT, RIGHT = 920.0, 46.0, 12.0  # SVG user units
MAX_INTERVAL_FACTOR = 2.0  # an axis extends to intervals at most this far beyond the slowdowns
MIN_TICK_GAP = 17.0  # user units between two labels of font size 11


def axis_ticks(low: float, high: float, span: float) -> tuple[float, ...]:
    """Round slowdowns in [low, high], always with 1, whose labels do not touch on an axis of `span` user units."""
    scale = span / math.log(high / low)
    inside = [t for t in TICKS if low <= t <= high]
    kept = [1.0] if low <= 1.0 <= high else []
    for tick in sorted(inside, key=lambda t: abs(math.log(t))):
        if all(abs(math.log(tick / other)) * scale >= MIN_TICK_GAP for other in kept):
            kept.append(tick)
    return tuple(sorted(kept))


def _axis_bounds(values: Sequence[float]) -> tuple[float, float]:
    """The ends of a logarithmic axis that includes the values and 1."""
    finite = [value for value in values if math.isfinite(value)]
    return min(0.95, *finite) / 1.03, max(1.1, *finite) * 1.03


def interval_axis(pairs: Sequence[PairMeasurement]) -> tuple[float, float]:
    """The ends of an axis with every slowdown, and with intervals up to `MAX_INTERVAL_FACTOR` beyond.

    Two blocks can give an interval so long that it would flatten all others.
    """
    low, high = _axis_bounds([p.slowdown for p in pairs])
    ends = _axis_bounds([v for p in pairs for v in (p.slowdown, p.lower, p.upper)])
    return max(ends[0], low / MAX_INTERVAL_FACTOR), min(ends[1], high * MAX_INTERVAL_FACTOR)


def count_cut_off_intervals(pairs: Sequence[PairMeasurement]) -> int:
    """Number of intervals that extend beyond the axis."""
    low, high = interval_axis(pairs)
    return sum(p.lower < low or p.upper > high for p in pairs)


def interval_plot(pairs: Sequence[PairMeasurement]) -> Html:
    """Every row as a dot, sorted by slowdown, with a whisker from lower to upper where it has an interval."""
    ranked = sorted(pairs, key=lambda p: (p.slowdown, p.victim, p.neighbour))
    height, top, bottom = 260.0, 10.0, 34.0
    low, high = interval_axis(ranked)

    def y(slowdown: float) -> float:
        inside = min(high, max(low, slowdown))
        return top + (height - top - bottom) * math.log(high / inside) / math.log(high / low)

    def x(rank_frac: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * rank_frac

    marks = []
    for tick in axis_ticks(low, high, height - top - bottom):
        line = "one" if tick == 1.0 else "grid"
        marks.append(tag("line", class_=line, x1=LEFT, x2=WIDTH - RIGHT, y1=y(tick), y2=y(tick)))
        marks.append(tag("text", f"{tick:g} ×", x=LEFT - 6, y=y(tick) + 4, text_anchor="end"))
    for quarter in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = {0.0: "start", 1.0: "end"}.get(quarter, "middle")
        marks.append(tag("text", format_percent(quarter), x=x(quarter), y=height - 16, text_anchor=anchor))
    marks.append(tag("text", "share of rows at or below", x=x(0.5), y=height - 2, text_anchor="middle"))
    radius = max(1.2, min(3.5, 350.0 / max(1, len(ranked))))
    for rank, pair in enumerate(ranked):
        at = x((rank + 0.5) / len(ranked))
        parts = [tag("title", describe_pair(pair))]
        if math.isfinite(pair.lower) and math.isfinite(pair.upper):
            parts.append(tag("line", class_="whisker", x1=at, x2=at, y1=y(pair.upper), y2=y(pair.lower)))
        parts.append(tag("circle", cx=at, cy=y(pair.slowdown), r=radius))
        marks.append(tag("g", *parts, class_="row"))
    label = f"{len(ranked)} slowdowns, sorted, with their intervals"
    return tag("svg", *marks, class_="plot", viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=label)


def strip_axis(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the common axis of all strips of a table."""
    return _axis_bounds(values)


def strip(suffered: float, caused: float, axis: tuple[float, float]) -> Html:
    """The effects of one job: a dot at the slowdown that it suffers, a diamond at the one that it causes."""
    width, height, margin = 240.0, 16.0, 7.0

    def x(slowdown: float) -> float:
        return margin + (width - 2 * margin) * math.log(slowdown / axis[0]) / math.log(axis[1] / axis[0])

    marks = [tag("line", class_="one", x1=x(1.0), x2=x(1.0), y1=0.0, y2=height)]
    known = [value for value in (suffered, caused) if math.isfinite(value)]
    marks.extend(tag("line", class_="link", x1=x(a), x2=x(b), y1=8.0, y2=8.0) for a, b in pairwise(known))
    if math.isfinite(caused):
        at = x(caused)
        marks.append(tag("path", class_="causes", d=f"M{at - 5:.5g} 8L{at:.5g} 3L{at + 5:.5g} 8L{at:.5g} 13Z"))
    if math.isfinite(suffered):
        marks.append(tag("circle", class_="suffers", cx=x(suffered), cy=8.0, r=4.0))
    label = f"suffers {format_times(suffered)}, causes {format_times(caused)}"
    return tag("svg", *marks, class_="strip", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label)


def strip_head(axis: tuple[float, float]) -> Html:
    """The labelled axis above the strips."""
    width, margin = 240.0, 7.0
    scale = (width - 2 * margin) / math.log(axis[1] / axis[0])
    marks = [
        tag(
            "text",
            format_slowdown(t).rstrip("0").rstrip("."),
            x=margin + scale * math.log(t / axis[0]),
            y=11.0,
            text_anchor="middle",
        )
        for t in axis_ticks(*axis, (width - 2 * margin) * 0.6)
    ]
    return tag("svg", *marks, class_="strip", viewBox=f"0 0 {width:g} 14", role="img", aria_label="axis, times alone")


def memory_plot(memory: MemorySummary) -> Html:
    """Each pair at the sum of its peaks: one line for the feasible pairs, one for the infeasible ones."""
    capacity = memory.capacity_bytes
    top_bytes = max([pair.bytes for pair in memory.sums] + ([capacity] if math.isfinite(capacity) else [])) * 1.05
    left, height = 110.0, 84.0

    def x(value: float) -> float:
        return left + (WIDTH - left - RIGHT) * value / top_bytes

    marks = []
    for feasible, at, name in ((True, 20.0, "could share"), (False, 44.0, "could not")):
        marks.append(tag("text", name, x=left - 10, y=at + 4, text_anchor="end"))
        marks.append(tag("line", class_="grid", x1=left, x2=WIDTH - RIGHT, y1=at, y2=at))
        for pair in memory.sums:
            if (pair.status is not PairStatus.INFEASIBLE) is feasible:
                text = f"{pair.first} with {pair.second}: {format_bytes(pair.bytes)} together, {pair.status.value}"
                place = x(pair.bytes)
                mark = tag("line", tag("title", text), class_="sum", x1=place, x2=place, y1=at - 9, y2=at + 9)
                marks.append(mark)
    if math.isfinite(capacity):
        marks.append(tag("line", class_="limit", x1=x(capacity), x2=x(capacity), y1=6.0, y2=58.0))
        end = "end" if x(capacity) > WIDTH * 0.8 else "start"
        marks.append(tag("text", f"capacity {format_bytes(capacity)}", x=x(capacity), y=72.0, text_anchor=end))
    elif memory.sums:
        largest = memory.sums[0].bytes
        marks.append(tag("text", format_bytes(largest), x=x(largest), y=72.0, text_anchor="middle"))
    marks.append(tag("text", "0", x=left, y=72.0, text_anchor="middle"))
    label = "sums of the peak memory of each pair against the capacity"
    return tag("svg", *marks, class_="plot", viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=label)
