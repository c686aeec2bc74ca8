"""Find a CSV table in the output of a program: lines before its header and after its last row are no part of it."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from interfere.data.importers.import_result import SourceFile
from interfere.data.importers.strict_reading import Row, check_columns, check_width, read_text
from interfere.errors import TableError

NOISE = "=="  # how the tool's own lines begin: ==PROF==, ==WARNING==


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """The table: `row` is that of its header, `skipped` how many lines around it were left alone."""

    source: SourceFile
    columns: tuple[str, ...]
    row: int
    rows: tuple[Row, ...]
    skipped: int


def read_table_text(path: Path, column: str) -> FoundTable:
    """The table whose header names `column`; at least one row. Raises TableError."""
    text, source = read_text(path)
    lines = io.StringIO(text.replace("\r\n", "\n"), newline="").readlines()
    start = next((k for k, line in enumerate(lines) if column in line and column in next(csv.reader([line]))), None)
    if start is None:
        raise TableError(
            f"{path.name}, row 1, column {column}: missing",
            value=f"no header with it in {path}",
            remedy="export with `ncu --csv --page raw` (or details)",
        )
    end = len(lines)
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].startswith(NOISE)):
        end -= 1
    if not lines[end - 1].endswith("\n"):
        raise TableError(
            f"{path.name}, row {end}: the last row has no line end: the file is truncated",
            value=f"{lines[end - 1][-40:]!r} in {path}",
            remedy="export it again, or end the row if it is whole",
        )
    rows, columns = _rows(path, lines[start:end], start)
    if not rows:
        raise TableError(f"{path.name}, row {start + 2}: no rows below the header", value=path, remedy="profile again")
    skipped = start + len(lines) - end
    return FoundTable(source=source, columns=columns, row=start + 1, rows=rows, skipped=skipped)


def _rows(path: Path, lines: list[str], start: int) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    reader = csv.reader(iter(lines), strict=True)
    rows: list[Row] = []
    try:
        columns = tuple(name.strip() for name in next(reader))
        check_columns(path, columns, (), row=start + 1)
        for fields in reader:
            row = start + reader.line_num
            check_width(path, row, fields, columns)
            rows.append(Row(path=path, row=row, fields=dict(zip(columns, fields, strict=True))))
    except csv.Error as error:
        raise TableError(
            f"{path.name}, row {start + reader.line_num}: no CSV ({error})", value=path, remedy="close the quotes"
        ) from None
    return tuple(rows), columns
