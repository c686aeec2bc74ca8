"""The page as a reader and a browser take it: parsed, counted, and with hostile names."""

import math
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere import devices
from interfere.data.page import page, write_page
from interfere.data.page.facts import domains, memory
from interfere.data.page.heat import CLASSES, EDGES, colour
from interfere.data.page.markup import Html, tag
from interfere.data.page.plots import ticks
from interfere.data.page.words import MAX_NAME, gib, ratio, seconds, short
from interfere.data.shipped import shipped_table
from interfere.data.tables import Table, read_table, table_digest
from interfere.devices import DeviceType
from interfere.errors import UnfitError
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus
from tests.data.sample import JOBS, PAIR, PAIRS, TABLE

GIB = 2.0**30
VOID = {"meta", "br"}


@dataclass
class Element:
    name: str
    attributes: Mapping[str, str | None]
    text: str = ""
    inside: list["Element"] = field(default_factory=list)

    def walk(self) -> Iterable["Element"]:
        yield self
        for child in self.inside:
            yield from child.walk()

    def all(self, name: str, class_: str = "") -> list["Element"]:
        return [
            e
            for e in self.walk()
            if e.name == name and (not class_ or class_ in (e.attributes.get("class") or "").split())
        ]

    @property
    def words(self) -> str:
        return " ".join([self.text, *(child.words for child in self.inside)])


