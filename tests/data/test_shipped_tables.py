"""The shipped tables are intact, and damage to them is detected."""

import math
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interfere.data.loading import (
    check_manifest,
    datasets_folder,
    shipped_table,
    shipped_tables,
    write_manifest,
)
from interfere.data.quality import (
    BESIDE_GANGS,
    MIN_ICC,
    gang_excesses,
    group_quality,
    repeatabilities,
    table_quality,
)
from interfere.data.tables import read_table
from interfere.errors import NotFoundError, TableError, UnfitError
from interfere.profiling.workloads import BUILT_IN, campaign_pairs
from interfere.sim.truth import GANG_EXCESS

CLOSED = [name for name, workload in BUILT_IN.items() if not (workload.gang_of or workload.requests_per_s > 0)]
LATENCIES = ("latency_p50", "latency_p99")  # of services, in the shipped tables


@pytest.mark.parametrize("name", ["cpu", "cpu-groups"])
def test_the_shipped_tables_are_intact_and_good_enough_for_training(name: str) -> None:
    assert check_manifest() >= 10
    table = read_table(shipped_table(name))
    assert {job.workload for job in table.jobs} == set(CLOSED)
    assert len(table.pairs) == len(CLOSED) ** 2
    figures = table_quality(table)
    assert figures.icc > max(MIN_ICC, 0.8)
    assert figures.additive_r2 < 0.98, "some of it must be interaction"


def test_the_shipped_groups_are_many_agree_with_themselves_and_can_be_computed_again() -> None:
    folder = shipped_table("cpu-groups")
    table = read_table(folder)
    three, four = group_quality(table)
    assert (three.size, four.size) == (3, 4)
    assert three.groups >= 120
    assert four.groups >= 60
    for figures in (three, four):
        assert figures.jobs == len(CLOSED)
        assert figures.icc > 0.9
        assert figures.blocks == (3, 3)
        assert dict(figures.rows_by_status)["unstable"] <= 0.05 * figures.icc_rows
    slowdowns: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    for row in pq.read_table(folder / "raw_groups.parquet").to_pylist():
        if not row["reason"]:
            shared, alone = (row[f"wall_{name}_s"] / row[f"steps_{name}"] for name in ("shared", "alone"))
            slowdowns.setdefault((row["victim"], tuple(row["company"])), []).append(shared / alone)
    for group in table.ok_groups:
        assert sorted(slowdowns[group.victim, group.company]) == pytest.approx(sorted(group.passes))
        assert math.log(group.slowdown) == pytest.approx(sum(map(math.log, group.passes)) / len(group.passes))


def test_the_table_of_one_core_holds_services_and_gangs_and_was_measured_twice() -> None:
    table = read_table(shipped_table("core"))
    assert {job.workload for job in table.jobs} == set(BUILT_IN)
    steps = [row for row in table.ok_pairs if row.metric == "step_time_mean"]
    campaigns = sorted({row.campaign for row in steps})
    assert len(campaigns) == 2
    for campaign in campaigns:
        measured = {tuple(sorted((row.victim, row.neighbour))) for row in steps if row.campaign == campaign}
        assert len(measured) >= 0.99 * len(campaign_pairs(tuple(BUILT_IN)))
    agreement = {each.metric: each for each in repeatabilities(table)}
    assert set(agreement) == {"step_time_mean", *LATENCIES}
    assert agreement["step_time_mean"].median < 0.05
    services = [name for name, workload in BUILT_IN.items() if workload.requests_per_s > 0]
    for metric in LATENCIES:
        assert {row.victim for row in table.ok_pairs if row.metric == metric} == set(services)


def test_what_replays_assume_of_gangs_is_what_the_table_of_one_core_tells() -> None:
    excess = {each.beside: each for each in gang_excesses(read_table(shipped_table("core")))}
    assert pytest.approx(excess[BESIDE_GANGS].median, abs=0.01) == GANG_EXCESS


def test_pairs_and_groups_of_a_shipped_table_are_of_one_machine() -> None:
    for name in shipped_tables():
        table = read_table(shipped_table(name))
        assert len({row.device_name for row in (*table.pairs, *table.groups)}) == 1, name


def test_the_shipped_files_stay_small() -> None:
    assert sum(path.stat().st_size for path in datasets_folder().glob("*/*")) < 1_000_000


def test_an_unknown_table_names_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match=", ".join(shipped_tables())):
        shipped_table("h9000")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda cpu: (cpu / "card.md").write_text("other words"), "was changed"),
        (lambda cpu: (cpu / "jobs.parquet").unlink(), "is missing"),
        (lambda cpu: (cpu / "surprise.txt").write_text("hello"), "is not listed"),
        (lambda cpu: (cpu.parent / "manifest.json").write_text("{"), "cannot be read"),
        (lambda cpu: (cpu.parent / "manifest.json").write_text("[]"), "cannot be read"),
        (lambda cpu: (cpu.parent / "manifest.json").unlink(), "cannot be read"),
    ],
)
def test_damaged_files_are_detected(tmp_path: Path, damage: object, said: str) -> None:
    copy = tmp_path / "datasets"
    shutil.copytree(datasets_folder(), copy)
    assert check_manifest(copy) == check_manifest()
    damage(copy / "cpu")  # type: ignore[operator]
    with pytest.raises(TableError, match=said):
        check_manifest(copy)
    write_manifest(copy)
    assert check_manifest(copy) >= 3


def test_a_manifest_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnfitError, match="cannot write here"):
        write_manifest(tmp_path / "file")
