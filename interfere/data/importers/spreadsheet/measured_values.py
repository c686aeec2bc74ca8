"""One measured value of a spreadsheet, with the job, the company and the conditions that it belongs to.

Both shapes become the same readings: a sheet with one row a pair, and a matrix with one row and one column a job.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from interfere.data.importers.device_names import device_type_of_product
from interfere.data.importers.spreadsheet.columns import (
    ALONE_WORDS,
    MEASURES,
    ColumnRoles,
    Measure,
    ValueKind,
    ValueOwner,
    normalised,
)
from interfere.data.importers.spreadsheet.options import Conditions, SpreadsheetOptions, Victims
from interfere.data.importers.spreadsheet.sheet import Sheet, is_empty
from interfere.data.importers.strict_reading import CsvRow, Faults, fault
from interfere.errors import InvalidInputError
from interfere.records import METRICS
from interfere.sharing_modes import MODE_WORDS, SharingMode

INFEASIBLE_WORDS = frozenset(("infeasible", "oom", "out of memory", "does not fit"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCell:
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
    is_whole: bool = True  # False: its names or conditions are faulty, and only its number is still looked at

    @property
    def text(self) -> str:
        """The cell of the value."""
        return self.row.fields[self.column]

    @property
    def marked_infeasible(self) -> bool:
        """Whether the cell says that the jobs cannot share the device."""
        return self.text.lower() in INFEASIBLE_WORDS


def long_readings(sheet: Sheet, roles: ColumnRoles, given: Conditions, faults: Faults) -> Iterator[MeasuredCell]:
    """Return the readings of a sheet with one row per pair: one or two readings of each row.

    Raises TableError for missing columns.
    """
    own, solo = roles.measured(ValueOwner.OWN), roles.measured(ValueOwner.SOLO)
    neighbours, neighbours_solo = roles.measured(ValueOwner.NEIGHBOUR), roles.measured(ValueOwner.NEIGHBOUR_SOLO)
    missing = [role for role in ("victim", "neighbour") if not roles.column(role)]
    found = f"found {', '.join(sheet.columns)[:200]}"
    if missing:
        remedy = "name the columns of both jobs: --column victim=COLUMN --column neighbour=COLUMN; of a matrix, name "
        remedy += "the rows as the columns"
        raise fault(f"{sheet.source.path.name}, row 1, column {missing[0]}", "missing", found, remedy)
    if own is None:
        remedy = "map one: --column slowdown=COLUMN, or speed, throughput, step_time_s, step_time_ms, latency_p99_ms"
        raise fault(f"{sheet.source.path.name}, row 1", "no column holds the measured value", found, remedy)
    for row in sheet.rows:
        before = len(faults)
        victim = faults.read(partial(_job, row, roles.column("victim")), "")
        neighbour = faults.read(partial(_neighbour, row, roles.column("neighbour"), own[1]), "")
        conditions = faults.read(partial(_row_conditions, row, roles, given, own[1]), given)
        make = partial(MeasuredCell, row=row, conditions=conditions, is_whole=len(faults) == before)
        yield _reading(make, (victim, neighbour), own, solo, is_own_side=True)
        if neighbours and neighbour:
            yield _reading(make, (neighbour, victim), neighbours, neighbours_solo, is_own_side=False)


def _reading(
    make: Callable[..., MeasuredCell],
    jobs: tuple[str, str],
    value: tuple[str, Measure],
    solo: tuple[str, Measure] | None,
    *,
    is_own_side: bool,
) -> MeasuredCell:
    return make(
        column=value[0],
        measure=value[1],
        victim=jobs[0],
        neighbour=jobs[1],
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
    """Return the measure of the cells of a matrix: the given one, else the one that its first column names.

    Raises InvalidInputError.
    """
    name = value or normalised(sheet.columns[0])
    if name not in MEASURES:
        raise InvalidInputError(
            "what the cells of the matrix mean is not known" if not value else "no such measured value",
            value=repr(value or sheet.columns[0]),
            remedy=f"say it with --value, or as the name of the first column: one of {', '.join(MEASURES)}",
        )
    return MEASURES[name]


def matrix_readings(
    sheet: Sheet, roles: ColumnRoles, measure: Measure, options: SpreadsheetOptions, faults: Faults
) -> Iterator[MeasuredCell]:
    """Return the readings of a matrix, one per cell. A row or column called `alone` holds the values of jobs alone."""
    names, given = sheet.columns[0], options.conditions
    seen: dict[tuple[str, Conditions], int] = {}
    for row in sheet.rows:
        before = len(faults)
        conditions = faults.read(partial(_row_conditions, row, roles, given, measure), given)
        name = row.fields[names]
        if name.lower() not in ALONE_WORDS:
            name = faults.read(partial(_job, row, names), "")
        first_row = seen.setdefault((name, conditions), row.row_number)
        if first_row != row.row_number and len(faults) == before:
            remedy = "keep one row a job; repeats fit the long shape"
            faults.read(partial(row.fail, names, f"the same job as in row {first_row}", remedy), None)
        for column in matrix_columns(sheet, roles):
            victim, neighbour = (name, column) if options.victims is Victims.ROWS else (column, name)
            if victim.lower() in ALONE_WORDS:
                remedy = f"swap the matrix: --victims {_other(options.victims)}"
                faults.read(partial(row.fail, column, "a value of `alone` beside a job", remedy), None)
                continue
            make = partial(MeasuredCell, row=row, conditions=conditions, is_whole=len(faults) == before)
            jobs = victim, "" if neighbour.lower() in ALONE_WORDS else neighbour
            yield _reading(make, jobs, (column, measure), None, is_own_side=True)


def matrix_columns(sheet: Sheet, roles: ColumnRoles) -> list[str]:
    """The columns of a matrix that are jobs."""
    return [column for column in sheet.columns[1:] if roles.role_of[column] not in ("device_type", "mode", "metric")]


def _other(victims: Victims) -> str:
    return (Victims.COLUMNS if victims is Victims.ROWS else Victims.ROWS).value


def _neighbour(row: CsvRow, column: str, measure: Measure) -> str:
    """The neighbour of a row; "" where the row is the victim alone."""
    text = row.fields[column]
    if text.lower() in ALONE_WORDS or (not text and measure.needs_solo):
        return ""
    return _job(row, column)


def _job(row: CsvRow, column: str) -> str:
    """The name of a job. Raises TableError."""
    name = row.fields[column]
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
        _missing(row, roles, "device_type", "name it: --device-type a100-80gb, or a column device_type")
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
    raise fault(row.path.name, f"no {role} is known", row.path, remedy)
