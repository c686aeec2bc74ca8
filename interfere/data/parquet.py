"""Writes records into Parquet files and reads them: schema version 1, and one TableError for every failure.

Units are seconds and bytes; an unknown number is null on disk and NaN in a record. Law 1: a column is a field of a
record, with the same name and type; only `feasible` is derived, for readers that filter without this code.
Law 2: reading what was written gives equal records; a file appears under its name only when it is complete.
Law 3: a reader sees exactly the columns of its schema, or an error that names the missing, surplus or mistyped column.
Columns that were added to the schema later may be missing from a file: they then read as unknown.
"""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from interfere.errors import InvalidInputError, TableError, Violation
from interfere.file_writing import write_atomically
from interfere.records import (
    COUNTERS,
    BlockSide,
    GroupMeasurement,
    JobProfile,
    KernelStat,
    MeasuredBlock,
    PairMeasurement,
)
from interfere.records.documents import from_document
from interfere.records.record import fields_of, is_record

SCHEMA_VERSION = 1
SCHEMA_VERSION_KEY = b"interfere.schema"
MAX_STEP_S = 3_600.0  # a longer step is taken for a time in another unit
MAX_BYTES = 1e16
JOB_KEY = ("workload", "device_type", "source")  # one row of each source: readers combine them
PAIR_KEY = ("victim", "neighbour", "device_type", "mode", "metric", "important", "campaign")
GROUP_KEY = ("victim", "company", "device_type", "mode", "metric", "campaign")
# Facts that were added to the schema after tables had been written: in a file without them they read as null.
OPTIONAL_JOB_COLUMNS = (
    "memory_model_bytes",
    "memory_activation_bytes",
    "memory_gradient_bytes",
    "memory_optimizer_bytes",
    "static_step_time_s",
    "static_memory_peak_bytes",
    *COUNTERS,
    "power_w",
    "latency_p50_s",
    "latency_p99_s",
)
_FIRST_KERNEL_FIELDS = ("name", "mean_s", "gap_s", "count", "grid", "block")
OPTIONAL_KERNEL_FIELDS = tuple(each.name for each in fields_of(KernelStat) if each.name not in _FIRST_KERNEL_FIELDS)
OPTIONAL_COLUMNS = frozenset((*OPTIONAL_JOB_COLUMNS, *OPTIONAL_KERNEL_FIELDS, "family", "measured_at_s", "important"))
MEMORY_COLUMNS = tuple(each.name for each in fields_of(JobProfile) if each.name.endswith("_bytes"))


def record_schema(record_type: Any, **derived: type) -> Any:
    """Return the schema of a file with one row per record; `derived` are further columns and their types."""
    return _versioned(_columns(record_type) | {name: _arrow_type(kind) for name, kind in derived.items()})


def measurements_schema(record_type: type[PairMeasurement] | type[GroupMeasurement]) -> Any:
    """Return the schema of `pairs.parquet` or `groups.parquet`: one row per measured slowdown of a victim.

    A self pair is one row. `company` of a group lists two or more neighbours of the victim, sorted, a workload as often
    as it runs there.
    """
    columns = list(_columns(record_type).items())
    columns.insert([name for name, _ in columns].index("measured_at_s") + 1, ("feasible", _arrow_type(bool)))
    return _versioned(dict(columns))


def raw_schema(*, groups: bool = False) -> Any:
    """Return the schema of `raw.parquet`, or that of `raw_groups.parquet`: one row per side of a measured block.

    Refused blocks have rows too. Every slowdown is computed from these; `slices` is their number.
    """
    import pyarrow as pa

    beside = {"company": pa.list_(pa.string())} if groups else {"neighbour": pa.string(), "important": pa.string()}
    of_block, of_side = _columns(MeasuredBlock), _columns(BlockSide)
    for name in ("sides", "mode"):
        del of_block[name]
    del of_side["workload"]
    return _versioned({"victim": pa.string(), **beside, **of_block, **of_side, "slices": pa.int32()})


def _columns(record_type: Any) -> dict[str, Any]:
    """Return the Arrow type of each field of a record type, by the field's name."""
    import pyarrow as pa

    columns = {}
    for each in fields_of(record_type):
        kind = _arrow_type(each.type)
        columns[each.name] = kind if each.collection is None else pa.list_(kind)
    return columns


def _arrow_type(kind: Any) -> Any:
    """Return the Arrow type of one value: a struct for a record, text for a member of an enum."""
    import pyarrow as pa

    if is_record(kind):
        return pa.struct(list(_columns(kind).items()))
    return {float: pa.float64(), int: pa.int32(), bool: pa.bool_()}.get(kind, pa.string())


