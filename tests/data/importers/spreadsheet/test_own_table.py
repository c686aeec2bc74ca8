"""A spreadsheet in each accepted shape and form imports to equal tables; a wrong one names row, column and remedy."""

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.data.importers.import_writer import write_import
from interfere.data.importers.spreadsheet.own_table import import_spreadsheet, read_spreadsheet
from interfere.data.importers.spreadsheet.sheet import Decimal, SpreadsheetOptions, Victims, parse_map
from interfere.data.tables import Table, check_table, read_extras, read_table
from interfere.errors import InvalidInputError, TableError
from interfere.records import PairMeasurement, PairStatus

JOBS = ("bert", "resnet", "gpt")
SOLO_MS = {"bert": 12.5, "resnet": 80.0, "gpt": 31.25}
SHARED_MS = {  # step time of the first beside the second; a power of two apart, so that every form is exact
    ("bert", "bert"): 25.0,
    ("bert", "resnet"): 18.75,
    ("bert", "gpt"): 15.625,
    ("resnet", "bert"): 160.0,
    ("resnet", "resnet"): 120.0,
    ("resnet", "gpt"): 100.0,
    ("gpt", "bert"): 62.5,
    ("gpt", "resnet"): 46.875,
    ("gpt", "gpt"): 39.0625,
}
SLOWDOWN = {pair: value / SOLO_MS[pair[0]] for pair, value in SHARED_MS.items()}
OPTIONS = SpreadsheetOptions(device_type="a100-80gb", mode="mps", campaign="spring")
Rows = Sequence[Sequence[object]]


