"""What a server decided and keeps, in numbers: the newest decisions of a scope, and all scopes.

A decision is counted from the stored messages of its audit, without making records of its jobs: a hundred decisions of
a thousand jobs are listed in a fraction of a second.
"""

import math
from collections import Counter

from interfere.errors import LimitError
from interfere.records import (
    ActionKind,
    DecisionList,
    DecisionQuery,
    DecisionSummary,
    RuleCount,
    RuleKind,
    ScopeList,
    SolveStatus,
)
from interfere.store.rows import DecisionAudit
from interfere.store.sqlite import SqliteStore
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import words

DEFAULT_LISTED, MAX_LISTED = 20, 100
_KINDS = words(ActionKind, pb.ActionKind.DESCRIPTOR)
_RULES = words(RuleKind, pb.RuleKind.DESCRIPTOR)
_STATUSES = words(SolveStatus, pb.SolveStatus.DESCRIPTOR)
_WAITING = (ActionKind.WAIT, ActionKind.DECLINE)
_DISPLACED = (ActionKind.MOVE, ActionKind.PREEMPT, ActionKind.END)


def newest_decisions(store: SqliteStore, query: DecisionQuery) -> DecisionList:
    """Return the newest decisions of a scope that are kept. Raises LimitError where too many are asked for."""
    if query.limit > MAX_LISTED:
        remedy = f"at most {MAX_LISTED}; go on with before_id, the id of the last one"
        raise LimitError("too many decisions", value=query.limit, remedy=remedy)
    scope = query.scope or "default"
    audits = store.audits.newest(scope, query.limit or DEFAULT_LISTED, before_id=query.before_id)
    return DecisionList(scope=scope, decisions=tuple(map(_summary, audits)))


def all_scopes(store: SqliteStore) -> ScopeList:
    """Return all scopes with a clock, by name."""
    return ScopeList(scopes=store.ledgers.summaries())


def _summary(audit: DecisionAudit) -> DecisionSummary:
    request, answer = pb.MatchRequest.FromString(audit.request), pb.MatchResponse.FromString(audit.answer)
    kinds = Counter(_KINDS.get(action.kind) for action in answer.actions)
    rules = Counter(
        _RULES[action.rule.kind]
        for action in answer.actions
        if _KINDS.get(action.kind) in _WAITING and action.rule.kind in _RULES
    )
    return DecisionSummary(
        decision_id=audit.decision_id,
        snapshot_id=request.snapshot_id,
        now_s=request.now_s if request.HasField("now_s") else math.nan,
        model_version=audit.model_version,
        status=_STATUSES.get(answer.status, SolveStatus.HEURISTIC),
        gap=answer.gap,
        pending=len(request.pending),
        devices=len(request.devices),
        started_alone=kinds[ActionKind.START_ALONE],
        started_shared=kinds[ActionKind.START_SHARED],
        waiting=sum(kinds[kind] for kind in _WAITING),
        displaced=sum(kinds[kind] for kind in _DISPLACED),
        waiting_rules=tuple(RuleCount(kind=kind, count=count) for kind, count in rules.most_common()),
        planned_value=_present(answer, "planned_value"),
        cpu_s=_present(answer, "cpu_s"),
        stopped_by=answer.stopped_by,
    )


def _present(answer: pb.MatchResponse, name: str) -> float:
    """Return a number of an answer; NaN where it was not sent."""
    return getattr(answer, name) if answer.HasField(name) else math.nan
