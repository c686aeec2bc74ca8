"""Reconciles promised starts, moves and preemptions with a snapshot: each promise is kept, fulfilled or released.

Law 1: after a complete snapshot every kept promise is unexpired and refers to jobs and devices in the snapshot. Law 2:
a partial snapshot releases no promise because of a missing job or device. Law 3: a kept promise reserves its whole
device: no other job gets the device or a free seat on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from interfere.policy.answer.starts import job_objective_cost
from interfere.policy.context import PlanningContext
from interfere.policy.costs.group_tables import cost_alone
from interfere.policy.rules.jobs_on_class import availability_rule
from interfere.policy.rules.text import render
from interfere.policy.subproblems import remaining_snapshot
from interfere.records import NAN, Action, ActionKind, Device, Plan, Promise, Rule, RuleKind, Snapshot

PROMISED_KINDS = (ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.MOVE, ActionKind.PREEMPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedPromise:
    """A void promise and the reason why it is void."""

    promise: Promise
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledPromises:
    """The promises of a ledger, sorted into kept, fulfilled and released."""

    kept: tuple[Promise, ...]
    fulfilled: tuple[Promise, ...]  # carried out
    released: tuple[ReleasedPromise, ...]

    @property
    def kept_jobs(self) -> frozenset[str]:
        """Return the ids of the jobs with a kept promise."""
        return frozenset(promise.action.job_id for promise in self.kept)

    @property
    def leaving_jobs(self) -> frozenset[str]:
        """Return the ids of residents with a kept promise to move or to stop."""
        return leaving_jobs(self.kept)


def leaving_jobs(promises: Sequence[Promise]) -> frozenset[str]:
    """Return the ids of residents with a promise to move or to stop."""
    return frozenset(promise.action.job_id for promise in promises if promise.from_device_id)


def reconcile_promises(promises: Sequence[Promise], context: PlanningContext) -> ReconciledPromises:
    """Return the promises sorted into kept, fulfilled and released, at the time of the snapshot."""
    leaving = leaving_jobs(promises)
    while True:
        reconciled = _reconcile_once(promises, context, leaving)
        # If a migration is released, promises onto the device it would have left are void too.
        if leaving <= reconciled.leaving_jobs:
            return reconciled
        leaving &= reconciled.leaving_jobs


def _reconcile_once(
    promises: Sequence[Promise], context: PlanningContext, leaving: frozenset[str]
) -> ReconciledPromises:
    """Return the reconciled promises, given that the residents `leaving` vacate their devices."""
    kept, fulfilled, released = list[Promise](), list[Promise](), list[ReleasedPromise]()
    max_devices = context.limits.max_devices
    kept_empty_devices: frozenset[str] = frozenset()
    for promise in promises:
        if _is_fulfilled(promise, context):
            fulfilled.append(promise)
            continue
        empty_devices = kept_empty_devices | _empty_devices(promise, context)
        reason = _release_reason(promise, context, leaving)
        if not reason and max_devices is not None and len(empty_devices) > max_devices:
            reason = render(
                Rule(kind=RuleKind.MAX_DEVICES, max_devices=max_devices, kept_devices=len(kept_empty_devices))
            )
        if reason:
            released.append(ReleasedPromise(promise=promise, reason=reason))
        else:
            kept.append(promise)
            kept_empty_devices = empty_devices
    kept, without_partner = _review_partners(kept, context)
    return ReconciledPromises(kept=tuple(kept), fulfilled=tuple(fulfilled), released=(*released, *without_partner))


def _empty_devices(promise: Promise, context: PlanningContext) -> frozenset[str]:
    """Return the ids of a promise's devices that the snapshot lists as empty."""
    devices = (context.devices.get(device_id) for device_id in promise.action.places)
    return frozenset(device.id for device in devices if device is not None and not device.residents)


