"""Imports a spreadsheet of own measurements: pairs, in long or matrix shape, and facts of the jobs alone.

The result is the same table whatever the form (CSV, Parquet, DataFrame) and shape, up to the name of the file. A cell
that cannot be read is a fault with row, column, value and remedy, and all faults of the sheets are told at once; a row
that becomes no measurement is counted by reason.

A sheet of jobs alone has one row a job and device type and one column a fact; `columns.PROFILE_ROLES` says which
columns are facts, the others are kept as extras. A template is a pair of files to fill in, with these columns.
"""

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from interfere.data.importers.import_result import ImportResult, Notice, dropped, flagged
from interfere.data.importers.spreadsheet.columns import (
    FACT_OF_ROLE,
    MEASURES,
    PROFILE_ROLES,
    ColumnRoles,
    ColumnUse,
    assign_roles,
    column_uses,
    describe,
    matrix_meanings,
    profile_meanings,
)
from interfere.data.importers.spreadsheet.measurements import (
    MeasuredCell,
    SoloKey,
    dropped_values,
    is_matrix,
    long_cells,
    matrix_cells,
    matrix_columns,
    matrix_measure,
    pair_measurements,
    row_solo_step_times,
    solo_step_times,
)
from interfere.data.importers.spreadsheet.sheet import (
    Decimal,
    Shape,
    Sheet,
    SpreadsheetOptions,
    SpreadsheetSource,
    is_empty,
    number_of,
    read_sheet,
)
from interfere.data.importers.strict_reading import CsvRow, Faults, fault
from interfere.data.tables import ExtraFact, job_range_violations
from interfere.devices import device_type_of_product
from interfere.errors import ConflictError, InvalidInputError, TableError
from interfere.file_writing import write_text
from interfere.records import NAN, JobProfile, PairMeasurement, PairStatus
from interfere.sharing_modes import SharingMode

FORMAT = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadsheetImport:
    """The imported records, and how every column was understood."""

    imported: ImportResult
    columns: tuple[ColumnUse, ...]


ProfileRow = tuple[CsvRow, JobProfile]  # a row of a spreadsheet, and the profile of a job that it gives


def read_spreadsheet(
    pairs: SpreadsheetSource, profiles: "SpreadsheetSource | None", options: SpreadsheetOptions
) -> SpreadsheetImport:
    """Import pairs, and the facts of the jobs where given.

    Raises TableError with every fault of the sheets among its violations, and InvalidInputError for wrong options.
    """
    faults = Faults()
    # 1. Read the jobs alone.
    jobs_alone = None
    if profiles is not None:
        read_jobs = partial(read_profile_sheet, profiles, options.profile_mapping, faults, decimal=options.decimal)
        jobs_alone = faults.read(partial(read_jobs, device_type=options.device_type, source=options.source), None)
    job_rows = jobs_alone[2] if jobs_alone else ()
    # 2. Read the pairs: each cell with its jobs and conditions.
    read = faults.read(partial(_read_pairs, pairs, options, faults), None)
    if read is None:
        faults.raise_all()
    assert read is not None
    sheet, roles, cells, uses = read
    # 3. Turn values into slowdowns.
    step_times = {(job.workload, job.device_type): job.step_time_s for _, job in job_rows}
    solo = solo_step_times(cells, step_times, faults)
    campaign = options.campaign or sheet.source.campaign
    measured, values = pair_measurements(cells, roles, solo, faults, source=options.source, campaign=campaign)
    row_solo = row_solo_step_times(cells, faults)
    faults.raise_all()
    if not measured and all(cell.neighbour for cell in cells):
        raise TableError(
            f"{sheet.source.path.name}: no row has a value",
            value=f"{len(sheet.rows)} rows",
            remedy="fill in the measured values: interfere data import table FILE --dry-run shows what is read",
        )
    # 4. Complete the profiles: every job of a pair has one.
    solo_values = [(key, [value]) for key, value in solo.items()] + list(row_solo.items())
    jobs, bare = _profiles(solo_values, measured, job_rows, options.source)
    sheets, extras = [sheet], list(_pair_extras(sheet, roles, options))
    if jobs_alone is not None:
        job_sheet, job_roles, _ = jobs_alone
        sheets.append(job_sheet)
        uses += column_uses(job_sheet, profile_meanings(job_roles), job_roles)
        for row, job in job_rows:
            of_job = {"workload": job.workload, "device_type": job.device_type, "source": options.source}
            extras += _extras(row, job_roles, **of_job)
    imported = ImportResult(
        source_format=FORMAT,
        files=tuple(each.source for each in sheets),
        format_notes=tuple(use.text() for use in uses),
        jobs=jobs,
        pairs=measured,
        extras=tuple(extras),
        notices=(*dropped_values(values), *_notices(sheets, measured, bare)),
    )
    return SpreadsheetImport(imported=imported, columns=uses)


