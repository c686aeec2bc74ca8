"""Laws of the four renderings: nothing is lost, nothing is read as markup, nothing is cut."""

import io
import json
import math
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from interfere.errors import UnfitError
from interfere.reports.document import (
    Column,
    Document,
    Estimate,
    HeatMap,
    Lanes,
    LinePlot,
    RowPlot,
    Section,
    Table,
    cell_text,
)
from interfere.reports.html_page import html_page, write_html_page
from interfere.reports.numbers import NBSP
from interfere.reports.svg import Html, lanes_plot, line_plot, linear_ticks, log_ticks, row_plot, tag
from interfere.reports.terminal import TerminalDocument
from interfere.reports.text_forms import json_document, markdown
from tests.reports.documents import EVERYTHING, FIGURES, HOSTILE, tables
from tests.reports.html_tree import Tree

LOADING = {"script", "link", "img", "iframe", "object", "embed", "form", "base", "image", "use"}


def printed(document: Document, width: int = 80) -> str:
    """What a pipe of that width gets."""
    out = io.StringIO()
    Console(file=out, width=width).print(TerminalDocument(document))
    return out.getvalue()


def drawings() -> list[Html]:
    made: list[Html] = []
    for figure in FIGURES:
        if isinstance(figure, LinePlot):
            made += line_plot(figure)
        elif isinstance(figure, RowPlot):
            made.append(row_plot(figure))
        elif isinstance(figure, Lanes):
            made.append(lanes_plot(figure))
    return made


@settings(deadline=None, max_examples=40)
@given(tables())
def test_every_number_of_a_table_is_in_each_rendering(table: Table) -> None:
    document = Document("numbers", (Section("all", (table,)),))
    page, text, card = Tree(html_page(document)).root.words, printed(document), markdown(document)
    plain = [row for part in json_document(document)["parts"][0]["parts"] for row in part["rows"]]
    for row, found in zip(table.rows, plain, strict=True):
        for cell, column, value in zip(row, table.columns, found, strict=True):
            if column.form is None:
                assert value == cell
                continue
            written = cell_text(cell, column)
            assert written in page
            assert written.replace(NBSP, " ") in text
            assert written.replace(NBSP, " ") in card
            number = value["value"] if isinstance(value, dict) else value
            assert number == (cell.value if isinstance(cell, Estimate) else cell)


@settings(deadline=None, max_examples=40)
@given(tables(), st.sampled_from([60, 80, 120]))
def test_no_line_is_wider_than_the_terminal_and_no_heading_is_cut(table: Table, width: int) -> None:
    text = printed(Document("t", (table,)), width)
    assert max(cell_len(line.rstrip()) for line in text.splitlines()) <= width
    folded = re.sub(r"\s", "", text)
    for column in table.columns:
        assert all(re.sub(r"\s", "", word)[:8] in folded for word in column.heading.split())


def test_a_table_in_pieces_has_its_title_once() -> None:
    columns = (Column("job"), *(Column(f"a long heading {k}") for k in range(8)))
    text = printed(Document("t", (Table(title="What drove it", columns=columns, rows=(("a",) * 9,)),)))
    assert text.count("What drove it") == 1
    assert text.count("(continued)") >= 1
    assert all(f"heading {k}" in " ".join(text.split()) for k in range(8))


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1", "FORCE_COLOR": "1"}, {}])
def test_a_pipe_and_no_color_get_no_escape_sequences(environ: dict[str, str]) -> None:
    out = io.StringIO()
    Console(file=out, width=80, _environ=environ, force_terminal=False).print(TerminalDocument(EVERYTHING))
    assert "\x1b" not in out.getvalue()
    assert HOSTILE in out.getvalue().replace("\n", "")


def test_a_terminal_leaves_out_details_and_counts_folded_rows() -> None:
    text = printed(EVERYTHING)
    assert "and 1 other row" in text
    assert "lost" not in text
    assert "the pairing" not in text
    assert "1.50 [1.40, 1.60]" in text