def _running_on(job_id: str, context: PlanningContext) -> frozenset[str] | None:
    """Return the ids of the devices on which a job runs; None for a job not listed as running."""
    devices = context.resident_devices.get(job_id)
    return None if devices is None else frozenset(device.id for device in devices)


def _is_fulfilled(promise: Promise, context: PlanningContext) -> bool:
    """Return whether the job runs on the promised devices or, if promised a preemption, no longer runs there."""
    action = promise.action
    running_on = _running_on(action.job_id, context)
    if action.kind is ActionKind.PREEMPT:
        is_pending = action.job_id in context.pending
        return is_pending or (running_on is not None and running_on != frozenset(action.places))
    return running_on == frozenset(action.places)


def _release_reason(promise: Promise, context: PlanningContext, leaving: frozenset[str]) -> str:
    """Return why an unfulfilled promise is void; empty while the promised action is still possible."""
    action = promise.action
    job, running_on = context.pending.get(action.job_id), _running_on(action.job_id, context)
    if running_on is not None and running_on != _left_devices(promise):
        return f"it was started on {', '.join(sorted(running_on))} instead"
    if context.now_s >= action.promised_by_s:
        return f"it was not started by {action.promised_by_s:g} s"
    if promise.from_device_id and job is not None:
        return "it went back to the queue"
    if job is None and running_on is None and not context.snapshot.partial:
        return "the job is over"
    return _blocked_reason(action, context, leaving)


def _left_devices(promise: Promise) -> frozenset[str]:
    """Return the ids of the devices that a resident leaves: all of a gang that is stopped."""
    action = promise.action
    return frozenset(action.places if action.kind is ActionKind.PREEMPT else [promise.from_device_id])


def _blocked_reason(action: Action, context: PlanningContext, leaving: frozenset[str]) -> str:
    """Return why a promised action is no longer possible or allowed on its devices; empty where it is possible."""
    job = context.pending.get(action.job_id)
    devices = [context.devices[device_id] for device_id in action.places if device_id in context.devices]
    if len(devices) < len(action.places) and not context.snapshot.partial:
        return "the device is gone"
    if action.kind not in context.limits.allowed:
        return render(Rule(kind=RuleKind.ACTION_NOT_ALLOWED, job_id=action.job_id, action=action.kind))
    if job is not None and job.gpus != len(action.places):
        return f"it takes {job.gpus} devices now"
    rules = (availability_rule(job, context.device_class(device)) for device in devices if job is not None)
    rule = next((rule for rule in rules if rule is not None), None)
    return _occupied_reason(action, devices, leaving) if rule is None else render(rule)


def _occupied_reason(action: Action, devices: Sequence[Device], leaving: frozenset[str]) -> str:
    """Return the reason that other jobs than partners and leaving jobs occupy the devices; empty if none do."""
    residents = {job.id for device in devices for job in device.residents}
    occupants = residents - leaving - set(action.partners)
    return f"its place was taken by {', '.join(sorted(occupants))}" if occupants else ""


def _review_partners(
    promises: Sequence[Promise], context: PlanningContext
) -> tuple[list[Promise], list[ReleasedPromise]]:
    """Return the kept and the released promises after the removal of partners that are gone.

    A promise whose partners are all gone is kept as a start or move alone, or released where that is not allowed.
    """
    kept, released = list[Promise](), list[ReleasedPromise]()
    places_of = {promise.action.job_id: frozenset(promise.action.places) for promise in promises}
    for promise in promises:
        partner_id, partners = promise.action.partner_id, promise.action.partners
        present = [other for other in partners if _has_partner(promise, other, places_of, context)]
        if present:
            kept.append(promise if len(present) == len(partners) else _beside(promise, present))
        elif not partner_id:
            kept.append(promise)
        elif promise.action.kind is ActionKind.MOVE:
            kept.append(replace(promise, action=_move_alone(promise.action)))
        elif ActionKind.START_ALONE in context.limits.allowed:
            kept.append(replace(promise, action=_start_alone(promise.action, context)))
        else:
            reason = f"its partner {partner_id} is gone, and start_alone is not an allowed action"
            released.append(ReleasedPromise(promise=promise, reason=reason))
    return kept, released