def _read_pairs(
    source: SpreadsheetSource, options: SpreadsheetOptions, faults: Faults
) -> tuple[Sheet, ColumnRoles, tuple[MeasuredCell, ...], tuple[ColumnUse, ...]]:
    """Read the sheet of the pairs.

    Return the sheet, the roles of its columns, its measured cells, and how each column was understood.
    """
    given = options.conditions
    sheet = read_sheet(source, faults, options.decimal)
    roles = assign_roles(sheet, options.mapping)
    if options.shape is Shape.WIDE or (options.shape is Shape.AUTO and is_matrix(sheet, roles)):
        measure = matrix_measure(sheet, options.value)
        sheet = sheet.with_decimal(matrix_columns(sheet, roles), options.decimal)
        cells = tuple(matrix_cells(sheet, roles, measure, options, faults))
        meanings = matrix_meanings(sheet.columns, roles, measure, options.victims)
    else:
        sheet = sheet.with_decimal(roles.number_columns, options.decimal)
        cells = tuple(long_cells(sheet, roles, given, faults))
        meanings = ((column, role, describe(role)) for column, role in roles.role_of.items())
    return sheet, roles, cells, column_uses(sheet, meanings, roles, given)


def _profiles(
    solo: Iterable[tuple[SoloKey, list[float]]],
    measured: Sequence[PairMeasurement],
    job_rows: Sequence[ProfileRow],
    source: str,
) -> tuple[tuple[JobProfile, ...], tuple[str, ...]]:
    """Return the profile of each job by name, and the names of the jobs without any fact.

    `solo` holds the step times of jobs alone: from rows of a job alone and from profiles, then from solo columns.
    """
    jobs = {(job.workload, job.device_type): job for _, job in job_rows}
    step_times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (name, conditions), values_s in solo:
        if conditions.metric == "step_time_mean":
            step_times[name, conditions.device_type] += values_s
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
        elif math.isnan(known.step_time_s) and values_s:
            jobs[name, device_type] = replace(known, step_time_s=step_time_s)
    return tuple(jobs[key] for key in sorted(jobs)), tuple(dict.fromkeys(bare))


def _pair_extras(sheet: Sheet, roles: ColumnRoles, options: SpreadsheetOptions) -> Iterator[ExtraFact]:
    """Yield the cells that are no known fact of a sheet with one row a pair; a matrix has no such cell."""
    victim, neighbour, device = map(roles.column, ("victim", "neighbour", "device_type"))
    for row in sheet.rows if victim and neighbour else ():
        product = device_type_of_product((row.fields[device] if device else "") or options.device_type)
        names = {"workload": row.fields[victim], "neighbour": row.fields[neighbour]}
        yield from _extras(row, roles, device_type=product, source=options.source, **names)


def _extras(row: CsvRow, roles: ColumnRoles, **of_row: str) -> Iterator[ExtraFact]:
    """Yield the cells of a row that are no known fact. `of_row` holds its job or jobs, device type and source."""
    for column in roles.extras:
        if not is_empty(row.fields[column]):
            yield ExtraFact(name=column, value=row.fields[column], **of_row)


def _notices(sheets: Sequence[Sheet], measured: Sequence[PairMeasurement], bare: Sequence[str]) -> Iterator[Notice]:
    ok = [pair for pair in measured if pair.status is PairStatus.OK]
    for sheet in sheets:
        subject = f"empty rows of {sheet.source.path.name}"
        yield dropped(len(sheet.empty_rows), subject, "nothing in them", rows=sheet.empty_rows)
    yield flagged(
        sum(len(pair.passes) > 1 for pair in ok),
        "ordered pairs with several values",
        "repeats: their geometric mean counts, each value is kept in `passes`",
    )
    yield flagged(len(measured) - len(ok), "infeasible or unstable ordered pairs", "marked in the spreadsheet")
    faster = sum(pair.slowdown < 1 for pair in ok)
    doubt = "noise, where it is a little"
    if 2 * faster > len(ok):
        doubt = "noise, or a speed or a wrong value alone read as a slowdown"
    yield flagged(faster, f"of {len(ok)} slowdowns are below 1", f"faster beside a neighbour than alone: {doubt}")
    yield flagged(
        len(bare),
        "jobs of which no fact alone is known",
        "models predict them poorly: give their step time, memory and utilisation with --profiles: "
        + ", ".join(bare[:20]),
    )
    yield flagged(
        sum(pair.metric != "step_time_mean" for pair in measured),
        "ordered pairs of a latency",
        "kept and shown; models are trained on step times alone",
    )


