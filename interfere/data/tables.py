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
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interfere.data.facts import CombinedProfiles, combine_profiles
from interfere.data.parquet import (
    GROUP_KEY,
    JOB_KEY,
    MAX_BYTES,
    MAX_STEP_S,
    MEMORY_COLUMNS,
    PAIR_KEY,
    measurements_schema,
    raise_violations,
    read_rows,
    record_schema,
    records_of_rows,
    write_rows,
)
from interfere.errors import TableError, Violation
from interfere.file_writing import remove_file
from interfere.records import COUNTERS, NAN, GroupMeasurement, JobProfile, PairMeasurement, PairStatus
from interfere.records.checks import number_violations
from interfere.records.documents import to_document

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
        """The rows of pairs, then the rows of groups."""
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
    """Return the table in folder `path`. Raises TableError, which names file, row and column."""
    profiles = records_of_rows(path / JOBS_FILE, read_rows(path / JOBS_FILE, record_schema(JobProfile)), JobProfile)
    _check_rows(profiles, path / JOBS_FILE, JOB_KEY)
    pairs = _read_measurements(path / PAIRS_FILE, PairMeasurement)
    groups = _read_measurements(path / GROUPS_FILE, GroupMeasurement) if (path / GROUPS_FILE).exists() else ()
    combined = combine_profiles(profiles)
    table = Table(name=path.resolve().name, jobs=combined.jobs, pairs=pairs, groups=groups, sources=combined.sources)
    check_table(table, path)
    return table


def _read_measurements(path: Path, record_type: Any) -> tuple[Any, ...]:
    """Return the measurements in one file. Raises TableError where the column `feasible` contradicts a row's status."""
    rows = read_rows(path, measurements_schema(record_type))
    measurements = records_of_rows(path, rows, record_type, derived=("feasible",))
    for row, (measurement, written) in enumerate(zip(measurements, rows, strict=True)):
        if written["feasible"] is not measurement.feasible:
            violation = Violation(
                field="feasible",
                what=f"contradicts status {measurement.status.value}",
                value=repr(written["feasible"]),
                remedy="feasible is false exactly where status is infeasible",
            )
            raise_violations(path, row, [violation])
    return measurements


def _write_measurements(path: Path, measurements: Sequence[Any], record_type: Any) -> None:
    rows = [to_document(each) | {"feasible": each.feasible} for each in measurements]
    write_rows(path, rows, measurements_schema(record_type))


