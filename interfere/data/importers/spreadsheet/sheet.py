"""Reads a spreadsheet from CSV, Parquet or a DataFrame into rows of text, so that every form is checked the same way.

Law 1: the same numbers give the same rows in every form: a number is written with the digits that give it back.
Law 2: rows of a CSV file are numbered as an editor shows them (the header is row 1), rows of the other forms from 1.
Empty rows, as spreadsheet programs append them, are left out and counted.

Numbers have a decimal point or a decimal comma, and no thousands separators. Law 3: where the user does not say which,
a comma is a decimal sign only in a file that semicolons separate, and only where the first number with a sign has one;
a number with the other sign is then a fault, never another number.
"""

import hashlib
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from interfere.data.importers.import_result import SourceFile
from interfere.data.importers.strict_reading import (
    NUMBER,
    CsvRow,
    Faults,
    check_columns,
    csv_row,
    fault,
    parse_csv,
    read_bytes,
    read_text,
)
from interfere.errors import InvalidInputError, TableError
from interfere.records import METRICS
from interfere.records.checks import check
from interfere.sharing_modes import DEFAULT_MODE, SharingMode, set_sharing_mode

if TYPE_CHECKING:
    import pandas as pd


class Shape(StrEnum):
    """The layout of a spreadsheet of pairs: one row a pair, or a matrix."""

    AUTO = "auto"
    LONG = "long"  # one row a pair
    WIDE = "wide"  # a matrix: one row and one column a job


class Victims(StrEnum):
    """The place of the victims of a matrix, whose slowdowns its cells hold."""

    ROWS = "rows"
    COLUMNS = "columns"


class Decimal(StrEnum):
    """The sign before the fraction of a number."""

    POINT = "."
    COMMA = ","


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The device type, sharing mode and metric of a value, from its row or given for the whole sheet."""

    device_type: str = ""
    mode: SharingMode = DEFAULT_MODE
    metric: str = ""

    def __post_init__(self) -> None:
        check(set_sharing_mode(self))
        if self.metric and self.metric not in METRICS:
            raise InvalidInputError("unknown metric", value=repr(self.metric), remedy=f"one of {', '.join(METRICS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadsheetOptions:
    """The facts about a spreadsheet that its cells do not contain."""

    mapping: Mapping[str, str] = field(default_factory=dict)  # role by column of the pairs
    profile_mapping: Mapping[str, str] = field(default_factory=dict)  # role by column of the jobs
    device_type: str = ""
    mode: SharingMode = DEFAULT_MODE
    metric: str = ""
    decimal: Decimal | None = None  # None: as the first number of a sheet that semicolons separate; else a point
    shape: Shape = Shape.AUTO
    value: str = ""  # what the cells of a matrix mean
    victims: Victims = Victims.ROWS
    source: str = "user"
    campaign: str = ""  # default: file name and digest

    def __post_init__(self) -> None:
        if self.decimal not in (None, *Decimal):
            raise InvalidInputError("no decimal sign", value=repr(self.decimal), remedy="a point or a comma")

    @property
    def conditions(self) -> Conditions:
        """The conditions of rows without conditions of their own. Raises InvalidInputError."""
        return Conditions(device_type=self.device_type, mode=self.mode, metric=self.metric)


def parse_map(texts: "tuple[str, ...] | list[str]") -> dict[str, str]:
    """Return the role of each column from texts `ROLE=COLUMN`. Raises InvalidInputError."""
    mapping: dict[str, str] = {}
    for text in texts:
        role, equals, column = (part.strip() for part in text.partition("="))
        if not (role and equals and column) or column in mapping:
            problem = "a column is mapped twice" if column in mapping else "not a mapping of a column"
            raise InvalidInputError(problem, value=repr(text), remedy="write ROLE=COLUMN, such as victim=job_a")
        mapping[column] = role
    return mapping


SpreadsheetSource: TypeAlias = "Path | str | pd.DataFrame"

DELIMITERS = (",", ";", "\t")
SIGNED_NUMBER = re.compile(r"[+-]?\d*(?P<sign>[.,])\d+([eE][+-]?\d+)?", re.ASCII)
FRAME_NAME = Path("DataFrame")
EMPTY_CELLS = frozenset(("", "-", "–", "na", "n/a", "nan", "none", "null"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The cells of a spreadsheet as text. `rows` leaves empty rows out; `empty_rows` holds their numbers."""

    source: SourceFile
    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]
    empty_rows: tuple[int, ...] = ()
    delimiter: str = ""  # of a CSV file

    def with_decimal(self, columns: Sequence[str], given: Decimal | None) -> "Sheet":
        """Return the sheet with the decimal sign `given`, else with the sign of the first number in `columns`.

        Without a given sign, a comma is a decimal sign only where semicolons separate the columns.
        """
        sign = given
        if sign is None and self.delimiter == ";":
            cells = (row.fields[column] for row in self.rows for column in columns)
            found = (SIGNED_NUMBER.fullmatch(cell) for cell in cells)
            sign = next((Decimal(match["sign"]) for match in found if match), None)
        if sign != Decimal.COMMA:
            return self
        return replace(self, rows=tuple(replace(row, decimal=Decimal.COMMA) for row in self.rows))


