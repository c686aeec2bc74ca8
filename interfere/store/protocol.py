"""The ledger behind the server: small books that keep what was acknowledged.

Law 1: when a write returns, it is on disk; when it raises, nothing of it is.
Law 2: observations are only ever added, each id once, and come back in the order in which they were added.
Law 3: books opened again read as they were left.

Every method raises UnavailableError when the disk is full or locked and UnfitError when it cannot be written at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from interfere.records import JobProfile, MemoryUsage, Observation, ObservationResult, ScopeLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """A decision under the id of its snapshot. `digest` is that of the request, `content` the answer's bytes."""

    scope: str
    snapshot_id: str
    digest: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a decision was made from, so that it can be explained later: bytes of its request and answer, and the state
    of knowledge then (model, last entry of the log, digest of the newest facts)."""

    decision_id: str
    scope: str
    request: bytes
    answer: bytes
    model_version: str
    learned_upto: int
    facts: str


class ProfileBook(Protocol):
    """Facts about workloads, by content id."""

    def put(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store all or none; a profile stored before becomes the newest again. Their ids, in order."""

    def all(self) -> Iterator[JobProfile]:
        """Every profile, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObservation:
    """One entry of the log. `result` and `reason` are what was answered when it came."""

    sequence: int  # from 1, in the order of arrival
    observation: Observation
    result: ObservationResult
    reason: str
    received_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An observation to store, with what is answered."""

    observation: Observation
    result: ObservationResult = ObservationResult.APPLIED
    reason: str = ""


class ObservationBook(Protocol):
    """The log of what was measured, append-only. Rollbacks are entries too: nothing is ever taken out."""

    def append(self, observations: Sequence[Kept], received_s: float) -> int:
        """Store all or none; the sequence number of the last. Raises ConflictError when an id is there already."""

    def find(self, observation_ids: Iterable[str]) -> dict[str, Observation]:
        """Those of the ids that are stored."""

    def entries(self, *, after: int = 0, upto: int | None = None) -> Iterator[StoredObservation]:
        """The entries after one and up to another, in the order of arrival, a few thousand in memory at once."""

    def newest(self, limit: int, *, upto: int | None = None) -> tuple[StoredObservation, ...]:
        """At most `limit` entries up to one, newest first."""

    def rollbacks(self, *, upto: int | None = None) -> tuple[tuple[int, int], ...]:
        """(sequence number of a rollback, of the last entry that it leaves), in order."""

    def usages(self, job_id: str, *, after_s: float) -> Iterator[MemoryUsage]:
        """Memory usages of a job that end after a time and that no rollback took out, those that end last first."""

    def largest_uses(self) -> dict[tuple[str, str], float]:
        """Most bytes of any memory usage that no rollback took out, by workload and device type."""

    def counts(self, *, upto: int | None = None) -> dict[str, int]:
        """Entries by kind: progress, memory_usage, outcome, rollback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    """What was known after an entry of the log. `key` names the model and the facts it was learned against."""

    sequence: int
    key: str
    content: bytes


class SnapshotBook(Protocol):
    """Shortcuts to a state of the log; losing all of them loses time only."""

    def put(self, snapshot: StoredSnapshot) -> None:
        """Store one, forget all but the newest few."""

    def find(self, key: str, *, upto: int | None = None) -> Iterator[StoredSnapshot]:
        """Those of a key up to an entry, newest first."""


class AccountBook(Protocol):
    """What the newest decisions were made from; losing some loses explanations only."""

    def put(self, account: Account) -> None:
        """Store one, forget those past the newest to keep; one that is there already stays as it is."""

    def find(self, decision_id: str) -> Account | None:
        """None when nobody made the decision, or newer ones took its place."""


class DecisionBook(Protocol):
    """Decisions under their snapshot ids; the newest `keep` of them."""

    def put(self, decision: StoredDecision) -> None:
        """Store one. Raises ConflictError when (scope, snapshot id) is there already."""

    def find(self, scope: str, snapshot_id: str) -> StoredDecision | None:
        """The decision of a snapshot."""


class PromiseBook(Protocol):
    """What each scope has been promised and granted. A write that does not follow what was read does not happen, so
    that no place is promised and no memory granted twice, not even by two servers on one database."""

    def ledger(self, scope: str) -> ScopeLedger:
        """What is promised in a scope; empty, of revision 0, for one nobody wrote."""

    def commit(self, ledger: ScopeLedger, decision: StoredDecision | None = None) -> bool:
        """Replace the ledger of a scope and store the decision that changed it, both or neither.

        `ledger.revision` is the one that was read; False, and nothing written, when it is no longer the newest.
        """

    def release(self, job_id: str, decision_id: str) -> int:
        """Forget the promises to a job, and the deadline accepted of it, that a decision made or repeated; how many."""


class Store(Protocol):
    """All books, closed together."""

    @property
    def profiles(self) -> ProfileBook:
        """Facts about workloads."""

    @property
    def accounts(self) -> AccountBook:
        """What decisions were made from."""

    @property
    def observations(self) -> ObservationBook:
        """Measured windows."""

    @property
    def snapshots(self) -> SnapshotBook:
        """Shortcuts to states."""

    @property
    def decisions(self) -> DecisionBook:
        """Decisions."""

    @property
    def promises(self) -> PromiseBook:
        """Planned starts."""

    def close(self) -> None:
        """Release the file; may be called twice."""
