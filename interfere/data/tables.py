"""A measurement table: profiles of jobs, slowdowns of pairs and of groups, validated on every read and write.

Laws: reading what was written gives equal records; a table that breaks a rule is refused as a whole, when written and
when read, with file, row, column, value and remedy; no two rows have the same key. A job that several sources know has
one row of each on disk, and one profile in memory, which `interfere.data.facts` combines of them.

Null on disk is NaN, or no text, in a record. A campaign in mode `priority` measures each ordered pair twice: the victim
before its neighbour, and behind it. Models and replays are asked for a victim beside a neighbour alone, so for them
both measurements become one row between the two.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from interfere.data import schema
from interfere.data.facts import CombinedProfiles, combine_profiles
from interfere.data.parquet import read_rows, write_rows
from interfere.data.row_checks import check_measurements, check_profiles, record_of_row
from interfere.errors import InvalidInputError, TableError, Violation
from interfere.file_writing import remove_file
from interfere.records import NAN, GroupMeasurement, JobProfile, KernelStat, PairMeasurement, PairStatus

JOBS_FILE, PAIRS_FILE, GROUPS_FILE = "jobs.parquet", "pairs.parquet", "groups.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A measured or imported table. Every job of a pair or of a group is profiled on its device type."""

    name: str
    jobs: tuple[JobProfile, ...]  # one of each workload on each device type
    pairs: tuple[PairMeasurement, ...]
    groups: tuple[GroupMeasurement, ...] = ()  # slowdowns in company of two or more, one row of each victim
    sources: tuple[JobProfile, ...] = ()  # of each job that several sources know, the profile of each source

    @property
    def profiles(self) -> tuple[JobProfile, ...]:
        """The profiles of each source for each job, as stored on disk."""
        return CombinedProfiles(jobs=self.jobs, sources=self.sources).profiles

    @property
    def measurements(self) -> tuple[PairMeasurement | GroupMeasurement, ...]:
        """The rows of pairs, then those of groups."""
        return (*self.pairs, *self.groups)

    @property
    def ok_pairs(self) -> tuple[PairMeasurement, ...]:
        """The pairs with a valid slowdown."""
        return tuple(pair for pair in self.pairs if pair.status is PairStatus.OK)

    @property
    def ok_groups(self) -> tuple[GroupMeasurement, ...]:
        """The rows of groups with a valid slowdown."""
        return tuple(group for group in self.groups if group.status is PairStatus.OK)


def read_table(path: Path) -> Table:
    """The table in folder `path`. Raises TableError, which names file, row and column."""
    profiles = _read_records(path / JOBS_FILE, schema.jobs_schema(), job_profile)
    check_profiles(profiles, path / JOBS_FILE)
    pairs = _read_records(path / PAIRS_FILE, schema.pairs_schema(), pair_measurement)
    groups: tuple[GroupMeasurement, ...] = ()
    if (path / GROUPS_FILE).exists():
        groups = _read_records(path / GROUPS_FILE, schema.groups_schema(), group_measurement)
    combined = combine_profiles(profiles)
    table = Table(name=path.resolve().name, jobs=combined.jobs, pairs=pairs, groups=groups, sources=combined.sources)
    check_table(table, path)
    return table


def _read_records(path: Path, file_schema: Any, make: Any) -> tuple[Any, ...]:
    """The record of each row of one file, as `make` builds it. Raises TableError."""
    return tuple(record_of_row(path, k, make, row) for k, row in enumerate(read_rows(path, file_schema)))


def write_table(path: Path, table: Table) -> None:
    """Write the table into folder `path`: each file whole or not at all, and jobs before the rows that refer to them.

    A table without groups has no file of groups: one that is there is removed. Raises TableError for a table that
    breaks a rule, UnfitError where the folder cannot be written.
    """
    check_table(table, path)
    write_rows(path / JOBS_FILE, [profile_row(profile) for profile in table.profiles], schema.jobs_schema())
    write_rows(path / PAIRS_FILE, [measurement_row(pair) for pair in table.pairs], schema.pairs_schema())
    if table.groups:
        write_rows(path / GROUPS_FILE, [measurement_row(group) for group in table.groups], schema.groups_schema())
    else:
        remove_file(path / GROUPS_FILE)


def add_profiles(path: Path, jobs: Sequence[JobProfile]) -> Table:
    """Add profiles to the table in folder `path`, or to a new table.

    Earlier facts of the same source about the same job are replaced. Facts of other sources are kept.
    """
    existing = read_table(path) if (path / JOBS_FILE).exists() or (path / PAIRS_FILE).exists() else None
    combined = combine_profiles((*(existing.profiles if existing else ()), *jobs))
    table = Table(
        name=path.resolve().name,
        jobs=combined.jobs,
        pairs=existing.pairs if existing else (),
        groups=existing.groups if existing else (),
        sources=combined.sources,
    )
    write_table(path, table)
    return table


def table_digest(path: Path) -> str:
    """The sha256 over the files of a table, in hexadecimal: model cards cite it. Raises TableError.

    Jobs and pairs always count, groups where there are any: a table without groups keeps the digest that it had.
    """
    digest = hashlib.sha256()
    has_groups = (path / GROUPS_FILE).exists()
    for name in (JOBS_FILE, PAIRS_FILE, *((GROUPS_FILE,) if has_groups else ())):
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
    """Check what records do not check themselves: ranges, duplicate keys, rows without profiles. Raises TableError."""
    check_profiles(table.profiles, path / JOBS_FILE)
    profiled = {(job.workload, job.device_type) for job in table.jobs}
    if len(profiled) < len(table.jobs):
        raise TableError(
            f"{JOBS_FILE}: a job has two profiles", value=path, remedy="combine them: interfere.data.facts does"
        )
    check_measurements(table.pairs, path / PAIRS_FILE, key=schema.PAIR_KEY, profiled=profiled)
    check_measurements(table.groups, path / GROUPS_FILE, key=schema.GROUP_KEY, profiled=profiled)


# --- rows of Parquet files to records --------------------------------------------------------------------------------


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


# --- both roles of a pair in one row ---------------------------------------------------------------------------------


def merge_roles(pairs: Iterable[PairMeasurement]) -> tuple[PairMeasurement, ...]:
    """Return one row per ordered pair: the geometric mean over both roles, with an interval that covers both roles'
    intervals.

    Rows without roles stay the same objects. A pair that is valid in one role alone gets no slowdown.
    """
    rows: list[PairMeasurement] = []
    place_of_pair: dict[tuple[str, ...], int] = {}
    for row in pairs:
        if not row.important:
            rows.append(row)
            continue
        key = (row.victim, row.neighbour, row.device_type, row.mode, row.metric)
        if key in place_of_pair:
            rows[place_of_pair[key]] = _merged(rows[place_of_pair[key]], row)
        else:
            place_of_pair[key] = len(rows)
            rows.append(row)
    return tuple(rows)


def _merged(one: PairMeasurement, other: PairMeasurement) -> PairMeasurement:
    failed = next((row for row in (one, other) if row.status is not PairStatus.OK), None)
    if failed is not None:
        return replace(failed, important="", slowdown=NAN, lower=NAN, upper=NAN, passes=())
    ends = [end for row in (one, other) for end in (row.slowdown, row.lower, row.upper) if not math.isnan(end)]
    return replace(
        one,
        important="",
        slowdown=math.sqrt(one.slowdown * other.slowdown),
        lower=min(ends),
        upper=max(ends),
        passes=(),
        steal_frac=max(one.steal_frac, other.steal_frac),
        overlap_frac=min(one.overlap_frac, other.overlap_frac),
    )
