"""Reads the facts of jobs alone from a spreadsheet: one row a job and device type, one column a fact.

A column is a number of `JobProfile` by its name. Memory may be given in MiB or GiB instead of bytes, shares in percent,
times in ms or us, the step time as a throughput; a column that is no fact is kept as an extra.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from interfere.data.importers.device_names import device_type_of_product
from interfere.data.importers.spreadsheet.column_roles import ColumnRoles, assign_roles
from interfere.data.importers.spreadsheet.measured_values import number_of
from interfere.data.importers.spreadsheet.sheet import Sheet, is_empty
from interfere.data.importers.strict_reading import NUMBER, CsvRow
from interfere.data.rows.checks import job_range_violations
from interfere.errors import InvalidInputError, TableError
from interfere.records import JobProfile

NUMBERS = tuple(each.name for each in fields(JobProfile) if each.type in ("float", float))
_UNITS = {
    "_bytes": {"_bytes": 1.0, "_mib": 2.0**20, "_gib": 2.0**30, "_mb": 1e6, "_gb": 1e9},
    "_frac": {"_frac": 1.0, "_percent": 0.01, "_pct": 0.01},
    "_s": {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6},
}


def _unit_names() -> Iterator[tuple[str, tuple[str, float]]]:
    for name in NUMBERS:
        if name == "measured_at_s":
            yield name, (name, 1.0)
            continue
        ending = next((ending for ending in _UNITS if name.endswith(ending)), "")
        for unit, scale in _UNITS.get(ending, {"": 1.0}).items():
            yield name.removesuffix(ending) + unit, (name, scale)


FACT_OF_ROLE: dict[str, tuple[str, float]] = dict(_unit_names())  # (field of JobProfile, what one unit is in it)
ROLES = {role: role for role in ("workload", "device_type", "family", "throughput", *FACT_OF_ROLE)} | {
    **dict.fromkeys(("job", "victim", "name"), "workload"),
    **dict.fromkeys(("device", "gpu", "gpu_type"), "device_type"),
    **dict.fromkeys(("steps_per_s", "steps_per_second", "requests_per_s", "solo_throughput"), "throughput"),
    **{f"solo_step_time_{unit}": f"step_time_{unit}" for unit in ("s", "ms", "us")},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """The profile that one row gives."""

    row: CsvRow
    profile: JobProfile


def read_profile_rows(
    sheet: Sheet, mapping: Mapping[str, str], *, device_type: str, source: str
) -> tuple[ColumnRoles, tuple[ProfileRow, ...]]:
    """The roles of the columns, and the profile of each row. Raises TableError, which names row, column and remedy."""
    roles = assign_roles(sheet.source.path, sheet.columns, mapping, ROLES)
    if not roles.column("workload"):
        raise TableError(
            f"{sheet.source.path.name}, row 1, column workload: missing",
            value=f"found {', '.join(sheet.columns)[:200]}",
            remedy="name the column of the jobs: workload",
        )
    facts = [column for column, role in roles.role_of.items() if role in FACT_OF_ROLE or role == "throughput"]
    of_facts: dict[str, str] = {}
    for column in facts:
        role = roles.role_of[column]
        fact = "step_time_s" if role == "throughput" else FACT_OF_ROLE[role][0]
        if fact in of_facts:
            raise TableError(
                f"{sheet.source.path.name}, row 1, columns {of_facts[fact]} and {column}: both mean {fact}",
                value=sheet.source.path,
                remedy="keep one of the two",
            )
        of_facts[fact] = column
    seen: dict[tuple[str, str], int] = {}
    found: list[ProfileRow] = []
    for row in sheet.rows:
        profile = _profile(row, roles, of_facts, device_type, source)
        key = (profile.workload, profile.device_type)
        if key in seen:
            row.fail(roles.column("workload"), f"the same job and device type as row {seen[key]}", "keep one row")
        seen[key] = row.row_number
        found.append(ProfileRow(row=row, profile=profile))
    return roles, tuple(found)


def _profile(row: CsvRow, roles: ColumnRoles, of_facts: Mapping[str, str], device_type: str, source: str) -> JobProfile:
    def text(role: str) -> str:
        column = roles.column(role)
        return "" if not column or is_empty(row.fields[column]) else row.fields[column]

    device = text("device_type") or device_type
    if not device:
        row.fail(roles.column("device_type"), "no device type is known", "name it: --device, or a column device_type")
    values: dict[str, Any] = {}
    for fact, column in of_facts.items():
        if is_empty(row.fields[column]):
            continue
        role = roles.role_of[column]
        scale = 1.0 if role == "throughput" else FACT_OF_ROLE[role][1]
        value = _non_negative(row, column) if fact != "step_time_s" else number_of(row, column)
        values[fact] = 1.0 / value if role == "throughput" else value * scale
    values.setdefault("step_time_s", math.nan)
    try:
        profile = JobProfile(
            workload=text("workload"),
            device_type=device_type_of_product(device),
            family=text("family"),
            source=source,
            **values,
        )
    except InvalidInputError as error:
        first = error.violations[0]
        column = of_facts.get(first.field) or roles.column(first.field) or roles.column("workload")
        row.fail(column, f"{first.field} {first.what}", first.remedy)
    for violation in job_range_violations(profile):
        row.fail(of_facts[violation.field], f"{violation.field} is {violation.what}", violation.remedy)
    return profile


def _non_negative(row: CsvRow, column: str) -> float:
    text = row.fields[column]
    return 0.0 if NUMBER.fullmatch(text) and float(text) == 0 else number_of(row, column)


def fact_names() -> Sequence[str]:
    """Every column name that means a fact of a job alone."""
    return tuple(FACT_OF_ROLE)
