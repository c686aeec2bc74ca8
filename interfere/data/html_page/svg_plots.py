"""Drawings as inline SVG: slowdowns with their intervals, what each job suffers and causes, memory sums.

Law: a drawing repeats what a table or a title beside it says in words; positions are logarithmic in slowdown.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from interfere.data.html_page.domain_summary import Memory
from interfere.data.html_page.formatting import gib, ratio, share, times
from interfere.data.html_page.heat_map import says
from interfere.data.html_page.html_builder import Html, tag
from interfere.records import PairMeasurement, PairStatus

TICKS = (0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, 100.0)
WIDTH, LEFT, RIGHT = 920.0, 46.0, 12.0  # SVG user units
BEYOND = 2.0  # how far past the slowdowns an axis follows the intervals
MIN_TICK_GAP = 17.0  # user units between two labels of 11


def ticks(low: float, high: float, span: float) -> tuple[float, ...]:
    """Round slowdowns in [low, high] whose labels do not touch on `span` user units; 1 is always among them."""
    scale = span / math.log(high / low)
    inside = [t for t in TICKS if low <= t <= high]
    kept = [1.0] if low <= 1.0 <= high else []
    for tick in sorted(inside, key=lambda t: abs(math.log(t))):
        if all(abs(math.log(tick / other)) * scale >= MIN_TICK_GAP for other in kept):
            kept.append(tick)
    return tuple(sorted(kept))


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """Ends of a logarithmic axis that holds the values and 1."""
    finite = [value for value in values if math.isfinite(value)]
    return min(0.95, *finite) / 1.03, max(1.1, *finite) * 1.03


def interval_axis(pairs: Sequence[PairMeasurement]) -> tuple[float, float]:
    """Holds every slowdown, and intervals up to twice beyond: two blocks can give one that would flatten the rest."""
    low, high = _bounds([p.slowdown for p in pairs])
    ends = _bounds([v for p in pairs for v in (p.slowdown, p.lower, p.upper)])
    return max(ends[0], low / BEYOND), min(ends[1], high * BEYOND)


def cut_off(pairs: Sequence[PairMeasurement]) -> int:
    """Intervals that leave the drawing."""
    low, high = interval_axis(pairs)
    return sum(p.lower < low or p.upper > high for p in pairs)


def intervals(pairs: Sequence[PairMeasurement]) -> Html:
    """Every row as a dot, sorted, with a whisker from lower to upper where it has one."""
    ranked = sorted(pairs, key=lambda p: (p.slowdown, p.victim, p.neighbour))
    height, top, bottom = 260.0, 10.0, 34.0
    low, high = interval_axis(ranked)

    def y(slowdown: float) -> float:
        inside = min(high, max(low, slowdown))
        return top + (height - top - bottom) * math.log(high / inside) / math.log(high / low)

    def x(rank_frac: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * rank_frac

    marks = []
    for tick in ticks(low, high, height - top - bottom):
        line = "one" if tick == 1.0 else "grid"
        marks.append(tag("line", class_=line, x1=LEFT, x2=WIDTH - RIGHT, y1=y(tick), y2=y(tick)))
        marks.append(tag("text", f"{tick:g} ×", x=LEFT - 6, y=y(tick) + 4, text_anchor="end"))
    for quarter in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = {0.0: "start", 1.0: "end"}.get(quarter, "middle")
        marks.append(tag("text", share(quarter), x=x(quarter), y=height - 16, text_anchor=anchor))
    marks.append(tag("text", "share of rows at or below", x=x(0.5), y=height - 2, text_anchor="middle"))
    radius = max(1.2, min(3.5, 350.0 / max(1, len(ranked))))
    for rank, pair in enumerate(ranked):
        at = x((rank + 0.5) / len(ranked))
        parts = [tag("title", says(pair))]
        if math.isfinite(pair.lower) and math.isfinite(pair.upper):
            parts.append(tag("line", class_="whisker", x1=at, x2=at, y1=y(pair.upper), y2=y(pair.lower)))
        parts.append(tag("circle", cx=at, cy=y(pair.slowdown), r=radius))
        marks.append(tag("g", *parts, class_="row"))
    label = f"{len(ranked)} slowdowns, sorted, with their intervals"
    return tag("svg", *marks, class_="plot", viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=label)


def strip_axis(values: Sequence[float]) -> tuple[float, float]:
    """One axis for all strips of a table."""
    return _bounds(values)


def strip(suffers: float, causes: float, axis: tuple[float, float]) -> Html:
    """One job: a dot at what it suffers, a diamond at what it causes, on a common axis with a line at 1."""
    width, height, margin = 240.0, 16.0, 7.0

    def x(slowdown: float) -> float:
        return margin + (width - 2 * margin) * math.log(slowdown / axis[0]) / math.log(axis[1] / axis[0])

    marks = [tag("line", class_="one", x1=x(1.0), x2=x(1.0), y1=0.0, y2=height)]
    known = [value for value in (suffers, causes) if math.isfinite(value)]
    marks.extend(tag("line", class_="link", x1=x(a), x2=x(b), y1=8.0, y2=8.0) for a, b in pairwise(known))
    if math.isfinite(causes):
        at = x(causes)
        marks.append(tag("path", class_="causes", d=f"M{at - 5:.5g} 8L{at:.5g} 3L{at + 5:.5g} 8L{at:.5g} 13Z"))
    if math.isfinite(suffers):
        marks.append(tag("circle", class_="suffers", cx=x(suffers), cy=8.0, r=4.0))
    label = f"suffers {times(suffers)}, causes {times(causes)}"
    return tag("svg", *marks, class_="strip", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label)


def strip_head(axis: tuple[float, float]) -> Html:
    """The axis above the strips."""
    width, margin = 240.0, 7.0
    scale = (width - 2 * margin) / math.log(axis[1] / axis[0])
    marks = [
        tag(
            "text",
            ratio(t).rstrip("0").rstrip("."),
            x=margin + scale * math.log(t / axis[0]),
            y=11.0,
            text_anchor="middle",
        )
        for t in ticks(*axis, (width - 2 * margin) * 0.6)
    ]
    return tag("svg", *marks, class_="strip", viewBox=f"0 0 {width:g} 14", role="img", aria_label="axis, times alone")


def memory_sums(memory: Memory) -> Html:
    """Each pair at the sum of its peaks: a line for those that ran, one for those that could not."""
    capacity = memory.capacity_bytes
    top_bytes = max([s.bytes for s in memory.sums] + ([capacity] if math.isfinite(capacity) else [])) * 1.05
    left, height = 110.0, 84.0

    def x(value: float) -> float:
        return left + (WIDTH - left - RIGHT) * value / top_bytes

    marks = []
    for feasible, at, name in ((True, 20.0, "could share"), (False, 44.0, "could not")):
        marks.append(tag("text", name, x=left - 10, y=at + 4, text_anchor="end"))
        marks.append(tag("line", class_="grid", x1=left, x2=WIDTH - RIGHT, y1=at, y2=at))
        for s in memory.sums:
            if (s.status is not PairStatus.INFEASIBLE) is feasible:
                what = tag("title", f"{s.one} with {s.other}: {gib(s.bytes)} together, {s.status.value}")
                marks.append(tag("line", what, class_="sum", x1=x(s.bytes), x2=x(s.bytes), y1=at - 9, y2=at + 9))
    if math.isfinite(capacity):
        marks.append(tag("line", class_="limit", x1=x(capacity), x2=x(capacity), y1=6.0, y2=58.0))
        end = "end" if x(capacity) > WIDTH * 0.8 else "start"
        marks.append(tag("text", f"capacity {gib(capacity)}", x=x(capacity), y=72.0, text_anchor=end))
    elif memory.sums:
        most = memory.sums[0].bytes
        marks.append(tag("text", gib(most), x=x(most), y=72.0, text_anchor="middle"))
    marks.append(tag("text", "0", x=left, y=72.0, text_anchor="middle"))
    label = "sums of the peak memory of each pair against the capacity"
    return tag("svg", *marks, class_="plot", viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=label)
