"""Validation of records: shared checks, bounds and names. Absent numbers are NaN, never 0."""

import math

from interfere.errors import InvalidInputError, Violation

NAN = math.nan
METRICS = ("step_time_mean", "latency_p50", "latency_p99")
MIN_SLOWDOWN, MAX_SLOWDOWN = 0.2, 100.0  # a measurement beyond these bounds is a broken clock or a stuck job
MIN_WEIGHT = 1e-6  # of a job, or of a term of an objective: smaller ones vanish in sums over a million jobs


def check(violations: list[Violation]) -> None:
    """Raise InvalidInputError when there are violations."""
    if violations:
        raise InvalidInputError.from_violations(violations)


def text_violations(record: object, *names: str) -> list[Violation]:
    """Names that must be non-empty, printable and at most 256 characters."""
    bad = []
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, str) or not value.strip() or len(value) > 256 or not value.isprintable():
            bad.append(
                Violation(field=name, what="must be a printable name", value=repr(value), remedy="1-256 characters")
            )
    return bad


def number_violations(record: object, *names: str, low: float = 0.0, nan: bool = True) -> list[Violation]:
    """Finite numbers not below `low`; NaN means absent where `nan`."""
    bad = []
    for name in names:
        value = getattr(record, name)
        if (nan and math.isnan(value)) or (math.isfinite(value) and value >= low):
            continue
        absent = ", or leave it out" if nan else ""
        bad.append(
            Violation(
                field=name,
                what=f"must be a finite number ≥ {low:g}",
                value=repr(value),
                remedy=f"send a number{absent}",
            )
        )
    return bad