def write(path: Path, rows: Rows, delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def matrix(values: dict[tuple[str, str], float], corner: str, *, alone: bool = False) -> Rows:
    """Victims as rows, neighbours as columns."""
    head = [corner, *JOBS, *(["alone"] if alone else [])]
    return [head, *([v, *(values[v, n] for n in JOBS), *([SOLO_MS[v]] if alone else [])] for v in JOBS)]


def both_directions(values: dict[tuple[str, str], float]) -> Rows:
    """One row an unordered pair; of a pair of one job with itself the second value stays empty."""
    pairs = [(a, b) for k, a in enumerate(JOBS) for b in JOBS[k:]]
    return [[a, b, values[a, b], values[b, a] if a != b else ""] for a, b in pairs]


RATE = {pair: 1000.0 / value for pair, value in SHARED_MS.items()}
PROFILES: Rows = [["workload", "step_time_ms"], *([job, SOLO_MS[job]] for job in JOBS)]
SHEETS: dict[str, tuple[Rows, dict[str, object]]] = {
    "long slowdowns": ([["victim", "neighbour", "slowdown"], *([*p, v] for p, v in SLOWDOWN.items())], {}),
    "long speeds": ([["Job", "Partner", "Speed"], *([*p, 1 / v] for p, v in SLOWDOWN.items())], {}),
    "both directions": (
        [["victim", "neighbor", "slowdown", "neighbor slowdown"], *both_directions(SLOWDOWN)],
        {},
    ),
    "times with the time alone": (
        [
            ["victim", "neighbour", "step_time_ms", "solo_step_time_s"],
            *([*p, v, SOLO_MS[p[0]] / 1000] for p, v in SHARED_MS.items()),
        ],
        {},
    ),
    "throughputs with rows alone": (
        [
            ["victim", "neighbour", "throughput"],
            *([job, "", 1000.0 / SOLO_MS[job]] for job in JOBS),
            *([*p, v] for p, v in RATE.items()),
        ],
        {},
    ),
    "throughputs, names of their own": (
        [["a", "b", "it/s"], *([*p, v] for p, v in RATE.items())],
        {"mapping": parse_map(["victim=a", "neighbour=b", "throughput=it/s"])},
    ),
    "matrix of slowdowns": (matrix(SLOWDOWN, "slowdown"), {}),
    "matrix of speeds": (matrix({p: 1 / v for p, v in SLOWDOWN.items()}, ""), {"value": "speed"}),
    "matrix, victims as columns": (
        [["", *JOBS], *([n, *(SLOWDOWN[v, n] for v in JOBS)] for n in JOBS)],
        {"value": "slowdown", "victims": Victims.COLUMNS},
    ),
    "matrix of times": (matrix(SHARED_MS, "step_time_ms", alone=True), {}),
}


def comparable(pairs: Sequence[PairMeasurement]) -> dict[tuple[str, str], PairMeasurement]:
    """By victim and neighbour, rounded: 1 / (1 / x) may be off by one unit in the last place."""
    return {
        (pair.victim, pair.neighbour): replace(
            pair, slowdown=round(pair.slowdown, 12), passes=tuple(round(each, 12) for each in pair.passes)
        )
        for pair in pairs
    }


@pytest.mark.parametrize("form", ["csv", "semicolons", "parquet", "frame"])
@pytest.mark.parametrize("name", SHEETS)
def test_every_shape_and_form_imports_to_equal_tables(tmp_path: Path, name: str, form: str) -> None:
    rows, options = SHEETS[name]
    frame = pd.DataFrame(rows[1:], columns=list(map(str, rows[0])))
    source: Path | pd.DataFrame = frame
    if form == "parquet":
        source = tmp_path / "pairs.parquet"
        frame.replace("", None).to_parquet(source)
    elif form != "frame":
        source = write(tmp_path / "pairs.csv", rows, ";" if form == "semicolons" else ",")
    profiles = write(tmp_path / "jobs.csv", PROFILES)
    got = read_spreadsheet(source, profiles, replace(OPTIONS, **options)).imported
    expected = read_spreadsheet(write(tmp_path / "plain.csv", SHEETS["long slowdowns"][0]), profiles, OPTIONS).imported
    assert comparable(got.pairs) == comparable(expected.pairs)
    assert len(got.pairs) == 9
    assert all(pair.slowdown == pytest.approx(SLOWDOWN[pair.victim, pair.neighbour]) for pair in got.pairs)
    assert {(job.workload, round(job.step_time_s, 12), job.device_type) for job in got.jobs} == {
        (job, SOLO_MS[job] / 1000, "a100-80gb") for job in JOBS
    }
    write_import(tmp_path / "table", got)
    assert len(read_table(tmp_path / "table").pairs) == 9


HEAD = "victim,neighbour,slowdown\n"


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        (HEAD + "a,b,\n", "no row has a value", "dry-run"),
        (HEAD + "a,b,1.5\na,c,35%\n", "row 3, column slowdown: a number expected", "slowdown of 1.35"),
        (HEAD + 'a,b,"1,5"\n', "row 2, column slowdown: a number expected", "decimal point"),
        (HEAD + "a,b,0\n", "row 2, column slowdown: must be above 0", "oom"),
        (HEAD + "a,b,150\n", "row 2, column slowdown: a slowdown of 150", "unit"),
        (HEAD + ",b,1.5\n", "row 2, column victim: the name of a job", "256"),
        (HEAD + "a,,1.5\n", "row 2, column neighbour: the name of a job", "256"),
        (HEAD + "a,b\n", "row 2, column slowdown: missing", ""),
        (HEAD + "a,b,1.5,9\n", "row 2: more fields than the 3 columns", "decimal point"),
        ("victim,neighbour\na,b\n", "row 1: no column holds the measured value", "--column slowdown=COLUMN"),
        ("x,slowdown\na,1\n", "row 1, column victim: missing", "--column victim=COLUMN"),
        ("victim,neighbour,slowdown,speed\na,b,2,.5\n", "row 1, columns slowdown and speed", "--column extra=speed"),
        ("victim,neighbour,step time\na,b,5\n", "row 1, column step time: a time without a unit", "step_time_ms"),
        ("victim,job,slowdown\na,b,2\n", "columns victim and job: both mean victim", "--column extra=job"),
        (HEAD[:-1] + ",mode\na,b,2,shared\n", "row 2, column mode: no known mode", "timeslice"),
        (HEAD[:-1] + ",status\na,b,2,fine\n", "row 2, column status: no known status", "infeasible"),
        (HEAD[:-1] + ",lower,upper\na,b,2,2.5,3\n", "row 2, column lower: the interval does not hold", "extra"),
        (HEAD + "a,b,oom\na,b,1.5\n", "row 3, column slowdown: status ok contradicts row 2", "one status"),
        ("slowdown,a,b\na,1,2\na,2,1\n", "row 3, column slowdown: the same job as in row 2", "long shape"),
        ("slowdown,a,a\na,1,2\n", "row 1, column a: named twice", "drop one"),
        ("slowdown,a,\na,1,2\n", "row 2: more fields", ""),
        ("", "the file is empty", ""),
    ],
)
def test_a_wrong_sheet_names_row_column_and_remedy(tmp_path: Path, text: str, place: str, remedy: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with pytest.raises(TableError) as error:
        read_spreadsheet(path, None, OPTIONS)
    assert place in error.value.what
    assert "pairs.csv" in error.value.what
    assert remedy in error.value.remedy


def test_what_is_not_known_of_the_sheet_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(HEAD + "a,b,1.5\n")
    with pytest.raises(TableError, match="no device_type is known"):
        read_spreadsheet(path, None, SpreadsheetOptions())
    for options, problem in (
        ({"mapping": {"cost": "slowdown"}}, "column cost: missing"),
        ({"mapping": {"victim": "job_time"}}, "no such role"),
        ({"mode": "shared"}, "unknown sharing mode"),
    ):
        with pytest.raises((TableError, InvalidInputError), match=problem):
            read_spreadsheet(path, None, replace(OPTIONS, **options))
    path.write_text(",a,b\na,1,2\n")
    with pytest.raises(InvalidInputError, match="what the cells of the matrix mean"):
        read_spreadsheet(path, None, OPTIONS)
    (tmp_path / "pairs.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(TableError, match="workbook"):
        read_spreadsheet(tmp_path / "pairs.xlsx", None, OPTIONS)


def test_dropped_rows_are_counted_with_their_numbers(tmp_path: Path) -> None:
    rows = [
        ["victim", "neighbour", "throughput", "solo_throughput"],
        ["a", "b", 5, 10],
        ["a", "c", "", 10],
        ["", "", "", ""],
        ["b", "a", 5, ""],
        ["c", "a", "n/a", 10],
        ["c", "b", "OOM", ""],
    ]
    got = read_spreadsheet(write(tmp_path / "pairs.csv", rows), None, OPTIONS).imported
    assert {(p.victim, p.neighbour): p.status for p in got.pairs} == {
        ("a", "b"): PairStatus.OK,
        ("c", "b"): PairStatus.INFEASIBLE,
    }
    by_subject = {notice.subject: notice.rows for notice in got.notices if notice.rows}
    assert by_subject == {
        "values without a number": (3, 6),
        "values without the value alone": (5,),
        "empty rows of pairs.csv": (4,),
    }
    write_import(tmp_path / "table", got)
    assert "rows 3, 6" in (tmp_path / "table" / "card.md").read_text()


def test_repeats_are_kept_and_averaged_and_latencies_stay_apart(tmp_path: Path) -> None:
    rows = [
        ["victim", "neighbour", "slowdown", "metric"],
        ["a", "b", 2, ""],
        ["a", "b", 8, ""],
        ["a", "b", 3, "latency_p99"],
    ]
    got = read_spreadsheet(write(tmp_path / "pairs.csv", rows), None, OPTIONS).imported
    by_metric = {pair.metric: pair for pair in got.pairs}
    assert by_metric["step_time_mean"].slowdown == pytest.approx(4.0)
    assert by_metric["step_time_mean"].passes == (2.0, 8.0)
    assert by_metric["latency_p99"].slowdown == 3.0
    latency = [["victim", "neighbour", "latency_p99_ms", "solo_latency_p99_ms"], ["a", "b", 30, 20]]
    (pair,) = read_spreadsheet(write(tmp_path / "latency.csv", latency), None, OPTIONS).imported.pairs
    assert (pair.metric, pair.slowdown) == ("latency_p99", 1.5)


def test_facts_of_jobs_are_read_in_their_units_and_other_columns_are_kept(tmp_path: Path) -> None:
    pairs = [["victim", "neighbour", "slowdown", "rack"], ["a", "b", 2, "r7"], ["b", "a", 1.5, ""]]
    jobs = [
        ["job", "steps_per_s", "memory_peak_gib", "gpu_util_percent", "power_w", "family", "owner", "dropout"],
        ["a", 20, 2, 97, 250, "BERT", "ann", 0.1],
        ["b", "", "", 50, "", "", "", ""],
    ]
    files = write(tmp_path / "pairs.csv", pairs), write(tmp_path / "jobs.csv", jobs)
    got = read_spreadsheet(*files, OPTIONS)
    a, b = got.imported.jobs
    assert (a.step_time_s, a.memory_peak_bytes, a.family, a.power_w) == (0.05, 2 * 2.0**30, "BERT", 250.0)
    assert a.gpu_util_frac == pytest.approx(0.97)
    assert math.isnan(b.step_time_s)
    write_import(tmp_path / "table", got.imported)
    extras = {(e.workload, e.neighbour, e.name): e.value for e in read_extras(tmp_path / "table")}
    assert extras == {("a", "b", "rack"): "r7", ("a", "", "owner"): "ann", ("a", "", "dropout"): "0.1"}
    roles = {(use.file, use.column): use.role for use in got.columns}
    assert roles["jobs.csv", "memory_peak_gib"] == "memory_peak_gib"
    assert roles["pairs.csv", "rack"] == "extra"
    assert roles["pairs.csv", ""] in ("device_type", "mode")


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("a,5000000,0.5", "row 2, column step_time_ms: step_time_s is above 3600"),
        ("a,5,97", "row 2, column gpu_util_frac: gpu_util_frac is above 1"),
        ("a,fast,0.5", "row 2, column step_time_ms: a number expected"),
        ("a,5,0.5\na,5,0.5", "row 3, column workload: the same job and device type as row 2"),
        (",5,0.5", "row 2, column workload"),
    ],
)
def test_a_wrong_profile_names_row_and_column(tmp_path: Path, row: str, place: str) -> None:
    (tmp_path / "pairs.csv").write_text(HEAD + "a,b,1.5\n")
    (tmp_path / "jobs.csv").write_text(f"workload,step_time_ms,gpu_util_frac\n{row}\n")
    with pytest.raises(TableError) as error:
        read_spreadsheet(tmp_path / "pairs.csv", tmp_path / "jobs.csv", OPTIONS)
    assert place in error.value.what


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(JOBS), st.sampled_from(JOBS)),
        st.floats(0.2, 100.0, allow_nan=False),
        min_size=1,
    )
)
def test_any_slowdowns_come_back_exactly(values: dict[tuple[str, str], float]) -> None:
    frame = pd.DataFrame(
        [[*pair, value] for pair, value in values.items()], columns=["victim", "neighbour", "slowdown"]
    )
    got = read_spreadsheet(frame, None, OPTIONS).imported
    assert {(pair.victim, pair.neighbour): pair.slowdown for pair in got.pairs} == values


