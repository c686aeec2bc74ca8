"""A parser that reads a page back into elements, and tables of every shape that a page must show."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

from interfere.data.html_page import table_page
from interfere.data.tables import Table
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus
from tests.data.sample_table import JOBS, PAIRS, TABLE, WITH_GROUPS

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
    return Tree(table_page(table)).root


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
MANY = joined(
    SMALL,
    table_of(["a", "b"], device="other"),
    replace(SMALL, jobs=(), pairs=tuple(replace(p, mode="timeslice") for p in SMALL.pairs)),
)
TABLES = {
    "sample": TABLE,
    "small": SMALL,
    "sixty": SIXTY,
    "empty": EMPTY,
    "one": ONE,
    "none ok": NONE_OK,
    "many": MANY,
    "groups": WITH_GROUPS,
    "groups alone": replace(WITH_GROUPS, pairs=()),
    "profiles": Table(name="p", jobs=JOBS, pairs=()),
}
