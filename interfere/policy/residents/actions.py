"""Actions for residents: migrations, preemptions and ends where they are allowed, and `keep` for all other residents.

Law: every resident gets exactly one of keep, move, preempt and end. Without a clock no resident leaves its device,
because earlier starts cannot be distinguished from recent ones.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from interfere.policy.answer.starts import merge_plans, plan_of_starts
from interfere.policy.context import PlanningContext
from interfere.policy.ledger.overuse import OveruseReview
from interfere.policy.residents.assignment import plan_assignments
from interfere.policy.residents.migration import is_movable, plan_moves_across_types, plan_preemptions
from interfere.policy.rules.runtime import start_weights
from interfere.policy.rules.text import render
from interfere.policy.slowdowns import DEPARTURES, SlowdownOfJob
from interfere.records import Action, ActionKind, Job, Plan, Rule, RuleKind, SolveStatus

LEAVING_KINDS = (ActionKind.MOVE, ActionKind.PREEMPT)  # promised actions after which a resident has left its device


def with_migrations(plan: Plan, context: PlanningContext) -> Plan:
    """Return the plan with migrations that gain added, and the starts on the devices that they vacate.

    Actions of pending jobs come first. `context`: the context of the snapshot for which the plan was made.
    """
    snapshot = context.snapshot
    if not snapshot.limits.allowed.intersection(LEAVING_KINDS) or math.isnan(snapshot.now_s):
        return plan
    started_on = {device_id for action in plan.actions for device_id in action.places}
    unplaced = {action.job_id for action in plan.actions if not action.places}
    waiting = [job for job in snapshot.pending if job.id in unplaced and job.gpus == 1]
    waiting.sort(key=lambda job: -float(start_weights([job], snapshot.now_s, snapshot.limits.timing.ageing_s)[0]))
    empty = {device.id for device in snapshot.devices if not device.residents}
    max_devices = len(empty) if snapshot.limits.max_devices is None else snapshot.limits.max_devices
    free_devices = max_devices - len(started_on & empty)
    changes: list[Action] = []
    # 1. Moves within a device class, and starts that they make room for.
    if ActionKind.MOVE in snapshot.limits.allowed:
        changes += plan_assignments(context, started_on, waiting, free_devices)
    # 2. Preemptions by priority, on devices that nothing else changes.
    if ActionKind.PREEMPT in snapshot.limits.allowed:
        placed = {action.job_id for action in changes}
        queue = [job for job in waiting if job.id not in placed]
        changes += plan_preemptions(context, started_on | _changed_devices(changes, context), queue)
    # 3. Moves to idle devices of another type.
    if ActionKind.MOVE in snapshot.limits.allowed:
        changed = _changed_devices(changes, context)
        changes += plan_moves_across_types(context, started_on | changed, free_devices - len(changed & empty))
    leaving = [action for action in changes if action.kind in LEAVING_KINDS]
    if len(leaving) < len(changes):
        starts = [action for action in changes if action.kind not in LEAVING_KINDS]
        plan = merge_plans([plan, plan_of_starts(starts, context)], context)
    if any(is_movable(job) for device in snapshot.devices for job in device.residents):
        plan = replace(plan, status=SolveStatus.BOUNDED)  # heuristic: other migrations might gain more
    return replace(plan, actions=(*plan.actions, *leaving))


def _changed_devices(changes: Sequence[Action], context: PlanningContext) -> set[str]:
    """Return the ids of the devices that a job leaves, moves to, is preempted on or starts on."""
    left = [device for action in changes for device in context.resident_devices.get(action.job_id, ())]
    return {device.id for device in left} | {action.device_id for action in changes}


def end_actions(overuse: OveruseReview) -> tuple[Action, ...]:
    """Return one `end` action, on all devices of the job, for each job that ends for overuse of its memory grant."""
    actions = []
    for job_id, largest in overuse.ending.items():
        device_ids = overuse.grants[job_id].device_ids
        other_devices = (device_id for device_id in device_ids if device_id != largest.device.id)
        actions.append(
            Action(
                kind=ActionKind.END,
                job_id=job_id,
                device_id=largest.device.id,
                reason=render(largest.rule),
                rule=largest.rule,
                device_ids=(largest.device.id, *other_devices) if largest.job.gpus > 1 else (),
                grant_bytes=largest.granted_bytes,
            )
        )
    return tuple(actions)


def keep_actions(
    context: PlanningContext, changes: Sequence[Action], overuse: OveruseReview, slowdown_of: SlowdownOfJob
) -> tuple[Action, ...]:
    """Return one `keep` action, with the memory grant and a warning of its overuse, for every resident that stays.

    `changes`: all other actions of the decision.
    """
    if ActionKind.KEEP not in context.limits.allowed:
        return ()
    leaving = {action.job_id for action in changes if action.kind in DEPARTURES}
    newcomers_of: dict[str, list[str]] = {}
    for action in changes:
        for partner_id in action.partners:
            newcomers_of.setdefault(partner_id, []).append(action.job_id)
    kept = (
        _keep(context.residents[job_id], context, leaving, newcomers_of.get(job_id, []))
        for job_id in context.resident_devices
        if job_id not in leaving
    )
    return tuple(
        _with_grant_and_warning(replace(action, slowdown=slowdown_of.get(action.job_id, math.nan)), overuse)
        for action in kept
    )


def _keep(job: Job, context: PlanningContext, leaving: Collection[str], newcomers: Sequence[str]) -> Action:
    devices = context.resident_devices[job.id]
    rule = Rule(kind=RuleKind.RESIDENT_STAYS, job_id=job.id)
    partners = [other.id for other in devices[0].residents if other.id != job.id and other.id not in leaving]
    partners += newcomers
    return Action(
        kind=ActionKind.KEEP,
        job_id=job.id,
        device_id=devices[0].id,
        partner_id=partners[0] if len(partners) == 1 else "",
        device_ids=tuple(device.id for device in devices) if job.gpus > 1 else (),
        reason=render(rule),
        rule=rule,
    )


def _with_grant_and_warning(keep: Action, overuse: OveruseReview) -> Action:
    grant = overuse.grants.get(keep.job_id)
    if grant is None:
        return keep
    own_overuse = overuse.of_job(keep.job_id)
    warning = f"; warning: it {render(own_overuse.rule)}" if own_overuse else ""
    return replace(keep, grant_bytes=grant.bytes, reason=keep.reason + warning)
