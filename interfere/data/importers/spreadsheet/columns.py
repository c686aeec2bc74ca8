"""What a column of a spreadsheet can mean: its role, found by its name or given by the user.

A measured column holds a slowdown, a speed (1 / slowdown), a throughput or a time of one step or request; times carry
their unit in the role, as in `step_time_ms`. Prefixes say whose value it is: `solo_` alone, `neighbour_` that of the
other job of the row, `neighbour_solo_` that of the other job alone. Of jobs alone, a column is a number of `JobProfile`
by its name: memory may be given in MiB or GiB instead of bytes, shares in percent, times in ms or us.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path

from interfere.data.importers.spreadsheet.sheet import Conditions, Sheet, Victims, is_empty
from interfere.data.importers.strict_reading import CsvRow, Faults, fault
from interfere.errors import InvalidInputError
from interfere.records import METRICS, JobProfile

ALONE_WORDS = frozenset(("alone", "solo"))  # in place of a neighbour
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
METRIC_OF_TIME = {"step_time": METRICS[0]} | {metric: metric for metric in METRICS[1:]}
CONDITIONS = ("device_type", "mode", "metric")
EXTRA = "extra"  # the role of a column that is no known fact: kept under its own name


class ValueKind(StrEnum):
    """The form in which an interference measurement is written."""

    SLOWDOWN = "slowdown"  # metric beside the neighbour / metric alone
    SPEED = "speed"  # 1 / slowdown
    THROUGHPUT = "throughput"  # steps (or requests) per second
    TIME = "time"  # of one step or request


class ValueOwner(StrEnum):
    """The job whose value a measured column holds. The enum value is the prefix of the column's role."""

    OWN = ""
    SOLO = "solo_"
    NEIGHBOUR = "neighbour_"
    NEIGHBOUR_SOLO = "neighbour_solo_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The meaning of a measured value: its kind, the unit of a time, and the metric where the name says one."""

    kind: ValueKind
    text: str
    seconds: float = 1.0  # of one unit of a time
    metric: str = ""

    @property
    def needs_solo(self) -> bool:
        """Whether a slowdown needs the value of the job alone too, as from a throughput or a time."""
        return self.kind in (ValueKind.THROUGHPUT, ValueKind.TIME)

    def step_time_s(self, value: float) -> float:
        """Return the seconds of a step from a measured throughput or time."""
        return 1.0 / value if self.kind is ValueKind.THROUGHPUT else value * self.seconds