def import_spreadsheet(
    pairs: SpreadsheetSource,
    profiles: "SpreadsheetSource | None" = None,
    *,
    columns: Mapping[str, str] | None = None,
    out: Path | None = None,
    **options: Any,
) -> ImportResult:
    """Return the jobs and ordered pairs of a CSV or Parquet file or a DataFrame; write them as a table to `out`.

    `columns` gives the role of columns by their name; `options` are fields of `SpreadsheetOptions`: `device_type`,
    `mode`, `metric`, `value` (of a matrix) and more. `docs/own-tables.md` explains the roles. Raises TableError, which
    names row, column and remedy, and InvalidInputError.

    >>> import pandas as pd
    >>> from interfere import import_spreadsheet
    >>> frame = pd.DataFrame({"job_a": ["bert"], "job_b": ["gpt"], "slowdown": [1.4]})
    >>> roles = {"job_a": "victim", "job_b": "neighbour"}
    >>> imported = import_spreadsheet(frame, columns=roles, device_type="a100-80gb", mode="mps")
    >>> [(pair.victim, pair.neighbour, pair.slowdown) for pair in imported.pairs]
    [('bert', 'gpt', 1.4)]
    """
    chosen = SpreadsheetOptions(mapping=dict(columns or {}), **options)
    imported = read_spreadsheet(pairs, profiles, chosen).imported
    if out is not None:
        from interfere.data.importers.import_writer import write_import

        write_import(out, imported)
    return imported


# --- spreadsheets to fill in -----------------------------------------------------------------------------------------


PAIRS_NAME, JOBS_NAME = "pairs.csv", "jobs.csv"
EXAMPLE_JOBS = ("resnet50-train", "bert-infer", "gpt-decode")
JOB_COLUMNS = ("step_time_ms", "gpu_util_percent", "memory_util_percent", "memory_peak_gib", "power_w", "family")


def write_template(
    folder: Path, jobs: Sequence[str], *, device_type: str, mode: SharingMode, value: str, shape: Shape
) -> tuple[Path, ...]:
    """Write a spreadsheet of pairs and one of jobs, with the names of the jobs, to fill in. Return their paths.

    Raises ConflictError where one of the files exists, InvalidInputError for an unknown measured value.
    """
    if value not in MEASURES:
        raise InvalidInputError("no such measured value", value=repr(value), remedy=f"one of {', '.join(MEASURES)}")
    if len(set(jobs)) < len(jobs):
        raise InvalidInputError("a job is named twice", value=", ".join(jobs), remedy="name each job once")
    pairs = _matrix(jobs, value) if shape is Shape.WIDE else _long(jobs, device_type, mode, value)
    profiles = [
        ["workload", "device_type", *JOB_COLUMNS],
        *([job, device_type, *[""] * len(JOB_COLUMNS)] for job in jobs),
    ]
    sheets = {folder / PAIRS_NAME: pairs, folder / JOBS_NAME: profiles}
    for path in sheets:
        if path.exists():
            raise ConflictError("the file exists", value=path, remedy="name another folder, or move the file away")
    for path, rows in sheets.items():
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        write_text(path, text.getvalue())
    return tuple(sheets)


def _long(jobs: Sequence[str], device_type: str, mode: SharingMode, value: str) -> list[list[str]]:
    """Return a table with one row per unordered pair and the values of both sides."""
    head = ["victim", "neighbour", "device_type", "mode", value, f"neighbour_{value}"]
    alone = []
    if MEASURES[value].needs_solo:
        alone = [[job, "alone", device_type, mode, "", ""] for job in jobs]
    pairs = [[a, b, device_type, mode, "", ""] for k, a in enumerate(jobs) for b in jobs[k:]]
    return [head, *alone, *pairs]


