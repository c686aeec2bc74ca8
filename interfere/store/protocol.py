"""The ledger behind the server: three small books that keep what was acknowledged.

Law 1: when a write returns, it is on disk; when it raises, nothing of it is.
Law 2: observations are only ever added, each id once, and come back in the order in which they were added.
Law 3: books opened again read as they were left.

Every method raises UnavailableError when the disk is full or locked and UnfitError when it cannot be written at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from interfere.records import JobProfile, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """A decision under the id of its snapshot. `digest` is that of the request, `content` the answer's bytes."""

    scope: str
    snapshot_id: str
    digest: str
    content: bytes


class ProfileBook(Protocol):
    """Facts about workloads, by content id."""

    def put(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store all or none; a profile stored before becomes the newest again. Their ids, in order."""

    def all(self) -> Iterator[JobProfile]:
        """Every profile, oldest first."""


class ObservationBook(Protocol):
    """Measured windows, append-only."""

    def append(self, windows: Sequence[Progress]) -> None:
        """Store all or none. Raises ConflictError when one of the ids is there already."""

    def find(self, observation_ids: Iterable[str]) -> dict[str, Progress]:
        """Those of the ids that are stored."""

    def all(self) -> Iterator[Progress]:
        """Every window, in the order of arrival."""

    def count(self) -> int:
        """How many there are."""


class DecisionBook(Protocol):
    """Decisions under their snapshot ids; the newest `keep` of them."""

    def put(self, decision: StoredDecision) -> None:
        """Store one. Raises ConflictError when (scope, snapshot id) is there already."""

    def find(self, scope: str, snapshot_id: str) -> StoredDecision | None:
        """The decision of a snapshot."""


class Store(Protocol):
    """All three books, closed together."""

    @property
    def profiles(self) -> ProfileBook:
        """Facts about workloads."""

    @property
    def observations(self) -> ObservationBook:
        """Measured windows."""

    @property
    def decisions(self) -> DecisionBook:
        """Decisions."""

    def close(self) -> None:
        """Release the file; may be called twice."""