WORDS = "|a|b|1.5|0|-2|1e400|1,5|35%|oom|alone|nan|ok|mps|K80|latency_p99|é\u2028|2|1.2|0.7"
CELLS = st.sampled_from([*WORDS.split("|"), "x" * 300])
MEASURED = st.sampled_from(["slowdown", "speed", "throughput", "step_time_ms", "latency_p99_ms"])
MORE = st.sampled_from(["solo_throughput", "status", "lower", "mode", "metric", "device", "neighbour_speed", "a", "b"])


@settings(max_examples=200, deadline=None)
@given(MEASURED, st.lists(MORE, max_size=3), st.lists(st.lists(CELLS, min_size=6, max_size=6), min_size=1, max_size=4))
def test_any_cells_import_or_are_one_error(
    tmp_path_factory: pytest.TempPathFactory, measured: str, more: list[str], rows: list[list[str]]
) -> None:
    head = ["victim", "neighbour", measured, *more]
    path = write(tmp_path_factory.mktemp("any") / "pairs.csv", [head, *(row[: len(head)] for row in rows)])
    for profiles in (None, path):
        try:
            got = read_spreadsheet(path, profiles, OPTIONS).imported
        except (TableError, InvalidInputError) as error:
            problem = error
        else:
            check_table(Table(name="t", jobs=got.jobs, pairs=got.pairs), path)
            continue
        assert problem.remedy


