"""Rows that only the store and its callers use: decisions, audits, observations to append, rollbacks, checkpoints."""

from dataclasses import dataclass
from typing import NamedTuple

from interfere.records import Observation, ObservationResult


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObservation:
    """An observation to append to the log, with what the server answers."""

    observation: Observation
    result: ObservationResult = ObservationResult.APPLIED
    reason: str = ""


class RolledBackRange(NamedTuple):
    """The range of log entries that one rollback excludes from learning."""

    sequence: int  # of the rollback
    last_valid: int  # sequence number of the last entry before it that stays valid
    reporter: str = ""  # the reporter whose entries are rolled back; "": all reporters

    def covers(self, sequence: int, observation: Observation) -> bool:
        """Whether the rollback excludes an entry of the log from learning."""
        in_range = self.last_valid < sequence < self.sequence
        return in_range and self.reporter in ("", getattr(observation, "reporter", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCheckpoint:
    """The online model's state after one log entry. `key` names the model and the facts it was learned against."""

    sequence: int
    key: str
    content: bytes
