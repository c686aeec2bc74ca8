"""Writes records into Parquet files and reads them; every failure is one TableError, which names the file.

Laws: reading what was written gives equal records; a file appears under its name only when it is complete (temporary
file, then rename); a reader sees exactly the columns of its schema, or an error that names the one that is missing,
surplus or of another type. Columns that were added to the schema later may be missing from a file: they then read as
unknown.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from interfere.data.schema import OPTIONAL_COLUMNS, SCHEMA_VERSION, SCHEMA_VERSION_KEY
from interfere.errors import InvalidInputError, TableError, Violation
from interfere.file_writing import write_atomically
from interfere.records.documents import from_document
from interfere.records.record import fields_of

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


def read_rows(path: Path, schema: Any) -> list[dict[str, Any]]:
    """Return all rows of a file, whose columns must be the columns of `schema`. Raises TableError."""
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
        _check_columns(path, file_schema, schema)
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


def _check_columns(path: Path, file_schema: Any, schema: Any) -> None:
    for name in schema.names:
        if name not in file_schema.names and name in OPTIONAL_COLUMNS:
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
