"""One decision of a scope with a clock: what was promised is repeated, everything else is planned around it.

Law 1: an unexpired start of a job that still waits is told again, to the same place and time. Law 2: nobody else gets
that place, nor one that an accepted deadline needs. Law 3: the same snapshot and ledger give the same plan and ledger.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.errors import InvalidInputError, Violation
from interfere.policy.answer.merge import all_waiting, job_objective_cost, merge_plans
from interfere.policy.context import PlanningContext
from interfere.policy.deadlines.guarantees import Deadlines, breaking, is_deadline, marked, newly_accepted, review
from interfere.policy.deadlines.infeasible import settle
from interfere.policy.ledger.grants import granted, held_by, reconciled, regranted, with_held
from interfere.policy.ledger.overuse import Overuse, Usages, past_grants, to_end
from interfere.policy.ledger.promises import PROMISED, Reconciled, around, renewed, repeated
from interfere.policy.next_decision import resolve_at_s, slowdowns_of
from interfere.policy.remaining import rest_of
from interfere.policy.residents.actions import LEAVE, end_actions, kept_actions, with_moves
from interfere.policy.rules.text import render
from interfere.policy.solve.gangs import plan_all_sizes
from interfere.policy.validate import validate_snapshot
from interfere.records import Action, ActionKind, Grant, Pairing, Plan, Promise, Rule, RuleKind, ScopeLedger, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeDecision:
    """A plan, the ledger after it, and what became of the promises before it."""

    plan: Plan
    ledger: ScopeLedger  # of the revision that was read
    reconciled: Reconciled
    deadlines: Deadlines


def validate_time(snapshot: Snapshot, ledger: ScopeLedger) -> list[Violation]:
    """One violation where the caller's clock goes back."""
    if math.isnan(snapshot.now_s) or snapshot.now_s >= ledger.now_s:
        return []
    return [
        Violation(
            field="now_s",
            what=f"goes back: scope {snapshot.scope!r} was at {ledger.now_s!r}",
            value=repr(snapshot.now_s),
            remedy="send one clock that never goes back; another clock needs another scope",
        )
    ]


def decide(
    context: PlanningContext,
    ledger: ScopeLedger,
    usages: Usages = lambda _: (),
) -> ScopeDecision:
    """The decision at `snapshot.now_s`; without a clock nothing is to be remembered of it.

    `usages`: the windows in which the memory of who holds a grant was measured.
    Raises InvalidInputError as `plan` does, and where the clock goes back.
    """
    snapshot = context.snapshot
    violations = validate_snapshot(snapshot) + validate_time(snapshot, ledger)
    if violations:
        raise InvalidInputError.from_violations(violations)
    settled = settle(context)
    snapshot = settled.snapshot
    context = context.with_snapshot(snapshot)
    found = reconciled(ledger, snapshot)
    deadlines = review([one for one in ledger.promises if is_deadline(one)], snapshot)
    ledger = regranted(context, ledger, found)
    held = held_by(ledger)
    snapshot = with_held(snapshot, held)
    context = context.with_snapshot(snapshot)
    past = past_grants(snapshot.devices, _staying(held, found.kept), usages, snapshot.limits, snapshot.now_s)
    ends = to_end(past) if ActionKind.END in snapshot.limits.allowed else {}
    ending = {one.device.id for one in past if one.job.id in ends}  # nobody joins who is to end
    promised = [promise.action.job_id for promise in found.kept]
    declined = settled.declined(promised)
    left = rest_of(around(snapshot, found.kept), declined, ending)
    full = Rule(kind=RuleKind.DEVICES_PROMISED, action=ActionKind.END if ending else None)
    fresh, left, held_back = _around_deadlines(left, context, found.kept, deadlines, full)
    fresh, moves = with_moves(fresh, context.with_snapshot(left))
    until_s = snapshot.now_s + snapshot.limits.timing.promise_ttl_s
    starts = granted((*fresh.actions, *moves), context)
    told = replace(
        fresh,
        actions=tuple(replace(one, promised_by_s=until_s) if one.kind in PROMISED else one for one in starts),
    )
    kept = tuple(_priced(promise, context) for promise in found.kept)
    refused = all_waiting(declined, context)
    whole = merge_plans([told, _promised(kept, context), held_back, refused], snapshot)
    moving = [*(one for one in told.actions if one.kind in LEAVE), *_moving(kept, snapshot)]
    changes = (*whole.actions, *moving)
    ended = end_actions(ends, held)
    slowdowns = slowdowns_of(context, (*changes, *ended))
    stays = kept_actions(snapshot, {*ends, *(one.job_id for one in moving)}, changes, slowdowns)
    stays = (*ended, *(_held(one, held, past) for one in stays))
    standing = deadlines.standing
    standing += newly_accepted(context, changes, standing, slowdowns)
    places = renewed(kept, told, snapshot)
    after = replace(ledger, promises=(*places, *standing))
    whole = replace(
        whole,
        actions=marked(settled.told((*changes, *stays), promised), standing),
        resolve_at_s=resolve_at_s(snapshot, (*changes, *ended), places, slowdowns),
    )
    return ScopeDecision(plan=whole, ledger=after, reconciled=found, deadlines=deadlines)


