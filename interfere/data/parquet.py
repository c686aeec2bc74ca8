"""Parquet files in and out: whole or not at all, and every failure one TableError that names the file.

Laws: a file appears under its name only when it is complete (temporary file, then rename); a reader sees exactly the
columns of its schema, or an error that names the one that is missing, surplus or of another type. Facts that joined
the schema later may be missing: the rows then lack them.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interfere.data.schema import LATER, VERSION, VERSION_KEY
from interfere.errors import TableError, UnfitError

REMEASURE = "restore the file, or measure it again with `interfere profile campaign`"


def write_rows(path: Path, rows: Sequence[dict[str, Any]], schema: Any) -> None:
    """Write rows under `schema`. Raises UnfitError where the folder cannot be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows), schema=schema)
    replace_file(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))


def replace_file(path: Path, write: Any) -> None:
    """Call `write(temporary)` beside `path`, then rename: a reader never sees half a file."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        write(temporary)
        os.chmod(temporary, 0o644)  # mkstemp makes files that only the owner reads
        os.replace(temporary, path)
    except OSError as error:
        raise UnfitError(
            "cannot write here", value=f"{path}: {error.strerror or error}", remedy="choose a folder you may write"
        ) from None
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def read_rows(path: Path, schema: Any) -> list[dict[str, Any]]:
    """All rows of one file; its columns must be those of `schema`. Raises TableError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise TableError(f"a table lacks {path.name}", value=path, remedy="give a folder with jobs and pairs.parquet")
    try:
        found = pq.read_schema(path)
        _check_version(path, found)
        _check_columns(path, found, schema)
        rows: list[dict[str, Any]] = pq.ParquetFile(path).read(columns=list(found.names)).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise TableError(f"{path.name} is no whole Parquet file", value=f"{path}: {line}", remedy=REMEASURE) from None
    return rows


def _check_version(path: Path, found: Any) -> None:
    version = (found.metadata or {}).get(VERSION_KEY, b"none").decode(errors="replace")
    if version != str(VERSION):
        raise TableError(
            f"{path.name} has schema version {version}, this release reads {VERSION}",
            value=path,
            remedy="read it with the release that wrote it, or measure it again",
        )


def _check_columns(path: Path, found: Any, schema: Any) -> None:
    for name in schema.names:
        if name not in found.names and name in LATER:
            continue
        if name not in found.names:
            raise TableError(f"{path.name}, column {name}: missing", value=path, remedy=REMEASURE)
        # Lists come back with another name of their inner field: compare what they hold.
        if not _same_type(found.field(name).type, schema.field(name).type):
            raise TableError(
                f"{path.name}, column {name}: type {found.field(name).type}, {schema.field(name).type} expected",
                value=path,
                remedy=REMEASURE,
            )
    if surplus := sorted(set(found.names) - set(schema.names)):
        raise TableError(
            f"{path.name}, column {surplus[0]}: not of this schema", value=path, remedy="drop it, or bump the version"
        )


def _same_type(one: Any, other: Any) -> bool:
    """Does a file's type `one` hold what the schema's type `other` says?"""
    import pyarrow as pa

    if pa.types.is_list(one) and pa.types.is_list(other):
        return _same_type(one.value_type, other.value_type)
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        names = [f.name for f in one]
        expected = [f for f in other if f.name in names or f.name not in LATER]
        return names == [f.name for f in expected] and all(
            _same_type(a.type, b.type) for a, b in zip(one, expected, strict=True)
        )
    return bool(one == other)
