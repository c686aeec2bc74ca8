"""Turns readings into measurements of ordered pairs, and counts every reading that becomes none.

slowdown = value of the victim beside the neighbour / its value alone. The value alone is that of the same row, else of
a row of the victim alone, else the step time of its profile. Several readings of one ordered pair are repeats: their
geometric mean counts, and each is one entry of `passes`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from interfere.data.importers.import_result import Notice, Treatment
from interfere.data.importers.spreadsheet.columns import ColumnRoles, ValueKind
from interfere.data.importers.spreadsheet.measured_values import MeasuredCell
from interfere.data.importers.spreadsheet.options import Conditions
from interfere.data.importers.spreadsheet.sheet import is_empty, number_of
from interfere.data.importers.strict_reading import Faults
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, PairMeasurement, PairStatus

INFEASIBLE_REASON = "marked in the spreadsheet as not fitting the device together"
SoloKey = tuple[str, Conditions]  # job, conditions
PairKey = tuple[str, str, Conditions]  # victim, neighbour, conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetOrigin:
    """The properties that all measurements of one sheet share."""

    name: str
    campaign: str


@dataclass(slots=True)
class DroppedRows:
    """Row numbers of readings that became no measurement, by reason."""

    by_reason: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, reason: str, row: int) -> None:
        """Count one measurement that was left out."""
        self.by_reason[reason].append(row)

    def notices(self) -> tuple[Notice, ...]:
        """Return one notice per reason."""
        return tuple(
            Notice(
                treatment=Treatment.DROPPED,
                subject=f"values without {reason.partition(':')[0]}",
                count=len(rows),
                reason=reason.partition(": ")[2],
                rows=tuple(sorted(set(rows))),
            )
            for reason, rows in self.by_reason.items()
        )


NO_VALUE = "a number: the cell is empty"
NO_SOLO = "the value alone: give a solo column, a row of the job alone, or its step time in --profiles"
ALONE_BY_DEFINITION = "a neighbour: a job alone has a slowdown of 1 by definition"


def solo_step_times(
    readings: Sequence[MeasuredCell], profiles: Mapping[tuple[str, str], float], faults: Faults
) -> dict[SoloKey, float]:
    """Seconds of one step alone, from rows of a job alone; `profiles` have it by (workload, device type)."""
    measured: dict[SoloKey, list[float]] = defaultdict(list)
    for reading in readings:
        if reading.neighbour or not reading.measure.needs_solo or is_empty(reading.text):
            continue
        value = faults.read(partial(number_of, reading.row, reading.column), None)
        if value is not None:
            measured[reading.victim, reading.conditions].append(reading.measure.step_time_s(value))
    solo = {key: _geometric_mean(values) for key, values in measured.items()}
    for reading in readings:
        key = (reading.victim, reading.conditions)
        step_time_s = profiles.get((reading.victim, reading.conditions.device_type), NAN)
        if key not in solo and reading.conditions.metric == "step_time_mean" and not math.isnan(step_time_s):
            solo[key] = step_time_s
    return solo


def row_solo_step_times(readings: Iterable[MeasuredCell], faults: Faults) -> dict[SoloKey, list[float]]:
    """Return the seconds of one step alone from the solo columns of all rows."""
    found: dict[SoloKey, list[float]] = defaultdict(list)
    for reading in readings:
        step_time_s = faults.read(partial(_row_solo, reading), NAN)
        if not math.isnan(step_time_s):
            found[reading.victim, reading.conditions].append(step_time_s)
    return found


def pair_measurements(
    readings: Sequence[MeasuredCell],
    roles: ColumnRoles,
    solo: Mapping[SoloKey, float],
    source: SheetOrigin,
    dropped: DroppedRows,
    faults: Faults,
) -> tuple[PairMeasurement, ...]:
    """The measurement of each ordered pair; what becomes none is added to `dropped`, or to `faults`."""
    repeats: dict[PairKey, list[tuple[MeasuredCell, float]]] = defaultdict(list)  # NaN: infeasible or unstable
    for reading in readings:
        number = reading.row.row_number
        if not reading.neighbour:
            if not reading.measure.needs_solo:
                dropped.add(ALONE_BY_DEFINITION, number)
            continue
        slowdown = faults.read(partial(_slowdown, reading, roles, solo, dropped), None)
        if slowdown is not None and reading.is_whole:
            repeats[reading.victim, reading.neighbour, reading.conditions].append((reading, slowdown))
    made = (faults.read(partial(_measurement, key, found, roles, source), None) for key, found in repeats.items())
    return tuple(measurement for measurement in made if measurement is not None)


def _slowdown(
    reading: MeasuredCell, roles: ColumnRoles, solo: Mapping[SoloKey, float], dropped: DroppedRows
) -> float | None:
    """Return the slowdown of a reading; NaN where its status says that there is none, None where it was dropped."""
    if _status(reading, roles) is not PairStatus.OK:
        return NAN
    if is_empty(reading.text):
        dropped.add(NO_VALUE, reading.row.row_number)
        return None
    value, kind = number_of(reading.row, reading.column), reading.measure.kind
    if kind is ValueKind.SLOWDOWN:
        slowdown = value
    elif kind is ValueKind.SPEED:
        slowdown = 1.0 / value
    else:
        alone_s = _row_solo(reading)
        alone_s = solo.get((reading.victim, reading.conditions), NAN) if math.isnan(alone_s) else alone_s
        if math.isnan(alone_s):
            dropped.add(NO_SOLO, reading.row.row_number)
            return None
        slowdown = reading.measure.step_time_s(value) / alone_s
    if not MIN_SLOWDOWN <= slowdown <= MAX_SLOWDOWN:
        reading.row.fail(
            reading.column,
            f"a slowdown of {slowdown:.4g}, outside [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]",
            "check the unit, and that the column is not a speed (--column speed=...) or a percentage",
        )
    return slowdown


def _status(reading: MeasuredCell, roles: ColumnRoles) -> PairStatus:
    if reading.marked_infeasible:
        return PairStatus.INFEASIBLE
    column = roles.column("status")
    text = reading.row.fields[column].lower() if column else ""
    if not column or is_empty(text):
        return PairStatus.OK
    try:
        return PairStatus(text)
    except ValueError:
        reading.row.fail(column, "no known status", f"one of {', '.join(PairStatus)}, or empty for ok")


def _row_solo(reading: MeasuredCell) -> float:
    """Return the seconds of one step alone that the row states, else NaN."""
    if reading.solo_measure is None or is_empty(reading.row.fields[reading.solo_column]):
        return NAN
    return reading.solo_measure.step_time_s(number_of(reading.row, reading.solo_column))


def _measurement(
    key: PairKey, repeats: Sequence[tuple[MeasuredCell, float]], roles: ColumnRoles, source: SheetOrigin
) -> PairMeasurement:
    victim, neighbour, conditions = key
    first = repeats[0][0]
    statuses = [_status(reading, roles) for reading, _ in repeats]
    for (reading, _), status in zip(repeats, statuses, strict=True):
        if status is not statuses[0]:
            problem = f"status {status.value} contradicts row {first.row.row_number}, {statuses[0].value}"
            reading.row.fail(reading.column, problem, "keep the rows of one status")
    passes = tuple(slowdown for _, slowdown in repeats if not math.isnan(slowdown))
    status = statuses[0]
    reason = _text(first, roles, "reason")
    if status is not PairStatus.OK and not reason:
        reason = INFEASIBLE_REASON if status is PairStatus.INFEASIBLE else "marked unstable in the spreadsheet"
    slowdown = _geometric_mean(passes) if passes else NAN
    lower, upper = _interval(first, roles, slowdown) if len(repeats) == 1 else (NAN, NAN)
    measured_at = _text(first, roles, "measured_at_s")
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
        reason=reason,
        source=source.name,
        campaign=_text(first, roles, "campaign") or source.campaign,
        device_name=_text(first, roles, "device_name"),
        measured_at_s=number_of(first.row, roles.column("measured_at_s")) if measured_at else NAN,
    )


def _interval(reading: MeasuredCell, roles: ColumnRoles, slowdown: float) -> tuple[float, float]:
    """(lower, upper) of the slowdown of one row; NaN where the row has none, or is about its neighbour."""
    if not reading.is_own_side:
        return NAN, NAN
    lower, upper = (
        number_of(reading.row, roles.column(role)) if _text(reading, roles, role) else NAN
        for role in ("lower", "upper")
    )
    if lower > slowdown or upper < slowdown:
        column = roles.column("lower" if lower > slowdown else "upper")
        reading.row.fail(
            column,
            f"the interval does not hold the slowdown {slowdown:.4g}",
            "give the interval of the slowdown itself, or keep it as an extra",
        )
    return lower, upper


def _text(reading: MeasuredCell, roles: ColumnRoles, role: str) -> str:
    column = roles.column(role)
    return "" if not column or is_empty(reading.row.fields[column]) else reading.row.fields[column]


def _geometric_mean(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else math.exp(sum(map(math.log, values)) / len(values))
