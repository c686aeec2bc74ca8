"""Gavel's throughputs, both published shapes: laws on small files in the format, and the real one."""

import json
from pathlib import Path
from typing import Any

import pytest

from interfere.data.importers.gavel import CENSORED_REASON, import_gavel
from interfere.data.importers.import_result import ImportResult
from interfere.errors import TableError
from interfere.records import PairMeasurement, PairStatus
from tests.data.importers.public_files import public

PLAIN = {
    "k80": {
        "LM (batch size 5)": {"null": 10.0, "LM (batch size 5)": [5.0, 4.0], "A3C": [8.0, 2.0]},
        "A3C": {"null": 4.0, "A3C": [0.0, 0.0], "LM (batch size 5)": [2.0, 8.0]},
    }
}


def scaled(job: str, gpus: int) -> str:
    return f"('{job}', {gpus})"


SCALED = {
    "v100": {
        scaled("A3C", 1): {"null": 4.0, scaled("A3C", 1): [2.0, 2.0], scaled("LM (batch size 5)", 1): [4.0, 5.0]},
        scaled("LM (batch size 5)", 1): {"null": 10.0, scaled("A3C", 1): [5.0, 4.0]},
        scaled("LM (batch size 5)", 2): {"null": 18.0, scaled("LM (batch size 5)", 2): [0.0, 0.0]},
        scaled("LM (batch size 5)", 4): {"null": 30.0, scaled("LM (batch size 5)", 4): [20.0, 20.0]},
    },
    "v100_unconsolidated": {scaled("A3C", 1): {"null": 4.0, scaled("A3C", 1): [2.0, 2.0]}},
}


def read(folder: Path, document: Any) -> ImportResult:
    path = folder / "throughputs.json"
    path.write_text(json.dumps(document) if not isinstance(document, str) else document)
    return import_gavel(path)


def row(imported: ImportResult, victim: str, neighbour: str, device: str = "k80") -> PairMeasurement:
    (found,) = (p for p in imported.pairs if (p.victim, p.neighbour, p.device_type) == (victim, neighbour, device))
    return found


def counts(imported: ImportResult) -> dict[str, int]:
    return {notice.subject: notice.count for notice in imported.notices}


def test_slowdown_is_alone_over_shared_on_both_sides_of_one_measurement(tmp_path: Path) -> None:
    got = read(tmp_path, PLAIN)
    assert len(got.pairs) == 4
    assert row(got, "LM (batch size 5)", "A3C").slowdown == 10 / 8
    assert row(got, "A3C", "LM (batch size 5)").slowdown == 4 / 2
    assert {(j.workload, j.step_time_s, j.family) for j in got.jobs} == {
        ("LM (batch size 5)", 0.1, "LM"),
        ("A3C", 0.25, "A3C"),
    }
    assert {p.mode for p in got.pairs} == {"mps"}


def test_one_order_in_the_file_gives_both_rows(tmp_path: Path) -> None:
    document = json.loads(json.dumps(PLAIN))
    del document["k80"]["A3C"]["LM (batch size 5)"]
    pairs = {(p.victim, p.neighbour): p.slowdown for p in read(tmp_path, document).pairs}
    assert pairs["A3C", "LM (batch size 5)"] == 2.0
    assert len(pairs) == 4


def test_a_self_pair_is_one_row_with_both_sides_in_its_passes(tmp_path: Path) -> None:
    own = row(read(tmp_path, PLAIN), "LM (batch size 5)", "LM (batch size 5)")
    assert own.passes == (2.0, 2.5)
    assert own.slowdown == pytest.approx(5**0.5)


def test_zeros_are_infeasible_with_their_reason(tmp_path: Path) -> None:
    own = row(read(tmp_path, PLAIN), "A3C", "A3C")
    assert own.status is PairStatus.INFEASIBLE
    assert "zero throughput" in own.reason
    assert own.passes == ()


def test_a_slowdown_of_exactly_one_is_kept_and_flagged(tmp_path: Path) -> None:
    got = read(tmp_path, SCALED)
    assert row(got, "A3C", "LM (batch size 5)", "v100").reason == CENSORED_REASON
    assert row(got, "LM (batch size 5)", "A3C", "v100").reason == ""
    assert counts(got)["rows with a slowdown of exactly 1, marked in `reason`"] == 1


