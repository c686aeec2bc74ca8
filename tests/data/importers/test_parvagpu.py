"""ParvaGPU's throughputs: two copies are a pair, more are a group; and the real files."""

import hashlib
from pathlib import Path

import pytest

from interfere.data.importers.import_result import ImportResult
from interfere.data.importers.import_writer import write_import
from interfere.data.importers.parvagpu import import_parvagpu
from interfere.data.public_tables import find_public_table
from interfere.data.quality import Limitation, intended_uses
from interfere.data.tables import read_table
from interfere.devices import find_device_type
from interfere.errors import TableError
from interfere.records import PairStatus
from tests.data.importers.public_files import public

HEAD = "Mig instance,Batch size,Workload Number,Throughput,Latency\n"


def read(folder: Path, *rows: str) -> ImportResult:
    (folder / "bert.csv").write_text(HEAD + "\n".join(rows))  # as published: no line end after the last row
    return import_parvagpu(folder)


def counts(imported: ImportResult) -> dict[str, int]:
    return {notice.subject: notice.count for notice in imported.notices}


def test_two_copies_are_a_self_pair_on_a_slice(tmp_path: Path) -> None:
    got = read(tmp_path, "3,8,1,160,0.05", "3,8,2,100,0.08")
    (job,), (pair,) = got.jobs, got.pairs
    assert (job.workload, job.family, job.device_type) == ("bert inference bs8", "bert", "a100-80gb-3g.40gb")
    assert job.step_time_s == 8 / 160
    assert (pair.victim, pair.neighbour, pair.mode, pair.slowdown) == (job.workload, job.workload, "mps", 1.6)
    assert find_device_type(pair.device_type).multiprocessors == 42


def test_every_row_becomes_a_record_or_is_counted(tmp_path: Path) -> None:
    alone, two = ("1,4,1,80,0.05", "1,4,2,0,0"), ("2,4,1,90,0.04", "2,4,2,95,0.04", "2,4,3,95,0.04", "2,4,4,0,0")
    got = read(tmp_path, *alone, *two, "4,4,1,0,0", "4,4,2,0,0")
    assert {pair.device_type: pair.status for pair in got.pairs} == {
        "a100-80gb-1g.10gb": PairStatus.INFEASIBLE,
        "a100-80gb-2g.20gb": PairStatus.OK,
    }
    assert counts(got) == {
        "infeasible self pairs": 1,
        "infeasible groups of three to five copies": 1,
        "self pairs and groups with a slowdown below 1": 2,
        "configurations in which one more copy has exactly the same throughput": 1,
        "rows of configurations without a throughput alone": 2,
    }
    job = "bert inference bs4"
    assert [(group.members, group.status) for group in got.groups] == [
        ((job,) * 3, PairStatus.OK),
        ((job,) * 4, PairStatus.INFEASIBLE),
    ]
    assert got.groups[0].slowdown == 90 / 95


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("5,8,1,160,0.05", "row 2, column Mig instance: no size of a MIG instance"),
        ("3,8,1,fast,0.05", "row 2, column Throughput: a number expected"),
        ("3,8,1,160,0.05\n3,8,1,160,0.05", "row 3, column Workload Number: the same configuration as row 2"),
        ("3,8,1,160,0.05\n3,8,2,1,0.05", "row 3, column Throughput: a slowdown of 160"),
        ("3,8,1,160,0.05\n3,8,4,1,0.05", "row 3, column Throughput: a slowdown of 160"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: str, place: str) -> None:
    with pytest.raises(TableError) as error:
        read(tmp_path, row)
    assert f"bert.csv, {place}" in error.value.what


def test_the_published_files_import_whole(tmp_path: Path) -> None:
    folder = public("parvagpu")
    got = import_parvagpu(folder)
    assert all(find_public_table(file.sha256) for file in got.files)
    assert len(got.files) == 11
    assert (len(got.jobs), len(got.pairs)) == (420, 420)
    dropped = counts(got)["rows of configurations without a throughput alone"]
    assert len(got.jobs) + len(got.pairs) + len(got.groups) + dropped == 2475
    assert sum(group.status is PairStatus.OK for group in got.groups) == 957
    write_import(tmp_path / "table", got)
    table = read_table(tmp_path / "table")
    assert [(g.victim, g.company) for g in table.groups] == [(g.victim, g.company) for g in got.groups]
    assert all(use.limitations == (Limitation.SELF_PAIRS_ONLY,) for use in intended_uses(table))
    card = (tmp_path / "table" / "card.md").read_text()
    assert "groups of 3" in card
    assert "says nothing about two different jobs" in card


def test_the_digests_of_the_sources_are_those_of_the_files() -> None:
    for path in public("parvagpu").glob("*.csv"):
        table = find_public_table(hashlib.sha256(path.read_bytes()).hexdigest())
        assert table is not None
        assert (table.file, table.collection) == (path.name, "parvagpu")
