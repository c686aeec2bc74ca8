"""Validation of records: shared checks, bounds and names. Absent numbers are NaN, never 0."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from interfere.errors import InvalidInputError, Violation

T = TypeVar("T")

NAN = math.nan
MAX_FLOAT = sys.float_info.max
# Of services: the latency of a request, and where it generates tokens the time to first token and per output token.
METRICS = ("step_time_mean", "latency_p50", "latency_p99", "ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99")
MIN_SLOWDOWN, MAX_SLOWDOWN = 0.2, 100.0  # a measurement beyond these bounds is a broken clock or a stuck job
MIN_WEIGHT = 1e-6  # of a job, or of a term of an objective: smaller ones vanish in sums over a million jobs


def check(violations: list[Violation]) -> None:
    """Raise InvalidInputError when there are violations."""
    if violations:
        raise InvalidInputError.from_violations(violations)


def refused(record: object, name: str, what: str, remedy: str, *, value: str | None = None) -> Violation:
    """Return the violation of a rule by one field of a record. `value`: what is shown in place of the field's value."""
    shown = repr(getattr(record, name)) if value is None else value
    return Violation(field=name, what=what, value=shown, remedy=remedy)


def is_name(value: object) -> bool:
    """Whether a value is a text that is not empty, printable and at most 256 characters long."""
    return isinstance(value, str) and len(value) <= 256 and value.isprintable() and value.strip() != ""


def text_violations(record: object, *names: str) -> list[Violation]:
    """Return a violation for each named field that is not a printable text of 1 to 256 characters."""
    return [
        refused(record, name, "must be a printable name", "1-256 characters")
        for name in names
        if not is_name(getattr(record, name))
    ]


def label_violations(record: object, *names: str) -> list[Violation]:
    """Return a violation for each named field that is neither empty nor a printable text of at most 256 characters."""
    return text_violations(record, *(name for name in names if getattr(record, name)))


def number_violations(record: object, *names: str, low: float = 0.0, nan: bool = True) -> list[Violation]:
    """Return a violation for each named field that is not a finite number of at least `low`. With `nan`, NaN is
    allowed and means absent."""
    bad = []
    for name in names:
        value = getattr(record, name)
        if low <= value <= MAX_FLOAT or (nan and math.isnan(value)):
            continue
        remedy = "send a number, or leave it out" if nan else "send a number"
        bad.append(refused(record, name, f"must be a finite number ≥ {low:g}", remedy))
    return bad


class Inspection:
    """Collects violations with their paths, so that all are reported at once."""

    def __init__(self) -> None:
        self._violations: list[Violation] = []

    def read(self, path: str, build: Callable[[], T]) -> T | None:
        """Return the result of `build`. Where it raises InvalidInputError, its violations are noted under `path`,
        and None is returned."""
        try:
            return build()
        except InvalidInputError as error:
            own = error.violations or (
                Violation(field="", what=error.what, value=str(error.value), remedy=error.remedy),
            )
            self._violations += [replace(v, field=_join_path(path, v.field)) for v in own]
            return None

    def note(self, violation: Violation) -> None:
        """Add a violation that was found elsewhere."""
        self._violations.append(violation)

    def done(self) -> None:
        """Raise InvalidInputError when there are violations."""
        check(self._violations)


def _join_path(path: str, field: str) -> str:
    return f"{path}.{field}" if path and field and field[0] != "[" else path + field