def test_the_second_format_drops_copies_and_tells_placeholders_from_infeasible_pairs(tmp_path: Path) -> None:
    got = read(tmp_path, SCALED)
    assert {(j.workload, j.device_type) for j in got.jobs} == {("A3C", "v100"), ("LM (batch size 5)", "v100")}
    assert len(got.pairs) == 3
    assert all(pair.feasible for pair in got.pairs)
    found = counts(got)
    assert found["entries of `_unconsolidated` device types"] == 2
    assert found["pairs of zeros of jobs on several devices"] == 1
    assert found["measured pairs of jobs on several devices"] == 1
    assert found["throughputs alone on several devices"] == 2


def test_both_formats_give_equal_tables(tmp_path: Path) -> None:
    def one(key: str) -> str:
        return key if key == "null" else scaled(key, 1)

    other = {d: {one(j): {one(k): v for k, v in r.items()} for j, r in jobs.items()} for d, jobs in PLAIN.items()}
    first, second = read(tmp_path, PLAIN), read(tmp_path, other)
    assert first.jobs == second.jobs
    assert [(p.victim, p.neighbour, p.slowdown, p.passes) for p in first.pairs if p.feasible] == [
        (p.victim, p.neighbour, p.slowdown, p.passes) for p in second.pairs if p.feasible
    ]


def test_rows_of_a_job_without_a_solo_throughput_are_dropped(tmp_path: Path) -> None:
    document = json.loads(json.dumps(PLAIN))
    document["k80"]["A3C"]["null"] = 0.0
    got = read(tmp_path, document)
    assert [j.workload for j in got.jobs] == ["LM (batch size 5)"]
    assert [(p.victim, p.neighbour) for p in got.pairs] == [("LM (batch size 5)", "LM (batch size 5)")]
    assert counts(got)["rows beside or of such a job"] == 3


def test_throughputs_copied_between_device_types_are_named(tmp_path: Path) -> None:
    document = {"p100": {"A3C": {"null": 4.0}}, "k80": {"A3C": {"null": 4.0}}}
    (notice,) = read(tmp_path, document).notices
    assert "A3C on p100 and k80" in notice.reason


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        (lambda d: d["k80"]["A3C"].update(null="4,0"), "k80 / A3C / null"),
        (lambda d: d["k80"]["A3C"].pop("null"), "k80 / A3C / null"),
        (lambda d: d["k80"]["A3C"].update(null=-4.0), "k80 / A3C / null"),
        (lambda d: d["k80"]["A3C"].update(null=True), "k80 / A3C / null"),
        (lambda d: d["k80"]["A3C"].update(A3C=[1.0]), "k80 / A3C / A3C"),
        (lambda d: d["k80"]["A3C"].update(A3C=[1.0, None]), "k80 / A3C / A3C / 1"),
        (lambda d: d["k80"]["A3C"].update(A3C=[0.0, 1.0]), "k80 / A3C / A3C"),
        (lambda d: d["k80"]["A3C"].update(A3C=[400.0, 400.0]), "k80 / A3C / A3C"),
        (lambda d: d["k80"]["A3C"].update({"LM (batch size 5)": [2.0, 7.0]}), "k80 / LM (batch size 5) / A3C"),
        (lambda d: d["k80"]["A3C"].update({"LM": [2.0, 7.0]}), "k80 / A3C / LM"),
        (lambda d: d["k80"].update({"(A3C 1)": {"null": 1.0}}), "k80 / (A3C 1)"),
        (lambda d: d.update(k80=[]), "key k80"),
        (lambda d: d.clear(), "no device"),
    ],
)
def test_an_edited_file_is_one_error_that_names_the_key(tmp_path: Path, edit: Any, place: str) -> None:
    document = json.loads(json.dumps(PLAIN))
    edit(document)
    with pytest.raises(TableError, match=r"throughputs\.json") as caught:
        read(tmp_path, document)
    assert place in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e309", "1" + "0" * 400, "1" * 5000])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, number: str) -> None:
    with pytest.raises(TableError, match=r"throughputs\.json"):
        read(tmp_path, '{"k80": {"A3C": {"null": ' + number + "}}}")


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="k80 / A3C: duplicate key"):
        read(tmp_path, '{"k80": {"A3C": {"null": 4.0}, "A3C": {"null": 5.0}}}')


def test_the_published_file(tmp_path: Path) -> None:
    got = import_gavel(public("gavel/oracle_throughputs.json"))
    assert len(got.pairs) == 2028
    assert sum(p.feasible for p in got.pairs) == 1858
    assert sum(p.status is PairStatus.INFEASIBLE for p in got.pairs) == 170
    assert len(got.jobs) == 78
    assert len({j.family for j in got.jobs}) == 7
    assert sum(p.reason == CENSORED_REASON for p in got.pairs if p.device_type == "p100") == 125
    assert len({(p.device_type, p.victim, p.neighbour) for p in got.pairs}) == 2028
