"""One decision of a scope with a clock: what was promised is repeated, everything else is planned around it.

Law 1: an unexpired start of a job that still waits is told again, to the same place and time. Law 2: nobody else gets
that place. Law 3: the same snapshot and ledger give the same plan and ledger.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from interfere.errors import InvalidInputError, Violation
from interfere.policy.clock import resolve_at_s
from interfere.policy.costs import Resolve
from interfere.policy.gangs import nothing_starts, plan_gangs
from interfere.policy.ledger import STARTS, Reconciled, around, reconcile, renewed, repeated
from interfere.policy.validate import validate_snapshot
from interfere.protocols import Predictor
from interfere.records import ActionKind, Pairing, Plan, Promise, ScopeLedger, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeDecision:
    """A plan, the ledger after it, and what became of the promises before it."""

    plan: Plan
    ledger: ScopeLedger  # of the revision that was read
    reconciled: Reconciled


def validate_time(snapshot: Snapshot, ledger: ScopeLedger) -> list[Violation]:
    """One violation where the caller's clock goes back."""
    if math.isnan(snapshot.now_s) or snapshot.now_s >= ledger.now_s:
        return []
    return [
        Violation(
            field="now_s", what=f"goes back: scope {snapshot.scope!r} was at {ledger.now_s!r}",
            value=repr(snapshot.now_s), remedy="send one clock that never goes back; another clock needs another scope",
        )
    ]  # fmt: skip


def plan_scope(
    snapshot: Snapshot, ledger: ScopeLedger, predictor: Predictor, resolve: Resolve, decision_id: str
) -> ScopeDecision:
    """The decision at `snapshot.now_s`, which must be there. Raises InvalidInputError as `plan` does."""
    violations = validate_snapshot(snapshot) + validate_time(snapshot, ledger)
    if violations:
        raise InvalidInputError.from_violations(violations)
    found = reconcile(ledger.promises, snapshot)
    left = around(snapshot, found.kept)
    if left.devices:
        fresh = plan_gangs(left, predictor, resolve, decision_id)
    else:
        waiting = [job.id for job in left.pending]
        fresh = nothing_starts(waiting, predictor.version, decision_id, "every device is promised to others")
    until_s = snapshot.now_s + snapshot.limits.promise_ttl_s
    fresh = replace(
        fresh,
        actions=tuple(replace(a, promised_by_s=until_s) if a.kind in STARTS else a for a in fresh.actions),
    )
    whole = _with_promised(fresh, found.kept, snapshot)
    after = replace(ledger, now_s=snapshot.now_s, promises=renewed(found.kept, fresh))
    whole = replace(whole, resolve_at_s=resolve_at_s(snapshot, whole, after.promises, predictor, resolve))
    return ScopeDecision(plan=whole, ledger=after, reconciled=found)


def _with_promised(fresh: Plan, kept: Sequence[Promise], snapshot: Snapshot) -> Plan:
    """The plan with what is kept put back in its place in the queue; its cost is paid in any plan that keeps it."""
    told = {action.job_id: action for action in (*fresh.actions, *map(repeated, kept))}
    actions = tuple(told[job.id] for job in snapshot.pending)
    pending = {job.id for job in snapshot.pending}
    listed = [promise.action for promise in kept if promise.action.job_id in pending]
    pairs: dict[frozenset[str], Pairing] = {}
    cost = 0.0
    for action in listed:
        if action.kind is ActionKind.START_ALONE:
            cost += action.cost
        elif (key := frozenset((action.job_id, action.partner_id))) not in pairs:
            cost += action.cost
            pairs[key] = Pairing(
                job_id=action.job_id, partner_id=action.partner_id, device_id=action.device_id, weight=action.cost
            )
    total = fresh.cost + cost
    return replace(
        fresh,
        actions=actions,
        pairs=(*pairs.values(), *fresh.pairs),
        cost=total,
        greedy_cost=fresh.greedy_cost + cost,
        lower_bound=fresh.lower_bound + cost,
        gap=(fresh.cost - fresh.lower_bound) / max(abs(total), 1e-12) if fresh.cost > fresh.lower_bound else 0.0,
    )
