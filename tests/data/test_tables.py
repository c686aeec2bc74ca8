"""Round trips, and every way a table can be broken."""

import dataclasses
import math
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interfere.data.parquet import OPTIONAL_JOB_COLUMNS, OPTIONAL_KERNEL_FIELDS, SCHEMA_VERSION_KEY
from interfere.data.tables import Table, read_table, table_digest, write_table
from interfere.errors import TableError, UnfitError
from interfere.records import (
    COUNTERS,
    MAX_SLOWDOWN,
    MIN_SLOWDOWN,
    JobProfile,
    KernelStat,
    PairMeasurement,
    PairStatus,
)
from tests.data.sample_table import JOBS, PAIR, PAIRS, TABLE

NAN = float("nan")
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)
SECONDS = st.floats(1e-6, 100.0)
MAYBE = st.one_of(st.just(NAN), st.floats(0, 1e12))
SHARE = st.one_of(st.just(NAN), st.floats(0, 1))
WHOLE = st.lists(st.integers(1, 1024), max_size=3).map(tuple)


def same(one: object, other: object) -> bool:
    """Equal records, NaN equal to NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    jobs = []
    for name in names:
        stretches = draw(st.lists(st.tuples(SECONDS, SECONDS), max_size=4))
        later = dict.fromkeys(OPTIONAL_KERNEL_FIELDS, MAYBE)
        kernel = st.builds(
            KernelStat, name=NAMES, mean_s=SECONDS, gap_s=MAYBE, count=SECONDS, grid=WHOLE, block=WHOLE, **later
        )
        job = JobProfile(
            workload=name,
            device_type="cpu-core",
            step_time_s=draw(SECONDS),
            source=draw(NAMES),
            step_time_sd_s=draw(MAYBE),
            busy_frac=draw(SHARE),
            busy_s=tuple(busy for busy, _ in stretches),
            idle_s=tuple(idle for _, idle in stretches),
            flops_per_step=draw(MAYBE),
            bytes_per_step=draw(MAYBE),
            memory_peak_bytes=draw(MAYBE),
            memory_working_set_bytes=draw(MAYBE),
            kernels=tuple(draw(st.lists(kernel, max_size=3))),
            family=draw(st.just("") | NAMES),
            **{name: draw(SHARE if name in COUNTERS else MAYBE) for name in OPTIONAL_JOB_COLUMNS},
        )
        jobs.append(job)
    keys = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=6, unique=True))
    pairs = []
    for victim, neighbour in keys:
        status = draw(st.sampled_from(PairStatus))
        slowdown = draw(st.floats(MIN_SLOWDOWN, MAX_SLOWDOWN)) if status is PairStatus.OK else NAN
        pairs.append(
            PairMeasurement(
                victim=victim,
                neighbour=neighbour,
                device_type="cpu-core",
                mode=draw(st.sampled_from(("timeslice", "mps"))),
                slowdown=slowdown,
                lower=slowdown * 0.9,
                upper=slowdown * 1.1,
                passes=tuple(draw(st.lists(st.floats(0.2, 100), max_size=4))),
                status=status,
                reason="" if status is PairStatus.OK else draw(NAMES),
                overlap_frac=draw(st.one_of(st.just(NAN), st.floats(0, 1))),
                source=draw(NAMES),
                measured_at_s=draw(MAYBE),
            )
        )
    return Table(name="t", jobs=tuple(jobs), pairs=tuple(pairs))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_reading_what_was_written_gives_equal_records(tmp_path: Path, table: Table) -> None:
    write_table(tmp_path / "t", table)
    assert same(asdict(read_table(tmp_path / "t")), asdict(table))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_table(tmp_path / "t", TABLE)
    return tmp_path / "t"


def rewrite(path: Path, change: object) -> None:
    """Change a table's columns with pyarrow alone, as a stranger's tool would."""
    table = pq.read_table(path)
    changed = change(table)  # type: ignore[operator]
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)


def with_cell(column: str, row: int, value: object) -> object:
    def change(table: pa.Table) -> pa.Table:
        values = table.column(column).to_pylist()
        values[row] = value
        field = table.schema.field(column)
        return table.set_column(table.schema.get_field_index(column), field, pa.array(values, field.type))

    return change


def refusal(folder: Path) -> str:
    with pytest.raises(TableError) as caught:
        read_table(folder)
    assert caught.value.remedy, "an error names its remedy"
    return str(caught.value)


@pytest.mark.parametrize(
    ("file", "column", "row", "value", "said"),
    [
        ("pairs", "slowdown", 1, 1000.0, "row 1, column slowdown"),
        ("pairs", "slowdown", 0, None, "row 0, column slowdown"),
        ("pairs", "slowdown", 3, -2.0, "row 3, column slowdown"),
        ("pairs", "lower", 0, 1.55, "row 0, column lower"),
        ("pairs", "passes", 2, [1.0, -1.0], "row 2, column passes"),
        ("pairs", "passes", 2, [1.0, None], "row 2, column passes"),
        ("pairs", "overlap_frac", 0, 97.0, "row 0, column overlap_frac"),
        ("pairs", "steal_frac", 0, -0.1, "row 0, column steal_frac"),
        ("pairs", "mode", 0, "telepathy", "row 0, column mode"),
        ("pairs", "metric", 0, "wishes", "row 0, column metric"),
        ("pairs", "status", 1, "great", "row 1, column status"),
        ("pairs", "reason", 3, "", "row 3, column reason"),
        ("pairs", "feasible", 0, False, "row 0, column feasible"),
        ("pairs", "victim", 0, "nobody", "row 0, column victim"),
        ("pairs", "neighbour", 0, "nobody", "row 0, column neighbour"),
        ("pairs", "victim", 1, "", "row 1, column victim"),
        ("pairs", "device_type", 0, "h200", "row 0, column victim"),
        ("pairs", "victim", 2, "b", "same as row 1"),
        ("jobs", "workload", 1, "a", "same as row 0"),
        ("jobs", "step_time_s", 0, 25_000.0, "row 0, column step_time_s"),
        ("jobs", "step_time_s", 1, -1.0, "row 1, column step_time_s"),
        ("jobs", "busy_frac", 0, 97.0, "row 0, column busy_frac"),
        ("jobs", "memory_peak_bytes", 0, 1e20, "row 0, column memory_peak_bytes"),
        ("jobs", "idle_s", 0, [0.1], "row 0, column idle_s"),
        ("jobs", "busy_s", 0, [0.1, float("inf")], "row 0, column busy_s"),
    ],
)
def test_a_broken_cell_is_named(folder: Path, file: str, column: str, row: int, value: object, said: str) -> None:
    path = folder / f"{file}.parquet"
    rewrite(path, with_cell(column, row, value))
    message = refusal(folder)
    assert path.name in message
    assert said in message
    assert str(folder) in message


@pytest.mark.parametrize("keep", [0, 3, 100, -5])
def test_a_truncated_file_is_named(folder: Path, keep: int) -> None:
    path = folder / "pairs.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    assert "pairs.parquet" in refusal(folder)


def test_a_damaged_middle_is_named(folder: Path) -> None:
    path = folder / "jobs.parquet"
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)
    assert "jobs.parquet" in refusal(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "jobs.parquet").unlink()
    assert "has no jobs.parquet" in refusal(folder)


def test_a_missing_a_surplus_and_a_retyped_column_are_named(folder: Path) -> None:
    path = folder / "pairs.parquet"
    whole = path.read_bytes()
    rewrite(path, lambda t: t.drop_columns(["upper"]))
    assert "column upper: missing" in refusal(folder)
    path.write_bytes(whole)
    rewrite(path, lambda t: t.append_column("mood", pa.array(["fine"] * len(t))))
    assert "column mood" in refusal(folder)
    path.write_bytes(whole)
    rewrite(path, lambda t: t.set_column(5, "slowdown", pa.array(["1.5"] * len(t))))
    assert "column slowdown: type string" in refusal(folder)


def test_a_file_without_optional_columns_reads_as_unknown(folder: Path) -> None:
    path = folder / "jobs.parquet"
    table = pq.read_table(path).drop_columns([*OPTIONAL_JOB_COLUMNS, "family"])
    kernels = [
        [{name: value for name, value in kernel.items() if name not in OPTIONAL_KERNEL_FIELDS} for kernel in row]
        for row in table["kernels"].to_pylist()
    ]
    old = table.schema.metadata
    table = table.set_column(table.schema.get_field_index("kernels"), "kernels", pa.array(kernels))
    grid = pa.list_(pa.int32())
    kernel = pa.struct(
        [(n, pa.string() if n == "name" else grid if n in ("grid", "block") else pa.float64()) for n in kernels[0][0]]
    )
    field = pa.field("kernels", pa.list_(kernel))
    table = table.cast(table.schema.set(table.schema.get_field_index("kernels"), field))
    pq.write_table(table.replace_schema_metadata(old), path)
    assert same(asdict(read_table(folder)), asdict(replace(TABLE, name=folder.name)))


@pytest.mark.parametrize("version", [b"2", None])
def test_another_schema_version_is_refused(folder: Path, version: bytes | None) -> None:
    path = folder / "jobs.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({SCHEMA_VERSION_KEY: version} if version else None), path)
    assert "schema version" in refusal(folder)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (replace(TABLE, pairs=(*PAIRS, PAIR)), "same as row 0"),
        (replace(TABLE, jobs=JOBS[:1]), "no profile"),
        (replace(TABLE, pairs=(replace(PAIR, overlap_frac=50.0),)), "overlap_frac"),
        (replace(TABLE, jobs=(replace(JOBS[0], sm_active_frac=61.0), JOBS[1])), "sm_active_frac"),
        (replace(TABLE, jobs=(replace(JOBS[0], memory_gradient_bytes=1e17), JOBS[1])), "memory_gradient_bytes"),
    ],
)
def test_a_broken_table_does_not_replace_the_old_one(folder: Path, table: Table, said: str) -> None:
    before = table_digest(folder)
    with pytest.raises(TableError, match=said):
        write_table(folder, table)
    assert table_digest(folder) == before
    assert {path.name for path in folder.iterdir()} == {"jobs.parquet", "pairs.parquet"}


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnfitError, match="cannot write here") as caught:
        write_table(tmp_path / "file" / "t", TABLE)
    assert caught.value.remedy


def test_the_digest_follows_the_content(folder: Path) -> None:
    before = table_digest(folder)
    write_table(folder, TABLE)
    assert table_digest(folder) == before
    write_table(folder, replace(TABLE, pairs=PAIRS[:2]))
    assert table_digest(folder) != before
    (folder / "pairs.parquet").unlink()
    with pytest.raises(TableError, match=r"has no pairs\.parquet"):
        table_digest(folder)


def test_ok_pairs_are_those_with_a_slowdown() -> None:
    assert [pair.slowdown for pair in TABLE.ok_pairs] == [1.5, 1.2, 2.0]


def test_columns_are_the_fields_of_the_records(folder: Path) -> None:
    jobs = [field.name for field in dataclasses.fields(JobProfile)]
    pairs = [field.name for field in dataclasses.fields(PairMeasurement)]
    assert pq.read_schema(folder / "jobs.parquet").names == jobs
    assert sorted(pq.read_schema(folder / "pairs.parquet").names) == sorted([*pairs, "feasible"])
