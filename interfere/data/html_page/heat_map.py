"""The heat map: one cell for every victim beside every neighbour, coloured by slowdown, centred on 1.

The colour steps are the same on every page, so that a colour always means the same; below 1 they are the reciprocals of
those above. Cells without a measurement have a pattern and a sign of their own, which also a greyscale print shows.
"""

from bisect import bisect_right

from interfere.data.html_page.domain_summary import DomainSummary
from interfere.data.html_page.formatting import count_noun, format_slowdown, format_times, shorten_name
from interfere.data.html_page.html_builder import Html, join, tag
from interfere.records import PairMeasurement, PairStatus

# Upper bounds of the colour steps. ±5 % is no effect (blocks of a quiet machine repeat within 3 %); 2 is the fair share
# of two busy jobs; the others divide the range of published tables (1 to 5) evenly enough to show structure.
STEPS = (1.05, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.5)
FASTER = tuple(1 / step for step in STEPS[2::-1])
EDGES = (*FASTER, *STEPS)
CLASSES = ("d3", "d2", "d1", "u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8")
# (Maximum number of neighbours, class of the table): with more neighbours the map needs smaller cells.
SIZES = ((16, "wide"), (28, "medium"), (44, "dense"))
MAX_PRINTED_NEIGHBOURS = 28  # up to which the values are printed in the cells
MARKS = {PairStatus.UNSTABLE: "?", PairStatus.INFEASIBLE: "×"}


def colour_class(slowdown: float) -> str:
    """The CSS class of a slowdown."""
    return CLASSES[bisect_right(EDGES, slowdown)]


def describe_pair(pair: PairMeasurement) -> str:
    """One row in words, shown when the pointer is over it."""
    jobs = f"{pair.victim} beside {pair.neighbour}: "
    if pair.status is not PairStatus.OK:
        return f"{jobs}{pair.status.value} ({pair.reason})"
    interval = (
        "" if pair.lower != pair.lower else f" [{format_slowdown(pair.lower)}, {format_slowdown(pair.upper)}]"
    )  # NaN: none
    blocks = f", {count_noun(len(pair.passes), 'value')}" if pair.passes else ""
    return f"{jobs}{format_times(pair.slowdown)}{interval}{blocks}{f' ({pair.reason})' if pair.reason else ''}"


def heat_map(domain: DomainSummary) -> Html:
    """The heat map as an HTML table with row and column headings, which scrolls where it is wider than the page."""
    corner = tag("td", tag("span", "victim ↓  beside →", class_="dim"), class_="corner")
    head = (tag("th", tag("span", shorten_name(name)), scope="col", title=name) for name in domain.neighbours)
    rows = []
    size = next((name for maximum, name in SIZES if len(domain.neighbours) <= maximum), "dense tiny")
    for victim in domain.victims:
        cells = (_cell(domain, victim, neighbour) for neighbour in domain.neighbours)
        rows.append(tag("tr", tag("th", shorten_name(victim), scope="row", title=victim), *cells))
    caption = tag("caption", f"Slowdown of each victim beside each neighbour, {domain.device_type}", class_="hidden")
    grid = tag("table", caption, tag("thead", tag("tr", corner, *head)), tag("tbody", *rows), class_=f"heat {size}")
    return tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label="heat map")


def _cell(domain: DomainSummary, victim: str, neighbour: str) -> Html:
    pair = domain.cells.get((victim, neighbour))
    self_pair = " self" if victim == neighbour else ""
    if pair is None:
        return tag("td", "·", class_=f"cell missing{self_pair}", title=f"{victim} beside {neighbour}: not measured")
    if pair.status is not PairStatus.OK:
        return tag("td", MARKS[pair.status], class_=f"cell {pair.status.value}{self_pair}", title=describe_pair(pair))
    return tag(
        "td",
        format_slowdown(pair.slowdown),
        class_=f"cell {colour_class(pair.slowdown)}{self_pair}",
        title=describe_pair(pair),
    )


def heat_map_legend(domain: DomainSummary) -> Html:
    """The legend, with the colour steps and signs that occur in the map."""
    used = {colour_class(pair.slowdown) for pair in domain.table.ok_pairs}
    low, high = (min(map(CLASSES.index, used)), max(map(CLASSES.index, used))) if used else (3, 2)
    parts = [tag("span", "times alone:")] if used else []
    parts += [_legend_entry(name, _step_range(k)) for k, name in enumerate(CLASSES) if low <= k <= high]
    counts = {status: count for status, count in domain.quality.rows_by_status if count}
    for status, mark in MARKS.items():
        if status.value in counts:
            parts.append(_legend_entry(status.value, f"{status.value} ({counts[status.value]})", mark))
    if domain.missing:
        parts.append(_legend_entry("missing", f"not measured ({domain.missing})", "·"))
    if set(domain.victims) & set(domain.neighbours):
        parts.append(_legend_entry("self", "beside itself"))
    return tag("p", *parts, class_="legend")


def _step_range(k: int) -> str:
    if k == 0:
        return f"< {format_slowdown(EDGES[0])}"
    if k == len(EDGES):
        return f"> {format_slowdown(EDGES[-1])}"
    return f"{format_slowdown(EDGES[k - 1])}–{format_slowdown(EDGES[k])}"


def _legend_entry(class_: str, text: str, mark: str = "") -> Html:
    swatch = tag("i", mark or "\u00a0", class_=f"cell {class_}", aria_hidden="true")
    return tag("span", join((swatch, text), between=" "), class_="key")