def numbers_with_commas(rows: Rows) -> Rows:
    """The rows as a German spreadsheet writes them."""
    return [[str(cell).replace(".", ",") if isinstance(cell, float) else cell for cell in row] for row in rows]


@pytest.mark.parametrize("name", SHEETS)
@pytest.mark.parametrize(
    ("delimiter", "decimal"), [(";", None), (";", Decimal.COMMA), ("\t", Decimal.COMMA), (",", Decimal.COMMA)]
)
def test_decimal_commas_where_semicolons_separate_or_where_they_are_named(
    tmp_path: Path, name: str, delimiter: str, decimal: Decimal | None
) -> None:
    rows, options = SHEETS[name]
    commas = write(tmp_path / "commas.csv", numbers_with_commas(rows), delimiter)
    jobs = write(tmp_path / "jobs.csv", numbers_with_commas(PROFILES), delimiter)
    got = read_spreadsheet(commas, jobs, replace(OPTIONS, decimal=decimal, **options)).imported
    points = write(tmp_path / "points.csv", rows), write(tmp_path / "point_jobs.csv", PROFILES)
    expected = read_spreadsheet(*points, replace(OPTIONS, **options)).imported
    assert (got.pairs, got.jobs) == (expected.pairs, expected.jobs)


def test_decimal_commas_of_text_in_a_data_frame_are_read_beside_numbers() -> None:
    frame = pd.DataFrame({"victim": ["a", "b"], "neighbour": ["b", "a"], "slowdown": ["1,5", 2.25]})
    got = read_spreadsheet(frame, None, replace(OPTIONS, decimal=Decimal.COMMA)).imported
    assert [pair.slowdown for pair in got.pairs] == [1.5, 2.25]
    assert import_spreadsheet(frame, device_type="a100", decimal=",").pairs[0].slowdown == 1.5
    with pytest.raises(InvalidInputError, match="decimal sign"):
        import_spreadsheet(frame, device_type="a100", decimal=";")


