"""What a server decided and keeps: the newest decisions of a scope in numbers, all scopes, and the state of one.

A decision is counted from its messages, without making records of its jobs: a hundred decisions of a thousand jobs are
listed in a fraction of a second. Each decision is also one event of the log.
"""

import logging
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from interfere.errors import LimitError, NotFoundError
from interfere.records import (
    ActionKind,
    DecisionList,
    DecisionQuery,
    DecisionSummary,
    PlacedJob,
    Plan,
    RuleCount,
    RuleKind,
    ScopeDevice,
    ScopeState,
    Snapshot,
    SolveStatus,
    WaitingJob,
)
from interfere.store.store import Store
from interfere.tracing import annotate, trace_field
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, words

DEFAULT_LISTED, MAX_LISTED = 20, 100
_events = logging.getLogger("interfere.decisions")
_KINDS = words(ActionKind, pb.ActionKind.DESCRIPTOR)
_RULES = words(RuleKind, pb.RuleKind.DESCRIPTOR)
_STATUSES = words(SolveStatus, pb.SolveStatus.DESCRIPTOR)
_WAITING = (ActionKind.WAIT, ActionKind.DECLINE)
_PLACING = (ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.MOVE, ActionKind.KEEP)
_DISPLACED = (ActionKind.MOVE, ActionKind.PREEMPT, ActionKind.END)


def newest_decisions(store: Store, query: DecisionQuery) -> DecisionList:
    """Return the newest decisions of a scope that are kept. Raises LimitError where too many are asked for."""
    if query.limit > MAX_LISTED:
        remedy = f"at most {MAX_LISTED}; go on with before_id, the id of the last one"
        raise LimitError("too many decisions", value=query.limit, remedy=remedy)
    scope = query.scope or "default"
    audits = store.audits.newest(scope, query.limit or DEFAULT_LISTED, before_id=query.before_id)
    decisions = (
        decision_in_numbers(pb.MatchRequest.FromString(audit.request), pb.MatchResponse.FromString(audit.answer))
        for audit in audits
    )
    return DecisionList(scope=scope, decisions=tuple(decisions))


def scope_state(store: Store, scope: str) -> ScopeState:
    """Return the jobs on each device of a scope and the waiting jobs, as of its newest decision.

    Raises NotFoundError without any.
    """
    scope = scope or "default"
    newest = store.audits.newest(scope, 1)
    if not newest:
        remedy = "name a scope that decides: interfere scopes list"
        raise NotFoundError("no decision of this scope is kept", value=scope, remedy=remedy)
    snapshot = from_proto(Snapshot, pb.MatchRequest.FromString(newest[0].request))
    plan = from_proto(Plan, pb.MatchResponse.FromString(newest[0].answer))
    return state_after(snapshot, plan)


def state_after(snapshot: Snapshot, plan: Plan) -> ScopeState:
    """Return the jobs on each device and the waiting jobs after the actions of a plan."""
    workloads = {job.id: job.workload for job in snapshot.pending}
    placed: dict[str, dict[str, PlacedJob]] = {}
    for device in snapshot.devices:
        workloads |= {job.id: job.workload for job in device.residents}
        placed[device.id] = {job.id: PlacedJob(job_id=job.id, workload=job.workload) for job in device.residents}
    for action in plan.actions:
        if action.kind in _DISPLACED:
            for jobs in placed.values():
                jobs.pop(action.job_id, None)
        if action.kind in _PLACING:
            for place in action.places:
                placed.setdefault(place, {})[action.job_id] = PlacedJob(
                    job_id=action.job_id,
                    workload=workloads.get(action.job_id, ""),
                    slowdown=action.slowdown,
                    planned=action.kind is not ActionKind.KEEP,
                )
    waiting = (action for action in plan.actions if action.kind in _WAITING)
    return ScopeState(
        scope=snapshot.scope,
        decision_id=plan.decision_id,
        now_s=snapshot.now_s,
        model_version=plan.model_version,
        devices=tuple(
            ScopeDevice(
                device_id=device.id, device_type=device.type, node=device.node, jobs=tuple(placed[device.id].values())
            )
            for device in snapshot.devices
        ),
        waiting=tuple(
            WaitingJob(
                job_id=action.job_id,
                workload=workloads.get(action.job_id, ""),
                rule=action.rule,
                reason=action.reason,
                planned_start_s=action.planned_start_s,
                promised_end_s=action.promised_end_s,
            )
            for action in waiting
        ),
    )


def decision_in_numbers(request: pb.MatchRequest, answer: pb.MatchResponse) -> DecisionSummary:
    """Return a decision in numbers, from its messages."""
    kinds = Counter(_KINDS.get(action.kind) for action in answer.actions)
    rules = Counter(
        _RULES[action.rule.kind]
        for action in answer.actions
        if _KINDS.get(action.kind) in _WAITING and action.rule.kind in _RULES
    )
    return DecisionSummary(
        decision_id=answer.decision_id,
        snapshot_id=request.snapshot_id,
        now_s=request.now_s if request.HasField("now_s") else math.nan,
        model_version=answer.model_version,
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


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision that was made: for which scope, in numbers, and how long it took."""

    scope: str
    decision: DecisionSummary
    seconds: float

    def log(self, caller: str) -> None:
        """Write the decision as an event."""
        decision = self.decision
        fields: dict[str, Any] = {
            "decision_id": decision.decision_id,
            "scope": self.scope,
            "caller": caller,
            **trace_field(),
            "model": decision.model_version,
            "status": decision.status.value,
            "gap": decision.gap,
            "pending": decision.pending,
            "devices": decision.devices,
            "started_alone": decision.started_alone,
            "started_shared": decision.started_shared,
            "waiting": decision.waiting,
            "waiting_rules": {each.kind.value: each.count for each in decision.waiting_rules},
            "displaced": decision.displaced,
            "planned_value": decision.planned_value,
            "stopped_by": decision.stopped_by,
            "ms": round(1e3 * self.seconds, 1),
        }
        # Texts that are empty, rules of nobody, and numbers that are not known are left out.
        given = {name: value for name, value in fields.items() if str(value) not in ("", "{}", "nan")}
        annotate(decision_id=decision.decision_id, scope=self.scope, gap=decision.gap, waiting=decision.waiting)
        _events.info("%s", ", ".join(f"{name} {value}" for name, value in given.items()), extra={"fields": given})


def _present(answer: pb.MatchResponse, name: str) -> float:
    """Return a number of an answer; NaN where it was not sent."""
    return getattr(answer, name) if answer.HasField(name) else math.nan