def write_table(path: Path, table: Table) -> None:
    """Write the table into folder `path`: every file whole or not at all, jobs before the rows that refer to them.

    A file of groups that the table lacks is removed. Raises TableError for a table that breaks a rule, UnfitError where
    the folder cannot be written.
    """
    check_table(table, path)
    write_rows(path / JOBS_FILE, [to_document(profile) for profile in table.profiles], record_schema(JobProfile))
    _write_measurements(path / PAIRS_FILE, table.pairs, PairMeasurement)
    if table.groups:
        _write_measurements(path / GROUPS_FILE, table.groups, GroupMeasurement)
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
    """Return the sha256 over the files of a table in hexadecimal, which model cards cite. Raises TableError.

    The digest of a table without groups is over jobs and pairs alone.
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
    """Check ranges, duplicate keys, and that every measured job has a profile. Raises TableError."""
    _check_rows(table.profiles, path / JOBS_FILE, JOB_KEY)
    profiled = {(job.workload, job.device_type) for job in table.jobs}
    if len(profiled) < len(table.jobs):
        raise TableError(
            f"{JOBS_FILE}: a job has two profiles", value=path, remedy="combine them: interfere.data.facts does"
        )
    _check_rows(table.pairs, path / PAIRS_FILE, PAIR_KEY, profiled)
    _check_rows(table.groups, path / GROUPS_FILE, GROUP_KEY, profiled)


# --- both roles of a pair in one row ---------------------------------------------------------------------------------


def merge_roles(pairs: Iterable[PairMeasurement]) -> tuple[PairMeasurement, ...]:
    """Merge the two rows of each ordered pair that was measured with either job as the important one.

    The slowdown is the geometric mean of both rows; the interval covers both intervals. A pair with only one valid row
    gets no slowdown. Rows without an important job stay the same objects.
    """
    rows: list[PairMeasurement] = []
    place_of_pair: dict[tuple[str, ...], int] = {}
    for row in pairs:
        if not row.important:
            rows.append(row)
            continue
        key = (row.victim, row.neighbour, row.device_type, row.mode, row.metric, row.campaign)
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


# --- rules that records do not check themselves -----------------------------------------------------------------------


def _check_rows(
    rows: Sequence[JobProfile | PairMeasurement | GroupMeasurement],
    path: Path,
    key: Sequence[str],
    profiled: Container[tuple[str, str]] = (),
) -> None:
    """Check that values are in range, no key occurs twice, and every measured job has a profile. Raises TableError.

    `key` names the columns in which no two rows are equal, `profiled` holds workload and device type of each profile.
    """
    row_of_key: dict[tuple[object, ...], int] = {}
    for number, row in enumerate(rows):
        raise_violations(path, number, _range_violations(row))
        values = tuple(getattr(row, name) for name in key)
        first = row_of_key.setdefault(values, number)
        if first != number:
            raise TableError(
                f"{path.name}, row {number}, columns {', '.join(key)}: same as row {first}",
                value=f"{', '.join(map(str, values))} in {path.parent}",
                remedy="keep one of the rows",
            )
        for column, workload in _jobs_by_column(row):
            if (workload, row.device_type) not in profiled:
                raise TableError(
                    f"{path.name}, row {number}, column {column}: no profile of it on {row.device_type} in {JOBS_FILE}",
                    value=f"{workload!r} in {path.parent}",
                    remedy="profile the job (`interfere profile solo`) or drop the row",
                )


def _jobs_by_column(row: JobProfile | PairMeasurement | GroupMeasurement) -> Iterator[tuple[str, str]]:
    """Yield (column, workload) for every job that a measured row names; nothing for a profile."""
    if isinstance(row, PairMeasurement):
        yield from (("victim", row.victim), ("neighbour", row.neighbour))
    elif isinstance(row, GroupMeasurement):
        yield from (("victim", row.victim), *(("company", workload) for workload in row.company))


def job_range_violations(job: JobProfile) -> Iterator[Violation]:
    """Yield the impossible facts of a profile, such as a step time of hours or a share above 1.

    The remedies name the usual mistake of unit.
    """
    limits = (
        ("step_time_s", MAX_STEP_S, "give seconds, not milliseconds"),
        ("busy_frac", 1.05, "give a share of one core or device: at most 1, and 5 % for two clocks that disagree"),
        *((name, MAX_BYTES, "give bytes") for name in MEMORY_COLUMNS),
        *((name, 1.0, "give a share: divide by 100") for name in COUNTERS),
    )
    for name, maximum, remedy in limits:
        if getattr(job, name) > maximum:
            yield Violation(field=name, what=f"above {maximum:g}", value=repr(getattr(job, name)), remedy=remedy)


def _range_violations(row: JobProfile | PairMeasurement | GroupMeasurement) -> Iterator[Violation]:
    """Yield what is impossible in a row of a table."""
    if isinstance(row, JobProfile):
        yield from job_range_violations(row)
        return
    if not all(math.isfinite(value) and value > 0 for value in row.passes):
        yield Violation(field="passes", what="must be finite and positive", value="a bad entry", remedy="drop it")
    yield from number_violations(row, "slowdown", "lower", "upper", low=1e-9)
    yield from number_violations(row, "overlap_frac", "steal_frac")
    for name in ("overlap_frac", "steal_frac"):
        if getattr(row, name) > 1.0 + 1e-9:
            yield Violation(field=name, what="above 1", value=repr(getattr(row, name)), remedy="divide by 100")
    if row.lower > row.slowdown or row.slowdown > row.upper:
        yield Violation(
            field="lower",
            what="lower ≤ slowdown ≤ upper is broken",
            value=f"{row.lower:g}, {row.slowdown:g}, {row.upper:g}",
            remedy="give the interval of this very slowdown",
        )


# --- values of a spreadsheet that are no known fact -------------------------------------------------------------------

EXTRAS_FILE = "extras.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraFact:
    """The value of a spreadsheet's column that is no known fact, with the job or the ordered pair of its row."""

    workload: str
    neighbour: str = ""  # "" where the value is about the job alone
    device_type: str
    source: str
    name: str  # of the column
    value: str  # as written


def write_extras(folder: Path, extras: Sequence[ExtraFact]) -> None:
    """Write the extra facts of a table into its folder, without duplicates; no file where there are no extra facts."""
    if extras:
        rows = [to_document(extra) | {"number": _number(extra.value)} for extra in dict.fromkeys(extras)]
        write_rows(folder / EXTRAS_FILE, rows, record_schema(ExtraFact, number=float))


def read_extras(folder: Path) -> tuple[ExtraFact, ...]:
    """Return the extra facts in a table's folder; empty where there are none. Raises TableError for a damaged file."""
    if not (folder / EXTRAS_FILE).is_file():
        return ()
    rows = read_rows(folder / EXTRAS_FILE, record_schema(ExtraFact, number=float))
    return records_of_rows(folder / EXTRAS_FILE, rows, ExtraFact, derived=("number",))


def _number(text: str) -> float | None:
    """Return the finite number that a text spells; None where the text is no finite number."""
    try:
        return float(text) if math.isfinite(float(text)) else None
    except ValueError:
        return None