def test_names_keep_their_commas(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.csv", [["victim", "neighbour", "slowdown"], ["bert 1,5", "1,5", "1,5"]], ";")
    (pair,) = read_spreadsheet(path, None, OPTIONS).imported.pairs
    assert (pair.victim, pair.neighbour, pair.slowdown) == ("bert 1,5", "1,5", 1.5)


@pytest.mark.parametrize(
    ("delimiter", "decimal", "cells", "remedy"),
    [
        (";", None, ("1,5", "1.5"), "--decimal"),  # one of them is a thousands separator, or the file is of two makers
        (";", Decimal.COMMA, ("1,5", "1.5"), "decimal comma"),
        (";", Decimal.COMMA, ("1,5", "1.234,5"), "thousands"),
        (";", Decimal.POINT, ("1.5", "1,5"), "--decimal ,"),
        ("\t", None, ("1.5", "1,5"), "--decimal ,"),
    ],
)
def test_what_a_number_is_is_never_guessed_from_both(
    tmp_path: Path, delimiter: str, decimal: Decimal | None, cells: tuple[str, str], remedy: str
) -> None:
    rows = [["victim", "neighbour", "slowdown"], ["a", "b", cells[0]], ["b", "a", cells[1]]]
    with pytest.raises(TableError) as caught:
        read_spreadsheet(write(tmp_path / "pairs.csv", rows, delimiter), None, replace(OPTIONS, decimal=decimal))
    assert "row 3, column slowdown" in str(caught.value)
    assert remedy in str(caught.value)


def test_all_faults_of_the_sheets_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(
        "victim,neighbour,slowdown,mode,lower,upper,status\n"
        "a,b,35%,shared,,,\n"
        ",c,150,,,,\n"
        "a,c\n"
        "a,c,1.5,,1.9,2,\n"
        "b,c,1.2,,,,fine\n"
        "c,b,1.2,,,,\n"
    )
    (tmp_path / "jobs.csv").write_text("workload,step_time_ms,gpu_util_percent\na,fast,97\nb,5,400\nc,6,5\nc,6,5\n")
    with pytest.raises(TableError) as caught:
        read_spreadsheet(tmp_path / "pairs.csv", tmp_path / "jobs.csv", OPTIONS)
    faults = {(fault.field, fault.value.split(" in ")[0]) for fault in caught.value.violations}
    assert faults == {
        ("pairs.csv, row 2, column slowdown", "'35%'"),
        ("pairs.csv, row 2, column mode", "'shared'"),
        ("pairs.csv, row 3, column victim", "''"),
        ("pairs.csv, row 3, column slowdown", "'150'"),
        ("pairs.csv, row 4, column slowdown", "2 of 7 fields"),
        ("pairs.csv, row 5, column lower", "'1.9'"),
        ("pairs.csv, row 6, column status", "'fine'"),
        ("jobs.csv, row 2, column step_time_ms", "'fast'"),
        ("jobs.csv, row 3, column gpu_util_percent", "'400'"),
        ("jobs.csv, row 5, column workload", "'c'"),
    }
    assert all(fault.remedy for fault in caught.value.violations)
    text = str(caught.value)
    assert "10 faults" in text
    assert all(fault.field.split(", ", 1)[1] in text and fault.remedy in text for fault in caught.value.violations)


def test_a_file_that_cannot_be_read_is_told_beside_the_faults_of_the_other(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(HEAD + "a,b,fast\nb,c,35%\n")
    (tmp_path / "jobs.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(TableError) as caught:
        read_spreadsheet(tmp_path / "pairs.csv", tmp_path / "jobs.xlsx", OPTIONS)
    assert "3 faults" in caught.value.what
    assert all(part in str(caught.value) for part in ("jobs.xlsx: a workbook is not read", "row 2", "row 3"))


def test_all_faults_of_the_columns_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("victim,job,step time,slowdown\na,b,5,1.5\n")
    mapping = {"cost": "speed", "load": "status"}
    with pytest.raises(TableError) as caught:
        read_spreadsheet(tmp_path / "pairs.csv", None, replace(OPTIONS, mapping=mapping))
    problems = [fault.what for fault in caught.value.violations]
    assert problems == ["missing", "missing", "both mean victim", "a time without a unit"]


@given(st.sets(st.integers(0, 19), min_size=1))
@settings(max_examples=30, deadline=None)
def test_every_faulty_cell_is_told_and_no_other(tmp_path_factory: pytest.TempPathFactory, faulty: set[int]) -> None:
    rows = [
        ["victim", "neighbour", "slowdown"],
        *([f"a{k}", f"b{k}", "fast" if k in faulty else 1.5] for k in range(20)),
    ]
    path = write(tmp_path_factory.mktemp("faults") / "pairs.csv", rows)
    with pytest.raises(TableError) as caught:
        read_spreadsheet(path, None, OPTIONS)
    places = {fault.field for fault in caught.value.violations} or {caught.value.what.rpartition(":")[0]}
    assert places == {f"pairs.csv, row {k + 2}, column slowdown" for k in faulty}
