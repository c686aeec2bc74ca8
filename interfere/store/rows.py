"""The rows of each table, and how a record is made of each: decisions, audits, observations, ledgers, checkpoints."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from interfere.records import (
    AcceptedDeadline,
    Action,
    ActionKind,
    DeviceSlots,
    EndPromise,
    Grant,
    JobProfile,
    LogEntry,
    Observation,
    ObservationResult,
    Promise,
)
from interfere.records.documents import from_json, to_document
from interfere.records.observations import OBSERVATION_TYPES
from interfere.store.checked_rows import RowKind, required_bytes


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


class LedgerHeader(NamedTuple):
    """The row of a ledger itself."""

    scope: str
    revision: int
    now_s: float


class LedgerPart(NamedTuple):
    """A row of a ledger: a promise, a grant or a planned entry, with its index in its table."""

    scope: str
    place: int
    record: Promise | AcceptedDeadline | Grant | DeviceSlots | EndPromise | str


def _decision(scope: str, snapshot_id: str, digest: str, content: bytes) -> StoredDecision:
    return StoredDecision(scope=scope, snapshot_id=snapshot_id, digest=digest, content=required_bytes(content))


def _audit(
    decision_id: str,
    scope: str,
    request: bytes,
    answer: bytes,
    model_version: str,
    learned_up_to: int,
    facts_digest: str,
) -> DecisionAudit:
    return DecisionAudit(
        decision_id=decision_id,
        scope=scope,
        request=zlib.decompress(request),
        answer=zlib.decompress(answer),
        model_version=model_version,
        learned_up_to=learned_up_to,
        facts_digest=facts_digest,
    )


def _granted(scope: str, kind: str, place: int, content: str) -> LedgerPart:
    return LedgerPart(scope, place, from_json({"grant": Grant, "slots": DeviceSlots}[kind], content))


def _planned(scope: str, kind: str, place: int, content: str) -> LedgerPart:
    if kind not in ("end", "order"):
        raise ValueError(f"an unknown kind: {kind}")
    return LedgerPart(scope, place, from_json(EndPromise, content) if kind == "end" else content)


def _entry(
    sequence: int, observation_id: str, content: str, kind: str, result: str, reason: str, received_s: float
) -> LogEntry:
    observation = from_json(OBSERVATION_TYPES[kind], content)
    if observation.observation_id != observation_id:
        raise ValueError(f"its content has another id: {observation.observation_id}")
    return LogEntry(
        sequence=sequence,
        observation=observation,
        result=ObservationResult(result),
        reason=reason,
        received_s=float(received_s),
    )


def _checkpoint(sequence: int, key: str, content: bytes) -> StateCheckpoint:
    return StateCheckpoint(sequence=sequence, key=key, content=required_bytes(content))


PROFILE = RowKind(
    table="profile",
    key=("id",),
    name=("id",),
    columns=("id", "content"),
    parse=lambda _, content: from_json(JobProfile, content),
)
OBSERVATION = RowKind(
    table="observation",
    key=("seq",),
    name=("id",),
    columns=("seq", "id", "content", "kind", "result", "reason", "received_s"),
    parse=_entry,
)
CHECKPOINT = RowKind(
    table="snapshot", key=("key", "seq"), name=("seq", "key"), columns=("seq", "key", "content"), parse=_checkpoint
)


DECISION = RowKind(
    table="decision",
    key=("scope", "snapshot_id"),
    name=("scope", "snapshot_id"),
    columns=("scope", "snapshot_id", "digest", "content"),
    parse=_decision,
)
AUDIT = RowKind(
    table="account",
    key=("decision_id",),
    name=("decision_id",),
    columns=("decision_id", "scope", "request", "answer", "model_version", "learned_upto", "facts"),
    parse=_audit,
)
LEDGER = RowKind(
    table="ledger",
    key=("scope",),
    name=("scope",),
    columns=("scope", "revision", "now_s"),
    parse=lambda scope, revision, now_s: LedgerHeader(scope, int(revision), float(now_s)),
)
PROMISE = RowKind(
    table="promise",
    key=("scope", "place"),
    name=("scope", "place", "job_id"),
    columns=("scope", "place", "job_id", "content"),
    parse=lambda scope, place, _, content: LedgerPart(scope, place, promise_or_deadline_from_json(content)),
)
_PART_COLUMNS = ("scope", "kind", "place", "content")
GRANTED = RowKind(table="granted", key=_PART_COLUMNS[:3], name=_PART_COLUMNS[:3], columns=_PART_COLUMNS, parse=_granted)
PLANNED = RowKind(table="planned", key=_PART_COLUMNS[:3], name=_PART_COLUMNS[:3], columns=_PART_COLUMNS, parse=_planned)
ROW_KINDS: tuple[RowKind[Any], ...] = (
    PROFILE,
    OBSERVATION,
    DECISION,
    LEDGER,
    PROMISE,
    GRANTED,
    PLANNED,
    CHECKPOINT,
    AUDIT,
)


# --- promises as JSON -------------------------------------------------------------------------------------------------

# Of actions and their rules: older servers read rows without them.
_LEFT_OUT_EMPTY = ("partner_ids", "partner_slowdowns", "mode", "custom_rule")


def _without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value or name not in _LEFT_OUT_EMPTY}


def promise_to_json(promise: Promise) -> str:
    """Return a promise as one line of JSON, without absent fields."""
    document = to_document(promise, present_only=True)
    action = _without_empty(document["action"])
    if "rule" in action:
        action["rule"] = _without_empty(action["rule"])
    document["action"] = action
    return json.dumps(document, sort_keys=True, allow_nan=False)


def accepted_deadline_to_json(accepted: AcceptedDeadline) -> str:
    """Return an accepted deadline as one line of JSON, in the form of a promise that keeps no device (a promised wait).

    This is the form of accepted deadlines since store format 5. Servers of older and newer releases can therefore share
    a store.
    """
    action = Action(
        kind=ActionKind.WAIT,
        job_id=accepted.job_id,
        promised_by_s=accepted.deadline_s,
        reason="deadline",
        accepted=True,
    )
    return promise_to_json(Promise(action=action, decision_ids=accepted.decision_ids))


def promise_or_deadline_from_json(text: str) -> Promise | AcceptedDeadline:
    """Return the promise or the accepted deadline of a line of JSON."""
    promise = from_json(Promise, text)
    if promise.action.kind is not ActionKind.WAIT:
        return promise
    return AcceptedDeadline(
        job_id=promise.action.job_id,
        deadline_s=promise.action.promised_by_s,
        decision_ids=promise.decision_ids,
    )
