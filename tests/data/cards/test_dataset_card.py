"""The dataset card holds all figures of its table, and claims nothing more."""

from dataclasses import replace
from pathlib import Path

from interfere.data.cards.domain_summary import domain_summaries
from interfere.data.cards.hub import write_card
from interfere.data.tables import Table
from interfere.reports.text_forms import without_front_matter
from tests.data.cards.page_tables import card_text
from tests.data.sample_table import JOBS, TABLE


def test_the_card_describes_the_device_and_names_its_figures() -> None:
    text = card_text(TABLE, command="interfere profile campaign --jobs a,b", note="9 blocks measured")
    for part in (
        "One CPU core, time-sliced",
        "a processor",
        "2 jobs, 4 ordered pairs",
        "ok 3, unstable 1, infeasible 0",
        "CC BY 4.0",
        "- remark: 9 blocks measured",
        "interfere profile campaign --jobs a,b",
        "| 1.50 | 1.90 | 2.00 |",
        "ICC(1,1)",
        "| workload | step alone | sd between windows (%) | busy (%) |",
        "| a | 10.0 ms | 10.0 | 50 |",
    ):
        assert part in text
    assert "2023-11-14" in text


def test_absent_figures_are_dashes() -> None:
    text = card_text(Table(name="none", jobs=(replace(JOBS[0], busy_frac=float("nan")),), pairs=()))
    assert "nan" not in text
    assert "–" in text


def test_the_card_of_another_device_does_not_mention_a_core() -> None:
    moved = Table(name="t", jobs=tuple(replace(job, device_type="h200") for job in JOBS), pairs=())
    assert "CPU core" not in card_text(moved)


def test_the_card_is_written_beside_its_table(tmp_path: Path) -> None:
    path = write_card(tmp_path / "new", TABLE)
    assert without_front_matter(path.read_text()) == card_text(TABLE)


def test_the_card_of_an_imported_table_claims_neither_protocol_nor_licence() -> None:
    pairs = tuple(replace(pair, source="gavel") for pair in TABLE.pairs)
    jobs = tuple(replace(job, source="gavel+static") for job in TABLE.jobs)
    text = card_text(replace(TABLE, pairs=pairs, jobs=jobs))
    assert "As its publisher measured it" in text
    assert "Licence: that of its publisher." in text
    assert "CC BY" not in text
    assert "raw.parquet" not in text
    assert "CC BY 4.0" in card_text(TABLE)


def test_terminal_and_page_give_the_same_figures_of_each_device_type() -> None:
    """Over several device types an additive fit of all rows explains none of what differs between them."""
    slower = tuple(
        replace(pair, device_type="t4", slowdown=2 * pair.slowdown, lower=float("nan"), upper=float("nan"))
        for pair in TABLE.ok_pairs
    )
    jobs = (*JOBS, *(replace(job, device_type="t4") for job in JOBS))
    both = Table(name="both", jobs=jobs, pairs=(*TABLE.pairs, *slower))
    card = card_text(both)
    for title, domain in zip(("cpu-core, timeslice", "t4, timeslice"), domain_summaries(both), strict=True):
        row = next(line for line in card.splitlines() if line.startswith(f"| {title} |"))  # of the first table
        assert row.split(" | ")[3] == f"{domain.quality.additive_r2:.3f}"
