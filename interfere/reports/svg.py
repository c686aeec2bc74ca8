"""Builds markup in which every text is escaped, and draws the figures of a document as SVG.

Law 1: a `str` is text, an `Html` is markup; only `tag` and `join` turn text into markup. Law 2: every drawing is
well-formed XML with a title for who cannot see it, and every axis has a title with its unit. Law 3: a value beyond the
end of an axis is drawn at that end; colours come from the style sheet, so that they follow light and dark.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from interfere.reports.document import (
    Axis,
    Box,
    Estimate,
    Lanes,
    LinePlot,
    Mark,
    Panel,
    PlotRow,
    Point,
    RowPlot,
    Series,
)
from interfere.reports.numbers import shorten_name


class Html(str):
    """Markup that is not escaped again, unlike a plain `str`."""

    __slots__ = ()


VOID_ELEMENTS = frozenset({"br", "img", "meta"})


def join(parts: Iterable[str], between: str = "") -> Html:
    """Return the parts as one piece of markup. Plain text is escaped."""
    return Html(_escaped(between).join(map(_escaped, parts)))


def tag(name: str, /, *children: str, **attributes: str | float | bool | None) -> Html:
    """Return an HTML element.

    The attribute `class_` is written as class, `data_x` as data-x. None and False omit an attribute; True gives it no
    value.
    """
    words = [name]
    for python_name, value in attributes.items():
        key = python_name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            words.append(f'{key}="{escape(text)}"')
    start_tag = f"<{' '.join(words)}>"
    return Html(start_tag if name in VOID_ELEMENTS else f"{start_tag}{join(children)}</{name}>")


def _escaped(part: str) -> str:
    return part if isinstance(part, Html) else escape(part)


CHARACTER = 6.3  # user units of a character of font size 11, on average
WIDTH, PANEL_WIDTH, PANEL_HEIGHT = 640.0, 340.0, 200.0  # user units
RIGHT, TOP, LEFT, FOOT = 14.0, 10.0, 62.0, 38.0
ROW, BOX, LANE_GAP = 22.0, 22.0, 9.0  # heights
MIN_BOX = 0.6  # a shorter box is drawn this wide, so that it can be seen
MAX_TITLED_POINTS = 2000  # of a panel: beyond, single points have no titles
MIN_TICK_GAP = 17.0  # user units between two labels of font size 11 that stand below each other
# Multiples of a power of ten at which a logarithmic axis may have a tick, the roundest first.
ROUND_MULTIPLES = ((1.0,), (2.0, 5.0), (1.5, 3.0, 7.0), (1.1, 1.2, 2.5, 4.0, 8.0, 9.0))
LINEAR_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear or logarithmic map from values in [low, high] to user units in [begin, end]."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool

    def place(self, value: float) -> float:
        """Return the position of a value. A value beyond an end of the axis is placed at this end."""
        inside = min(self.high, max(self.low, value))
        if self.is_log:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return self.begin + (self.end - self.begin) * share

    def ticks(self, gap: float, written: float = 1.0) -> tuple[float, ...]:
        """Return values that are round when multiplied by `written`, so far apart that labels of `gap` user units do
        not touch."""
        made = log_ticks if self.is_log else linear_ticks
        ticks = made(self.low * written, self.high * written, abs(self.end - self.begin), gap)
        return tuple(tick / written for tick in ticks)


def scale_of(axis: Axis, values: Iterable[float], begin: float, end: float) -> Scale:
    """Return a scale that covers the values and the reference lines.

    A linear scale without given ends also covers 0.
    """
    known = [value for value in (*values, *(line for line, _ in axis.lines)) if math.isfinite(value)]
    if axis.is_log:
        known = [value for value in known if value > 0] or [1.0]
        low, high = min(known) / 1.03, max(known) * 1.03
    else:
        low, high = min([0.0, *known]), max([0.0, *known])
        margin = 0.03 * (high - low)
        low, high = low - margin * (low < 0), high + margin * (high > 0)
    low = low if math.isnan(axis.low) else axis.low
    high = high if math.isnan(axis.high) else axis.high
    if not low < high:
        high = low * 1.1 if axis.is_log else low + 1.0
    return Scale(low, high, begin, end, axis.is_log)


def log_ticks(low: float, high: float, span: float, gap: float = MIN_TICK_GAP) -> tuple[float, ...]:
    """Return round values in [low, high], always with 1, whose labels do not touch on an axis of `span` user units."""
    scale = span / math.log(high / low)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    kept = [1.0] if low <= 1.0 <= high else []
    for multiples in ROUND_MULTIPLES:
        for tick in sorted((m * 10.0**k for m in multiples for k in decades), key=lambda t: abs(math.log(t))):
            if low <= tick <= high and all(abs(math.log(tick / other)) * scale >= gap for other in kept):
                kept.append(float(f"{tick:.3g}"))
    return tuple(sorted(kept))


def linear_ticks(low: float, high: float, span: float, gap: float) -> tuple[float, ...]:
    """Return multiples of 1, 2, 2.5 or 5 times a power of ten in [low, high], as many as fit."""
    smallest = (high - low) * gap / span
    size = 10.0 ** math.floor(math.log10(smallest))
    step = next(size * k for k in LINEAR_STEPS if size * k >= smallest * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))


# --- figures ----------------------------------------------------------------------------------------------------------


def line_plot(plot: LinePlot) -> tuple[Html, ...]:
    """Return one drawing for each panel, all on the same axes."""
    points = [point for panel in plot.panels for series in panel.points for point in series]
    wide = len(plot.panels) == 1 and not plot.is_square
    width, height = (WIDTH, 260.0) if wide else (PANEL_WIDTH, PANEL_WIDTH if plot.is_square else PANEL_HEIGHT)
    xs = scale_of(plot.x, [point.x for point in points], LEFT, width - RIGHT)
    ys = scale_of(plot.y, _reach(points, plot.y), height - FOOT, TOP)
    if plot.is_square:
        low, high = min(xs.low, ys.low), max(xs.high, ys.high)
        xs = Scale(low, high, LEFT, width - RIGHT, xs.is_log)
        ys = Scale(low, high, height - FOOT, TOP, ys.is_log)
    return tuple(_panel(plot, panel, xs, ys, width, height) for panel in plot.panels)


def _reach(points: Sequence[Point], axis: Axis) -> list[float]:
    """Return the values that an axis must cover: all points, and the ends of intervals cut at a limit.

    The limit is three times the largest absolute value, or on a log axis a factor of two beyond the points. Few repeats
    can give an interval so long that it would flatten all other marks.
    """
    values = [point.y for point in points if math.isfinite(point.y)]
    ends = [end for point in points for end in (point.low, point.high) if math.isfinite(end)]
    if not values:
        return ends
    if axis.is_log:
        low, high = min(0.95, *values) / 2, max(1.1, *values) * 2
    else:
        reach = 3 * max(abs(value) for value in values) or math.inf
        low, high = -reach, reach
    return [*values, *(min(high, max(low, end)) for end in ends)]


def cut_off_intervals(plot: LinePlot | RowPlot) -> int:
    """Return how many intervals extend beyond the drawing."""
    if isinstance(plot, LinePlot):
        points, axis = [point for panel in plot.panels for series in panel.points for point in series], plot.y
    else:
        values = [value for row in plot.rows for series in row.values for value in series]
        points, axis = [Point(0.0, value.value, value.low, value.high) for value in values], plot.axis
    scale = scale_of(axis, _reach(points, axis), 0.0, 1.0)
    return sum(point.low < scale.low or point.high > scale.high for point in points)


def _panel(plot: LinePlot, panel: Panel, xs: Scale, ys: Scale, width: float, height: float) -> Html:
    foot = height - FOOT
    marks = [
        *_grid_across(plot.y, ys, LEFT, width - RIGHT),
        *_labels_below(plot.x, xs, foot, width),
        *(tag("line", class_="one", x1=xs.place(at), x2=xs.place(at), y1=TOP, y2=foot) for at, _ in plot.x.lines),
    ]
    if plot.is_square:
        ends = (max(xs.low, ys.low), min(xs.high, ys.high))
        marks.append(tag("line", class_="one", x1=xs.place(ends[0]), x2=xs.place(ends[1]),
                         y1=ys.place(ends[0]), y2=ys.place(ends[1])))  # fmt: skip
    for series, points in zip(plot.series, panel.points, strict=True):
        marks += _series(series, points, plot, xs, ys)
    marks.append(_rotated(plot.y.title, foot))
    name = f"{plot.title}: {panel.title}" if panel.title else plot.title
    return _svg(name, marks, width, height, "panel" if width == PANEL_WIDTH else "plot")


def _series(series: Series, points: Sequence[Point], plot: LinePlot, xs: Scale, ys: Scale) -> list[Html]:
    class_ = _class(series)
    if series.mark in (Mark.LINE, Mark.STEP, Mark.AREA):
        if not points:
            return []
        path = _path(points, xs, ys, steps=series.mark is not Mark.LINE)
        if series.mark is Mark.AREA:
            floor = ys.place(0.0)
            path += f"V{floor:.5g}H{xs.place(points[0].x):.5g}Z"
        return [tag("path", tag("title", series.name), class_=f"{class_} {series.mark}", d=path)]
    titled = len(points) <= MAX_TITLED_POINTS
    radius = max(1.2, min(3.6, 350.0 / max(1, len(points))))
    drawn = []
    for point in points:
        at, height = xs.place(point.x), ys.place(point.y)
        parts: list[Html] = []
        if titled:
            value = f"{plot.y.form.text(point.y)} {plot.y.form.ends(point.low, point.high)}".rstrip()
            parts.append(tag("title", point.label or f"{plot.x.form.text(point.x)}: {value}"))
        if math.isfinite(point.low) and math.isfinite(point.high):
            parts.append(tag("line", class_="whisker", x1=at, x2=at, y1=ys.place(point.high), y2=ys.place(point.low)))
        parts.append(_symbol(series.mark, at, height, radius))
        drawn.append(tag("g", *parts, class_=class_))
    return drawn


def _path(points: Sequence[Point], xs: Scale, ys: Scale, *, steps: bool) -> str:
    first = points[0]
    path = [f"M{xs.place(first.x):.5g} {ys.place(first.y):.5g}"]
    for point in points[1:]:
        at, height = f"{xs.place(point.x):.5g}", f"{ys.place(point.y):.5g}"
        path.append(f"H{at}V{height}" if steps else f"L{at} {height}")
    return "".join(path)


def _top(axis: Axis) -> float:
    """Return the room above a drawing, which is larger where reference lines have labels."""
    return TOP + 8.0 if any(label for _, label in axis.lines) else TOP


def row_plot(plot: RowPlot) -> Html:
    """Return a drawing of rows with bars, or with points and intervals, below a common axis."""
    left = _label_width(row.label for row in plot.rows)
    estimates = [value for row in plot.rows for series in row.values for value in series]
    points = [Point(0.0, value.value, value.low, value.high) for value in estimates]
    xs = scale_of(plot.axis, _reach(points, plot.axis), left, WIDTH - RIGHT)
    bars = [_bars_of(plot.series, row) for row in plot.rows]
    height = max([ROW, *(11.0 * count + 8.0 for count in bars)])
    top = _top(plot.axis)
    foot = top + height * len(plot.rows)
    marks = _grid_down(plot.axis, xs, top, foot)
    for k, row in enumerate(plot.rows):
        middle = top + height * (k + 0.5)
        marks.append(_row_label(row.label, left, middle))
        drawn_bars = 0
        for series, values in zip(plot.series, row.values, strict=True):
            at = middle
            if series.mark is Mark.BAR and values:
                at, drawn_bars = middle + 11.0 * (drawn_bars - (bars[k] - 1) / 2), drawn_bars + 1
            marks += [_row_mark(series, value, row.label, plot.axis, xs, at) for value in values]
    marks += _labels_below(plot.axis, xs, foot, WIDTH)
    return _svg(plot.title, marks, WIDTH, foot + FOOT, "plot")


def _bars_of(series: Sequence[Series], row: PlotRow) -> int:
    """Return how many bars a row has."""
    return sum(bool(values) and each.mark is Mark.BAR for each, values in zip(series, row.values, strict=True))


def _row_mark(series: Series, value: Estimate, row: str, axis: Axis, xs: Scale, at: float) -> Html:
    text = f"{axis.form.text(value.value)} {axis.form.ends(value.low, value.high)}".rstrip()
    parts = [tag("title", value.label or f"{row}, {series.name}: {text}")]
    if series.mark is Mark.BAR and math.isfinite(value.value):
        zero = xs.place(1.0 if xs.is_log else 0.0)
        begin, end = sorted((zero, xs.place(value.value)))
        parts.append(tag("rect", x=begin, y=at - 5.0, width=max(MIN_BOX, end - begin), height=10.0))
    if value.has_interval:
        parts.append(tag("line", class_="whisker", x1=xs.place(value.low), x2=xs.place(value.high), y1=at, y2=at))
    if series.mark is not Mark.BAR and math.isfinite(value.value):
        parts.append(_symbol(series.mark, xs.place(value.value), at, 4.0))
    return tag("g", *parts, class_=_class(series))


def lanes_plot(plot: Lanes) -> Html:
    """Return a drawing of boxes on lanes. Boxes of one lane that overlap are drawn below each other."""
    left = _label_width(lane.label for lane in plot.lanes)
    ends = [end for lane in plot.lanes for box in lane.boxes for end in (box.start, box.end)]
    xs = scale_of(plot.axis, ends, left, WIDTH - RIGHT)
    begin = top = _top(plot.axis)
    marks: list[Html] = []
    for lane in plot.lanes:
        tracks = _tracks(lane.boxes)
        height = BOX * max(1, len(tracks))
        marks.append(_row_label(lane.label, left, top + height / 2))
        for k, boxes in enumerate(tracks):
            marks += [_box(box, plot, xs, top + k * BOX) for box in boxes]
        top += height + LANE_GAP
    grid = _grid_down(plot.axis, xs, begin, top)
    labels = _labels_below(plot.axis, xs, top, WIDTH)
    return _svg(plot.title, [*grid, *marks, *labels], WIDTH, top + FOOT, "plot")


def _tracks(boxes: Sequence[Box]) -> list[list[Box]]:
    """Return the boxes of a lane in as few rows as possible, such that the boxes of a row do not overlap."""
    tracks: list[list[Box]] = []
    for box in sorted(boxes, key=lambda box: box.start):
        free = next((track for track in tracks if track[-1].end <= box.start), None)
        if free is None:
            tracks.append([box])
        else:
            free.append(box)
    return tracks


def _box(box: Box, plot: Lanes, xs: Scale, top: float) -> Html:
    begin, end = xs.place(box.start), xs.place(box.end)
    series = plot.series[box.series]
    length = f"{plot.axis.form.text(box.start)} to {plot.axis.form.text(box.end)}"
    parts = [
        tag("title", box.label or f"{box.text or series.name}: {length}"),
        tag("rect", x=begin, y=top + 1, width=max(MIN_BOX, end - begin), height=BOX - 2),
    ]
    if box.text:
        room = int((WIDTH - RIGHT - begin - 10) / CHARACTER)
        shown = box.text if len(box.text) <= room else f"{box.text[: max(0, room - 1)]}…"
        parts.append(tag("text", shown, class_="inside", x=begin + 6, y=top + BOX * 0.67))
    return tag("g", *parts, class_=_class(series))


def _symbol(mark: Mark, x: float, y: float, radius: float) -> Html:
    if mark is Mark.DIAMOND:
        r = radius * 1.3
        return tag(
            "path",
            class_="symbol",
            d=f"M{x - r:.5g} {y:.5g}L{x:.5g} {y - r:.5g}L{x + r:.5g} {y:.5g}L{x:.5g} {y + r:.5g}Z",
        )
    if mark is Mark.TICK:
        return tag("line", class_="tick", x1=x, x2=x, y1=y - 8, y2=y + 8)
    return tag("circle", class_="symbol", cx=x, cy=y, r=radius)


def _class(series: Series) -> str:
    return f"{series.colour}{' assumed' if series.is_assumed else ''}"


def legend_symbol(series: Series, *, is_box: bool = False) -> Html:
    """Return the mark of a series for a legend, as a small drawing."""
    if not is_box and series.mark in (Mark.DOT, Mark.DIAMOND, Mark.TICK):
        symbol = _symbol(series.mark, 7.0, 7.0, 4.0)
    elif not is_box and series.mark in (Mark.LINE, Mark.STEP):
        symbol = tag("path", class_=str(series.mark), d="M0 7H14")
    else:
        symbol = tag("rect", class_="area" if series.mark is Mark.AREA else None, x=1.0, y=2.0, width=12.0, height=10.0)
    drawing = tag("g", symbol, class_=_class(series))
    return tag("svg", drawing, class_="key", viewBox="0 0 14 14", width=14, height=14, aria_hidden="true")


def _grid_across(axis: Axis, ys: Scale, begin: float, end: float) -> list[Html]:
    """Return horizontal lines with the labels of the vertical axis."""
    marks = []
    for value in ys.ticks(26.0, axis.form.scale):
        at = ys.place(value)
        marks.append(tag("line", class_=_line_class(axis, value), x1=begin, x2=end, y1=at, y2=at))
        marks.append(tag("text", axis.form.tick(value), x=begin - 6, y=at + 4, text_anchor="end"))
    for value, label in axis.lines:
        marks.append(
            tag("line", tag("title", label), class_="one", x1=begin, x2=end, y1=ys.place(value), y2=ys.place(value))
        )
    return marks


def _grid_down(axis: Axis, xs: Scale, top: float, foot: float) -> list[Html]:
    """Return vertical lines at the ticks of the horizontal axis, and reference lines with their labels above."""
    marks = [
        tag("line", class_=_line_class(axis, value), x1=xs.place(value), x2=xs.place(value), y1=top, y2=foot)
        for value in xs.ticks(_tick_gap(axis, xs), axis.form.scale)
    ]
    for value, label in axis.lines:
        at = xs.place(value)
        marks.append(tag("line", class_="limit" if label else "one", x1=at, x2=at, y1=top, y2=foot))
        anchor = "end" if at + len(label) * CHARACTER / 2 > xs.end else "middle"
        marks.append(tag("text", label, x=at, y=top - 5, text_anchor=anchor))
    return marks


def _line_class(axis: Axis, value: float) -> str:
    return "one" if value == (1.0 if axis.is_log else 0.0) else "grid"


def _tick_gap(axis: Axis, scale: Scale) -> float:
    """Return the space for the longest label of an axis with labels side by side."""
    return CHARACTER * max(len(axis.form.tick(end)) for end in (scale.low, scale.high)) + 14.0


def _labels_below(axis: Axis, xs: Scale, foot: float, width: float) -> list[Html]:
    """Return the numbers of the ticks and the title of the horizontal axis."""
    marks = []
    for value in xs.ticks(_tick_gap(axis, xs), axis.form.scale):
        at, half = xs.place(value), len(axis.form.tick(value)) * CHARACTER / 2
        anchor = "end" if at + half > width else "middle"
        marks.append(tag("text", axis.form.tick(value), x=at, y=foot + 15, text_anchor=anchor))
    marks.append(tag("text", axis.title, x=(xs.begin + xs.end) / 2, y=foot + 31, text_anchor="middle"))
    return marks


def _rotated(title: str, foot: float) -> Html:
    """Return the title of a vertical axis, rotated by 90 degrees and placed beside the axis."""
    middle = (TOP + foot) / 2
    return tag("text", title, x=-middle, y=10.0, transform="rotate(-90)", text_anchor="middle")


def _label_width(labels: Iterable[str]) -> float:
    return 14.0 + CHARACTER * max([4, *(len(shorten_name(label)) for label in labels)])


def _row_label(label: str, left: float, middle: float) -> Html:
    return tag(
        "text", tag("title", label), shorten_name(label), x=left - 8, y=middle + 4, text_anchor="end", class_="name"
    )


def _svg(title: str, marks: Iterable[Html], width: float, height: float, class_: str) -> Html:
    box = f"0 0 {width:g} {height:g}"
    return tag("svg", tag("title", title), *marks, class_=class_, viewBox=box, role="img", aria_label=title)