def is_empty(cell: str) -> bool:
    """Return whether a cell holds no value: it is blank, or a common word for an absent value such as n/a."""
    return cell.lower() in EMPTY_CELLS


def number_of(row: CsvRow, column: str) -> float:
    """Return the positive number in a cell. Raises TableError, which names row, column and remedy."""
    text = row.fields[column]
    has_other_sign = row.decimal == Decimal.COMMA and "." in text
    plain = text.replace(row.decimal, ".")
    if has_other_sign or not NUMBER.fullmatch(plain):
        remedy = "write digits with a decimal point; leave the cell empty where nothing was measured, `oom` where it "
        remedy += "did not fit"
        if has_other_sign:
            remedy = "write a decimal comma and no thousands separators; where points are the decimal sign: --decimal ."
        elif "," in text:
            remedy = "write a decimal point and no thousands separators; where commas are the decimal sign: --decimal ,"
        elif text.endswith("%"):
            remedy = "write a factor: 35 % slower is a slowdown of 1.35"
        row.fail(column, "a number expected", remedy)
    value = float(plain)
    if not 0 < value < float("inf"):
        row.fail(
            column,
            "must be above 0",
            "leave the cell empty where nothing was measured, write `oom` where the pair does not fit the device",
        )
    return value


def read_sheet(source: SpreadsheetSource, faults: Faults, decimal: Decimal | None = None) -> Sheet:
    """Read a .csv, .tsv or .parquet file, or a pandas DataFrame.

    A row of another width than the header is added to `faults`. Raises TableError for a file without usable columns.
    """
    if not isinstance(source, str | Path):
        return _sheet_of_frame(source, faults, decimal)
    path = Path(source)
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise TableError(
            f"{path.name}: a workbook is not read", value=path, remedy="save the sheet as CSV (UTF-8) and give that"
        )
    if path.suffix.lower() in (".parquet", ".pq"):
        return _sheet_of_parquet(path, faults, decimal)
    return _sheet_of_csv(path, faults)


def _sheet_of_csv(path: Path, faults: Faults) -> Sheet:
    text, source = read_text(path)
    header = text.partition("\n")[0]
    delimiter = max(DELIMITERS, key=header.count)
    numbered = parse_csv(path, io.StringIO(text, newline=""), delimiter=delimiter)
    columns = tuple(name.strip() for name in next(numbered)[1])
    rows = [(number, [cell.strip() for cell in cells]) for number, cells in numbered]
    return _sheet(source, columns, rows, faults, delimiter)


def _sheet_of_parquet(path: Path, faults: Faults, decimal: Decimal | None) -> Sheet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _, source = read_bytes(path)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise TableError(
            f"{path.name} cannot be read as Parquet", value=f"{path}: {error}"[:200], remedy="give a .parquet file"
        ) from None
    columns = [[_cell(value, decimal) for value in column.to_pylist()] for column in table.columns]
    rows = enumerate(map(list, zip(*columns, strict=True)), start=1)
    return _sheet(source, tuple(table.column_names), rows, faults)


def _sheet_of_frame(frame: "pd.DataFrame", faults: Faults, decimal: Decimal | None) -> Sheet:
    columns = tuple(str(name).strip() for name in frame.columns)
    cells = [[_cell(value, decimal) for value in row] for row in frame.itertuples(index=False, name=None)]
    content = "\n".join("\t".join(row) for row in [list(columns), *cells])
    source = SourceFile(path=FRAME_NAME, sha256=hashlib.sha256(content.encode()).hexdigest())
    return _sheet(source, columns, enumerate(cells, start=1), faults)


def _sheet(
    source: SourceFile,
    columns: tuple[str, ...],
    rows: Iterable[tuple[int, list[str]]],
    faults: Faults,
    delimiter: str = "",
) -> Sheet:
    """Return a sheet of numbered rows; rows of another width go to `faults`. Raises TableError for a bad header."""
    path = source.path
    while columns and not columns[-1]:
        columns = columns[:-1]
    check_columns(path, columns, ())
    for k, name in enumerate(columns[1:], start=2):
        if not name:
            raise fault(f"{path.name}, row 1, column {k}", "has no name", path, "name it or delete it")
    kept: list[CsvRow] = []
    empty: list[int] = []
    for number, row_cells in rows:
        cells = row_cells
        if not any(cells):
            empty.append(number)
            continue
        while len(cells) > len(columns) and not cells[-1]:
            cells = cells[:-1]
        row = faults.read(partial(csv_row, path, number, cells, columns), None)
        kept += [row] if row else []
    if not kept:
        faults.raise_all()
        raise TableError(f"{path.name}: no rows below the header", value=path, remedy="fill in one row a pair")
    return Sheet(source=source, columns=columns, rows=tuple(kept), empty_rows=tuple(empty), delimiter=delimiter)


def _cell(value: Any, decimal: Decimal | None) -> str:
    """Return a value as the text of a cell, a number with the decimal sign of the sheet; "" for an absent value."""
    if value is None or value is getattr(value, "NaT", ()) or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float):
        return repr(float(value)).replace(".", decimal or Decimal.POINT)
    text = str(value).strip()
    return "" if text in ("NaT", "<NA>") else text
