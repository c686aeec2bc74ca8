"""The page as HTML: parsed and counted, self-contained, and with hostile names."""

import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.data.cards.domain_summary import domain_summaries
from interfere.data.loading import shipped_table
from interfere.data.tables import Table, read_table, table_digest
from interfere.records import PairStatus
from interfere.reports.html_page import colour_class
from interfere.reports.numbers import format_slowdown
from tests.data.cards.page_tables import MANY, TABLES, parsed, table_page
from tests.data.sample_table import JOBS, PAIR
from tests.reports.html_tree import Tree


@pytest.mark.parametrize("name", TABLES)
def test_every_domain_has_a_map_with_a_cell_for_every_victim_and_neighbour(name: str) -> None:
    table = TABLES[name]
    maps = parsed(table).all("table", "heat")
    keys = sorted({(p.device_type, p.mode) for p in table.pairs})
    assert len(maps) == len(keys)
    for grid, key in zip(maps, keys, strict=True):
        rows = [p for p in table.pairs if (p.device_type, p.mode) == key]
        victims, neighbours = {p.victim for p in rows}, {p.neighbour for p in rows}
        cells = grid.all("td", "cell")
        assert len(cells) == len(victims) * len(neighbours)
        assert {h.attributes["title"] for h in grid.all("th") if h.attributes["scope"] == "row"} == victims
        assert {h.attributes["title"] for h in grid.all("th") if h.attributes["scope"] == "col"} == neighbours
        states = {state: len(grid.all("td", state)) for state in ("unstable", "infeasible", "missing")}
        count = {status: sum(p.status is status for p in rows) for status in PairStatus}
        assert states == {
            "unstable": count[PairStatus.UNSTABLE],
            "infeasible": count[PairStatus.INFEASIBLE],
            "missing": len(cells) - len(rows),
        }


@pytest.mark.parametrize("name", TABLES)
def test_every_measured_value_stands_in_its_own_cell(name: str) -> None:
    table = TABLES[name]
    for grid, domain in zip(parsed(table).all("table", "heat"), domain_summaries(table), strict=True):
        columns = [h.attributes["title"] for h in grid.all("th") if h.attributes["scope"] == "col"]
        found = {}
        for row in grid.all("tr")[1:]:
            victim = row.all("th")[0].attributes["title"]
            found |= {(victim, n): cell for n, cell in zip(columns, row.all("td", "cell"), strict=True)}
        for pair in domain.table.ok_pairs:
            cell = found[pair.victim, pair.neighbour]
            assert cell.text == format_slowdown(pair.slowdown)
            assert (cell.attributes["title"] or "").startswith(f"{pair.victim} beside {pair.neighbour}: ")
            assert colour_class(pair.slowdown) in (cell.attributes["class"] or "").split()


@pytest.mark.parametrize("name", TABLES)
def test_nothing_is_loaded_and_nothing_runs(name: str) -> None:
    text = table_page(TABLES[name])
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text)
    root = Tree(text).root
    names = {element.name for element in root.walk()}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "image", "use"}
    for element in root.walk():
        assert not [a for a in element.attributes if a.startswith("on") or a in ("src", "style")], element
        assert (element.attributes.get("href") or "#").startswith("#")
    policy = [m for m in root.all("meta") if m.attributes.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in (policy[0].attributes["content"] or "")


@pytest.mark.parametrize("name", TABLES)
def test_no_number_is_called_nan_and_links_have_targets(name: str) -> None:
    root = parsed(TABLES[name])
    body = root.all("body")[0]
    assert not re.search(r"\bnan\b|\binf\b", body.words, re.IGNORECASE)
    for element in body.walk():
        assert not [v for v in element.attributes.values() if v and re.search(r"\bnan\b", v)], element
    ids = [element.attributes["id"] for element in root.walk() if "id" in element.attributes]
    assert len(set(ids)) == len(ids)
    assert {(a.attributes["href"] or "")[1:] for a in root.all("a")} <= set(ids)


HOSTILE = "<script>alert('x')</script>\"&amp;"


def test_a_hostile_name_is_text_everywhere() -> None:
    jobs = tuple(replace(j, workload=HOSTILE, family=HOSTILE, source=HOSTILE) for j in JOBS[:1])
    pair = replace(PAIR, victim=HOSTILE, neighbour=HOSTILE, reason=HOSTILE, campaign=HOSTILE, device_name=HOSTILE)
    notes = f"</pre>{HOSTILE}"
    text = table_page(Table(name=HOSTILE, jobs=jobs, pairs=(pair,)), sha256=HOSTILE, notes=notes)
    root = Tree(text).root
    assert not root.all("script")
    assert "<script" not in text
    assert root.all("h1")[0].text == HOSTILE  # shown as it is, entities not eaten
    assert root.all("pre")[0].text == notes
    assert root.all("table", "heat")[0].all("th")[0].attributes["title"] == HOSTILE


@settings(max_examples=30, deadline=None)
@given(st.text(min_size=1, max_size=40).filter(lambda t: t.isprintable() and bool(t.strip())))
def test_any_name_is_shown(name: str) -> None:
    table = Table(
        name=name, jobs=(replace(JOBS[0], workload=name),), pairs=(replace(PAIR, victim=name, neighbour=name),)
    )
    grid = parsed(table).all("table", "heat")[0]
    assert grid.all("th")[0].attributes["title"] == name


def test_equal_tables_give_equal_bytes_whatever_the_order_of_rows() -> None:
    shuffled = replace(MANY, jobs=MANY.jobs[::-1], pairs=tuple(random.Random(2).sample(MANY.pairs, len(MANY.pairs))))
    assert table_page(MANY) == table_page(MANY)
    assert table_page(shuffled) == table_page(MANY)


def test_the_shipped_table_names_its_origin() -> None:
    folder = shipped_table("cpu")
    table = read_table(folder)
    text = table_page(table, sha256=table_digest(folder), notes=(folder / "card.md").read_text())
    for part in (table_digest(folder), "One CPU core, time-sliced.", "AMD EPYC", "2026-11-21", "Measure again:"):
        assert part in text


def test_the_page_needs_only_numpy_and_pyarrow(tmp_path: Path) -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "matplotlib", "jinja2", "scipy", "torch", "mlflow", "sklearn"):
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Refuse())
from pathlib import Path
from interfere.data.loading import shipped_table
from interfere.data.cards.dataset_card import table_document
from interfere.data.tables import read_table
from interfere.reports.html_page import write_html_page
write_html_page(Path(sys.argv[1]), table_document(read_table(shipped_table("cpu"))))
"""
    out = tmp_path / "card.html"
    done = subprocess.run([sys.executable, "-c", code, out], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert out.read_text(encoding="utf-8") == table_page(read_table(shipped_table("cpu")))
