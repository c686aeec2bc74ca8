"""Actions for residents: migrations, preemptions and ends where they are allowed, and `keep` for all other residents.

Law: every resident gets exactly one of keep, move, preempt and end. Without a clock no resident leaves its device,
because earlier starts cannot be distinguished from recent ones.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from interfere.policy.answer.merge import all_waiting, merge_plans
from interfere.policy.answer.starts import group_costs, pairings, start_alone, start_beside
from interfere.policy.context import PlanningContext
from interfere.policy.ledger.overuse import OveruseReview
from interfere.policy.residents.assignment import AssignedStart, plan_assignment
from interfere.policy.residents.migration import (
    Migration,
    MigrationPlan,
    is_movable,
    plan_moves_across_types,
)
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
    empty = [device.id for device in snapshot.devices if not device.residents]
    max_devices = len(empty) if snapshot.limits.max_devices is None else snapshot.limits.max_devices
    free_devices = max_devices - sum(device_id in started_on for device_id in empty)
    assignment = plan_assignment(context, started_on, waiting, free_devices)
    migration_plan, starts = assignment.moves, [_assigned_start(start, context) for start in assignment.starts]
    if ActionKind.MOVE in snapshot.limits.allowed:
        changed = _changed_devices(migration_plan, starts, context)
        used = sum(not context.devices[device_id].residents for device_id in changed)
        across = plan_moves_across_types(context, {*started_on, *changed}, free_devices - used)
        migration_plan = MigrationPlan(
            migrations=(*migration_plan.migrations, *across.migrations),
            destinations={**migration_plan.destinations, **across.destinations},
        )
    placed = {action.job_id for action in starts}
    rooms = (migration for migration in migration_plan.migrations if migration.starts not in {"", *placed})
    starts += [_start_in_room(migration, context) for migration in rooms]
    if starts:
        plan = merge_plans([plan, _plan_of(starts, context)], context)
    if any(is_movable(job) for device in snapshot.devices for job in device.residents):
        plan = replace(plan, status=SolveStatus.BOUNDED)  # heuristic: other migrations might gain more
    return replace(plan, actions=(*plan.actions, *_leaving_actions(migration_plan)))


def _changed_devices(migration_plan: MigrationPlan, starts: Sequence[Action], context: PlanningContext) -> set[str]:
    """Return the ids of the devices that a job leaves, moves to, is preempted on or starts on."""
    leaving = [*migration_plan.destinations, *(migration.preempted for migration in migration_plan.migrations)]
    changed = {device.id for name in leaving if name for device in context.resident_devices[name]}
    changed |= {place.device_id for place in migration_plan.destinations.values()}
    return changed | {device_id for action in starts for device_id in action.places}


def _leaving_actions(migration_plan: MigrationPlan) -> tuple[Action, ...]:
    """Return the move and preempt actions of a migration plan."""
    actions = []
    for migration in migration_plan.migrations:
        if migration.preempted:
            rule = _gain_rule(RuleKind.PREEMPTED, migration.preempted, migration)
            actions.append(
                Action(
                    kind=ActionKind.PREEMPT,
                    job_id=migration.preempted,
                    device_id=migration.device_id,
                    reason=render(rule),
                    rule=rule,
                )
            )
        for job_id in migration.movers:
            destination = migration_plan.destinations[job_id]
            rule = _gain_rule(RuleKind.MIGRATION_GAIN, job_id, migration)
            actions.append(
                Action(
                    kind=ActionKind.MOVE,
                    job_id=job_id,
                    device_id=destination.device_id,
                    partner_id=destination.partner_id,
                    slowdown=destination.slowdown,
                    partner_slowdown=destination.partner_slowdown,
                    reason=render(rule),
                    rule=rule,
                )
            )
    return tuple(actions)


def _gain_rule(kind: RuleKind, job_id: str, migration: Migration) -> Rule:
    """Return the rule with the saving and cost of a migration and the job that starts on the vacated device."""
    return Rule(
        kind=kind,
        job_id=job_id,
        partner_id=migration.starts,
        saved_s=migration.saved_s,
        paid_s=migration.cost_s,
    )


def _assigned_start(start: AssignedStart, context: PlanningContext) -> Action:
    """Return the action that starts a pending job on its assigned device, alone or beside a partner."""
    place, job = start.destination, context.pending[start.job_id]
    devices, partner = (context.devices[place.device_id],), context.jobs.get(place.partner_id)
    if partner is not None:
        return start_beside(job, devices, partner, (place.slowdown, place.partner_slowdown), context)
    rule = Rule(kind=RuleKind.DEVICE_VACATED, job_id=job.id, partner_id=start.leaving_id, action=ActionKind.MOVE)
    return start_alone(job, devices, context, rule=rule if start.leaving_id else None)


def _start_in_room(migration: Migration, context: PlanningContext) -> Action:
    """Return the action that starts a waiting job on the device that a migration vacates."""
    rule = Rule(
        kind=RuleKind.DEVICE_VACATED,
        job_id=migration.starts,
        partner_id=migration.preempted or migration.movers[0],
        action=ActionKind.PREEMPT if migration.preempted else ActionKind.MOVE,
    )
    return start_alone(context.pending[migration.starts], (context.devices[migration.device_id],), context, rule=rule)


def _plan_of(starts: Sequence[Action], context: PlanningContext) -> Plan:
    """Return a plan of these starts. Its cost is its lower bound, as every plan with these starts has at least that
    cost.
    """
    costs = group_costs(starts).values()
    value = max(costs) if context.objective.is_min_max else sum(costs)
    return replace(
        all_waiting((), context),
        actions=tuple(starts),
        pairs=pairings(starts),
        cost=sum(costs),
        objective_value=value,
        lower_bound=value,
        greedy_cost=value,
    )


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