def _matrix(jobs: Sequence[str], value: str) -> list[list[str]]:
    """Return a table with one row per victim and one column per neighbour, and a column of solo values if `value` needs
    them."""
    alone = ["alone"] if MEASURES[value].needs_solo else []
    return [[value, *jobs, *alone], *([job, *[""] * (len(jobs) + len(alone))] for job in jobs)]


# --- facts of jobs alone: one row a job and device type, one column a fact --------------------------------------------


def read_profile_sheet(
    path: SpreadsheetSource,
    mapping: Mapping[str, str],
    faults: Faults,
    *,
    device_type: str,
    source: str,
    decimal: Decimal | None = None,
) -> tuple[Sheet, ColumnRoles, tuple[ProfileRow, ...]]:
    """Return a sheet of jobs alone, the roles of its columns, and the profile of each row that has no fault.

    Faulty rows are added to `faults`. Raises TableError for wrong columns.
    """
    # 1. Find the column of each fact.
    sheet = read_sheet(path, faults, decimal)
    roles = assign_roles(sheet, mapping, PROFILE_ROLES)
    if not roles.column("workload"):
        found = f"found {', '.join(sheet.columns)[:200]}"
        place = f"{sheet.source.path.name}, row 1, column workload"
        raise fault(place, "missing", found, "name the column of the jobs: workload")
    columns: dict[str, str] = {}  # by fact
    for column, role in roles.role_of.items():
        fact = "step_time_s" if role == "throughput" else FACT_OF_ROLE.get(role, ("", 0.0))[0]
        if fact and fact in columns:
            place = f"{sheet.source.path.name}, row 1, columns {columns[fact]} and {column}"
            raise fault(place, f"both mean {fact}", sheet.source.path, "keep one of the two")
        if fact:
            columns[fact] = column
    # 2. Read the rows.
    seen: dict[tuple[str, str], int] = {}
    rows: list[ProfileRow] = []
    for row in sheet.with_decimal(tuple(columns.values()), decimal).rows:
        profile = _profile_of_row(row, roles, columns, faults, device_type, source)
        if profile is None:
            continue
        first_row = seen.setdefault((profile.workload, profile.device_type), row.row_number)
        if first_row != row.row_number:
            problem = f"the same job and device type as row {first_row}"
            faults.at(row, roles.column("workload"), problem, "keep one row")
        rows.append((row, profile))
    return sheet, roles, tuple(rows)


def _profile_of_row(
    row: CsvRow, roles: ColumnRoles, columns: Mapping[str, str], faults: Faults, device_type: str, source: str
) -> JobProfile | None:
    """Return the profile in a row; None where the row has a fault. `columns` holds the column of each fact."""

    def fail(field: str, problem: str, remedy: str) -> None:
        column = columns.get(field) or roles.column(field) or roles.column("workload")
        faults.at(row, column, f"{field} {problem}", remedy)

    before = len(faults)
    device = roles.text(row, "device_type") or device_type
    if not device:
        remedy = "name it: --device-type, or a column device_type"
        faults.at(row, roles.column("device_type"), "no device type is known", remedy)
    values: dict[str, Any] = {"step_time_s": math.nan}
    for fact, column in columns.items():
        if not is_empty(row.fields[column]):
            values[fact] = faults.read(partial(_fact, row, roles, fact, column), math.nan)
    if len(faults) > before:
        return None
    try:
        profile = JobProfile(
            workload=roles.text(row, "workload"),
            device_type=device_type_of_product(device),
            family=roles.text(row, "family"),
            source=source,
            **values,
        )
    except InvalidInputError as error:
        for violation in error.violations:
            fail(violation.field, violation.what, violation.remedy)
        return None
    for violation in job_range_violations(profile):
        fail(violation.field, f"is {violation.what}", violation.remedy)
    return profile if len(faults) == before else None


def _fact(row: CsvRow, roles: ColumnRoles, fact: str, column: str) -> float:
    """Return the fact in a cell, converted to the unit of profiles. Raises TableError."""
    is_zero = fact != "step_time_s" and re.fullmatch(r"0+([.,]0*)?", row.fields[column])
    value = 0.0 if is_zero else number_of(row, column)
    role = roles.role_of[column]
    return 1.0 / value if role == "throughput" else value * FACT_OF_ROLE[role][1]
