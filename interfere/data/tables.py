"""A measurement table: profiles of jobs and slowdowns of ordered pairs, validated on every read and write.

Laws: reading what was written gives equal records; a table that breaks a rule is refused as a whole, when written and
when read, with file, row, column, value and remedy; no two rows have the same key. A job that several sources know has
one row of each on disk, and one profile in memory, which `interfere.data.facts` combines of them.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interfere.data import schema
from interfere.data.facts import CombinedProfiles, combine_profiles
from interfere.data.parquet import read_rows, write_rows
from interfere.errors import InvalidInputError, TableError, Violation
from interfere.records import COUNTERS, NAN, JobProfile, KernelStat, PairMeasurement, PairStatus

JOBS_FILE, PAIRS_FILE = "jobs.parquet", "pairs.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A measured or imported table. Every pair names two jobs that are profiled on its device type."""

    name: str
    jobs: tuple[JobProfile, ...]  # one of each workload on each device type
    pairs: tuple[PairMeasurement, ...]
    sources: tuple[JobProfile, ...] = ()  # of each job that several sources know, the profile of each source

    @property
    def profiles(self) -> tuple[JobProfile, ...]:
        """What each source says of each job: the rows on disk."""
        return CombinedProfiles(jobs=self.jobs, sources=self.sources).profiles

    @property
    def ok_pairs(self) -> tuple[PairMeasurement, ...]:
        """The pairs with a valid slowdown."""
        return tuple(pair for pair in self.pairs if pair.status is PairStatus.OK)


def read_table(path: Path) -> Table:
    """The table in folder `path`. Raises TableError, which names file, row and column."""
    job_rows = read_rows(path / JOBS_FILE, schema.jobs_schema())
    pair_rows = read_rows(path / PAIRS_FILE, schema.pairs_schema())
    profiles = tuple(_record(path / JOBS_FILE, k, _job_profile, row) for k, row in enumerate(job_rows))
    _check_profiles(profiles, path)
    pairs = tuple(_record(path / PAIRS_FILE, k, _pair_measurement, row) for k, row in enumerate(pair_rows))
    combined = combine_profiles(profiles)
    table = Table(name=path.resolve().name, jobs=combined.jobs, pairs=pairs, sources=combined.sources)
    check_table(table, path)
    return table


def write_table(path: Path, table: Table) -> None:
    """Write the table into folder `path`: each file whole or not at all, and jobs before the pairs that refer to them.

    Raises TableError for a table that breaks a rule, UnfitError where the folder cannot be written.
    """
    check_table(table, path)
    write_rows(path / JOBS_FILE, [_nan_to_null(asdict(profile)) for profile in table.profiles], schema.jobs_schema())
    pairs = [
        {**_nan_to_null(asdict(pair)), "status": pair.status.value, "feasible": pair.feasible} for pair in table.pairs
    ]
    write_rows(path / PAIRS_FILE, pairs, schema.pairs_schema())


def add_profiles(path: Path, jobs: Sequence[JobProfile]) -> Table:
    """Add profiles to the table in folder `path`, or to a new one.

    What the same source said of the same job before is replaced, what other sources said is kept.
    """
    existing = read_table(path) if (path / JOBS_FILE).exists() or (path / PAIRS_FILE).exists() else None
    combined = combine_profiles((*(existing.profiles if existing else ()), *jobs))
    pairs = existing.pairs if existing else ()
    table = Table(name=path.resolve().name, jobs=combined.jobs, pairs=pairs, sources=combined.sources)
    write_table(path, table)
    return table


def table_digest(path: Path) -> str:
    """The sha256 over both files of a table, in hexadecimal: model cards cite it. Raises TableError."""
    digest = hashlib.sha256()
    for name in (JOBS_FILE, PAIRS_FILE):
        try:
            content = (path / name).read_bytes()
        except OSError as error:
            raise TableError(
                f"the table has no {name}", value=f"{path}: {error.strerror}", remedy="give a folder with both files"
            ) from None
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def check_table(table: Table, path: Path) -> None:
    """Check what records do not check themselves: ranges, duplicate keys, pairs without profiles. Raises TableError."""
    _check_profiles(table.profiles, path)
    profiled = {(job.workload, job.device_type) for job in table.jobs}
    if len(profiled) < len(table.jobs):
        raise TableError(
            f"{JOBS_FILE}: a job has two profiles", value=path, remedy="combine them: interfere.data.facts does"
        )
    pair_rows: dict[tuple[str, ...], int] = {}
    for row, pair in enumerate(table.pairs):
        _raise_violations(path / PAIRS_FILE, row, _pair_range_violations(pair))
        _check_unique(
            path / PAIRS_FILE, row, pair_rows, tuple(getattr(pair, name) for name in schema.PAIR_KEY), schema.PAIR_KEY
        )
        for column in ("victim", "neighbour"):
            if (getattr(pair, column), pair.device_type) not in profiled:
                raise TableError(
                    f"{PAIRS_FILE}, row {row}, column {column}: no profile of it on {pair.device_type} in {JOBS_FILE}",
                    value=f"{getattr(pair, column)!r} in {path}",
                    remedy="profile the job (`interfere profile solo`) or drop the row",
                )


def _check_profiles(profiles: Sequence[JobProfile], path: Path) -> None:
    """Check the rows of the jobs' file. Raises TableError."""
    rows: dict[tuple[str, ...], int] = {}
    for row, profile in enumerate(profiles):
        _raise_violations(path / JOBS_FILE, row, job_range_violations(profile))
        key = tuple(getattr(profile, name) for name in schema.JOB_KEY)
        _check_unique(path / JOBS_FILE, row, rows, key, schema.JOB_KEY)


