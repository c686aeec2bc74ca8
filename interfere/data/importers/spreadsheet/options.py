"""What a user says about a spreadsheet: roles of columns, conditions of measurement, shape, decimal sign."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from interfere.errors import InvalidInputError
from interfere.records import METRICS
from interfere.records.checks import check
from interfere.sharing_modes import DEFAULT_MODE, SharingMode, set_sharing_mode


class Shape(StrEnum):
    """The layout of a spreadsheet of pairs: one row a pair, or a matrix."""

    AUTO = "auto"
    LONG = "long"  # one row a pair
    WIDE = "wide"  # a matrix: one row and one column a job


class Victims(StrEnum):
    """The place of the victims of a matrix, whose slowdowns its cells hold."""

    ROWS = "rows"
    COLUMNS = "columns"


class Decimal(StrEnum):
    """The sign before the fraction of a number."""

    POINT = "."
    COMMA = ","


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The device type, sharing mode and metric of a value, from its row or given for the whole sheet."""

    device_type: str = ""
    mode: SharingMode = DEFAULT_MODE
    metric: str = ""

    def __post_init__(self) -> None:
        check(set_sharing_mode(self))
        if self.metric and self.metric not in METRICS:
            raise InvalidInputError("unknown metric", value=repr(self.metric), remedy=f"one of {', '.join(METRICS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadsheetOptions:
    """The facts about a spreadsheet that its cells do not contain."""

    mapping: Mapping[str, str] = field(default_factory=dict)  # role by column of the pairs
    profile_mapping: Mapping[str, str] = field(default_factory=dict)  # role by column of the jobs
    device_type: str = ""
    mode: SharingMode = DEFAULT_MODE
    metric: str = ""
    decimal: Decimal | None = None  # None: as the first number of a sheet that semicolons separate; else a point
    shape: Shape = Shape.AUTO
    value: str = ""  # what the cells of a matrix mean
    victims: Victims = Victims.ROWS
    source: str = "user"
    campaign: str = ""  # default: file name and digest

    def __post_init__(self) -> None:
        if self.decimal not in (None, *Decimal):
            raise InvalidInputError("no decimal sign", value=repr(self.decimal), remedy="a point or a comma")

    @property
    def conditions(self) -> Conditions:
        """The conditions of rows without conditions of their own. Raises InvalidInputError."""
        return Conditions(device_type=self.device_type, mode=self.mode, metric=self.metric)


def parse_map(texts: "tuple[str, ...] | list[str]") -> dict[str, str]:
    """Return the role of each column from texts `ROLE=COLUMN`. Raises InvalidInputError."""
    mapping: dict[str, str] = {}
    for text in texts:
        role, equals, column = (part.strip() for part in text.partition("="))
        if not (role and equals and column) or column in mapping:
            problem = "a column is mapped twice" if column in mapping else "not a mapping of a column"
            raise InvalidInputError(problem, value=repr(text), remedy="write ROLE=COLUMN, such as victim=job_a")
        mapping[column] = role
    return mapping
