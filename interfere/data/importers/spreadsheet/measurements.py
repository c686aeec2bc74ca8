"""Measured values of a spreadsheet, and the slowdowns of ordered pairs that they give.

Both shapes become the same cells: a sheet with one row a pair, and a matrix with one row and one column a job.

slowdown = value of the victim beside the neighbour / its value alone. The value alone is that of the same row, else of
a row of the victim alone, else the step time of its profile. Several cells of one ordered pair are repeats: their
geometric mean counts, and each is one entry of `passes`. Law: a cell becomes part of a measurement, a fault, or a
dropped value that is counted by its reason.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from interfere.data.importers.import_result import Notice, dropped
from interfere.data.importers.spreadsheet.columns import (
    ALONE_WORDS,
    CONDITIONS,
    MEASURES,
    ColumnRoles,
    Measure,
    ValueKind,
    ValueOwner,
    normalised,
)
from interfere.data.importers.spreadsheet.sheet import (
    Conditions,
    Sheet,
    SpreadsheetOptions,
    Victims,
    is_empty,
    number_of,
)
from interfere.data.importers.strict_reading import CsvRow, Faults, fault
from interfere.devices import device_type_of_product
from interfere.errors import InvalidInputError
from interfere.records import MAX_SLOWDOWN, METRICS, MIN_SLOWDOWN, NAN, PairMeasurement, PairStatus
from interfere.sharing_modes import MODE_WORDS, SharingMode

INFEASIBLE_WORDS = frozenset(("infeasible", "oom", "out of memory", "does not fit"))
REASONS = {
    PairStatus.INFEASIBLE: "marked in the spreadsheet as not fitting the device together",
    PairStatus.UNSTABLE: "marked unstable in the spreadsheet",
}
NO_VALUE = "a number: the cell is empty"
NO_SOLO = "the value alone: give a solo column, a row of the job alone, or its step time in --profiles"
ALONE_BY_DEFINITION = "a neighbour: a job alone has a slowdown of 1 by definition"
SoloKey = tuple[str, Conditions]  # job, conditions
PairKey = tuple[str, str, Conditions]  # victim, neighbour, conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCell:
    """The value of a victim beside a neighbour, still as text; `neighbour` is "" where the victim ran alone."""

    row: CsvRow
    column: str  # of the value
    measure: Measure
    victim: str
    neighbour: str
    conditions: Conditions
    solo: tuple[str, Measure] | None = None  # column and meaning of the victim's value alone in the same row
    is_own_side: bool = True  # False: the value is that of the row's neighbour, and the names are swapped
    is_whole: bool = True  # False: its names or conditions are faulty, and only its number is still looked at

    @property
    def text(self) -> str:
        """The text of the spreadsheet cell that holds the value."""
        return self.row.fields[self.column]

    @property
    def solo_step_time_s(self) -> float:
        """The seconds of a step of the victim alone, as the row states them; NaN where it does not. Raises
        TableError."""
        if self.solo is None or is_empty(self.row.fields[self.solo[0]]):
            return NAN
        column, measure = self.solo
        return measure.step_time_s(number_of(self.row, column))


# --- cells of both shapes --------------------------------------------------------------------------------------------


def long_cells(sheet: Sheet, roles: ColumnRoles, given: Conditions, faults: Faults) -> Iterator[MeasuredCell]:
    """Yield the measured cells of a sheet with one row per pair: one cell of each row, or one for each of its jobs.

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
        yield make(column=own[0], measure=own[1], victim=victim, neighbour=neighbour, solo=solo)
        if neighbours and neighbour:
            swapped = partial(make, victim=neighbour, neighbour=victim, is_own_side=False)
            yield swapped(column=neighbours[0], measure=neighbours[1], solo=neighbours_solo)


def is_matrix(sheet: Sheet, roles: ColumnRoles) -> bool:
    """Return whether a sheet without columns for victim and neighbour has its jobs as rows and as columns."""
    if roles.column("victim") and roles.column("neighbour"):
        return False
    names = {row.fields[sheet.columns[0]] for row in sheet.rows}
    return bool(names & set(sheet.columns[1:]))