def test_no_text_is_read_as_markup() -> None:
    page = html_page(EVERYTHING)
    root = Tree(page).root
    assert "<script" not in page
    assert root.all("h1")[0].text == f"Everything {HOSTILE}"
    assert root.all("pre")[0].text == f"</pre>{HOSTILE}"
    assert root.all("code")[0].text == "interfere `serve`"
    assert tag("p", "<b>", Html("<i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></p>'
    assert tag("details", open=True, class_=None, hidden=False) == "<details open></details>"
    rows = [line for line in markdown(EVERYTHING).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}  # a bar in a name makes no column


def test_a_page_loads_nothing_runs_nothing_and_is_the_same_each_time() -> None:
    page = html_page(EVERYTHING)
    assert page == html_page(EVERYTHING)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", page)
    for element in Tree(page).root.walk():
        assert element.name not in LOADING, element
        assert not [a for a in element.attributes if a.startswith("on") or a in ("src", "style")], element
    assert "prefers-color-scheme: dark" in page
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r"\bnan\b|\binf\b", page)


def test_a_drawing_is_well_formed_and_named_and_its_axes_have_titles() -> None:
    made = drawings()
    assert len(made) == 6
    for drawing in made:
        root = ElementTree.fromstring(drawing)
        (title,) = [child.text for child in root if child.tag == "title"]
        assert title == root.attrib["aria-label"]
    for figure in FIGURES:
        axes = (
            (figure.x, figure.y)
            if isinstance(figure, LinePlot)
            else ()
            if isinstance(figure, HeatMap)
            else (figure.axis,)
        )
        assert all(html_page(Document("f", (figure,))).count(f">{axis.title}</text>") for axis in axes)


def test_values_of_a_figure_are_on_the_page_and_in_the_document() -> None:
    page = html_page(EVERYTHING)
    for text in ("-50\u00a0% [-100, +10]", "2\u00a0h [0.83, 1.11]", "1.23", "0\u00a0× to 1.20\u00a0×"):
        assert text.replace("2\u00a0h", "2.00\u00a0h").replace("0\u00a0× to", "0.00\u00a0× to") in page, text
    content = json.loads(json.dumps(json_document(EVERYTHING), allow_nan=False))
    kinds = [part["kind"] for part in content["parts"]]
    assert kinds == ["sentence", "sentence", "tiles", "section", "section", "folded"]
    figures = content["parts"][4]["parts"]
    assert figures[3]["rows"][1]["values"][0][0] == {"value": 3600.0, "low": 3000.0, "high": 4000.0, "label": ""}
    assert figures[3]["axis"]["form"] == "s"
    assert figures[4]["cells"][0][0] == {"value": 1.23, "label": "a beside itself", "absence": None}


def test_links_have_targets() -> None:
    root = Tree(html_page(EVERYTHING)).root
    targets = {element.attributes.get("id") for element in root.walk()}
    assert {(link.attributes["href"] or "")[1:] for link in root.all("a")} <= targets


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_html_page(tmp_path / "new" / "page.html", EVERYTHING)
    assert path.read_text(encoding="utf-8") == html_page(EVERYTHING)
    with pytest.raises(UnfitError, match="cannot write here"):
        write_html_page(tmp_path, EVERYTHING)
    assert [p.name for p in tmp_path.iterdir()] == ["new"]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.floats(100.0, 600.0), st.floats(15.0, 60.0))
def test_linear_ticks_are_round_and_do_not_touch(low: float, size: float, span: float, gap: float) -> None:
    ticks = linear_ticks(low, low + size, span, gap)
    assert all(low - 1e-6 * size <= tick <= low + size * (1 + 1e-6) for tick in ticks)
    assert all((b - a) / size * span >= gap * 0.99 for a, b in pairwise(ticks))


@given(st.floats(1e-4, 0.9), st.floats(1.1, 1e4), st.floats(100.0, 600.0), st.floats(15.0, 60.0))
def test_logarithmic_ticks_hold_one_and_do_not_touch(low: float, high: float, span: float, gap: float) -> None:
    ticks = log_ticks(low, high, span, gap)
    assert 1.0 in ticks
    assert all(math.log(b / a) / math.log(high / low) * span >= gap * 0.99 for a, b in pairwise(ticks))
