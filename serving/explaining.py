"""Explains what one job got in a stored decision: what moves its predictions, its alternatives, what it may not have.

Predictions and costs are made anew with what is known now.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from interfere.errors import NotFoundError
from interfere.policy.answer.alternatives import alternatives, refusals
from interfere.policy.answer.subproblem import subproblem_of
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import find_candidates
from interfere.policy.deadlines.infeasible import find_infeasible_deadlines
from interfere.policy.ledger.grants import with_running_grants
from interfere.predict.occlusion import Occlusion
from interfere.predict.online.stand_in_profiles import UNPROFILED
from interfere.records import (
    Action,
    Contribution,
    Device,
    ExplainQuery,
    Explanation,
    JobProfile,
    PairBatch,
    PairExplanation,
    Plan,
    Prediction,
    Snapshot,
    Source,
)
from interfere.serving.state import ServedState
from interfere.sharing_modes import DEFAULT_MODE
from interfere.store.decisions import SqliteDecisionAudits
from interfere.store.rows import DecisionAudit
from interfere.store.sqlite import SqliteStore
from interfere.time_budget import TimeBudget
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto

MAX_CONTRIBUTIONS = 10  # of one prediction
ALTERNATIVES_BUDGET_S = 3.0  # a third of what a client waits; ten alternatives of 1,000 jobs take 0.5 s
MIN_LOG_CHANGE = 1e-6  # of a log slowdown: smaller ones are rounding of the graph's float32
MEASURED, LEARNED = "this very pair was measured", "what was observed since the training"


def explain(query: ExplainQuery, store: SqliteStore, state: ServedState) -> Explanation:
    """Return the action that one job got in a stored decision, and the reasons. Raises NotFoundError for an unknown
    decision or job."""
    audit, decided, action = _find(query, store.audits)
    request = from_proto(Snapshot, pb.MatchRequest.FromString(audit.request))
    context = PlanningContext(snapshot=request, predictor=state.model.predictor, catalogue=state.catalogue())
    snapshot = find_infeasible_deadlines(context).snapshot
    # 1. The subproblem in which the job was decided, and the class of the device that it got.
    context = context.with_snapshot(snapshot)
    device = context.devices.get(action.device_id)
    device_class = None if device is None else context.device_class(device)
    subproblem = subproblem_of(snapshot, decided, query.job_id)
    # 2. Predictions and costs, as known now.
    pairs = tuple(_explain_pairs(action, context, state))
    known = candidates = None
    if subproblem:
        if not math.isnan(subproblem.now_s):
            subproblem = with_running_grants(subproblem, store.ledgers.read(subproblem.scope))
        known = PlanningContext(
            snapshot=subproblem,
            predictor=state.predictor,
            catalogue=state.catalogue(),
            other_device_types=tuple(context.device_types),
        )
        candidates = find_candidates(known, context.jobs[query.job_id].gpus)
    # 3. What the job may not have, and what else it could have got.
    refused, refused_total = refusals(candidates, action) if candidates else ((), 0)
    budget = TimeBudget(ALTERNATIVES_BUDGET_S)
    in_pair = len(action.partners) < 2  # alternatives to a larger group are not solved for
    solved, left_out = alternatives(known, action, device_class, budget) if known and in_pair else ((), 0)
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


def _find(query: ExplainQuery, audits: SqliteDecisionAudits) -> tuple[DecisionAudit, Plan, Action]:
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
    """Return the explanations of both directions: the job beside its partner and the reverse. Empty without a
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
