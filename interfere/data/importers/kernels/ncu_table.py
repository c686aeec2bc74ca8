"""Finds a CSV table in the output of a program: lines before its header and after its last row do not belong to it."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from interfere.data.importers.import_result import SourceFile
from interfere.data.importers.strict_reading import CsvRow, check_columns, check_width, read_text
from interfere.errors import TableError

TOOL_LINE_PREFIX = "=="  # Nsight Compute's own lines begin so: ==PROF==, ==WARNING==


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedTable:
    """The table that was found, the row number of its header, and the number of lines around it."""

    source: SourceFile
    columns: tuple[str, ...]
    header_row: int
    rows: tuple[CsvRow, ...]
    skipped_lines: int


def read_embedded_table(path: Path, column: str) -> EmbeddedTable:
    """The table whose header names `column`, with at least one row. Raises TableError."""
    text, source = read_text(path)
    lines = io.StringIO(text.replace("\r\n", "\n"), newline="").readlines()
    # 1. Find the header, and the end of the last row.
    start = next((k for k, line in enumerate(lines) if column in line and column in next(csv.reader([line]))), None)
    if start is None:
        raise TableError(
            f"{path.name}, row 1, column {column}: missing",
            value=f"no header with it in {path}",
            remedy="export with `ncu --csv --page raw` (or details)",
        )
    end = len(lines)
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].startswith(TOOL_LINE_PREFIX)):
        end -= 1
    if not lines[end - 1].endswith("\n"):
        raise TableError(
            f"{path.name}, row {end}: the last row has no line end: the file is truncated",
            value=f"{lines[end - 1][-40:]!r} in {path}",
            remedy="export it again, or end the row if it is complete",
        )
    # 2. Parse the lines in between.
    rows, columns = _parse_rows(path, lines[start:end], start)
    if not rows:
        raise TableError(f"{path.name}, row {start + 2}: no rows below the header", value=path, remedy="profile again")
    return EmbeddedTable(
        source=source,
        columns=columns,
        header_row=start + 1,
        rows=rows,
        skipped_lines=start + len(lines) - end,
    )


def _parse_rows(path: Path, lines: list[str], start: int) -> tuple[tuple[CsvRow, ...], tuple[str, ...]]:
    """Rows and columns of the table in `lines`, of which the first is line `start` of the file."""
    reader = csv.reader(iter(lines), strict=True)
    rows: list[CsvRow] = []
    try:
        columns = tuple(name.strip() for name in next(reader))
        check_columns(path, columns, (), row=start + 1)
        for fields in reader:
            row_number = start + reader.line_num
            check_width(path, row_number, fields, columns)
            rows.append(CsvRow(path=path, row_number=row_number, fields=dict(zip(columns, fields, strict=True))))
    except csv.Error as error:
        raise TableError(
            f"{path.name}, row {start + reader.line_num}: not valid CSV ({error})",
            value=path,
            remedy="close the quotes",
        ) from None
    return tuple(rows), columns