MEASURES = {
    "slowdown": Measure(kind=ValueKind.SLOWDOWN, text="slowdown"),
    "speed": Measure(kind=ValueKind.SPEED, text="speed, 1 / slowdown,"),
    "throughput": Measure(kind=ValueKind.THROUGHPUT, text="throughput, steps/s,"),
    **{
        f"{time}_{unit}": Measure(kind=ValueKind.TIME, text=f"{metric} in {unit}", seconds=seconds, metric=metric)
        for time, metric in METRIC_OF_TIME.items()
        for unit, seconds in TIME_UNITS.items()
    },
}
_OWNERS = {
    ValueOwner.OWN: "of the victim beside the neighbour",
    ValueOwner.SOLO: "of the victim alone",
    ValueOwner.NEIGHBOUR: "of the neighbour beside the victim",
    ValueOwner.NEIGHBOUR_SOLO: "of the neighbour alone",
}
_SIDED = {
    f"{side.value}{name}": (side, measure)
    for side in ValueOwner
    for name, measure in MEASURES.items()
    if measure.needs_solo or side in (ValueOwner.OWN, ValueOwner.NEIGHBOUR)
}
DESCRIPTIONS = {
    "victim": "the job that is slowed down",
    "neighbour": "the job beside it; empty or `alone` where the row is the job alone",
    "device_type": "device type, such as a100-80gb",
    "mode": "sharing mode",
    "metric": "metric of the values",
    "status": "ok, unstable or infeasible",
    "reason": "why a row is not ok",
    "lower": "lower end of the 95 % interval of the slowdown",
    "upper": "upper end of the 95 % interval of the slowdown",
    "device_name": "the very device",
    "campaign": "name of the measuring campaign",
    "measured_at_s": "unix time of the measurement",
}
PAIR_ROLES = (*DESCRIPTIONS, *_SIDED)
DESCRIPTIONS[EXTRA] = "kept under its own name"
_ALIASES = {
    "victim": ("job", "workload", "victim_job"),
    "neighbour": ("partner", "co_runner", "beside", "neighbour_job", "aggressor"),
    "device_type": ("device", "gpu", "gpu_type"),
    "mode": ("sharing_mode", "sharing"),
    "speed": ("relative_speed", "normalised_speed", "normalized_speed"),
    "throughput": ("steps_per_s", "steps_per_second", "requests_per_s"),
}
_ROLE_OF_NAME = {role: role for role in PAIR_ROLES} | {
    alias: role for role, names in _ALIASES.items() for alias in names
}
_UNITLESS = re.compile(f"(solo_|neighbour_|neighbour_solo_)?({'|'.join((*METRIC_OF_TIME, 'latency', 'time'))})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRoles:
    """The role of every column of a sheet, and the columns by role."""

    path: Path
    role_of: dict[str, str]  # by column

    def column(self, role: str) -> str:
        """Return the spreadsheet column that has a role; "" where no column has the role."""
        return next((column for column, each in self.role_of.items() if each == role), "")

    def measured(self, side: ValueOwner) -> tuple[str, Measure] | None:
        """Return the column of the measured values of a job of each row, and their meaning; None where there is no such
        column.

        Raises TableError where two columns hold the values.
        """
        found = [
            (column, _SIDED[role][1])
            for column, role in self.role_of.items()
            if role in _SIDED and _SIDED[role][0] is side
        ]
        if len(found) > 1:
            place = f"{self.path.name}, row 1, columns {' and '.join(column for column, _ in found)}"
            remedy = f"keep all but one as extras: --column {EXTRA}={found[-1][0]}"
            raise fault(place, "two measured values of one job", self.path, remedy)
        return found[0] if found else None

    def text(self, row: CsvRow, role: str) -> str:
        """Return the cell of a row in the column of a role; "" where there is no such column or the cell is empty."""
        column = self.column(role)
        return "" if not column or is_empty(row.fields[column]) else row.fields[column]

    @property
    def number_columns(self) -> tuple[str, ...]:
        """The columns that hold numbers."""
        numbers = (*_SIDED, "lower", "upper", "measured_at_s")
        return tuple(column for column, role in self.role_of.items() if role in numbers)

    @property
    def extras(self) -> tuple[str, ...]:
        """The columns of the spreadsheet that hold no known fact."""
        return tuple(column for column, role in self.role_of.items() if role == EXTRA)


def normalised(name: str) -> str:
    """Return a column name in lower case, with underscores for spaces, in British spelling."""
    return re.sub(r"[\s\-/]+", "_", name.strip().lower()).replace("neighbor", "neighbour").replace("alone_", "solo_")


def assign_roles(sheet: Sheet, mapping: Mapping[str, str], roles: Mapping[str, str] | None = None) -> ColumnRoles:
    """Return the role of each column: the mapped role, else the role of its name, else an extra.

    `roles` maps column names to roles; by default these are the roles of a sheet of pairs. Raises TableError with the
    faults of all columns, and InvalidInputError for an unknown role.
    """
    known, faults = _ROLE_OF_NAME if roles is None else roles, Faults()
    path, columns = sheet.source.path, sheet.columns
    for column, role in mapping.items():
        if role != EXTRA and role not in known.values():
            names = ", ".join(dict.fromkeys((*known.values(), EXTRA)))
            raise InvalidInputError("no such role of a column", value=role, remedy=f"one of {names}")
        if column not in columns:
            faults.add(
                f"{path.name}, row 1, column {column}",
                "missing",
                f"found {', '.join(columns)[:200]}",
                "map a column that the file has",
            )
    mapped = {role for role in mapping.values() if role != EXTRA}
    role_of: dict[str, str] = {}
    for column in columns:
        by_name = known.get(normalised(column), EXTRA)
        role = mapping.get(column, EXTRA if by_name in mapped else by_name)
        if role != EXTRA and role in role_of.values():
            other = next(name for name, each in role_of.items() if each == role)
            place = f"{path.name}, row 1, columns {other} and {column}"
            faults.add(place, f"both mean {role}", path, f"keep one as an extra: --column {EXTRA}={column}")
        if role == EXTRA and column not in mapping and _UNITLESS.fullmatch(normalised(column)) and roles is None:
            remedy = f"name its unit: --column step_time_ms={column} (or latency_p99_ms, with _s or _us), or keep it: "
            remedy += f"--column {EXTRA}={column}"
            faults.add(f"{path.name}, row 1, column {column}", "a time without a unit", path, remedy)
        role_of[column] = role
    faults.raise_all()
    return ColumnRoles(path=path, role_of=role_of)


def describe(role: str) -> str:
    """Return the meaning of a column's role in words, such as "sharing mode" for `mode`."""
    if role not in _SIDED:
        return DESCRIPTIONS.get(role, role)
    owner, measure = _SIDED[role]
    return f"{measure.text} {_OWNERS[owner]}"


# --- facts of jobs alone ------------------------------------------------------------------------------------------

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
PROFILE_ROLES = {role: role for role in ("workload", "device_type", "family", "throughput", *FACT_OF_ROLE)} | {
    **dict.fromkeys(("job", "victim", "name"), "workload"),
    **dict.fromkeys(("device", "gpu", "gpu_type"), "device_type"),
    **dict.fromkeys(("steps_per_s", "steps_per_second", "requests_per_s", "solo_throughput"), "throughput"),
    **{f"solo_step_time_{unit}": f"step_time_{unit}" for unit in ("s", "ms", "us")},
}


# --- how each column was understood: what a dry run prints and the card keeps --------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnUse:
    """The role that a column was understood to have; with `column` "", a condition that holds for every row of the
    sheet."""

    file: str
    column: str
    role: str
    meaning: str
    values: int  # cells that hold something
    example: str

    def text(self) -> str:
        """Return the use of the column as a line of text."""
        where = f"{self.file}, column `{self.column}`" if self.column else f"{self.file}, every row"
        return f"{where}: {self.role} ({self.meaning}), {self.values} values, such as {self.example or 'none'}"


def column_uses(
    sheet: Sheet, meanings: Iterable[tuple[str, str, str]], roles: ColumnRoles, given: Conditions | None = None
) -> tuple[ColumnUse, ...]:
    """Return the use of each column, and of what is `given` for all rows where no column says it.

    `meanings` holds column, role and meaning of each column.
    """
    file = sheet.source.path.name
    uses = []
    for column, role, meaning in meanings:
        cells = [row.fields[column] for row in sheet.rows if not is_empty(row.fields[column])]
        example = cells[0] if cells else ""
        uses.append(ColumnUse(file=file, column=column, role=role, meaning=meaning, values=len(cells), example=example))
    for role in CONDITIONS if given is not None else ():
        if (value := getattr(given, role)) and not roles.column(role):
            meaning = f"{describe(role)}, for rows that name none"
            rows = len(sheet.rows)
            uses.append(ColumnUse(file=file, column="", role=role, meaning=meaning, values=rows, example=value))
    return tuple(uses)


def matrix_meanings(
    columns: Sequence[str], roles: ColumnRoles, measure: Measure, victims: Victims
) -> Iterator[tuple[str, str, str]]:
    """Return column, role and meaning of the first column of a matrix and of its job columns."""
    named, of_row = ("victim", "neighbour") if victims is Victims.ROWS else ("neighbour", "victim")
    yield columns[0], named, "name of the job"
    for column in columns[1:]:
        role = roles.role_of[column]
        if role in CONDITIONS:
            yield column, role, describe(role)
        elif column.lower() in ALONE_WORDS:
            yield column, "alone", f"{measure.text} of the job of the row alone"
        else:
            yield column, of_row, f"{measure.text} of the victim beside the neighbour"


def profile_meanings(roles: ColumnRoles) -> Iterator[tuple[str, str, str]]:
    """Return column, role and meaning of each column of a sheet of jobs alone."""
    for column, role in roles.role_of.items():
        fact, scale = FACT_OF_ROLE.get(role, (describe(role), 1.0))
        if role == "throughput":
            fact = "steps/s alone, step_time_s = 1 / throughput"
        yield column, role, fact if scale == 1.0 else f"{fact} = {scale:g} x the value"
