"""The heat map: one cell for every victim beside every neighbour, colour by slowdown, centred on 1.

The steps are the same in every page, so that one colour means one thing; below 1 they are the reciprocals of those
above. What is not a measurement has a pattern and a sign of its own, which a greyscale print keeps.
"""

from bisect import bisect_right

from interfere.data.html_page.domain_summary import Domain
from interfere.data.html_page.formatting import plural, ratio, short, times
from interfere.data.html_page.html_builder import Html, join, tag
from interfere.records import PairMeasurement, PairStatus

# Upper ends of the steps. ±5 % is no effect (blocks of a quiet machine repeat within 3 %); 2 is a fair share of two
# busy jobs; the others split what published tables hold (1 to 5) evenly enough to see structure.
STEPS = (1.05, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.5)
FASTER = tuple(1 / step for step in STEPS[2::-1])
EDGES = (*FASTER, *STEPS)
CLASSES = ("d3", "d2", "d1", "u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8")
# Neighbours up to which the values of a cell can be read and the map fits a page: (most, class of the table).
SIZES = ((16, "wide"), (28, "medium"), (44, "dense"))
PRINTED = 28
MARKS = {PairStatus.UNSTABLE: "?", PairStatus.INFEASIBLE: "×"}


def colour(slowdown: float) -> str:
    """The class of a slowdown."""
    return CLASSES[bisect_right(EDGES, slowdown)]


def says(pair: PairMeasurement) -> str:
    """One row in words: what hovering shows."""
    who = f"{pair.victim} beside {pair.neighbour}: "
    if pair.status is not PairStatus.OK:
        return f"{who}{pair.status.value} ({pair.reason})"
    interval = "" if pair.lower != pair.lower else f" [{ratio(pair.lower)}, {ratio(pair.upper)}]"  # NaN: none
    blocks = f", {plural(len(pair.passes), 'value')}" if pair.passes else ""
    return f"{who}{times(pair.slowdown)}{interval}{blocks}{f' ({pair.reason})' if pair.reason else ''}"


def heat_map(domain: Domain) -> Html:
    """A table with row and column headings, scrollable where it is wider than the page."""
    corner = tag("td", tag("span", "victim ↓  beside →", class_="dim"), class_="corner")
    head = (tag("th", tag("span", short(name)), scope="col", title=name) for name in domain.neighbours)
    rows = []
    size = next((name for most, name in SIZES if len(domain.neighbours) <= most), "dense tiny")
    for victim in domain.victims:
        cells = (_cell(domain, victim, neighbour) for neighbour in domain.neighbours)
        rows.append(tag("tr", tag("th", short(victim), scope="row", title=victim), *cells))
    caption = tag("caption", f"Slowdown of each victim beside each neighbour, {domain.device_type}", class_="hidden")
    grid = tag("table", caption, tag("thead", tag("tr", corner, *head)), tag("tbody", *rows), class_=f"heat {size}")
    return tag("div", grid, class_="scroll", tabindex="0", role="region", aria_label="heat map")


def _cell(domain: Domain, victim: str, neighbour: str) -> Html:
    pair = domain.cells.get((victim, neighbour))
    self_ = " self" if victim == neighbour else ""
    if pair is None:
        return tag("td", "·", class_=f"cell missing{self_}", title=f"{victim} beside {neighbour}: not measured")
    if pair.status is not PairStatus.OK:
        return tag("td", MARKS[pair.status], class_=f"cell {pair.status.value}{self_}", title=says(pair))
    return tag("td", ratio(pair.slowdown), class_=f"cell {colour(pair.slowdown)}{self_}", title=says(pair))


def legend(domain: Domain) -> Html:
    """The steps that occur, and the signs that do."""
    used = {colour(pair.slowdown) for pair in domain.table.ok_pairs}
    low, high = (min(map(CLASSES.index, used)), max(map(CLASSES.index, used))) if used else (3, 2)
    parts = [tag("span", "times alone:")] if used else []
    parts += [_key(name, _range(k)) for k, name in enumerate(CLASSES) if low <= k <= high]
    counts = {status: count for status, count in domain.figures.rows_by_status if count}
    for status, mark in MARKS.items():
        if status.value in counts:
            parts.append(_key(status.value, f"{status.value} ({counts[status.value]})", mark))
    if domain.missing:
        parts.append(_key("missing", f"not measured ({domain.missing})", "·"))
    if set(domain.victims) & set(domain.neighbours):
        parts.append(_key("self", "beside itself"))
    return tag("p", *parts, class_="legend")


def _range(k: int) -> str:
    if k == 0:
        return f"< {ratio(EDGES[0])}"
    if k == len(EDGES):
        return f"> {ratio(EDGES[-1])}"
    return f"{ratio(EDGES[k - 1])}–{ratio(EDGES[k])}"


def _key(class_: str, text: str, mark: str = "") -> Html:
    swatch = tag("i", mark or "\u00a0", class_=f"cell {class_}", aria_hidden="true")
    return tag("span", join((swatch, text), between=" "), class_="key")
