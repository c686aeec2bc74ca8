"""Decisions: made once for each snapshot id, stored with the promises of their scope, and explained on request.

Law: a request is answered with the stored decision, or with a new decision that is stored before it is sent. The grant
tables of a scope are read from the store at every call, so that servers on one database give the same answer. An
explanation computes predictions and costs again with present knowledge.
"""

import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import islice

import numpy as np

from interfere.errors import ConflictError, NotFoundError, UnavailableError
from interfere.policy.answer.alternatives import alternatives, refusals
from interfere.policy.answer.subproblem import subproblem_of
from interfere.policy.context import PlanningContext
from interfere.policy.deadlines.guarantees import find_infeasible_deadlines
from interfere.policy.decide import decide
from interfere.policy.ledger.grants import all_grants, granule_account, with_running_grants
from interfere.policy.ledger.overuse import is_of_grant
from interfere.policy.rules.runtime import TICK_S
from interfere.policy.schedule.sizes import sizes_of_plan, with_present_sizes
from interfere.policy.site_policy import NO_ADDITIONS, SitePolicy
from interfere.policy.solve.builder import decision_problem
from interfere.predict.occlusion import Occlusion
from interfere.predict.online.stand_in_profiles import UNPROFILED
from interfere.records import (
    NAN,
    AcceptedDeadline,
    Action,
    Contribution,
    Device,
    DeviceGrants,
    DeviceSlots,
    ExplainQuery,
    Explanation,
    Grant,
    GrantLine,
    GrantTables,
    JobProfile,
    MemoryUsage,
    Outcome,
    OutcomeKind,
    PairBatch,
    PairExplanation,
    Plan,
    Prediction,
    ScopeLedger,
    Snapshot,
    Source,
)
from interfere.records.limits import MIN_TIME_BUDGET_S
from interfere.serving.metrics import Metrics
from interfere.serving.state import ServedState
from interfere.sharing_modes import DEFAULT_MODE
from interfere.store.decisions import StoredDecisionAudits
from interfere.store.rows import DecisionAudit, StoredDecision
from interfere.store.store import Store
from interfere.time_budget import TimeBudget, check_interruption
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, to_proto

Reporters = Mapping[str, frozenset[str]]
"""The scopes for which each identity may report; none: every scope."""
# Windows of one grant that a decision looks back on: a minute each (Prometheus' default scrape interval), 16 hours.
MAX_USAGES = 1_000


_log = logging.getLogger(__name__)
# Tries to write a ledger that another server writes too. Each loss means that the other was served; of two servers that
# write without a pause each loses every second try, so this many in a row once in a million.
MAX_TRIES = 20
MAX_TIME_BUDGET_S = 30.0  # of any decision: other scopes wait for their turn meanwhile
_RELEASING_OUTCOMES = (OutcomeKind.LOST_RACE, OutcomeKind.REFUSED, OutcomeKind.ENDED)