def matrix_measure(sheet: Sheet, value: str) -> Measure:
    """Return the measure of a matrix: `value`, else the measure that the first column names. Raises
    InvalidInputError."""
    name = value or normalised(sheet.columns[0])
    if name not in MEASURES:
        raise InvalidInputError(
            "what the cells of the matrix mean is not known" if not value else "no such measured value",
            value=repr(value or sheet.columns[0]),
            remedy=f"say it with --value, or as the name of the first column: one of {', '.join(MEASURES)}",
        )
    return MEASURES[name]


def matrix_columns(sheet: Sheet, roles: ColumnRoles) -> list[str]:
    """Return the columns of a matrix of slowdowns that stand for jobs."""
    return [column for column in sheet.columns[1:] if roles.role_of[column] not in CONDITIONS]


def matrix_cells(
    sheet: Sheet, roles: ColumnRoles, measure: Measure, options: SpreadsheetOptions, faults: Faults
) -> Iterator[MeasuredCell]:
    """Yield the measured cells of a matrix. A row or column called `alone` holds the values of jobs alone."""
    names, given = sheet.columns[0], options.conditions
    victims_are_rows = options.victims is Victims.ROWS
    seen: dict[tuple[str, Conditions], int] = {}
    for row in sheet.rows:
        before = len(faults)
        conditions = faults.read(partial(_row_conditions, row, roles, given, measure), given)
        name = row.fields[names]
        if name.lower() not in ALONE_WORDS:
            name = faults.read(partial(_job, row, names), "")
        first_row = seen.setdefault((name, conditions), row.row_number)
        if first_row != row.row_number and len(faults) == before:
            faults.at(
                row, names, f"the same job as in row {first_row}", "keep one row a job; repeats fit the long shape"
            )
        for column in matrix_columns(sheet, roles):
            victim, neighbour = (name, column) if victims_are_rows else (column, name)
            if victim.lower() in ALONE_WORDS:
                other = Victims.COLUMNS if victims_are_rows else Victims.ROWS
                faults.at(row, column, "a value of `alone` beside a job", f"swap the matrix: --victims {other}")
                continue
            yield MeasuredCell(
                row=row,
                column=column,
                measure=measure,
                victim=victim,
                neighbour="" if neighbour.lower() in ALONE_WORDS else neighbour,
                conditions=conditions,
                is_whole=len(faults) == before,
            )


def _neighbour(row: CsvRow, column: str, measure: Measure) -> str:
    """Return the neighbour that a row names; "" where the row is about the victim alone. Raises TableError."""
    text = row.fields[column]
    if text.lower() in ALONE_WORDS or (not text and measure.needs_solo):
        return ""
    return _job(row, column)


def _job(row: CsvRow, column: str) -> str:
    """Return the name of a job in a cell. Raises TableError."""
    name = row.fields[column]
    if is_empty(name) or len(name) > 256 or not name.isprintable():
        row.fail(column, "the name of a job expected", "write 1 to 256 printable characters")
    return name


def _row_conditions(row: CsvRow, roles: ColumnRoles, given: Conditions, measure: Measure) -> Conditions:
    """Return device type, sharing mode and metric of a row.

    Raises TableError where one of them is unknown, missing, or contradicts another.
    """
    device_type = roles.text(row, "device_type") or given.device_type
    if not device_type:
        _unknown(row, roles, "device_type", "name it: --device-type a100-80gb, or a column device_type")
    mode = next((known for known in SharingMode if known == (roles.text(row, "mode").lower() or given.mode)), None)
    if mode is None:
        _unknown(row, roles, "mode", f"one of {MODE_WORDS}: --mode, or a column mode")
    metric = roles.text(row, "metric") or given.metric or measure.metric or "step_time_mean"
    if metric not in METRICS:
        _unknown(row, roles, "metric", f"one of {', '.join(METRICS)}")
    if measure.kind is ValueKind.TIME and measure.metric != metric:
        _unknown(row, roles, "metric", f"the values are {measure.metric}: leave the metric out")
    return Conditions(device_type=device_type_of_product(device_type), mode=mode, metric=metric)


