"""Reads a spreadsheet from CSV, Parquet or a DataFrame into rows of text, so that every form is checked the same way.

Law 1: the same numbers give the same rows in every form: a number is written with the digits that give it back.
Law 2: rows of a CSV file are numbered as an editor shows them (the header is row 1), rows of the other forms from 1.
Empty rows, as spreadsheet programs append them, are left out and counted.
"""

import csv
import hashlib
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from interfere.data.importers.import_result import SourceFile
from interfere.data.importers.strict_reading import CsvRow, check_columns, check_width, read_text
from interfere.errors import TableError

if TYPE_CHECKING:
    import pandas as pd

SpreadsheetSource: TypeAlias = "Path | str | pd.DataFrame"

DELIMITERS = (",", ";", "\t")
FRAME_NAME = Path("DataFrame")
EMPTY_CELLS = frozenset(("", "-", "–", "na", "n/a", "nan", "none", "null"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The cells of one spreadsheet as text; `rows` without the empty ones, whose numbers are in `empty_rows`."""

    source: SourceFile
    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]
    empty_rows: tuple[int, ...] = ()


def is_empty(cell: str) -> bool:
    """Whether a cell holds no value: blank, or a common word for it."""
    return cell.lower() in EMPTY_CELLS


def read_sheet(source: SpreadsheetSource) -> Sheet:
    """Read a .csv, .tsv or .parquet file, or a pandas DataFrame. Raises TableError, which names file and row."""
    if not isinstance(source, str | Path):
        return _sheet_of_frame(source)
    path = Path(source)
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise TableError(
            f"{path.name}: a workbook is not read", value=path, remedy="save the sheet as CSV (UTF-8) and give that"
        )
    return _sheet_of_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _sheet_of_csv(path)


def _sheet_of_csv(path: Path) -> Sheet:
    text, source = read_text(path)
    header = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=header.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        columns = tuple(name.strip() for name in next(reader))
        rows += ((reader.line_num, [cell.strip() for cell in cells]) for cells in reader)
    except csv.Error as error:
        raise TableError(
            f"{path.name}, row {reader.line_num}: not valid CSV ({error})", value=path, remedy="close the quotes"
        ) from None
    return _sheet(source, columns, rows)


def _sheet_of_parquet(path: Path) -> Sheet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise TableError(
            f"{path.name} cannot be read as Parquet", value=f"{path}: {error}"[:200], remedy="give a .parquet file"
        ) from None
    columns = [[_cell(value) for value in column.to_pylist()] for column in table.columns]
    rows = enumerate(map(list, zip(*columns, strict=True)), start=1)
    return _sheet(SourceFile(path=path, sha256=digest), tuple(table.column_names), rows)


def _sheet_of_frame(frame: "pd.DataFrame") -> Sheet:
    columns = tuple(str(name).strip() for name in frame.columns)
    cells = [[_cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    content = "\n".join("\t".join(row) for row in [list(columns), *cells])
    source = SourceFile(path=FRAME_NAME, sha256=hashlib.sha256(content.encode()).hexdigest())
    return _sheet(source, columns, enumerate(cells, start=1))


def _sheet(source: SourceFile, columns: tuple[str, ...], rows: Iterable[tuple[int, list[str]]]) -> Sheet:
    """The sheet of numbered rows of cells. Raises TableError for a bad header and a row of another width."""
    path = source.path
    while columns and not columns[-1]:
        columns = columns[:-1]
    check_columns(path, columns, ())
    for k, name in enumerate(columns[1:], start=2):
        if not name:
            raise TableError(f"{path.name}, row 1, column {k}: has no name", value=path, remedy="name it or delete it")
    kept: list[CsvRow] = []
    empty: list[int] = []
    for number, row_cells in rows:
        cells = row_cells
        if not any(cells):
            empty.append(number)
            continue
        while len(cells) > len(columns) and not cells[-1]:
            cells = cells[:-1]
        check_width(path, number, cells, columns)
        kept.append(CsvRow(path=path, row_number=number, fields=dict(zip(columns, cells, strict=True))))
    if not kept:
        raise TableError(f"{path.name}: no rows below the header", value=path, remedy="fill in one row a pair")
    return Sheet(source=source, columns=columns, rows=tuple(kept), empty_rows=tuple(empty))


def _cell(value: Any) -> str:
    """The text of a value; "" for an absent one."""
    if value is None or value is getattr(value, "NaT", ()) or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return repr(float(value))
    text = str(value).strip()
    return "" if text in ("NaT", "<NA>") else text
