"""The rules of a table that records do not check themselves: ranges, duplicate keys, measurements without profiles.

Law: a row that breaks a rule is named with file, row, column, value and remedy.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from interfere.data import schema
from interfere.data.parquet import raise_violations
from interfere.errors import TableError, Violation
from interfere.records import COUNTERS, GroupMeasurement, JobProfile, PairMeasurement


def check_profiles(profiles: Sequence[JobProfile], path: Path) -> None:
    """Check that facts are in range and no key occurs twice in the rows of the jobs' file. Raises TableError."""
    rows: dict[tuple[object, ...], int] = {}
    for row, profile in enumerate(profiles):
        raise_violations(path, row, job_range_violations(profile))
        key = tuple(getattr(profile, name) for name in schema.JOB_KEY)
        _check_unique(path, row, rows, key, schema.JOB_KEY)


def check_measurements(
    measurements: Sequence[PairMeasurement | GroupMeasurement],
    path: Path,
    *,
    key: Sequence[str],
    profiled: set[tuple[str, str]],
) -> None:
    """Check that values are in range, no key occurs twice, and every job has a profile. Raises TableError.

    `key` names the columns in which no two rows are equal, `profiled` holds workload and device type of each profile.
    """
    rows: dict[tuple[object, ...], int] = {}
    for row, measurement in enumerate(measurements):
        raise_violations(path, row, _measurement_range_violations(measurement))
        _check_unique(path, row, rows, tuple(getattr(measurement, name) for name in key), key)
        for column, workload in _jobs_by_column(measurement):
            if (workload, measurement.device_type) not in profiled:
                raise TableError(
                    f"{path.name}, row {row}, column {column}: no profile of it on {measurement.device_type} in "
                    "jobs.parquet",
                    value=f"{workload!r} in {path.parent}",
                    remedy="profile the job (`interfere profile solo`) or drop the row",
                )


def _jobs_by_column(measurement: PairMeasurement | GroupMeasurement) -> Iterator[tuple[str, str]]:
    """Yield (column, workload) for every job that a measured row names."""
    yield "victim", measurement.victim
    if isinstance(measurement, GroupMeasurement):
        yield from (("company", workload) for workload in measurement.company)
    else:
        yield "neighbour", measurement.neighbour


def _check_unique(
    path: Path, row: int, row_of_key: dict[tuple[object, ...], int], key: tuple[object, ...], names: Sequence[str]
) -> None:
    if key in row_of_key:
        raise TableError(
            f"{path.name}, row {row}, columns {', '.join(names)}: same as row {row_of_key[key]}",
            value=f"{', '.join(map(str, key))} in {path.parent}",
            remedy="keep one of the rows",
        )
    row_of_key[key] = row


def job_range_violations(job: JobProfile) -> Iterator[Violation]:
    """Yield the impossible facts of a profile, such as a step time of hours or a share above 1.

    The remedies name the usual mistake of unit.
    """
    limits = (
        ("step_time_s", schema.MAX_STEP_S, "give seconds, not milliseconds"),
        ("busy_frac", 1.05, "give a share of one core or device: at most 1, and 5 % for two clocks that disagree"),
        *((name, schema.MAX_BYTES, "give bytes") for name in schema.MEMORY_COLUMNS),
        *((name, 1.0, "give a share: divide by 100") for name in COUNTERS),
    )
    for name, maximum, remedy in limits:
        if getattr(job, name) > maximum:
            yield Violation(field=name, what=f"above {maximum:g}", value=repr(getattr(job, name)), remedy=remedy)


def _measurement_range_violations(row: PairMeasurement | GroupMeasurement) -> Iterator[Violation]:
    if not all(math.isfinite(value) and value > 0 for value in row.passes):
        yield Violation(field="passes", what="must be finite and positive", value="a bad entry", remedy="drop it")
    for name in ("overlap_frac", "steal_frac"):
        value = getattr(row, name)
        if not (math.isnan(value) or 0 <= value <= 1.0 + 1e-9):
            yield Violation(field=name, what="must be a share in [0, 1]", value=repr(value), remedy="divide by 100")
    for name in ("slowdown", "lower", "upper"):
        value = getattr(row, name)
        if not (math.isnan(value) or (math.isfinite(value) and value > 0)):
            yield Violation(field=name, what="must be a positive number", value=repr(value), remedy="leave it out")
    if row.lower > row.slowdown or row.slowdown > row.upper:
        yield Violation(
            field="lower",
            what="lower ≤ slowdown ≤ upper is broken",
            value=f"{row.lower:g}, {row.slowdown:g}, {row.upper:g}",
            remedy="give the interval of this very slowdown",
        )