def _unknown(row: CsvRow, roles: ColumnRoles, role: str, remedy: str) -> NoReturn:
    column = roles.column(role)
    if column:
        row.fail(column, f"no known {role}", remedy)
    raise fault(row.path.name, f"no {role} is known", row.path, remedy)


# --- slowdowns -------------------------------------------------------------------------------------------------------


def dropped_values(rows_of_reason: Mapping[str, Sequence[int]]) -> tuple[Notice, ...]:
    """Return a notice for each reason why values became no measurement; it holds their row numbers."""
    return tuple(
        dropped(len(rows), f"values without {lacking}", why, rows=tuple(sorted(set(rows))))
        for reason, rows in rows_of_reason.items()
        for lacking, _, why in (reason.partition(": "),)
    )


def solo_step_times(
    cells: Sequence[MeasuredCell], profiles: Mapping[tuple[str, str], float], faults: Faults
) -> dict[SoloKey, float]:
    """Return the seconds of a step of each job alone, from rows of the job alone, else from the job's profile.

    `profiles` holds the step time of a profile by (workload, device type).
    """
    measured: dict[SoloKey, list[float]] = defaultdict(list)
    for cell in cells:
        if cell.neighbour or not cell.measure.needs_solo or is_empty(cell.text):
            continue
        value = faults.read(partial(number_of, cell.row, cell.column), None)
        if value is not None:
            measured[cell.victim, cell.conditions].append(cell.measure.step_time_s(value))
    solo = {key: _geometric_mean(values) for key, values in measured.items()}
    for cell in cells:
        step_time_s = profiles.get((cell.victim, cell.conditions.device_type), NAN)
        if cell.conditions.metric == "step_time_mean" and not math.isnan(step_time_s):
            solo.setdefault((cell.victim, cell.conditions), step_time_s)
    return solo


def row_solo_step_times(cells: Iterable[MeasuredCell], faults: Faults) -> dict[SoloKey, list[float]]:
    """Return the seconds of a step of each job alone from the solo columns of all rows."""
    found: dict[SoloKey, list[float]] = defaultdict(list)
    for cell in cells:
        step_time_s = faults.read(partial(getattr, cell, "solo_step_time_s"), NAN)
        if not math.isnan(step_time_s):
            found[cell.victim, cell.conditions].append(step_time_s)
    return found


def pair_measurements(
    cells: Sequence[MeasuredCell],
    roles: ColumnRoles,
    solo: Mapping[SoloKey, float],
    faults: Faults,
    *,
    source: str,
    campaign: str,
) -> tuple[tuple[PairMeasurement, ...], dict[str, list[int]]]:
    """Return the measurement of each ordered pair, and the row numbers of dropped values by reason.

    Faulty cells are added to `faults`. `campaign` names the campaign of rows without a name of their own.
    """
    values: dict[str, list[int]] = defaultdict(list)
    repeats: dict[PairKey, list[tuple[MeasuredCell, float]]] = defaultdict(list)  # NaN: infeasible or unstable
    for cell in cells:
        if cell.neighbour:
            slowdown = faults.read(partial(_slowdown, cell, roles, solo, values), None)
            if slowdown is not None and cell.is_whole:
                repeats[cell.victim, cell.neighbour, cell.conditions].append((cell, slowdown))
        elif not cell.measure.needs_solo:
            values[ALONE_BY_DEFINITION].append(cell.row.row_number)
    made = (
        faults.read(partial(_measurement, key, of_pair, roles, source, campaign), None)
        for key, of_pair in repeats.items()
    )
    return tuple(measurement for measurement in made if measurement is not None), values


