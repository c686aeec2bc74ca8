"""Renders a document as one HTML page: no network, no script unless asked, one style sheet, light and dark, narrow and
wide.

A heat map is a table with one cell for every row and column, coloured by a ratio, centred on 1. It is a table and not a
drawing, so that a screen reader reads it cell by cell.

Laws: one file with everything in it; every text is shown as text, whatever it holds; equal documents give equal bytes;
a colour of a heat map means the same ratio on every page.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from interfere.file_writing import write_atomically
from interfere.reports import svg
from interfere.reports.document import (
    VERDICTS,
    Absence,
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Folded,
    HeatCell,
    HeatMap,
    Items,
    Lanes,
    LinePlot,
    Link,
    Part,
    RowPlot,
    Section,
    Sentence,
    Series,
    Table,
    Terms,
    Tile,
    Tiles,
    Tone,
    Toned,
    Verbatim,
    Words,
    cell_text,
)
from interfere.reports.numbers import DASH, NBSP, count_noun, format_slowdown, shorten_name
from interfere.reports.svg import Html, join, tag

# The browser loads nothing and runs nothing, whatever text a document holds.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
SITE_POLICY = f"{CONTENT_SECURITY_POLICY}; script-src 'self'; connect-src 'self'"  # of a page that its server renews
MAX_UNBROKEN = 24  # characters of a text that is kept on one line in a cell
# Upper bounds of the colour steps of a heat map; below 1 they are the reciprocals of those above. ±5 % is no effect
# (blocks of a quiet machine repeat within 3 %); 2 is the fair share of two busy jobs; the others divide the range of
# published tables (1 to 5) evenly enough to show structure.
STEPS = (1.05, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.5)
FASTER = tuple(1 / step for step in STEPS[2::-1])
EDGES = (*FASTER, *STEPS)
CLASSES = ("d3", "d2", "d1", "u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8")
# (Maximum number of columns, class of the table): with more columns the map needs smaller cells.
SIZES = ((16, "wide"), (28, "medium"), (44, "dense"))
MARKS = {Absence.UNSTABLE: "?", Absence.INFEASIBLE: "×", Absence.MISSING: "·"}
NAMES = {Absence.UNSTABLE: "unstable", Absence.INFEASIBLE: "infeasible", Absence.MISSING: "not measured"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a web server adds to the page of a document: links to its other pages, and a script."""

    pages: tuple[tuple[str, str], ...]  # (title, path)
    here: str  # the path of this page
    script: str  # path


def html_page(document: Document, site: Site | None = None) -> str:
    """Return the document as an HTML page."""
    style = Html(files(__package__).joinpath("style.css").read_text(encoding="utf-8"))
    meta = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=SITE_POLICY if site else CONTENT_SECURITY_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", document.title_text),
        tag("style", style),
    )
    body = [tag("main", tag("h1", *_words(document.title)), *_parts(document.parts, level=2))]
    if site:
        links = (
            tag("a", title, href=path, aria_current="page" if path == site.here else None) for title, path in site.pages
        )
        script = tag("script", src=site.script, defer=True)
        body = [tag("nav", *links, aria_label="pages"), *body, script]
    return f"<!doctype html>\n{tag('html', tag('head', *meta), tag('body', *body), lang='en')}\n"


def write_html_page(path: Path, document: Document) -> Path:
    """Write the document as a page to `path`, whole or not at all. Raises UnfitError where `path` cannot be written."""
    text = html_page(document)
    write_atomically(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))
    return path


def _parts(parts: Sequence[Part], level: int) -> list[Html]:
    return [_part(part, level) for part in parts]


def _part(part: Part, level: int) -> Html:
    match part:
        case Section():
            inside = (tag(f"h{level}", part.title), *_parts(part.parts, level + 1))
            made = tag("section", *inside, id=part.anchor or None)
        case Sentence():
            made = _sentence(part)
        case Items():
            made = tag("ol" if part.ordered else "ul", *(tag("li", *_words(item)) for item in part.items))
        case Terms():
            entries = ((tag("dt", name), tag("dd", *_words(text or DASH))) for name, text in part.entries)
            made = tag("dl", *(piece for entry in entries for piece in entry))
        case Verbatim():
            made = tag("pre", part.text)
        case Tiles():
            made = tag("div", *map(_tile, part.tiles), class_="tiles")
        case Table():
            made = _table(part)
        case Folded():
            made = tag("details", tag("summary", part.summary), *_parts(part.parts, level))
        case _:
            made = figure_html(part)
    return made


def _tile(tile: Tile) -> Html:
    return tag("div", tag("b", tile.text), tag("span", tile.label), tag("small", tile.detail))


def _sentence(sentence: Sentence) -> Html:
    lead = (tag("b", sentence.lead), " ") if sentence.lead else ()
    class_ = f"verdict {sentence.tone}" if sentence.tone in VERDICTS else str(sentence.tone)
    return tag("p", *lead, *_words(sentence.text), class_=None if sentence.tone is Tone.PLAIN else class_)


def _words(words: Words) -> list[str]:
    pieces = (words,) if isinstance(words, str) else words
    return [tag("code", piece) if isinstance(piece, Code) else piece for piece in pieces]