class Tree(HTMLParser):
    """Builds elements, and fails on tags that do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Element("document", {})
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root], "unclosed elements"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self._open[-1].inside.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].text += data


def parsed(table: Table) -> Element:
    return Tree(page(table)).root


def table_of(names: Iterable[str], *, device: str = "gpu", mode: str = "mps", holes: bool = True) -> Table:
    """Every pair of the names: measured, or now and then infeasible, unstable or not there."""
    names, rng = list(names), random.Random(1)
    jobs = tuple(
        JobProfile(workload=n, device_type=device, step_time_s=0.01 + k, memory_peak_bytes=(1 + k % 40) * GIB)
        for k, n in enumerate(names)
    )
    kinds = ["ok"] * 7 + (["infeasible", "unstable", "missing"] if holes else [])
    pairs = []
    for k, victim in enumerate(names):
        for neighbour in names:
            base = PairMeasurement(
                victim=victim, neighbour=neighbour, device_type=device, mode=mode, slowdown=0.7 + k / 9 + rng.random()
            )
            kind = rng.choice(kinds)
            if kind == "ok":
                pairs.append(base)
            elif kind != "missing":
                pairs.append(replace(base, status=PairStatus(kind), slowdown=NAN, reason="the clock drifted 4 %"))
    return Table(name="made", jobs=jobs, pairs=tuple(pairs))


def joined(*tables: Table) -> Table:
    return Table(name="joined", jobs=sum((t.jobs for t in tables), ()), pairs=sum((t.pairs for t in tables), ()))


SIXTY = table_of(f"job-{k} (batch size {2**k % 4096})" for k in range(60))
SMALL = table_of(["a", "b", "c", "d", "e"])
EMPTY = Table(name="empty", jobs=(), pairs=())
ONE = Table(name="one", jobs=JOBS[:1], pairs=PAIRS[2:3])
NONE_OK = Table(name="none", jobs=JOBS, pairs=(PAIRS[3],))
MANY = joined(SMALL, table_of(["a", "b"], device="other"), replace(SMALL, jobs=(), pairs=tuple(
    replace(p, mode="timeslice") for p in SMALL.pairs)))  # fmt: skip
TABLES = {"sample": TABLE, "small": SMALL, "sixty": SIXTY, "empty": EMPTY, "one": ONE, "none ok": NONE_OK, "many": MANY,
          "profiles": Table(name="p", jobs=JOBS, pairs=())}  # fmt: skip


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
    for grid, domain in zip(parsed(table).all("table", "heat"), domains(table), strict=True):
        columns = [h.attributes["title"] for h in grid.all("th") if h.attributes["scope"] == "col"]
        found = {}
        for row in grid.all("tr")[1:]:
            victim = row.all("th")[0].attributes["title"]
            found |= {(victim, n): cell for n, cell in zip(columns, row.all("td", "cell"), strict=True)}
        for pair in domain.table.ok_pairs:
            cell = found[pair.victim, pair.neighbour]
            assert cell.text == ratio(pair.slowdown)
            assert (cell.attributes["title"] or "").startswith(f"{pair.victim} beside {pair.neighbour}: ")
            assert colour(pair.slowdown) in (cell.attributes["class"] or "").split()


@pytest.mark.parametrize("name", TABLES)
def test_nothing_is_loaded_and_nothing_runs(name: str) -> None:
    text = page(TABLES[name])
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
    text = page(Table(name=HOSTILE, jobs=jobs, pairs=(pair,)), sha256=HOSTILE, notes=notes)
    root = Tree(text).root
    assert not root.all("script")
    assert "<script" not in text
    assert root.all("h1")[0].text == HOSTILE  # shown as it is, entities not eaten
    assert root.all("pre")[0].text == notes
    assert root.all("table", "heat")[0].all("th")[0].attributes["title"] == HOSTILE


@settings(max_examples=30, deadline=None)
@given(st.text(min_size=1, max_size=40).filter(lambda t: t.isprintable() and bool(t.strip())))
def test_any_name_survives(name: str) -> None:
    table = Table(
        name=name, jobs=(replace(JOBS[0], workload=name),), pairs=(replace(PAIR, victim=name, neighbour=name),)
    )
    grid = parsed(table).all("table", "heat")[0]
    assert grid.all("th")[0].attributes["title"] == name


def test_markup_comes_from_tag_alone() -> None:
    assert tag("p", "<b>", Html("<i>"), title='"') == '<p title="&quot;">&lt;b&gt;<i></p>'
    assert tag("details", open=True, class_=None, hidden=False) == "<details open></details>"


def test_equal_tables_give_equal_bytes_whatever_the_order_of_rows() -> None:
    shuffled = replace(MANY, jobs=MANY.jobs[::-1], pairs=tuple(random.Random(2).sample(MANY.pairs, len(MANY.pairs))))
    assert page(MANY) == page(MANY)
    assert page(shuffled) == page(MANY)


def test_the_map_is_ordered_so_that_structure_shows() -> None:
    # log slowdown of victim i beside neighbour j = i·.1 + j·.2: the last names suffer and hurt most.
    names = ["a", "b", "c"]
    pairs = tuple(
        replace(PAIR, victim=v, neighbour=n, slowdown=math.exp(i * 0.1 + j * 0.2), lower=NAN, upper=NAN, passes=())
        for i, v in enumerate(names)
        for j, n in enumerate(names)
        if (v, n) != ("c", "c")
    )
    jobs = tuple(replace(JOBS[0], workload=n) for n in names)
    (domain,) = domains(Table(name="t", jobs=jobs, pairs=pairs))
    assert domain.victims == ("c", "b", "a")
    assert domain.neighbours == ("c", "b", "a")
    assert domain.missing == 1


def test_colours_are_centred_on_one_and_reciprocal() -> None:
    assert colour(1.0) == "u0"
    assert colour(0.2) == CLASSES[0]
    assert colour(100.0) == CLASSES[-1]
    assert list(EDGES) == sorted(EDGES)
    assert len(EDGES) == len(CLASSES) - 1
    for k in range(1, 4):
        middle = (1.05, 1.15, 1.3)[k - 1] * 1.01
        assert colour(middle) == f"u{k}"
        assert colour(1 / middle) == f"d{k}"


def luminance(colour_: str) -> float:
    """Relative luminance of WCAG 2.2."""
    parts = [int(colour_[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def themes() -> dict[str, dict[str, str]]:
    css = files("interfere.data.page").joinpath("style.css").read_text()
    blocks = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", b)) for b in re.findall(r":root \{(.*?)\}", css, re.S)]
    return {"light": blocks[0], "dark": blocks[1]}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_its_ground(theme: str) -> None:
    colours = themes()[theme]
    assert set(colours) == set(themes()["light"])
    for class_ in CLASSES:
        assert contrast(colours[class_], colours[f"{class_}-ink"]) >= 4.5, class_  # WCAG AA
    for ink in ("ink", "dim", "good", "bad", "unsure", "suffers", "causes"):
        for ground in ("page", "soft"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_more_slowdown_is_told_without_colour(theme: str) -> None:
    shades = [luminance(themes()[theme][f"u{k}"]) for k in range(9)]
    assert shades == sorted(shades, reverse=theme == "light")


def test_values_are_printed_while_they_fit() -> None:
    def size(jobs: int) -> str:
        grid = parsed(table_of((f"j{k}" for k in range(jobs)), holes=False)).all("table", "heat")[0]
        return (grid.attributes["class"] or "").removeprefix("heat ")

    assert [size(n) for n in (16, 17, 28, 29, 45)] == ["wide", "medium", "medium", "dense", "dense tiny"]


def test_verdicts() -> None:
    def says(table: Table) -> str:
        return parsed(table).all("p", "verdict")[0].words

    noise = [
        replace(PAIR, victim=v, neighbour=n, passes=p) for v, n, p in (("a", "b", (1.0, 3.0)), ("b", "a", (3.0, 1.0)))
    ]
    assert "Worth learning from" in says(TABLE)
    assert "Mostly noise" in says(Table(name="noise", jobs=JOBS, pairs=tuple(noise)))
    assert "Agreement unknown" in says(SMALL)
    assert "Nothing measured" in says(NONE_OK)
    assert "No pairs" in says(EMPTY)


def test_intervals_are_drawn_or_their_absence_is_said() -> None:
    with_ = parsed(TABLE)
    assert len(with_.all("line", "whisker")) == 3
    assert "Every row has one." in with_.words
    bare = replace(TABLE, pairs=tuple(replace(p, lower=NAN, upper=NAN) for p in TABLE.pairs))
    assert not parsed(bare).all("line", "whisker")
    assert "None of the 3 rows has an interval" in parsed(bare).words
    half = replace(TABLE, pairs=(bare.pairs[0], *TABLE.pairs[1:]))
    assert "33.3\u00a0% of 3 rows have none" in parsed(half).words


def test_outliers_are_counted_in_noise_units() -> None:
    # Additive but for one row of sixteen, 30 % too slow; two values a row, 1 % apart.
    names = "abcd"
    pairs = []
    for i, v in enumerate(names):
        for j, n in enumerate(names):
            s = math.exp(0.1 * i + 0.2 * j) * (1.3 if (v, n) == ("b", "c") else 1.0)
            pairs.append(
                replace(PAIR, victim=v, neighbour=n, slowdown=s, passes=(s / 1.01, s * 1.01), lower=NAN, upper=NAN)
            )
    jobs = tuple(replace(JOBS[0], workload=n) for n in names)
    (domain,) = domains(Table(name="t", jobs=jobs, pairs=tuple(pairs)))
    worst = domain.outliers[0]
    assert (worst.pair.victim, worst.pair.neighbour) == ("b", "c")
    assert domain.noise_from_replicates
    assert domain.noise_sd == pytest.approx(math.log(1.01) * math.sqrt(2))
    # Its residual is 9/16 of the 30 %: a fit with an effect per row and column of a 4 × 4 table takes 7/16.
    assert worst.units == pytest.approx(math.log(1.3) * 9 / 16 / (domain.noise_sd / math.sqrt(2)))
    assert worst.expected == pytest.approx(worst.pair.slowdown / 1.3 ** (9 / 16))


def test_without_repeats_the_rest_of_the_fit_is_the_noise() -> None:
    (domain,) = domains(SMALL)
    assert not domain.noise_from_replicates
    assert domain.noise_sd > 0
    assert "no row was repeated" in parsed(SMALL).words


def test_memory_sums_meet_the_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(devices.KNOWN, "gpu", DeviceType(name="gpu", memory_bytes=16 * GIB, source="test"))
    peaks = {"small": 2.0, "half": 9.0, "big": 15.0}
    jobs = tuple(
        JobProfile(workload=n, device_type="gpu", step_time_s=1.0, memory_peak_bytes=p * GIB) for n, p in peaks.items()
    )
    jobs = (*jobs[:2], replace(jobs[2], memory_peak_bytes=NAN, static_memory_peak_bytes=15 * GIB))
    ok = PairMeasurement(victim="small", neighbour="half", device_type="gpu", mode="mps", slowdown=1.2)
    no = replace(ok, status=PairStatus.INFEASIBLE, slowdown=NAN, reason="out of memory")
    pairs = (
        ok,
        replace(ok, victim="half", neighbour="small"),
        replace(no, victim="half", neighbour="half"),
        replace(ok, victim="small", neighbour="big"),  # 17 GiB, yet it ran
        replace(no, victim="small", neighbour="small"),  # 4 GiB, yet it did not
    )
    table = Table(name="t", jobs=jobs, pairs=pairs)
    known = memory(domains(table)[0])
    assert [s.bytes / GIB for s in known.sums] == [18, 17, 11, 4]
    counts = {(f, r): known.count(fits=f, feasible=r) for f in (True, False) for r in (True, False)}
    assert counts == {(True, True): 1, (True, False): 1, (False, True): 1, (False, False): 1}
    words = parsed(table).words
    assert "A static trace gave 1 peak:" in words
    assert "capacity 16.0\u00a0GiB" in words
    assert "17.0\u00a0GiB" in words
    odd = [t for t in parsed(table).all("table", "plain") if "memory and measurement differ" in t.words]
    assert len(odd[0].all("tr")) == 3


def test_reasons_are_counted_without_their_numbers() -> None:
    pairs = [replace(PAIR, victim=v, neighbour=n) for v in "ab" for n in "ab"]
    pairs[0] = replace(pairs[0], status=PairStatus.UNSTABLE, slowdown=NAN, lower=NAN, upper=NAN, reason="drift 3 %")
    pairs[1] = replace(pairs[1], status=PairStatus.UNSTABLE, slowdown=NAN, lower=NAN, upper=NAN, reason="drift 7 %")
    pairs[2] = replace(pairs[2], reason="right-censored at 1")
    root = parsed(Table(name="t", jobs=JOBS, pairs=tuple(pairs)))
    (grid,) = [t for t in root.all("table", "plain") if "Rows by status" in t.words]
    rows = [[cell.text for cell in row.inside] for row in grid.all("tr")[1:]]
    assert rows == [["ok", "1", "–"], ["ok", "1", "right-censored at 1"], ["unstable", "2", "drift 3 %"]]
    assert "1 row: the true slowdown lies beyond the one given" in root.words


def test_facts_that_no_job_has_take_no_column() -> None:
    def heads(table: Table) -> list[str]:
        (grid,) = [t for t in parsed(table).all("table", "plain") if "Profiles of jobs alone" in t.words]
        return [h.text for h in grid.all("th") if h.attributes["scope"] == "col"]

    assert "power, W" not in heads(TABLE)
    watts = replace(TABLE, jobs=(replace(JOBS[0], power_w=250.0, family="net"), JOBS[1]))
    assert {"power, W", "family"} <= set(heads(watts))


def test_the_shipped_table_names_its_origin() -> None:
    folder = shipped_table("cpu")
    table = read_table(folder)
    text = page(table, sha256=table_digest(folder), notes=(folder / "card.md").read_text())
    for part in (table_digest(folder), "One CPU core, time-sliced.", "AMD EPYC", "2026-11-21", "Measure again:"):
        assert part in text


def test_numbers_as_people_read_them() -> None:
    assert [ratio(v) for v in (0.5, 1.584, 12.34, 100.0, NAN)] == ["0.50", "1.58", "12.3", "100", "–"]
    times = [seconds(v).replace("\u00a0", " ") for v in (2.0, 0.00803, 3.5e-4, 0.1234, 2e-9, NAN)]
    assert times == ["2.00 s", "8.03 ms", "350 µs", "123 ms", "2.00 ns", "–"]
    assert [gib(v).replace("\u00a0", " ") for v in (1.5 * GIB, 5e6, 2048.0)] == ["1.5 GiB", "5 MiB", "2 KiB"]
    long = "Recommendation-with-a-tower (batch size 8192)"
    assert len(short(long)) == MAX_NAME
    assert short(long).endswith("(batch size 8192)")
    assert short("ResNet-18 (batch size 16)") == "ResNet-18 (batch size 16)"


@given(st.floats(0.2, 0.99), st.floats(1.01, 100.0), st.floats(60.0, 400.0))
def test_labels_of_an_axis_do_not_touch(low: float, high: float, span: float) -> None:
    found = ticks(low, high, span)
    assert 1.0 in found
    places = [math.log(t / low) / math.log(high / low) * span for t in found]
    assert all(b - a >= 16.9 for a, b in pairwise(places))


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_page(tmp_path / "new" / "card.html", TABLE)
    assert path.read_text(encoding="utf-8") == page(TABLE)
    with pytest.raises(UnfitError, match="cannot write here"):
        write_page(tmp_path, TABLE)
    assert [p.name for p in tmp_path.iterdir()] == ["new"]


def test_it_needs_numpy_and_pyarrow_alone(tmp_path: Path) -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "matplotlib", "jinja2", "scipy", "torch", "mlflow", "sklearn"):
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Refuse())
from pathlib import Path
from interfere.data.page import write_page
from interfere.data.shipped import shipped_table
from interfere.data.tables import read_table
write_page(Path(sys.argv[1]), read_table(shipped_table("cpu")))
"""
    out = tmp_path / "card.html"
    done = subprocess.run([sys.executable, "-c", code, out], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert out.read_text(encoding="utf-8") == page(read_table(shipped_table("cpu")))


def test_groups_never_measured_together_stand_together_and_are_named() -> None:
    apart = joined(table_of(["a", "b", "c"], holes=False), table_of(["x", "y"], holes=False))
    (domain,) = domains(apart)
    assert set(domain.victims[:3]) == set(domain.neighbours[:3]) == {"a", "b", "c"}
    assert "fall into 2 groups never measured together" in parsed(apart).words
    assert "never measured together" not in parsed(TABLE).words
