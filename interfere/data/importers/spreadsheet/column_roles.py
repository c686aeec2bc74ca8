"""What a column of a spreadsheet can mean: its role, found by its name or given by the user.

A measured column holds a slowdown, a speed (1 / slowdown), a throughput or a time of one step or request; times carry
their unit in the role, as in `step_time_ms`. Prefixes say whose value it is: `solo_` alone, `neighbour_` that of the
other job of the row, `neighbour_solo_` that of the other job alone.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from interfere.errors import InvalidInputError, TableError

TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
METRIC_OF_TIME = {"step_time": "step_time_mean", "latency_p50": "latency_p50", "latency_p99": "latency_p99"}
EXTRA = "extra"  # the role of a column that is no known fact: kept under its own name


class ValueKind(StrEnum):
    """How an interference measurement is written down."""

    SLOWDOWN = "slowdown"  # metric beside the neighbour / metric alone
    SPEED = "speed"  # 1 / slowdown
    THROUGHPUT = "throughput"  # steps (or requests) per second
    TIME = "time"  # of one step or request


class Side(StrEnum):
    """Whose value a measured column holds; the value is the prefix of the role."""

    OWN = ""
    SOLO = "solo_"
    NEIGHBOUR = "neighbour_"
    NEIGHBOUR_SOLO = "neighbour_solo_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """The meaning of a measured value: its kind, the unit of a time, and the metric where the name says one."""

    kind: ValueKind
    seconds: float = 1.0  # of one unit of a time
    metric: str = ""

    @property
    def needs_solo(self) -> bool:
        """Whether a slowdown needs the value alone too."""
        return self.kind in (ValueKind.THROUGHPUT, ValueKind.TIME)

    def step_time_s(self, value: float) -> float:
        """Seconds of one step, from a throughput or a time."""
        return 1.0 / value if self.kind is ValueKind.THROUGHPUT else value * self.seconds


MEASURES = {
    "slowdown": Measure(kind=ValueKind.SLOWDOWN),
    "speed": Measure(kind=ValueKind.SPEED),
    "throughput": Measure(kind=ValueKind.THROUGHPUT),
    **{
        f"{time}_{unit}": Measure(kind=ValueKind.TIME, seconds=seconds, metric=metric)
        for time, metric in METRIC_OF_TIME.items()
        for unit, seconds in TIME_UNITS.items()
    },
}
_SIDED = {
    f"{side.value}{name}": (side, measure)
    for side in Side
    for name, measure in MEASURES.items()
    if measure.needs_solo or side in (Side.OWN, Side.NEIGHBOUR)
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
_UNITLESS = re.compile(r"(solo_|neighbour_|neighbour_solo_)?(step_time|latency_p50|latency_p99|latency|time)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRoles:
    """The role of every column of a sheet, and the columns by role."""

    path: Path
    role_of: dict[str, str]  # by column

    def column(self, role: str) -> str:
        """The column of a role; "" where there is none."""
        return next((column for column, each in self.role_of.items() if each == role), "")

    def measured(self, side: Side) -> tuple[str, Measure] | None:
        """(column, meaning) of the measured values of a side. Raises TableError where two columns hold them."""
        found = [
            (column, _SIDED[role][1])
            for column, role in self.role_of.items()
            if role in _SIDED and _SIDED[role][0] is side
        ]
        if len(found) > 1:
            names = " and ".join(column for column, _ in found)
            raise TableError(
                f"{self.path.name}, row 1, columns {names}: two measured values of one job",
                value=self.path,
                remedy=f"keep all but one as extras: --map {EXTRA}={found[-1][0]}",
            )
        return found[0] if found else None

    @property
    def extras(self) -> tuple[str, ...]:
        """The columns that are no known fact."""
        return tuple(column for column, role in self.role_of.items() if role == EXTRA)


def normalised(name: str) -> str:
    """A column name in lower case, with underscores, in British spelling."""
    return re.sub(r"[\s\-/]+", "_", name.strip().lower()).replace("neighbor", "neighbour").replace("alone_", "solo_")


def parse_map(texts: Sequence[str]) -> dict[str, str]:
    """{column: role} of `ROLE=COLUMN` texts. Raises InvalidInputError."""
    mapping: dict[str, str] = {}
    for text in texts:
        role, equals, column = (part.strip() for part in text.partition("="))
        if not (role and equals and column) or column in mapping:
            problem = "a column is mapped twice" if column in mapping else "not a mapping of a column"
            raise InvalidInputError(problem, value=repr(text), remedy="write ROLE=COLUMN, such as victim=job_a")
        mapping[column] = role
    return mapping


def assign_roles(
    path: Path, columns: Sequence[str], mapping: Mapping[str, str], roles: Mapping[str, str] | None = None
) -> ColumnRoles:
    """The role of each column: as mapped, else by its name, else an extra. Raises TableError and InvalidInputError.

    `roles` are the known roles by the names that mean them; those of a sheet of pairs by default.
    """
    known = _ROLE_OF_NAME if roles is None else roles
    for column, role in mapping.items():
        if column not in columns:
            raise TableError(
                f"{path.name}, row 1, column {column}: missing",
                value=f"found {', '.join(columns)[:200]}",
                remedy="map a column that the file has",
            )
        if role != EXTRA and role not in known.values():
            names = ", ".join(dict.fromkeys((*known.values(), EXTRA)))
            raise InvalidInputError("no such role of a column", value=role, remedy=f"one of {names}")
    mapped = {role for role in mapping.values() if role != EXTRA}
    role_of: dict[str, str] = {}
    for column in columns:
        by_name = known.get(normalised(column), EXTRA)
        role = mapping.get(column, EXTRA if by_name in mapped else by_name)
        if role != EXTRA and role in role_of.values():
            other = next(name for name, each in role_of.items() if each == role)
            raise TableError(
                f"{path.name}, row 1, columns {other} and {column}: both mean {role}",
                value=path,
                remedy=f"keep one as an extra: --map {EXTRA}={column}",
            )
        if role == EXTRA and column not in mapping and _UNITLESS.fullmatch(normalised(column)) and roles is None:
            raise TableError(
                f"{path.name}, row 1, column {column}: a time without a unit",
                value=path,
                remedy=f"name its unit: --map step_time_ms={column} (or latency_p99_ms, with _s or _us), or keep it: "
                f"--map {EXTRA}={column}",
            )
        role_of[column] = role
    return ColumnRoles(path=path, role_of=role_of)


def describe(role: str) -> str:
    """What a role means, in words."""
    if role not in _SIDED:
        return DESCRIPTIONS.get(role, role)
    side, measure = _SIDED[role]
    whose = {
        Side.OWN: "of the victim beside the neighbour",
        Side.SOLO: "of the victim alone",
        Side.NEIGHBOUR: "of the neighbour beside the victim",
        Side.NEIGHBOUR_SOLO: "of the neighbour alone",
    }[side]
    unit = {1.0: "seconds", 1e-3: "milliseconds", 1e-6: "microseconds"}[measure.seconds]
    what = {
        ValueKind.SLOWDOWN: "slowdown",
        ValueKind.SPEED: "speed, 1 / slowdown,",
        ValueKind.THROUGHPUT: "throughput, steps/s,",
        ValueKind.TIME: f"{measure.metric or 'time'} in {unit}",
    }[measure.kind]
    return f"{what} {whose}"
