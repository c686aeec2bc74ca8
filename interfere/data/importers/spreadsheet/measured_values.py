"""One measured value of a spreadsheet, with the job, the company and the conditions that it belongs to.

Both shapes become the same readings: a sheet with one row a pair, and a matrix with one row and one column a job.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from interfere.data.importers.device_names import device_type_of_product
from interfere.data.importers.spreadsheet.column_roles import (
    MEASURES,
    ColumnRoles,
    Measure,
    Side,
    ValueKind,
    normalised,
)
from interfere.data.importers.spreadsheet.pair_layouts import Victims
from interfere.data.importers.spreadsheet.sheet import Sheet, is_empty
from interfere.data.importers.strict_reading import NUMBER, CsvRow
from interfere.errors import InvalidInputError, TableError
from interfere.records import METRICS
from interfere.records.checks import check
from interfere.sharing_modes import MODE_WORDS, OptionalSharingMode, SharingMode, set_sharing_mode

ALONE_WORDS = frozenset(("alone", "solo"))
INFEASIBLE_WORDS = frozenset(("infeasible", "oom", "out of memory", "does not fit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Device type, sharing mode and metric of a value: from its row, else those given for the whole sheet."""

    device_type: str = ""
    mode: OptionalSharingMode = ""
    metric: str = ""

    def __post_init__(self) -> None:
        if self.mode:
            check(set_sharing_mode(self))
        if self.metric and self.metric not in METRICS:
            raise InvalidInputError("unknown metric", value=repr(self.metric), remedy=f"one of {', '.join(METRICS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The value of one victim beside one neighbour, still as text; `neighbour` is "" where the victim ran alone."""

    row: CsvRow
    column: str  # of the value
    measure: Measure
    victim: str
    neighbour: str
    conditions: Conditions
    solo_column: str = ""  # of the victim's value alone in the same row
    solo_measure: Measure | None = None
    is_own_side: bool = True  # False: the value is that of the row's neighbour, and the names are swapped

    @property
    def text(self) -> str:
        """The cell of the value."""
        return self.row.fields[self.column]

    @property
    def marked_infeasible(self) -> bool:
        """Whether the cell says that the jobs cannot share the device."""
        return self.text.lower() in INFEASIBLE_WORDS


def number_of(row: CsvRow, column: str) -> float:
    """The positive number in a cell. Raises TableError, which names row, column and remedy."""
    text = row.fields[column]
    if not NUMBER.fullmatch(text):
        remedy = "write digits with a decimal point; leave the cell empty where nothing was measured, `oom` where it "
        remedy += "did not fit"
        if "," in text:
            remedy = "write a decimal point instead of the comma, and no thousands separators"
        elif text.endswith("%"):
            remedy = "write a factor: 35 % slower is a slowdown of 1.35"
        row.fail(column, "a number expected", remedy)
    value = float(text)
    if not 0 < value < float("inf"):
        row.fail(
            column,
            "must be above 0",
            "leave the cell empty where nothing was measured, write `oom` where the pair does not fit the device",
        )
    return value


def long_readings(sheet: Sheet, roles: ColumnRoles, given: Conditions) -> Iterator[Reading]:
    """The readings of a sheet with one row a pair: one or two of each row."""
    own, solo = roles.measured(Side.OWN), roles.measured(Side.SOLO)
    neighbours, neighbours_solo = roles.measured(Side.NEIGHBOUR), roles.measured(Side.NEIGHBOUR_SOLO)
    if own is None:
        raise TableError(
            f"{sheet.source.path.name}, row 1: no column holds the measured value",
            value=f"found {', '.join(sheet.columns)[:200]}",
            remedy="map one: --map slowdown=COLUMN, or speed, throughput, step_time_s, step_time_ms, latency_p99_ms",
        )
    for row in sheet.rows:
        victim = _job(row, roles.column("victim"))
        neighbour = _neighbour(row, roles.column("neighbour"), own[1])
        conditions = _row_conditions(row, roles, given, own[1])
        yield _reading(row, (victim, neighbour), own, solo, conditions, is_own_side=True)
        if neighbours and neighbour:
            yield _reading(row, (neighbour, victim), neighbours, neighbours_solo, conditions, is_own_side=False)


def _reading(
    row: CsvRow,
    jobs: tuple[str, str],
    value: tuple[str, Measure],
    solo: tuple[str, Measure] | None,
    conditions: Conditions,
    *,
    is_own_side: bool,
) -> Reading:
    return Reading(
        row=row,
        column=value[0],
        measure=value[1],
        victim=jobs[0],
        neighbour=jobs[1],
        conditions=conditions,
        solo_column=solo[0] if solo else "",
        solo_measure=solo[1] if solo else None,
        is_own_side=is_own_side,
    )


def is_matrix(sheet: Sheet, roles: ColumnRoles) -> bool:
    """Whether a sheet without columns for victim and neighbour has its jobs as rows and as columns."""
    if roles.column("victim") and roles.column("neighbour"):
        return False
    names = {row.fields[sheet.columns[0]] for row in sheet.rows}
    return bool(names & set(sheet.columns[1:]))


def matrix_measure(sheet: Sheet, value: str) -> Measure:
    """What the cells of a matrix mean: as given, else as its first column is called. Raises InvalidInputError."""
    name = value or normalised(sheet.columns[0])
    if name not in MEASURES:
        raise InvalidInputError(
            "what the cells of the matrix mean is not known" if not value else "no such measured value",
            value=repr(value or sheet.columns[0]),
            remedy=f"say it with --value, or as the name of the first column: one of {', '.join(MEASURES)}",
        )
    return MEASURES[name]


def matrix_readings(
    sheet: Sheet, roles: ColumnRoles, measure: Measure, given: Conditions, victims: Victims
) -> Iterator[Reading]:
    """The readings of a matrix: one of each cell; a row or column called `alone` holds the values alone."""
    names = sheet.columns[0]
    jobs = [column for column in sheet.columns[1:] if roles.role_of[column] not in ("device_type", "mode", "metric")]
    seen: dict[tuple[str, Conditions], int] = {}
    for row in sheet.rows:
        conditions = _row_conditions(row, roles, given, measure)
        name = row.fields[names]
        key = (name, conditions)
        if key in seen:
            row.fail(names, f"the same job as in row {seen[key]}", "keep one row a job; repeats fit the long shape")
        seen[key] = row.row_number
        for column in jobs:
            victim, neighbour = (name, column) if victims is Victims.ROWS else (column, name)
            if victim.lower() in ALONE_WORDS:
                row.fail(column, "a value of `alone` beside a job", f"swap the matrix: --victims {_other(victims)}")
            if neighbour.lower() in ALONE_WORDS:
                neighbour = ""
            yield _reading(
                row, (_checked(row, names, victim), neighbour), (column, measure), None, conditions, is_own_side=True
            )


def _other(victims: Victims) -> str:
    return (Victims.COLUMNS if victims is Victims.ROWS else Victims.ROWS).value


def _job(row: CsvRow, column: str) -> str:
    if not column:
        raise TableError(
            f"{row.path.name}, row 1, column victim: missing",
            value=f"found {', '.join(row.fields)[:200]}",
            remedy="map the columns of the two jobs: --map victim=COLUMN --map neighbour=COLUMN; of a matrix, name the "
            "rows as the columns",
        )
    return _checked(row, column, row.fields[column])


def _neighbour(row: CsvRow, column: str, measure: Measure) -> str:
    """The neighbour of a row; "" where the row is the victim alone."""
    if not column:
        _job(row, "")
    text = row.fields[column]
    if text.lower() in ALONE_WORDS or (not text and measure.needs_solo):
        return ""
    return _checked(row, column, text)


def _checked(row: CsvRow, column: str, name: str) -> str:
    if is_empty(name) or len(name) > 256 or not name.isprintable():
        row.fail(column, "the name of a job expected", "write 1 to 256 printable characters")
    return name


def _row_conditions(row: CsvRow, roles: ColumnRoles, given: Conditions, measure: Measure) -> Conditions:
    """The conditions of a row. Raises TableError where a value is unknown, missing, or contradicts another."""

    def text(role: str) -> str:
        column = roles.column(role)
        return "" if not column or is_empty(row.fields[column]) else row.fields[column]

    device_type = text("device_type") or given.device_type
    if not device_type:
        _missing(row, roles, "device_type", "name it: --device a100-80gb, or a column device_type")
    mode = next((known for known in SharingMode if known == (text("mode").lower() or given.mode)), None)
    if mode is None:
        _missing(row, roles, "mode", f"one of {MODE_WORDS}: --mode, or a column mode")
    metric = text("metric") or given.metric or measure.metric or "step_time_mean"
    if metric not in METRICS:
        _missing(row, roles, "metric", f"one of {', '.join(METRICS)}")
    if measure.kind is ValueKind.TIME and measure.metric != metric:
        _missing(row, roles, "metric", f"the values are {measure.metric}: leave the metric out")
    return Conditions(device_type=device_type_of_product(device_type), mode=mode, metric=metric)


def _missing(row: CsvRow, roles: ColumnRoles, role: str, remedy: str) -> NoReturn:
    column = roles.column(role)
    if column:
        row.fail(column, f"no known {role}", remedy)
    raise TableError(f"{row.path.name}: no {role} is known", value=row.path, remedy=remedy)
