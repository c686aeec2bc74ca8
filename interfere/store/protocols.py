"""The protocols of the server's persistent state: one repository for each kind of record, all held by one `Store`.

Law 1: when a write returns, it is on disk; when it raises, nothing of it is.
Law 2: observations are only ever appended, each id once, and are read back in the order in which they were appended.
Law 3: a store that is reopened reads as it was left.

Every method raises UnavailableError when the disk is full or locked, and UnfitError when it cannot be written at all.
`tests/store/conformance.py` holds every implementation to these laws.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from interfere.records import (
    AcceptedDeadline,
    JobProfile,
    MemoryUsage,
    Observation,
    ObservationResult,
    Promise,
    ScopeLedger,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """The answer to one cluster snapshot. `digest` is that of the request, `content` holds the bytes of the answer."""

    scope: str
    snapshot_id: str
    digest: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionAudit:
    """The input and output of a decision, kept to explain it later: request, answer, and versions of model, log and
    profiles."""

    decision_id: str
    scope: str
    request: bytes
    answer: bytes
    model_version: str
    learned_up_to: int  # sequence number of the last log entry that the model had learned
    facts_digest: str  # of the newest profiles


class ProfileRepository(Protocol):
    """Job profiles, stored under the id of their content."""

    def put(self, profiles: Sequence[JobProfile]) -> tuple[str, ...]:
        """Store all profiles or none, and return their ids in order. One that is stored again becomes the newest."""

    def all(self) -> Iterator[JobProfile]:
        """Every profile that can be read, oldest first."""

    def read(self, known: Container[str] = ()) -> Iterator[tuple[str, JobProfile | str | None]]:
        """Return every id with its profile, oldest first.

        In place of an unreadable profile stands the reason. In place of a known id's profile stands None, since the
        content of an id never changes.
        """

    def remove(self, profile_ids: Sequence[str]) -> tuple[str, ...]:
        """Remove profiles; the ids of those that were stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObservation:
    """One entry of the observation log. `result` and `reason` are the server's answer when it was reported."""

    sequence: int  # from 1, in the order of arrival
    observation: Observation
    result: ObservationResult
    reason: str
    received_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObservation:
    """An observation to append to the log, with what the server answers."""

    observation: Observation
    result: ObservationResult = ObservationResult.APPLIED
    reason: str = ""


class RolledBackRange(NamedTuple):
    """The entries that one rollback takes out of what is learned."""

    sequence: int  # of the rollback
    last_valid: int  # sequence number of the last entry before it that stays valid
    reporter: str = ""  # the reporter whose entries are rolled back; "": all reporters

    def covers(self, sequence: int, observation: Observation) -> bool:
        """Whether an entry of the log is rolled back."""
        in_range = self.last_valid < sequence < self.sequence
        return in_range and self.reporter in ("", getattr(observation, "reporter", ""))


class ObservationRepository(Protocol):
    """The append-only log of everything that was reported. A rollback is an entry too: only `prune` deletes any.

    `up_to` is the sequence number of the last entry that is read; None reads the whole log.
    """

    def append(self, observations: Sequence[NewObservation], received_s: float) -> int:
        """Store all observations or none, and return the sequence number of the last.

        Raises ConflictError when one of the ids is stored already.
        """

    def find(self, observation_ids: Iterable[str]) -> dict[str, Observation]:
        """The stored observations among these ids, by id."""

    def prune(self, keep: int, *, up_to: int) -> int:
        """Delete the oldest entries beyond `keep`, none after `up_to` and some ten thousands at once; how many."""

    def entries(self, *, after: int = 0, up_to: int | None = None) -> Iterator[StoredObservation]:
        """Entries with a sequence number above `after`, in the order of arrival; few thousand in memory at once."""

    def newest(self, limit: int, *, up_to: int | None = None) -> tuple[StoredObservation, ...]:
        """The last `limit` entries, newest first."""

    def rollbacks(self, *, up_to: int | None = None) -> tuple[RolledBackRange, ...]:
        """The rollbacks that no entry has undone, in order."""

    def rewrites(self, *, up_to: int | None = None) -> tuple[tuple[int, int], ...]:
        """Return (sequence number, last entry that stays valid) of each rollback and of each undoing of one, in order.

        A state learned before such an event stays valid only if it ends no later than that last entry. An undone
        rollback is left out; its undoing keeps all entries before the rollback valid.
        """

    def memory_usages(self, job_id: str, *, after_s: float) -> Iterator[MemoryUsage]:
        """Memory usages of a job that end after `after_s` and are not rolled back, latest end first."""

    def largest_memory_usages(self) -> dict[tuple[str, str], float]:
        """Largest reported bytes by (workload, device type), without what is rolled back."""

    def counts(self, *, up_to: int | None = None) -> dict[str, int]:
        """Number of entries by kind: progress, memory_usage, outcome, rollback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCheckpoint:
    """The online model's state after one log entry. `key` names the model and the facts it was learned against."""

    sequence: int
    key: str
    content: bytes