def _table(table: Table) -> Html:
    shown = table.rows if table.fold is None else table.rows[: table.fold]
    grid = _grid(table, shown, table.title)
    if len(shown) == len(table.rows):
        return grid
    rest = table.rows[len(shown) :]
    summary = tag("summary", f"{count_noun(len(rest), 'more row')}")
    return join((grid, tag("details", summary, _grid(table, rest, f"{table.title}, the other rows"))))


def _grid(table: Table, rows: Sequence[tuple[Cell, ...]], caption: str) -> Html:
    """Return a table as HTML that scrolls where the table is wider than the page. The first cell of a row is its
    heading."""
    head = tag("tr", *map(_heading, table.columns))
    body = (
        tag(
            "tr",
            *(
                _cell(cell, column, is_first=k == 0)
                for k, (cell, column) in enumerate(zip(row, table.columns, strict=True))
            ),
        )
        for row in rows
    )
    grid = tag(
        "table", tag("caption", caption, class_="hidden"), tag("thead", head), tag("tbody", *body), class_="plain"
    )
    return _scrolling(grid, caption)


def _heading(column: Column) -> Html:
    if not column.title:
        return tag("td")  # a heading has a text
    return tag("th", column.title, scope="col", class_=_alignment(column))


def _alignment(column: Column) -> str | None:
    return "number" if column.form is not None else None


def _cell(cell: Cell, column: Column, *, is_first: bool) -> Html:
    text: str = cell_text(cell, column)
    class_ = _alignment(column)
    if isinstance(cell, Toned):
        text = tag("b", text)
        class_ = f"{cell.tone} nowrap"
    elif class_ is None and len(text) <= MAX_UNBROKEN:
        class_ = "nowrap"
    if isinstance(cell, Link):
        text = tag("a", text, href=cell.href)
    return tag("th", text, scope="row", class_=class_) if is_first else tag("td", text, class_=class_)


def _scrolling(content: Html, label: str) -> Html:
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def figure_html(figure: Figure) -> Html:
    caption = tag("figcaption", figure.title)
    if isinstance(figure, HeatMap):
        key, grid = _heat_map(figure)
        return tag("figure", caption, key, _scrolling(grid, figure.title))
    head = [caption, *_legend(figure.series, is_box=isinstance(figure, Lanes))]
    if not isinstance(figure, Lanes) and (cut_off := svg.cut_off_intervals(figure)):
        text = f"{count_noun(cut_off, 'interval')} longer than the drawing: hover over it for its ends."
        head.append(tag("p", text, class_=str(Tone.NOTE)))
    if isinstance(figure, LinePlot):
        panels = svg.line_plot(figure)
        if len(panels) > 1:
            titled = zip(figure.panels, panels, strict=True)
            inside = (tag("figure", tag("figcaption", panel.title), drawing) for panel, drawing in titled)
            return tag("figure", *head, tag("div", *inside, class_="panels"))
        drawing = panels[0]
    else:
        drawing = svg.row_plot(figure) if isinstance(figure, RowPlot) else svg.lanes_plot(figure)
    return tag("figure", *head, _scrolling(drawing, figure.title))


def _legend(series: Sequence[Series], *, is_box: bool) -> list[Html]:
    """Return a legend that shows the mark of each series; empty for a single series."""
    if len(series) < 2:
        return []
    entries = (
        tag("span", svg.legend_symbol(each, is_box=is_box), f"{NBSP}{each.name}", class_="entry") for each in series
    )
    return [tag("p", *entries, class_="legend")]


# --- heat maps --------------------------------------------------------------------------------------------------------


def colour_class(ratio: float) -> str:
    """Return the CSS class of a ratio."""
    return CLASSES[bisect_right(EDGES, ratio)]


def _heat_map(figure: HeatMap) -> tuple[Html, Html]:
    """Return a heat map as HTML: a legend, and a table with row and column headings."""
    size = next((name for maximum, name in SIZES if len(figure.columns) <= maximum), "dense tiny")
    corner = tag("td", tag("span", f"{figure.row_axis} ↓  {figure.column_axis} →", class_="dim"), class_="corner")
    head = (tag("th", tag("span", shorten_name(name)), scope="col", title=name) for name in figure.columns)
    rows = (
        tag(
            "tr",
            tag("th", shorten_name(row), scope="row", title=row),
            *(_heat_cell(figure.cells[row, column], is_self=row == column) for column in figure.columns),
        )
        for row in figure.rows
    )
    caption = tag("caption", figure.title, class_="hidden")
    grid = tag("table", caption, tag("thead", tag("tr", corner, *head)), tag("tbody", *rows), class_=f"heat {size}")
    return _heat_legend(figure), grid


def _heat_cell(cell: HeatCell, *, is_self: bool) -> Html:
    text = MARKS[cell.absence] if cell.absence else format_slowdown(cell.value)
    class_ = str(cell.absence) if cell.absence else colour_class(cell.value)
    return tag("td", text, class_=f"cell {class_}{' self' if is_self else ''}", title=cell.label)


def _heat_legend(figure: HeatMap) -> Html:
    """Return the colour steps and signs that occur in a heat map."""
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