class DecisionMaker:
    """Makes decisions, and stores each decision with the ledger that it leaves.

    Thread-safe. The caller has validated the snapshot, and lets one decision at a time into a scope, so that no
    decision is computed in vain. The revision of the ledger keeps threads and servers on one database from overwriting
    each other.
    """

    def __init__(
        self, store: Store, metrics: Metrics, *, time_budget_s: float, site_policy: SitePolicy = NO_ADDITIONS
    ) -> None:
        """Make decisions. `time_budget_s` is the budget of snapshots without one. No budget exceeds
        `MAX_TIME_BUDGET_S`. `site_policy`: objectives and rules of other packages."""
        self._decisions, self._ledgers, self._metrics = store.decisions, store.ledgers, metrics
        self._observations = store.observations
        self._time_budget_s, self.site_policy = time_budget_s, site_policy
        self.reporters: Callable[[], Reporters | None] = lambda: None
        """Whose memory windows may end a job; none: everybody's, as callers have no identity."""

    def decide(
        self,
        snapshot: Snapshot,
        digest: str,
        state: ServedState,
        *,
        greedy_because: str,
    ) -> Plan:
        """Return the stored decision of the same snapshot, or make a new decision from a state and store it under the
        snapshot's id, if any.

        `digest`: of the bytes of the snapshot.

        With `greedy_because` a new decision is the greedy plan, without a search, and the plan tells this reason.
        Raises ConflictError where the id was used for another snapshot, UnavailableError where other servers keep
        writing the ledger of the scope.
        """
        requested_s = snapshot.limits.timing.time_budget_s
        budget_s = self._time_budget_s if math.isnan(requested_s) else min(requested_s, MAX_TIME_BUDGET_S)
        if greedy_because:
            budget_s = MIN_TIME_BUDGET_S
        snapshot = replace(snapshot, limits=snapshot.limits.within(time_budget_s=budget_s))
        if stored_plan := self._stored_plan(snapshot, digest):
            return stored_plan
        with self._ledgers.claim(snapshot.scope, patience_s=budget_s):
            for _ in range(MAX_TRIES):
                if stored_plan := self._stored_plan(snapshot, digest):
                    return stored_plan
                context = state.context(
                    snapshot,
                    self.site_policy,
                    decision_id=secrets.token_hex(8),
                    report_failed_checks=self._metrics.count_failed_checks,
                )
                if plan := self._decide_and_store(context, digest, greedy_because):
                    return plan
        raise UnavailableError(
            "other servers write this scope all the time", value=snapshot.scope, remedy="retry; one at a time is best"
        )

    def _decide_and_store(self, context: PlanningContext, digest: str, greedy_because: str) -> Plan | None:
        """Make and store a new decision, and return its plan; None where another server wrote the ledger in the
        meantime.

        Without a clock no ledger is kept.
        """
        start_s, start_cpu_s = time.perf_counter(), time.thread_time()
        scope, has_clock = context.snapshot.scope, not math.isnan(context.now_s)
        ledger = self._ledgers.read(scope) if has_clock else ScopeLedger(scope=scope)
        decision = decide(context, ledger, partial(self._usages, reporters=self._reporters_of(scope)))
        cpu_s, wall_s = time.thread_time() - start_cpu_s, time.perf_counter() - start_s
        stopped_by = greedy_because or decision.plan.stopped_by
        decision = replace(decision, plan=replace(decision.plan, cpu_s=cpu_s, wall_s=wall_s, stopped_by=stopped_by))
        stored = _stored_decision(context.snapshot, digest, decision.plan)
        check_interruption()  # the ledger was read before the call was abandoned, or this raises
        if has_clock and not self._ledgers.commit(decision.ledger, stored):
            return None
        if not has_clock and stored:
            self._decisions.put(stored)
        seconds = time.perf_counter() - start_s
        self._metrics.count_decision(decision.plan, seconds)
        if greedy_because:
            self._metrics.add("interfere_greedy_decisions", 1)
        fields = {
            "decision_id": context.decision_id,
            "scope": scope,
            "pending": len(context.snapshot.pending),
            "devices": len(context.snapshot.devices),
            "seconds": round(seconds, 4),
            "gap": round(decision.plan.gap, 6),
            "model": context.predictor.version,
        }
        _log.debug("decided: %s", fields, extra={"fields": fields})
        if slots := decision.ledger.slots if has_clock else ():
            granted = sum(granule_account(decision.ledger).taken.values())
            self._metrics.set_granules(scope, granted, sum(each.granules for each in slots) - granted)
        deadlines = decision.deadlines
        self._metrics.count_deadlines(len(deadlines.met), len(deadlines.broken), len(deadlines.unknown))
        return decision.plan

    def grants(self, scope: str) -> GrantTables:
        """Return the granules of each device, and the grants of each job and device, as of the scope's last decision
        with a clock."""
        ledger, reporters = self._ledgers.read(scope), self._reporters_of(scope)
        account = granule_account(ledger)
        return GrantTables(
            scope=scope,
            now_s=ledger.now_s,
            devices=tuple(
                DeviceGrants(**asdict(slots), granted=granted, free=slots.granules - granted)
                for slots in account.slots.values()
                for granted in (account.taken.get(slots.device_id, 0),)
            ),
            grants=tuple(
                self._grant_line(grant, account.slots[device_id], reporters)
                for grant in all_grants(ledger)
                for device_id in grant.device_ids
                if device_id in account.slots
            ),
        )

    def _grant_line(self, grant: Grant, slots: DeviceSlots, reporters: Collection[str] | None) -> GrantLine:
        """Return one grant on one of its devices, with the memory that its job was measured to use there."""
        windows = () if grant.planned else self._usages(grant, reporters)
        used_bytes = [each.bytes for each in windows if is_of_grant(each, grant, slots.device_id, slots.device_type)]
        return GrantLine(
            job_id=grant.job_id,
            device_id=slots.device_id,
            granules=slots.needs(grant.bytes),
            bytes=grant.bytes,
            since_s=grant.since_s,
            planned=grant.planned,
            last_use_bytes=used_bytes[0] if used_bytes else NAN,
            times_exceeded=sum(size > grant.bytes for size in used_bytes),
        )

    def _reporters_of(self, scope: str) -> Collection[str] | None:
        """Return the names of those that may report for a scope; None where callers have no identity."""
        reporters = self.reporters()
        if reporters is None:
            return None
        return {name for name, scopes in reporters.items() if not scopes or scope in scopes}

    def _usages(self, grant: Grant, reporters: Collection[str] | None) -> Iterator[MemoryUsage]:
        """Return the memory windows of a job since its grant that one of `reporters` sent, or anybody for None.

        The window that ends last comes first; at most `MAX_USAGES`.
        """
        if math.isnan(grant.since_s):
            return iter(())
        windows = self._observations.memory_usages(grant.job_id, after_s=grant.since_s)
        return islice((each for each in windows if reporters is None or each.reporter in reporters), MAX_USAGES)

    def apply_outcome(self, outcome: Outcome) -> None:
        """Release the promise of an action that will not happen. An outcome without a decision id releases nothing.

        A start that did not happen withdraws no accepted deadline: the job still waits, and may still end in time. That
        of a job that has ended is kept where it ended by then, else broken.
        """
        if outcome.kind not in _RELEASING_OUTCOMES or not outcome.decision_id:
            return
        is_over = outcome.kind is OutcomeKind.ENDED
        released = self._ledgers.release_promises(outcome.job_id, outcome.decision_id, deadlines=is_over)
        deadlines = [record for record in released if isinstance(record, AcceptedDeadline)]
        kept = sum(outcome.at_s <= accepted.deadline_s + TICK_S for accepted in deadlines)
        self._metrics.count_deadlines(kept, len(deadlines) - kept, 0)

    def _stored_plan(self, snapshot: Snapshot, digest: str) -> Plan | None:
        """Return the plan stored under the snapshot's id; None where there is none.

        Raises ConflictError where the id was used for another snapshot.
        """
        if not snapshot.snapshot_id:
            return None
        stored = self._decisions.find(snapshot.scope, snapshot.snapshot_id)
        if stored is None:
            return None
        if stored.digest != digest:
            raise ConflictError(
                f"snapshot id {snapshot.snapshot_id!r} was decided for another content",
                value=f"scope {snapshot.scope!r}",
                remedy="give every new snapshot a new id; an id is for retries of the same bytes",
            )
        return from_proto(Plan, pb.MatchResponse.FromString(stored.content))


def _stored_decision(snapshot: Snapshot, digest: str, plan: Plan) -> StoredDecision | None:
    """Return the row to store for a decision; None for a snapshot without an id."""
    if not snapshot.snapshot_id:
        return None
    return StoredDecision(
        scope=snapshot.scope,
        snapshot_id=snapshot.snapshot_id,
        digest=digest,
        content=to_proto(plan, pb.MatchResponse).SerializeToString(),
    )


# --- explanations -----------------------------------------------------------------------------------------------------

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