class CheckpointRepository(Protocol):
    """Checkpoints that shorten the replay of the log at start-up; losing all of them costs time only."""

    def put(self, checkpoint: StateCheckpoint) -> None:
        """Store one checkpoint and delete all but the newest few."""

    def find(self, key: str, *, up_to: int | None = None) -> Iterator[StateCheckpoint]:
        """Checkpoints with this key, at most at log entry `up_to`, newest first."""


class DecisionAuditRepository(Protocol):
    """Audits of the newest decisions. A lost audit costs only the explanation of its decision."""

    def put(self, audit: DecisionAudit) -> None:
        """Store one audit and delete the oldest beyond the limit. One that is stored already is not changed."""

    def find(self, decision_id: str) -> DecisionAudit | None:
        """The audit of a decision; None when no such decision was made, or its audit is deleted already."""


class DecisionRepository(Protocol):
    """Decisions under their snapshot ids; only the newest are kept."""

    def put(self, decision: StoredDecision) -> None:
        """Store one decision. Raises ConflictError when (scope, snapshot id) is stored already."""

    def find(self, scope: str, snapshot_id: str) -> StoredDecision | None:
        """The decision of a snapshot."""


class LedgerRepository(Protocol):
    """The ledger of each scope: its promises and memory grants.

    Writes are optimistic: a write based on an outdated revision is refused. So no seat is promised and no memory
    granted twice, not even by two servers on one database.
    """

    def read(self, scope: str) -> ScopeLedger:
        """The ledger of a scope; an empty one at revision 0 where none was written."""

    def commit(self, ledger: ScopeLedger, decision: StoredDecision | None = None) -> bool:
        """Replace the ledger of a scope and store the decision that changed it: both or neither.

        `ledger.revision` is the revision that was read. Returns False, and writes nothing, when there is a newer one.
        """

    def release_promises(
        self, job_id: str, decision_id: str, *, deadlines: bool
    ) -> tuple[Promise | AcceptedDeadline, ...]:
        """Delete the promises of a job that this decision made or repeated, and return them.

        With `deadlines`, the accepted deadlines of the job are deleted too.
        """

    def reset(self, scope: str) -> ScopeLedger | None:
        """Delete the ledger and the decisions of a scope; returns the ledger, None where there was none."""


class Store(Protocol):
    """All repositories, opened and closed together."""

    @property
    def profiles(self) -> ProfileRepository:
        """Job profiles."""

    @property
    def audits(self) -> DecisionAuditRepository:
        """The audits of decisions."""

    @property
    def observations(self) -> ObservationRepository:
        """Everything that was reported."""

    @property
    def checkpoints(self) -> CheckpointRepository:
        """States of the online model."""

    @property
    def decisions(self) -> DecisionRepository:
        """Decisions by snapshot."""

    @property
    def ledgers(self) -> LedgerRepository:
        """Promises and grants by scope."""

    def close(self) -> None:
        """Release the file. May be called twice."""
