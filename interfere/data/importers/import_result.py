"""The result of an import: its records, its source files, and notices about rows that are not as published."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from interfere.data.tables import ExtraFact
from interfere.data.traces import JobTrace
from interfere.records import GroupMeasurement, JobProfile, PairMeasurement


class Treatment(StrEnum):
    """How the importer treated the rows that a notice counts."""

    DROPPED = "dropped"  # not in the output
    FLAGGED = "flagged"  # in the output; read the reason before you trust them
    REPAIRED = "repaired"  # in the output, with another value than in the file


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The number of rows (or profiles, or samples, as `subject` says) that are not simply as published, and the
    reason."""

    treatment: Treatment
    subject: str
    count: int
    reason: str
    rows: tuple[int, ...] = ()  # of the file, where the importer knows them

    @property
    def row_ranges(self) -> str:
        """Return row numbers in words, such as "rows 3-7, 12"; "" where they are unknown."""
        ranges: list[list[int]] = []
        for row in sorted(set(self.rows)):
            if ranges and row == ranges[-1][-1] + 1:
                ranges[-1] = [ranges[-1][0], row]
            else:
                ranges.append([row])
        text = ", ".join("-".join(map(str, ends)) for ends in ranges)
        return f"row{'s' if len(self.rows) > 1 else ''} {text}" if text else ""


def dropped(count: int, subject: str, reason: str, *, rows: tuple[int, ...] = ()) -> Notice:
    """Return the notice that `count` rows are not in the output."""
    return Notice(treatment=Treatment.DROPPED, subject=subject, count=count, reason=reason, rows=rows)


def flagged(count: int, subject: str, reason: str) -> Notice:
    """Return the notice that `count` rows are in the output and should be trusted only after reading the reason."""
    return Notice(treatment=Treatment.FLAGGED, subject=subject, count=count, reason=reason)


def repaired(count: int, subject: str, reason: str) -> Notice:
    """Return the notice that `count` rows are in the output with another value than in the file."""
    return Notice(treatment=Treatment.REPAIRED, subject=subject, count=count, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file that an importer read, with its checksum."""

    path: Path
    sha256: str

    @property
    def campaign(self) -> str:
        """The file's name and the first digits of its checksum, which together identify its content."""
        return f"{self.path.name}@{self.sha256[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """The records of an import that is not written yet: jobs, pairs and groups, or a trace. Empty notices are left
    out."""

    source_format: str  # the subcommand of `interfere data import`
    files: tuple[SourceFile, ...]
    format_notes: tuple[str, ...]  # what the format means and how it was read, for the card
    notices: tuple[Notice, ...] = ()
    jobs: tuple[JobProfile, ...] = ()
    pairs: tuple[PairMeasurement, ...] = ()
    groups: tuple[GroupMeasurement, ...] = ()
    extras: tuple[ExtraFact, ...] = ()
    trace: JobTrace | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "notices", tuple(notice for notice in self.notices if notice.count))

    @property
    def measurements(self) -> tuple[PairMeasurement | GroupMeasurement, ...]:
        """The measured pairs, followed by the measured groups."""
        return (*self.pairs, *self.groups)


def out_of_order_notice(arrivals_s: Sequence[float]) -> Notice:
    """Return a notice on the jobs that a trace lists after a later job. `arrivals_s` are in the order of the file."""
    count = sum(after < before for before, after in pairwise(arrivals_s))
    return repaired(count, "jobs listed after a later one", "sorted by arrival")