def _beside(promise: Promise, present: Sequence[str]) -> Promise:
    """Return a promised start with the present partners only.

    Its slowdown and cost remain those beside all partners.
    """
    slowdowns = promise.action.slowdown_of_partners
    several = len(present) > 1
    action = replace(
        promise.action,
        partner_id=present[0],
        partner_slowdown=slowdowns[present[0]],
        partner_ids=tuple(present) if several else (),
        partner_slowdowns=tuple(slowdowns[other] for other in present) if several else (),
    )
    return replace(promise, action=action)


def _has_partner(
    promise: Promise, partner_id: str, places_of: Mapping[str, frozenset[str]], context: PlanningContext
) -> bool:
    """Return whether a partner runs on the promised devices, is promised them, or may be missing from the snapshot."""
    places = frozenset(promise.action.places)
    may_be_unseen = context.snapshot.partial and partner_id not in context.jobs
    return may_be_unseen or places in (_running_on(partner_id, context), places_of.get(partner_id))


def _move_alone(move: Action) -> Action:
    """Return the move without its partner."""
    return replace(move, partner_id="", slowdown=1.0, partner_slowdown=NAN)


def _start_alone(start: Action, context: PlanningContext) -> Action:
    """Return the start without its partner, at the cost of running alone; NaN for a job that is not in the snapshot."""
    job, device = context.pending.get(start.job_id), context.devices.get(start.device_id)
    cost = NAN
    if job is not None:
        cost = cost_alone(job, device, context) if device else job_objective_cost(job, 1.0, "", context)
    return replace(
        start,
        kind=ActionKind.START_ALONE,
        partner_id="",
        slowdown=1.0,
        slowdown_lower=1.0,
        slowdown_upper=1.0,
        partner_slowdown=NAN,
        partner_ids=(),
        partner_slowdowns=(),
        cost=cost,
    )


def without_promised(snapshot: Snapshot, kept: Sequence[Promise]) -> Snapshot:
    """Return the snapshot without the jobs of kept promises and without the devices that they reserve."""
    promised_jobs = {promise.action.job_id for promise in kept}
    held_devices = {device_id for promise in kept for device_id in promise.places}
    return remaining_snapshot(snapshot, promised_jobs, held_devices)


def renew_promises(kept: Sequence[Promise], plan: Plan, context: PlanningContext) -> tuple[Promise, ...]:
    """Return the promises after a plan: the kept ones, then the plan's new starts, moves and preemptions."""
    promised_jobs = {promise.action.job_id for promise in kept}
    repeated = [replace(promise, decision_ids=(*promise.decision_ids, plan.decision_id)) for promise in kept]
    added = [
        Promise(
            action=replace(action, planned_start_s=NAN, planned_end_s=NAN, promised_end_s=NAN),
            decision_ids=(plan.decision_id,),
            from_device_id=_leaves_device(action.job_id, context),
            since_s=context.now_s,
        )
        for action in plan.actions
        if action.kind in PROMISED_KINDS and action.job_id not in promised_jobs
    ]
    return (*repeated, *added)


def _leaves_device(job_id: str, context: PlanningContext) -> str:
    """Return the id of the device that a resident leaves; empty for a pending job."""
    if job_id in context.pending:
        return ""
    devices = context.resident_devices.get(job_id)
    return devices[-1].id if devices else ""


def repeat_action(promise: Promise) -> Action:
    """Return the promised action with the rule that it was promised by an earlier decision."""
    rule = Rule(kind=RuleKind.PROMISED, job_id=promise.action.job_id, decision_id=promise.decision_ids[0])
    return replace(promise.action, reason=render(rule), rule=rule)
