"""What a server keeps of its decisions: the newest in numbers, the state of a scope, and the reasons for an action.

A decision is counted from its messages, without making records of its jobs: a hundred decisions of a thousand jobs are
listed in a fraction of a second. Each decision is also one event of the log. An explanation computes predictions and
costs again with present knowledge.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from interfere.errors import LimitError, NotFoundError
from interfere.policy.answer.alternatives import alternatives, refusals
from interfere.policy.context import PlanningContext
from interfere.policy.deadlines.guarantees import find_infeasible_deadlines
from interfere.policy.ledger.grants import with_running_grants
from interfere.policy.schedule.sizes import sizes_of_plan, with_present_sizes
from interfere.policy.site_policy import NO_ADDITIONS, SitePolicy
from interfere.policy.solve.builder import decision_problem
from interfere.policy.subproblems import subproblem_of
from interfere.predict.occlusion import Occlusion
from interfere.predict.online.stand_in_profiles import UNPROFILED
from interfere.records import (
    Action,
    ActionKind,
    Contribution,
    DecisionList,
    DecisionQuery,
    DecisionSummary,
    Device,
    ExplainQuery,
    Explanation,
    JobProfile,
    PairBatch,
    PairExplanation,
    PlacedJob,
    Plan,
    Prediction,
    RuleCount,
    RuleKind,
    ScopeDevice,
    ScopeState,
    Snapshot,
    SolveStatus,
    Source,
    WaitingJob,
)
from interfere.serving.state import ServedState
from interfere.sharing_modes import DEFAULT_MODE
from interfere.store.decisions import StoredDecisionAudits
from interfere.store.rows import DecisionAudit
from interfere.store.store import Store
from interfere.time_budget import TimeBudget
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


# --- why a job got what it got ----------------------------------------------------------------------------------------

MAX_CONTRIBUTIONS = 10  # of one prediction
ALTERNATIVES_BUDGET_S = 3.0  # a third of what a client waits; ten alternatives of 1,000 jobs take 0.5 s
MIN_LOG_CHANGE = 1e-6  # of a log slowdown: smaller ones are rounding of the graph's float32
MEASURED, LEARNED = "this very pair was measured", "what was observed since the training"


def explain(
    query: ExplainQuery,
    store: Store,
    state: ServedState,
    site_policy: SitePolicy = NO_ADDITIONS,
) -> Explanation:
    """Return the action that one job got in a stored decision, and the reasons. Raises NotFoundError for an unknown
    decision or job. `site_policy`: as in `DecisionMaker`."""
    audit, decided, action = _find(query, store.audits)
    request = from_proto(Snapshot, pb.MatchRequest.FromString(audit.request))
    request = with_present_sizes(request, sizes_of_plan(decided, request))
    context = state.context(request, site_policy, predictor=state.model.predictor)
    snapshot = find_infeasible_deadlines(context).snapshot
    # 1. The subproblem in which the job was decided, and the class of the device that it got.
    context = context.with_snapshot(snapshot)
    device = context.devices.get(action.device_id)
    device_class = None if device is None else context.device_class(device)
    subproblem = subproblem_of(snapshot, decided, query.job_id)
    # 2. Predictions and costs, as known now.
    pairs = tuple(_explain_pairs(action, context, state))
    decision = None
    if subproblem:
        if not math.isnan(subproblem.now_s):
            subproblem = with_running_grants(subproblem, store.ledgers.read(subproblem.scope))
        types = tuple(context.device_types)
        known = state.context(subproblem, site_policy, other_device_types=types, catalogue=context.catalogue)
        decision = decision_problem(known, by_start_weight=True)
    # 3. What the job may not have, and what else it could have got.
    refused, refused_total = refusals(decision, action) if decision else ((), 0)
    budget = TimeBudget.of_search(ALTERNATIVES_BUDGET_S)
    in_pair = len(action.partners) < 2  # alternatives to a larger group are not solved for
    solved, left_out = alternatives(decision, action, device_class, budget) if decision and in_pair else ((), 0)
    return Explanation(
        decision_id=query.decision_id,
        scope=audit.scope,
        workload=context.jobs[query.job_id].workload if query.job_id in context.jobs else "",
        action=action,
        pairs=pairs,
        alternatives=solved,
        left_out=left_out,
        refused=refused,
        refused_total=refused_total,
        model_version=state.version,
        changed=state.changes_since(audit),
    )


def _find(query: ExplainQuery, audits: StoredDecisionAudits) -> tuple[DecisionAudit, Plan, Action]:
    """Return the audit of a decision, its plan, and its action for the job. Raises NotFoundError."""
    audit = audits.find(query.decision_id)
    if audit is None or query.scope not in ("", audit.scope):
        where = f" of scope {query.scope!r}" if query.scope else ""
        raise NotFoundError(
            f"no such decision{where}",
            value=query.decision_id,
            remedy="decision ids come with the answers of Match; the newest are kept, the others forgotten",
        )
    decided = from_proto(Plan, pb.MatchResponse.FromString(audit.answer))
    for action in decided.actions:
        if action.job_id == query.job_id:
            return audit, decided, action
    some = ", ".join(action.job_id for action in decided.actions[:5]) or "none"
    raise NotFoundError(
        f"decision {query.decision_id} decided nothing about this job",
        value=query.job_id,
        remedy=f"one of its {len(decided.actions)} jobs: {some}{', ...' if len(decided.actions) > 5 else ''}",
    )


def _explain_pairs(action: Action, context: PlanningContext, state: ServedState) -> Iterator[PairExplanation]:
    """Yield the explanations of both directions, the job beside each partner and the reverse; none without a
    partner."""
    job, device = context.jobs.get(action.job_id), context.devices.get(action.device_id)
    if job is None or device is None:
        return
    if action.mode:
        device = replace(device, mode=action.mode)
    partners = [context.jobs[name] for name in action.partners if name in context.jobs]
    for victim, neighbour in [pair for partner in partners for pair in ((job, partner), (partner, job))]:
        profiles = (context.profile(victim, device.type), context.profile(neighbour, device.type))
        if profiles[0] is not None and profiles[1] is not None:
            yield _explain_pair((victim.id, neighbour.id), (profiles[0], profiles[1]), device, state)


def _explain_pair(
    names: tuple[str, str],
    profiles: tuple[JobProfile, JobProfile],
    device: Device,
    state: ServedState,
) -> PairExplanation:
    """Return the prediction for one ordered pair and the contributions to it. `names` and `profiles`: of the victim,
    then of the neighbour."""
    batch = PairBatch(
        jobs=profiles,
        victim=np.array([0]),
        neighbour=np.array([1]),
        device_type=device.type,
        mode=device.mode or DEFAULT_MODE,
        allow_extrapolation=True,
    )
    # 1. The log slowdown from facts alone, with measured pairs, and with what was learned since.
    corrected, published = state.predictor.predict_pairs(batch), state.model.predictor.predict_pairs(batch)
    from_facts = state.model.occlusion.log_slowdown(*profiles, device.type, device.mode or DEFAULT_MODE)
    published_log, corrected_log = (math.log(float(answer.median[0])) for answer in (published, corrected))
    # 2. What each of them contributes.
    unprofiled = UNPROFILED in (profiles[0].source, profiles[1].source)
    contributions = [] if unprofiled else _fact_contributions(names, profiles, device, state.model.occlusion)
    if published.source[0] is Source.MEASURED:
        change = published_log - from_facts
        contributions.append(Contribution(job_id="", name=MEASURED, log_change=change))
    if corrected_log != published_log and not unprofiled:
        change = corrected_log - published_log
        contributions.append(Contribution(job_id="", name=LEARNED, log_change=change))
    noticeable = [contribution for contribution in contributions if abs(contribution.log_change) > MIN_LOG_CHANGE]
    noticeable.sort(key=lambda contribution: -abs(contribution.log_change))
    return PairExplanation(
        victim_id=names[0],
        neighbour_id=names[1],
        median=float(corrected.median[0]),
        lower=float(corrected.lower[0]),
        upper=float(corrected.upper[0]),
        source=corrected.source[0],
        note=_note(published, unprofiled=unprofiled, fact_slowdown=math.exp(from_facts)),
        contributions=tuple(noticeable[:MAX_CONTRIBUTIONS]),
    )


def _fact_contributions(
    names: tuple[str, str],
    profiles: tuple[JobProfile, JobProfile],
    device: Device,
    occlusion: Occlusion,
) -> list[Contribution]:
    """Return the contribution of each fact of the two profiles, compared with its reference value."""
    return [
        Contribution(
            job_id=names[0 if effect.of_victim else 1],
            name=effect.fact,
            log_change=effect.log_change,
            value=effect.value,
            reference=effect.reference,
            unit=effect.unit,
        )
        for effect in occlusion.effects(*profiles, device.type, device.mode or DEFAULT_MODE)
    ]


def _note(published: Prediction, *, unprofiled: bool, fact_slowdown: float) -> str:
    """Return a sentence on the evidence of a prediction; empty where that is the facts of both profiles."""
    if unprofiled:
        return "no profile of one of the two: the number rests on what was observed of them, not on facts"
    if published.source[0] is Source.MEASURED:
        return f"measured; from facts alone the model would say {fact_slowdown:.2f} ×, and the facts below moved that"
    return ""