def _slowdown(
    cell: MeasuredCell, roles: ColumnRoles, solo: Mapping[SoloKey, float], values: dict[str, list[int]]
) -> float | None:
    """Return the slowdown of a cell; NaN where its status says that there is none, None where it was dropped."""
    if _status(cell, roles) is not PairStatus.OK:
        return NAN
    if is_empty(cell.text):
        values[NO_VALUE].append(cell.row.row_number)
        return None
    slowdown = number_of(cell.row, cell.column)
    if cell.measure.kind is ValueKind.SPEED:
        slowdown = 1.0 / slowdown
    elif cell.measure.needs_solo:
        alone_s = cell.solo_step_time_s
        alone_s = solo.get((cell.victim, cell.conditions), NAN) if math.isnan(alone_s) else alone_s
        if math.isnan(alone_s):
            values[NO_SOLO].append(cell.row.row_number)
            return None
        slowdown = cell.measure.step_time_s(slowdown) / alone_s
    if not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
        cell.row.fail(
            cell.column,
            f"a slowdown of {slowdown:.4g}, outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]",
            "check the unit, and that the column is not a speed (--column speed=...) or a percentage",
        )
    return slowdown


def _status(cell: MeasuredCell, roles: ColumnRoles) -> PairStatus:
    """Return the status that a cell or its row states; ok where they state none. Raises TableError for an unknown
    word."""
    if cell.text.lower() in INFEASIBLE_WORDS:
        return PairStatus.INFEASIBLE
    text = roles.text(cell.row, "status").lower()
    try:
        return PairStatus(text) if text else PairStatus.OK
    except ValueError:
        remedy = f"one of {', '.join(PairStatus)}, or empty for ok"
        cell.row.fail(roles.column("status"), "no known status", remedy)


def _measurement(
    key: PairKey, repeats: Sequence[tuple[MeasuredCell, float]], roles: ColumnRoles, source: str, campaign: str
) -> PairMeasurement:
    """Return the measurement of an ordered pair from its cells and their slowdowns. Raises TableError."""
    victim, neighbour, conditions = key
    first = repeats[0][0]
    status = _status(first, roles)
    for cell, _ in repeats[1:]:
        if (other := _status(cell, roles)) is not status:
            problem = f"status {other.value} contradicts row {first.row.row_number}, {status.value}"
            cell.row.fail(cell.column, problem, "keep the rows of one status")
    passes = tuple(slowdown for _, slowdown in repeats if not math.isnan(slowdown))
    slowdown = _geometric_mean(passes) if passes else NAN
    lower, upper = _interval(first, roles, slowdown) if len(repeats) == 1 else (NAN, NAN)
    measured_at = roles.text(first.row, "measured_at_s")
    return PairMeasurement(
        victim=victim,
        neighbour=neighbour,
        device_type=conditions.device_type,
        mode=conditions.mode,
        metric=conditions.metric,
        slowdown=slowdown,
        lower=lower,
        upper=upper,
        passes=passes,
        status=status,
        reason=roles.text(first.row, "reason") or REASONS.get(status, ""),
        source=source,
        campaign=roles.text(first.row, "campaign") or campaign,
        device_name=roles.text(first.row, "device_name"),
        measured_at_s=number_of(first.row, roles.column("measured_at_s")) if measured_at else NAN,
    )


def _interval(cell: MeasuredCell, roles: ColumnRoles, slowdown: float) -> tuple[float, float]:
    """Return lower and upper end of the slowdown's interval in one row; NaN where the row states none."""
    if not cell.is_own_side:
        return NAN, NAN
    lower, upper = (
        number_of(cell.row, roles.column(role)) if roles.text(cell.row, role) else NAN for role in ("lower", "upper")
    )
    if lower > slowdown or upper < slowdown:
        cell.row.fail(
            roles.column("lower" if lower > slowdown else "upper"),
            f"the interval does not hold the slowdown {slowdown:.4g}",
            "give the interval of the slowdown itself, or keep it as an extra",
        )
    return lower, upper


def _geometric_mean(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else math.exp(sum(map(math.log, values)) / len(values))