def _versioned(columns: dict[str, Any]) -> Any:
    import pyarrow as pa

    return pa.schema(list(columns.items()), metadata={SCHEMA_VERSION_KEY: str(SCHEMA_VERSION).encode()})


REMEASURE = "restore the file, or measure it again with `interfere profile campaign`"


def write_rows(path: Path, rows: Sequence[dict[str, Any]], schema: Any) -> None:
    """Write rows under `schema`. Raises UnfitError where the folder cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows), schema=schema)
    write_atomically(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def records_of_rows(
    path: Path, rows: Iterable[dict[str, Any]], record_type: Any, *, derived: Sequence[str] = ()
) -> tuple[Any, ...]:
    """Return a record for each row that was read from `path`; `derived` are columns that are no field of the record.

    Null becomes NaN, or an empty text. Raises TableError, which names file, row and column.
    """
    texts = {each.name for each in fields_of(record_type) if each.collection is None and _is_text(each.type)}
    records = []
    for k, row in enumerate(rows):
        values = {name: "" if value is None and name in texts else value for name, value in row.items()}
        for name in derived:
            values.pop(name, None)
        try:
            records.append(from_document(record_type, values))
        except InvalidInputError as error:
            raise_violations(path, k, error.violations)
            raise
    return tuple(records)


def _is_text(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, str)


def raise_violations(path: Path, row: int, violations: Iterable[Violation]) -> None:
    """Raise a TableError that shows the first violation of a row and holds them all."""
    all_violations = tuple(violations)
    if all_violations:
        first = all_violations[0]
        raise TableError(
            f"{path.name}, row {row}, column {first.field}: {first.what}",
            value=f"{first.value} in {path.parent}",
            remedy=first.remedy,
            violations=all_violations,
        )


def read_rows(path: Path, schema: Any, *, optional: Collection[str] = OPTIONAL_COLUMNS) -> list[dict[str, Any]]:
    """Return all rows of a file, whose columns must be the columns of `schema`; `optional` ones may be missing.

    Raises TableError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise TableError(
            f"the table has no {path.name}",
            value=path,
            remedy="give a folder that holds jobs.parquet and pairs.parquet (interfere data import makes one)",
        )
    try:
        file_schema = pq.read_schema(path)
        _check_version(path, file_schema)
        _check_columns(path, file_schema, schema, optional)
        rows: list[dict[str, Any]] = pq.ParquetFile(path).read(columns=list(file_schema.names)).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise TableError(
            f"{path.name} is no complete Parquet file", value=f"{path}: {first_line}", remedy=REMEASURE
        ) from None
    return rows


def _check_version(path: Path, file_schema: Any) -> None:
    version = (file_schema.metadata or {}).get(SCHEMA_VERSION_KEY, b"none").decode(errors="replace")
    if version != str(SCHEMA_VERSION):
        raise TableError(
            f"{path.name} has schema version {version}, this release reads {SCHEMA_VERSION}",
            value=path,
            remedy="read it with the release that wrote it, or measure it again",
        )


def _check_columns(path: Path, file_schema: Any, schema: Any, optional: Collection[str]) -> None:
    for name in schema.names:
        if name not in file_schema.names and name in optional:
            continue
        if name not in file_schema.names:
            raise TableError(f"{path.name}, column {name}: missing", value=path, remedy=REMEASURE)
        # The inner field of a list comes back under another name: compare the types inside.
        if not _holds_type(file_schema.field(name).type, schema.field(name).type):
            raise TableError(
                f"{path.name}, column {name}: type {file_schema.field(name).type}, {schema.field(name).type} expected",
                value=path,
                remedy=REMEASURE,
            )
    if surplus := sorted(set(file_schema.names) - set(schema.names)):
        raise TableError(
            f"{path.name}, column {surplus[0]}: not in the schema",
            value=path,
            remedy="drop it, or raise the schema version",
        )


def _holds_type(file_type: Any, expected: Any) -> bool:
    """Return whether a column in a file has the type that the schema expects."""
    import pyarrow as pa

    if pa.types.is_list(file_type) and pa.types.is_list(expected):
        return _holds_type(file_type.value_type, expected.value_type)
    if pa.types.is_struct(file_type) and pa.types.is_struct(expected):
        names = [field.name for field in file_type]
        expected_fields = [field for field in expected if field.name in names or field.name not in OPTIONAL_COLUMNS]
        return names == [field.name for field in expected_fields] and all(
            _holds_type(a.type, b.type) for a, b in zip(file_type, expected_fields, strict=True)
        )
    return bool(file_type == expected)
