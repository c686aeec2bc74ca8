"""Tables of every shape that a page must show, and their pages as elements."""

import random
from collections.abc import Iterable
from dataclasses import replace

from interfere.data.cards.dataset_card import dataset_card, table_document
from interfere.data.tables import Table
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus
from interfere.reports.html_page import html_page
from interfere.reports.text_forms import markdown
from tests.data.sample_table import JOBS, PAIRS, TABLE, WITH_GROUPS
from tests.reports.html_tree import Element, Tree

GIB = 2.0**30


def table_page(table: Table, *, sha256: str = "", notes: str = "") -> str:
    return html_page(table_document(table, sha256=sha256, notes=notes))


def card_text(table: Table, *, command: str = "", note: str = "") -> str:
    return markdown(dataset_card(table, command=command, note=note))


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
