"""A measurement table: profiles of jobs, slowdowns of pairs and of groups, validated on every read and write.

Laws: reading what was written gives equal records; a table that breaks a rule is refused as a whole, when written and
when read, with file, row, column, value and remedy; no two rows have the same key. A job that several sources know has
one row of each on disk, and one profile in memory, which `interfere.data.facts` combines of them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interfere.data import schema
from interfere.data.facts import CombinedProfiles, combine_profiles
from interfere.data.parquet import read_rows, write_rows
from interfere.data.rows.checks import check_measurements, check_profiles, record_of_row
from interfere.data.rows.records import group_measurement, job_profile, measurement_row, pair_measurement, profile_row
from interfere.errors import TableError
from interfere.file_writing import remove_file
from interfere.records import GroupMeasurement, JobProfile, PairMeasurement, PairStatus

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
        """What each source says of each job: the rows on disk."""
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
    """Add profiles to the table in folder `path`, or to a new one.

    What the same source said of the same job before is replaced, what other sources said is kept.
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
