"""Converts rows of Parquet files to records and back; null on disk is NaN, or no text, in a record."""

import math
from dataclasses import asdict
from typing import Any

from interfere.errors import InvalidInputError, Violation
from interfere.records import NAN, GroupMeasurement, JobProfile, KernelStat, PairMeasurement, PairStatus


def _text_or_empty(value: Any) -> Any:
    return "" if value is None else value


def _entries(field: str, values: list[Any] | None) -> tuple[Any, ...]:
    """The values of a list column. Raises InvalidInputError for a null inside it."""
    if values is not None and any(value is None for value in values):
        raise InvalidInputError.from_violations(
            [Violation(field=field, what="holds a null", value="null", remedy="drop the entry")]
        )
    return tuple(values or ())


def _numbers(row: dict[str, Any], *without: str) -> dict[str, Any]:
    """The fields of a row except those named, with NaN for null."""
    return {name: (NAN if value is None else value) for name, value in row.items() if name not in without}


def job_profile(row: dict[str, Any]) -> JobProfile:
    """The profile in one row of `jobs.parquet`. Raises InvalidInputError."""
    texts, lists = ("workload", "device_type", "source", "family"), ("busy_s", "idle_s", "kernels")
    kernels = tuple(
        KernelStat(
            **_numbers(kernel, "name", "grid", "block"),
            name=_text_or_empty(kernel["name"]),
            grid=tuple(kernel["grid"] or ()),
            block=tuple(kernel["block"] or ()),
        )
        for kernel in row["kernels"] or ()
    )
    return JobProfile(
        **{name: _text_or_empty(row.get(name)) for name in texts},
        **_numbers(row, *texts, *lists),
        busy_s=_entries("busy_s", row["busy_s"]),
        idle_s=_entries("idle_s", row["idle_s"]),
        kernels=kernels,
    )


_MEASUREMENT_TEXTS = ("victim", "device_type", "mode", "metric", "reason", "source", "campaign", "device_name")


def pair_measurement(row: dict[str, Any]) -> PairMeasurement:
    """The measurement in one row of `pairs.parquet`. Raises InvalidInputError."""
    pair = PairMeasurement(
        neighbour=_text_or_empty(row["neighbour"]),
        important=_text_or_empty(row.get("important")),
        **_measurement_fields(row, "neighbour", "important"),
    )
    _check_feasible(row, pair)
    return pair


def group_measurement(row: dict[str, Any]) -> GroupMeasurement:
    """The measurement in one row of `groups.parquet`. Raises InvalidInputError."""
    group = GroupMeasurement(company=_entries("company", row["company"]), **_measurement_fields(row, "company"))
    _check_feasible(row, group)
    return group


def _measurement_fields(row: dict[str, Any], *without: str) -> dict[str, Any]:
    """The fields that measurements of pairs and of groups share: all columns but those named."""
    try:
        status = PairStatus(_text_or_empty(row["status"]))
    except ValueError:
        known = ", ".join(status.value for status in PairStatus)
        raise InvalidInputError.from_violations(
            [Violation(field="status", what="unknown", value=repr(row["status"]), remedy=f"one of {known}")]
        ) from None
    return {
        **{name: _text_or_empty(row[name]) for name in _MEASUREMENT_TEXTS},
        **_numbers(row, *_MEASUREMENT_TEXTS, *without, "passes", "status", "feasible"),
        "passes": _entries("passes", row["passes"]),
        "status": status,
    }


def _check_feasible(row: dict[str, Any], measurement: PairMeasurement | GroupMeasurement) -> None:
    if row["feasible"] is not measurement.feasible:
        raise InvalidInputError.from_violations(
            [
                Violation(
                    field="feasible",
                    what=f"contradicts status {measurement.status.value}",
                    value=repr(row["feasible"]),
                    remedy="feasible is false exactly where status is infeasible",
                )
            ]
        )


def measurement_row(measurement: PairMeasurement | GroupMeasurement) -> dict[str, Any]:
    """The row of a measurement, in either file."""
    return {
        **null_for_nan(asdict(measurement)),
        "status": measurement.status.value,
        "feasible": measurement.feasible,
    }


def profile_row(profile: JobProfile) -> dict[str, Any]:
    """The row of a profile in `jobs.parquet`."""
    row: dict[str, Any] = null_for_nan(asdict(profile))
    return row


def null_for_nan(value: Any) -> Any:
    """The value with null for NaN, at every depth."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, dict):
        return {name: null_for_nan(inner) for name, inner in value.items()}
    return [null_for_nan(inner) for inner in value] if isinstance(value, list | tuple) else value
