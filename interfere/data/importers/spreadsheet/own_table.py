"""Imports a spreadsheet of own measurements: pairs, in long or matrix shape, and facts of the jobs alone.

The result is the same table whatever the form (CSV, Parquet, DataFrame) and shape, up to the name of the file. A cell
that cannot be read is an error with row, column and remedy; a row that becomes no measurement is counted by reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from interfere.data.extra_facts import ExtraFact
from interfere.data.importers.device_names import device_type_of_product
from interfere.data.importers.import_result import ImportResult, Notice, Treatment, nonempty_notices
from interfere.data.importers.spreadsheet import slowdowns
from interfere.data.importers.spreadsheet.column_roles import ColumnRoles, assign_roles
from interfere.data.importers.spreadsheet.column_uses import ColumnUse, uses_of_matrix, uses_of_pairs, uses_of_profiles
from interfere.data.importers.spreadsheet.measured_values import (
    Conditions,
    Reading,
    is_matrix,
    long_readings,
    matrix_measure,
    matrix_readings,
)
from interfere.data.importers.spreadsheet.pair_layouts import Shape, Victims
from interfere.data.importers.spreadsheet.profile_sheet import ProfileRow, read_profile_rows
from interfere.data.importers.spreadsheet.sheet import Sheet, SpreadsheetSource, is_empty, read_sheet
from interfere.errors import TableError
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

FORMAT = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadsheetOptions:
    """What the user says about a spreadsheet beside its columns."""

    mapping: Mapping[str, str] = field(default_factory=dict)  # role by column of the pairs
    profile_mapping: Mapping[str, str] = field(default_factory=dict)  # role by column of the jobs
    device_type: str = ""
    mode: SharingMode = DEFAULT_MODE
    metric: str = ""
    shape: Shape = Shape.AUTO
    value: str = ""  # what the cells of a matrix mean
    victims: Victims = Victims.ROWS
    source: str = "user"
    campaign: str = ""  # default: file name and digest


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadsheetImport:
    """The import, and how every column was understood."""

    imported: ImportResult
    columns: tuple[ColumnUse, ...]


def import_spreadsheet(
    pairs: SpreadsheetSource, profiles: "SpreadsheetSource | None", options: SpreadsheetOptions
) -> SpreadsheetImport:
    """Import pairs, and the facts of the jobs where given. Raises TableError and InvalidInputError."""
    # 1. Read the jobs alone.
    job_sheet = read_sheet(profiles) if profiles is not None else None
    job_roles: ColumnRoles | None = None
    job_rows: tuple[ProfileRow, ...] = ()
    if job_sheet:
        job_roles, job_rows = read_profile_rows(
            job_sheet, options.profile_mapping, device_type=options.device_type, source=options.source
        )
    # 2. Read the pairs: each cell with its jobs and conditions.
    sheet = read_sheet(pairs)
    roles, readings, uses = _read_pairs(sheet, options)
    # 3. Turn values into slowdowns.
    dropped = slowdowns.DroppedRows()
    step_times = {(each.profile.workload, each.profile.device_type): each.profile.step_time_s for each in job_rows}
    solo = slowdowns.solo_step_times(readings, step_times)
    source = slowdowns.PairSource(name=options.source, campaign=options.campaign or sheet.source.campaign)
    measured = slowdowns.pair_measurements(readings, roles, solo, source, dropped)
    if not measured and not any(not reading.neighbour for reading in readings):
        raise TableError(
            f"{sheet.source.path.name}: no row has a value",
            value=f"{len(sheet.rows)} rows",
            remedy="fill in the measured values: interfere data import table FILE --dry-run shows what is read",
        )
    # 4. Complete the profiles: every job of a pair has one.
    jobs, bare = _profiles(readings, measured, job_rows, solo, options.source)
    sheets = (sheet, *((job_sheet,) if job_sheet else ()))
    uses += uses_of_profiles(job_sheet, job_roles) if job_sheet and job_roles else ()
    imported = ImportResult(
        source_format=FORMAT,
        files=tuple(each.source for each in sheets),
        format_notes=tuple(use.text() for use in uses),
        jobs=jobs,
        pairs=measured,
        extras=(*_pair_extras(sheet, roles, options), *_job_extras(job_roles, job_rows)),
        notices=nonempty_notices(*dropped.notices(), *_notices(sheets, measured, bare)),
    )
    return SpreadsheetImport(imported=imported, columns=uses)


def _read_pairs(
    sheet: Sheet, options: SpreadsheetOptions
) -> tuple[ColumnRoles, tuple[Reading, ...], tuple[ColumnUse, ...]]:
    """The roles of the columns, the readings, and how each column was understood."""
    given = Conditions(device_type=options.device_type, mode=options.mode, metric=options.metric)
    roles = assign_roles(sheet.source.path, sheet.columns, options.mapping)
    matrix = options.shape is Shape.WIDE or (options.shape is Shape.AUTO and is_matrix(sheet, roles))
    if not matrix:
        return roles, tuple(long_readings(sheet, roles, given)), uses_of_pairs(sheet, roles, given)
    measure = matrix_measure(sheet, options.value)
    readings = tuple(matrix_readings(sheet, roles, measure, given, options.victims))
    return roles, readings, uses_of_matrix(sheet, roles, measure, given, options.victims)


def _profiles(
    readings: Sequence[Reading],
    measured: Sequence[PairMeasurement],
    job_rows: Sequence[ProfileRow],
    solo: Mapping[slowdowns.SoloKey, float],
    source: str,
) -> tuple[tuple[JobProfile, ...], tuple[str, ...]]:
    """(one profile of each job, by name; the names of those of which no fact is known)."""
    jobs = {(each.profile.workload, each.profile.device_type): each.profile for each in job_rows}
    step_times: dict[tuple[str, str], list[float]] = {}
    for of_rows in (solo, slowdowns.row_solo_step_times(readings)):
        for (name, conditions), value in of_rows.items():
            if conditions.metric == "step_time_mean":
                values = value if isinstance(value, list) else [value]
                step_times.setdefault((name, conditions.device_type), []).extend(values)
    used = {(name, pair.device_type) for pair in measured for name in (pair.victim, pair.neighbour)}
    bare = []
    for name, device_type in sorted(used | set(step_times)):
        known = jobs.get((name, device_type))
        values_s = step_times.get((name, device_type), [])
        step_time_s = sum(values_s) / len(values_s) if values_s else NAN
        if known is None:
            jobs[name, device_type] = JobProfile(
                workload=name, device_type=device_type, step_time_s=step_time_s, source=source
            )
            bare += [] if values_s else [name]
        elif known.step_time_s != known.step_time_s and values_s:
            jobs[name, device_type] = replace(known, step_time_s=step_time_s)
    return tuple(jobs[key] for key in sorted(jobs)), tuple(dict.fromkeys(bare))


def _pair_extras(sheet: Sheet, roles: ColumnRoles, options: SpreadsheetOptions) -> Iterator[ExtraFact]:
    """The extras of a sheet in long shape; a matrix has none."""
    victim, neighbour, device = (roles.column(role) for role in ("victim", "neighbour", "device_type"))
    if not (victim and neighbour):
        return
    for row in sheet.rows:
        own = row.fields[device] if device else ""
        for column in roles.extras:
            if not is_empty(row.fields[column]):
                yield ExtraFact(
                    workload=row.fields[victim],
                    neighbour=row.fields[neighbour],
                    device_type=device_type_of_product(own or options.device_type),
                    source=options.source,
                    name=column,
                    value=row.fields[column],
                )


def _job_extras(roles: ColumnRoles | None, rows: Sequence[ProfileRow]) -> Iterator[ExtraFact]:
    for each in rows if roles else ():
        assert roles is not None
        for column in roles.extras:
            if not is_empty(each.row.fields[column]):
                yield ExtraFact(
                    workload=each.profile.workload,
                    device_type=each.profile.device_type,
                    source=each.profile.source,
                    name=column,
                    value=each.row.fields[column],
                )


def _notices(sheets: Sequence[Sheet], measured: Sequence[PairMeasurement], bare: Sequence[str]) -> Iterator[Notice]:
    ok = [pair for pair in measured if pair.status is PairStatus.OK]
    for sheet in sheets:
        yield Notice(
            treatment=Treatment.DROPPED,
            subject=f"empty rows of {sheet.source.path.name}",
            count=len(sheet.empty_rows),
            reason="nothing in them",
            rows=sheet.empty_rows,
        )
    repeats = [pair for pair in ok if len(pair.passes) > 1]
    yield Notice(
        treatment=Treatment.FLAGGED,
        subject="ordered pairs with several values",
        count=len(repeats),
        reason="repeats: their geometric mean counts, each value is kept in `passes`",
    )
    yield Notice(
        treatment=Treatment.FLAGGED,
        subject="infeasible or unstable ordered pairs",
        count=len(measured) - len(ok),
        reason="marked in the spreadsheet",
    )
    faster = sum(pair.slowdown < 1 for pair in ok)
    yield Notice(
        treatment=Treatment.FLAGGED,
        subject=f"of {len(ok)} slowdowns are below 1",
        count=faster,
        reason="faster beside a neighbour than alone: noise, or a speed or a wrong value alone read as a slowdown"
        if 2 * faster > len(ok)
        else "faster beside a neighbour than alone: noise, where it is a little",
    )
    yield Notice(
        treatment=Treatment.FLAGGED,
        subject="jobs of which no fact alone is known",
        count=len(bare),
        reason=f"models predict them poorly: give their step time, memory and utilisation with --profiles: "
        f"{', '.join(bare[:20])}",
    )
    other = sum(pair.metric != "step_time_mean" for pair in measured)
    yield Notice(
        treatment=Treatment.FLAGGED,
        subject="ordered pairs of a latency",
        count=other,
        reason="kept and shown; models are trained on step times alone",
    )