def _check_unique(
    path: Path, row: int, row_of_key: dict[tuple[str, ...], int], key: tuple[str, ...], names: Sequence[str]
) -> None:
    if key in row_of_key:
        raise TableError(
            f"{path.name}, row {row}, columns {', '.join(names)}: same as row {row_of_key[key]}",
            value=f"{', '.join(key)} in {path.parent}",
            remedy="keep one of the rows",
        )
    row_of_key[key] = row


def _raise_violations(path: Path, row: int, violations: Iterator[Violation]) -> None:
    """Raise a TableError that shows the first violation and holds them all."""
    all_violations = tuple(violations)
    if all_violations:
        first = all_violations[0]
        raise TableError(
            f"{path.name}, row {row}, column {first.field}: {first.what}",
            value=f"{first.value} in {path.parent}",
            remedy=first.remedy,
            violations=all_violations,
        )


def job_range_violations(job: JobProfile) -> Iterator[Violation]:
    """Facts that no job has: times of hours, shares above 1. The remedies name the usual mistake of unit."""
    limits = (
        ("step_time_s", schema.MAX_STEP_S, "give seconds, not milliseconds"),
        ("busy_frac", 1.05, "give a share of one core or device: at most 1, and 5 % for two clocks that disagree"),
        *((name, schema.MAX_BYTES, "give bytes") for name in schema.MEMORY_COLUMNS),
        *((name, 1.0, "give a share: divide by 100") for name in COUNTERS),
    )
    for name, maximum, remedy in limits:
        if getattr(job, name) > maximum:
            yield Violation(field=name, what=f"above {maximum:g}", value=repr(getattr(job, name)), remedy=remedy)


def _pair_range_violations(pair: PairMeasurement) -> Iterator[Violation]:
    if not all(math.isfinite(value) and value > 0 for value in pair.passes):
        yield Violation(field="passes", what="must be finite and positive", value="a bad entry", remedy="drop it")
    for name in ("overlap_frac", "steal_frac"):
        value = getattr(pair, name)
        if not (math.isnan(value) or 0 <= value <= 1.0 + 1e-9):
            yield Violation(field=name, what="must be a share in [0, 1]", value=repr(value), remedy="divide by 100")
    for name in ("slowdown", "lower", "upper"):
        value = getattr(pair, name)
        if not (math.isnan(value) or (math.isfinite(value) and value > 0)):
            yield Violation(field=name, what="must be a positive number", value=repr(value), remedy="leave it out")
    if pair.lower > pair.slowdown or pair.slowdown > pair.upper:
        yield Violation(
            field="lower",
            what="lower ≤ slowdown ≤ upper is broken",
            value=f"{pair.lower:g}, {pair.slowdown:g}, {pair.upper:g}",
            remedy="give the interval of this very slowdown",
        )


def _record(path: Path, row: int, make: Any, values: dict[str, Any]) -> Any:
    """The record that `make` builds from a row. Raises TableError, which names file and row."""
    try:
        return make(values)
    except InvalidInputError as error:
        _raise_violations(path, row, iter(error.violations))
        raise TableError(
            f"{path.name}, row {row}: {error.what}", value=f"{error.value} in {path.parent}", remedy=error.remedy
        ) from None


def _text_or_empty(value: Any) -> Any:
    return "" if value is None else value


def _number_list(field: str, values: list[Any] | None) -> tuple[float, ...]:
    """The values of a list column. Raises InvalidInputError for a null inside it."""
    if values is not None and any(value is None for value in values):
        raise InvalidInputError.from_violations(
            [Violation(field=field, what="holds a null", value="null", remedy="drop the entry")]
        )
    return tuple(values or ())


def _numbers(row: dict[str, Any], *without: str) -> dict[str, Any]:
    """The fields of a row except those named, with NaN for null."""
    return {name: (NAN if value is None else value) for name, value in row.items() if name not in without}


def _job_profile(row: dict[str, Any]) -> JobProfile:
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
        busy_s=_number_list("busy_s", row["busy_s"]),
        idle_s=_number_list("idle_s", row["idle_s"]),
        kernels=kernels,
    )


def _pair_measurement(row: dict[str, Any]) -> PairMeasurement:
    texts = ("victim", "neighbour", "device_type", "mode", "metric", "reason", "source", "campaign", "device_name")
    try:
        status = PairStatus(_text_or_empty(row["status"]))
    except ValueError:
        known = ", ".join(status.value for status in PairStatus)
        raise InvalidInputError.from_violations(
            [Violation(field="status", what="unknown", value=repr(row["status"]), remedy=f"one of {known}")]
        ) from None
    pair = PairMeasurement(
        **{name: _text_or_empty(row[name]) for name in texts},
        **_numbers(row, *texts, "passes", "status", "feasible"),
        passes=_number_list("passes", row["passes"]),
        status=status,
    )
    if row["feasible"] is not pair.feasible:
        raise InvalidInputError.from_violations(
            [
                Violation(
                    field="feasible",
                    what=f"contradicts status {status.value}",
                    value=repr(row["feasible"]),
                    remedy="feasible is false exactly where status is infeasible",
                )
            ]
        )
    return pair


def _nan_to_null(value: Any) -> Any:
    """The value with null for NaN, at every depth."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, dict):
        return {name: _nan_to_null(inner) for name, inner in value.items()}
    return [_nan_to_null(inner) for inner in value] if isinstance(value, list | tuple) else value
