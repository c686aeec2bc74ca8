"""The heat map: one cell for every row and column, coloured by a ratio, centred on 1.

The colour steps are the same on every page, so that a colour always means the same; below 1 they are the reciprocals of
those above. Cells without a value have a pattern and a sign of their own, which also a greyscale print shows. It is a
table and not a drawing, so that it is read cell by cell by whoever cannot see it.
"""

from bisect import bisect_right
from collections import Counter

from interfere.reports.document import Absence, HeatCell, HeatMap
from interfere.reports.markup import Html, join, tag
from interfere.reports.numbers import format_slowdown, shorten_name

# Upper bounds of the colour steps. ±5 % is no effect (blocks of a quiet machine repeat within 3 %); 2 is the fair share
# of two busy jobs; the others divide the range of published tables (1 to 5) evenly enough to show structure.
STEPS = (1.05, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.5)
FASTER = tuple(1 / step for step in STEPS[2::-1])
EDGES = (*FASTER, *STEPS)
CLASSES = ("d3", "d2", "d1", "u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8")
# (Maximum number of columns, class of the table): with more columns the map needs smaller cells.
SIZES = ((16, "wide"), (28, "medium"), (44, "dense"))
MAX_PRINTED_COLUMNS = 28  # up to which the values are printed in the cells
MARKS = {Absence.UNSTABLE: "?", Absence.INFEASIBLE: "×", Absence.MISSING: "·"}
NAMES = {Absence.UNSTABLE: "unstable", Absence.INFEASIBLE: "infeasible", Absence.MISSING: "not measured"}


def colour_class(ratio: float) -> str:
    """The CSS class of a ratio."""
    return CLASSES[bisect_right(EDGES, ratio)]


def heat_map(figure: HeatMap) -> tuple[Html, Html]:
    """The legend, and the map as a table with row and column headings."""
    size = next((name for maximum, name in SIZES if len(figure.columns) <= maximum), "dense tiny")
    corner = tag("td", tag("span", f"{figure.row_axis} ↓  {figure.column_axis} →", class_="dim"), class_="corner")
    head = (tag("th", tag("span", shorten_name(name)), scope="col", title=name) for name in figure.columns)
    rows = (
        tag(
            "tr",
            tag("th", shorten_name(row), scope="row", title=row),
            *(_cell(figure.cells[row, column], is_self=row == column) for column in figure.columns),
        )
        for row in figure.rows
    )
    caption = tag("caption", figure.title, class_="hidden")
    grid = tag("table", caption, tag("thead", tag("tr", corner, *head)), tag("tbody", *rows), class_=f"heat {size}")
    return _legend(figure), grid


def _cell(cell: HeatCell, *, is_self: bool) -> Html:
    text = MARKS[cell.absence] if cell.absence else format_slowdown(cell.value)
    class_ = str(cell.absence) if cell.absence else colour_class(cell.value)
    return tag("td", text, class_=f"cell {class_}{' self' if is_self else ''}", title=cell.label)


def _legend(figure: HeatMap) -> Html:
    """The colour steps and signs that occur in the map."""
    used = {colour_class(cell.value) for cell in figure.cells.values() if not cell.absence}
    low, high = (min(map(CLASSES.index, used)), max(map(CLASSES.index, used))) if used else (3, 2)
    parts = [tag("span", f"{figure.unit}:")] if used else []
    parts += [_entry(name, _step_range(k)) for k, name in enumerate(CLASSES) if low <= k <= high]
    counts = Counter(cell.absence for cell in figure.cells.values() if cell.absence)
    parts += [_entry(str(a), f"{NAMES[a]} ({counts[a]})", mark) for a, mark in MARKS.items() if counts[a]]
    if set(figure.rows) & set(figure.columns):
        parts.append(_entry("self", "beside itself"))
    return tag("p", *parts, class_="legend")


def _step_range(k: int) -> str:
    if k == 0:
        return f"< {format_slowdown(EDGES[0])}"
    if k == len(EDGES):
        return f"> {format_slowdown(EDGES[-1])}"
    return f"{format_slowdown(EDGES[k - 1])}–{format_slowdown(EDGES[k])}"


def _entry(class_: str, text: str, mark: str = "") -> Html:
    swatch = tag("i", mark or "\u00a0", class_=f"cell {class_}", aria_hidden="true")
    return tag("span", join((swatch, text), between=" "), class_="entry")
