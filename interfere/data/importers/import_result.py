"""What one import gives: records, what was left out and why, and which files it was read from."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from interfere.data.traces import JobTrace
from interfere.records import JobProfile, PairMeasurement


class Fate(StrEnum):
    """What became of the counted rows."""

    DROPPED = "dropped"  # not in the output
    FLAGGED = "flagged"  # kept; know this before you trust them
    REPAIRED = "repaired"  # kept with another value than the file's


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """`count` rows (or profiles, or samples: `what` says) that are not simply as published."""

    fate: Fate
    what: str
    count: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file that was read."""

    path: Path
    sha256: str

    @property
    def campaign(self) -> str:
        """File name and the start of its digest: names these very bytes."""
        return f"{self.path.name}@{self.sha256[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One import, not written yet: jobs and pairs, or a trace of jobs."""

    kind: str
    files: tuple[SourceFile, ...]
    facts: tuple[str, ...]  # what the format means and how it was read, for the card
    notices: tuple[Notice, ...] = ()
    jobs: tuple[JobProfile, ...] = ()
    pairs: tuple[PairMeasurement, ...] = ()
    trace: JobTrace | None = None


def notices(*found: Notice) -> tuple[Notice, ...]:
    """Those that count something."""
    return tuple(notice for notice in found if notice.count)


def unsorted(arrivals_s: Sequence[float]) -> Notice:
    """Jobs of a trace that its file has out of order."""
    return Notice(
        fate=Fate.REPAIRED,
        what="jobs listed after a later one",
        count=sum(after < before for before, after in pairwise(arrivals_s)),
        why="sorted by arrival",
    )