def _around_deadlines(
    left: Snapshot,
    context: PlanningContext,
    kept: Sequence[Promise],
    deadlines: Deadlines,
    full: Rule,
) -> tuple[Plan, Snapshot, Plan]:
    """What starts without breaking an accepted deadline, what was to decide, and who is held back. `full`: why nobody
    starts where no device is left."""
    names = {promise.action.job_id for promise in deadlines.standing}
    others = [promise.action for promise in kept if not promise.from_device_id]
    held_back: dict[str, Rule] = {}
    while True:
        if left.devices:
            fresh = plan_all_sizes(context.with_snapshot(left, context.device_types))
        else:
            waiting = [job.id for job in left.pending]
            fresh = all_waiting(waiting, context, full)
        now = breaking(fresh, context, names, others)
        held_back |= now
        if not now:
            break
        left = rest_of(left, now, ())
    waits = all_waiting(held_back, context)
    actions = tuple(
        replace(one, reason=render(held_back[one.job_id]), rule=held_back[one.job_id]) for one in waits.actions
    )
    return fresh, left, replace(waits, actions=actions)


def _staying(held: Mapping[str, Grant], kept: Sequence[Promise]) -> dict[str, Grant]:
    """Without those of jobs that are on their way to another device, or to stop."""
    leaving = {promise.action.job_id for promise in kept if promise.from_device_id}
    return {name: grant for name, grant in held.items() if name not in leaving}


def _held(action: Action, held: Mapping[str, Grant], past: Sequence[Overuse]) -> Action:
    """A resident that stays, with its grant, and a warning where it is past it."""
    grant = held.get(action.job_id)
    if grant is None:
        return action
    warnings = [f"; warning: it {one}" for one in past if one.job.id == action.job_id][:1]
    return replace(action, grant_bytes=grant.bytes, reason=action.reason + "".join(warnings))


def _moving(kept: Sequence[Promise], snapshot: Snapshot) -> list[Action]:
    """The moves that are still on their way, told again."""
    running = {job.id for device in snapshot.devices for job in device.residents}
    return [repeated(one) for one in kept if one.from_device_id and one.action.job_id in running]


def _priced(promise: Promise, context: PlanningContext) -> Promise:
    """The promise with what it costs now, where its partner is gone."""
    snapshot = context.snapshot
    action = promise.action
    job = next((job for job in snapshot.pending if job.id == action.job_id), None)
    kind = next((device.type for device in snapshot.devices if device.id == action.device_id), "")
    if not math.isnan(action.cost) or job is None:
        return promise
    return replace(promise, action=replace(action, cost=job_objective_cost(job, action.slowdown, kind, context)))


def _promised(kept: Sequence[Promise], context: PlanningContext) -> Plan:
    """What is kept as a plan of its own, of the jobs that the snapshot lists: any plan that keeps it costs that."""
    snapshot, jobs = context.snapshot, context.jobs
    kinds = {device.id: device.type for device in snapshot.devices}
    pending = {job.id for job in snapshot.pending}
    listed = [promise for promise in kept if promise.action.job_id in pending]
    cost, worst = 0.0, -math.inf
    pairs: dict[frozenset[str], Pairing] = {}
    for action in (promise.action for promise in listed):
        key = frozenset((action.job_id, action.partner_id))
        if key not in pairs:
            cost += action.cost
        if action.partner_id:
            pairs[key] = Pairing(
                job_id=action.job_id, partner_id=action.partner_id, device_id=action.device_id, weight=action.cost
            )
        for name, slowdown in ((action.job_id, action.slowdown), (action.partner_id, action.partner_slowdown)):
            if name in jobs and action.device_id in kinds:
                worst = max(worst, job_objective_cost(jobs[name], slowdown, kinds[action.device_id], context))
    value = worst if context.objective.is_min_max else cost
    return replace(
        all_waiting((), context),
        actions=tuple(map(repeated, listed)),
        pairs=tuple(pairs.values()),
        cost=cost,
        objective_value=value,
        lower_bound=value,
        greedy_cost=value,
    )
