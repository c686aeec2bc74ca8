"""Reads the facts of jobs alone from a spreadsheet: one row a job and device type, one column a fact.

`columns.PROFILE_ROLES` says which columns are facts; the others are kept as extras.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from interfere.data.importers.spreadsheet.columns import FACT_OF_ROLE, PROFILE_ROLES, ColumnRoles, assign_roles
from interfere.data.importers.spreadsheet.options import Decimal
from interfere.data.importers.spreadsheet.sheet import Sheet, SpreadsheetSource, is_empty, number_of, read_sheet
from interfere.data.importers.strict_reading import CsvRow, Faults, fault
from interfere.data.row_checks import job_range_violations
from interfere.devices import device_type_of_product
from interfere.errors import InvalidInputError
from interfere.records import JobProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """A row of a spreadsheet, and the profile of a job that it gives."""

    row: CsvRow
    profile: JobProfile


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
    roles = assign_roles(sheet.source.path, sheet.columns, mapping, PROFILE_ROLES)
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
        profile = _profile(row, roles, columns, faults, device_type, source)
        if profile is None:
            continue
        first_row = seen.setdefault((profile.workload, profile.device_type), row.row_number)
        if first_row != row.row_number:
            problem = f"the same job and device type as row {first_row}"
            faults.at(row, roles.column("workload"), problem, "keep one row")
        rows.append(ProfileRow(row=row, profile=profile))
    return sheet, roles, tuple(rows)


def _profile(
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
    """Return the fact in a cell in the unit that profiles have it in. Raises TableError."""
    is_zero = fact != "step_time_s" and re.fullmatch(r"0+([.,]0*)?", row.fields[column])
    value = 0.0 if is_zero else number_of(row, column)
    role = roles.role_of[column]
    return 1.0 / value if role == "throughput" else value * FACT_OF_ROLE[role][1]
