"""What a plan says of residents, where that is allowed: who leaves, who gets a device that one leaves, who stays.

Law: every resident is kept, moved, stopped or ended, once; nobody leaves but with a clock, which tells the old from the
new.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from interfere.policy.answer.merge import all_waiting, job_objective_cost, merge_plans
from interfere.policy.context import PlanningContext
from interfere.policy.ledger.overuse import Overuse
from interfere.policy.next_decision import Slowdowns
from interfere.policy.residents.migration import Moves, Step, find_moves, movable
from interfere.policy.rules.runtime import start_weights
from interfere.records import Action, ActionKind, Device, Grant, Job, Plan, Snapshot, SolveStatus

LEAVE = (ActionKind.MOVE, ActionKind.PREEMPT)  # what makes a resident leave its device


def with_moves(fresh: Plan, context: PlanningContext) -> tuple[Plan, tuple[Action, ...]]:
    """The plan with the starts that moves make room for, and the moves. The context is what the plan was to decide."""
    left = context.snapshot
    if not left.limits.allowed.intersection(LEAVE) or math.isnan(left.now_s):
        return fresh, ()
    closed = {name for action in fresh.actions for name in action.places}
    waits = {action.job_id for action in fresh.actions if not action.places}
    waiting = [job for job in left.pending if job.id in waits and job.gpus == 1]
    empty = [device.id for device in left.devices if not device.residents]
    most = len(empty) if left.limits.max_devices is None else left.limits.max_devices
    spare = most - sum(name in closed for name in empty)
    by_weight = sorted(waiting, key=lambda job: -float(start_weights([job], left.now_s)[0]))
    found = find_moves(context, closed, by_weight, spare)
    jobs = {job.id: job for job in waiting}
    kinds = {device.id: device.type for device in left.devices}
    starts = [_into_room(step, jobs[step.starts], kinds, context) for step in found.steps if step.starts]
    whole = merge_plans([fresh, _as_plan(starts, context)], left) if starts else fresh
    if any(movable(job) for device in left.devices for job in device.residents):
        whole = replace(whole, status=SolveStatus.BOUNDED)  # other moves might have been better
    return whole, _moves(found)


def _moves(found: Moves) -> tuple[Action, ...]:
    actions = []
    for step in found.steps:
        if step.stopped:
            why = f"{step.starts}, of higher priority, saves {step.saves_s:.4g} weighted s for {step.pays_s:.4g}"
            stop = Action(kind=ActionKind.PREEMPT, job_id=step.stopped, device_id=step.device_id, reason=why)
            actions.append(stop)
        why = f"saves {step.saves_s:.4g} weighted s for {step.pays_s:.4g} of checkpoints"
        why += f", and {step.starts} starts" if step.starts else ""
        for name in step.movers:
            berth = found.to[name]
            actions.append(
                Action(
                    kind=ActionKind.MOVE,
                    job_id=name,
                    device_id=berth.device_id,
                    partner_id=berth.partner_id,
                    slowdown=berth.slowdown,
                    partner_slowdown=berth.partner_slowdown,
                    reason=why,
                )
            )
    return tuple(actions)


def _into_room(step: Step, job: Job, kinds: Mapping[str, str], context: PlanningContext) -> Action:
    return Action(
        kind=ActionKind.START_ALONE,
        job_id=job.id,
        device_id=step.device_id,
        slowdown=1.0,
        slowdown_lower=1.0,
        slowdown_upper=1.0,
        cost=job_objective_cost(job, 1.0, kinds[step.device_id], context),
        reason=f"{step.stopped} stops for it" if step.stopped else f"{step.movers[0]} moves and leaves its device",
    )


def _as_plan(starts: Sequence[Action], context: PlanningContext) -> Plan:
    """The starts alone; in any plan that makes them they cost that."""
    costs = [action.cost for action in starts]
    value = max(costs) if context.objective.is_min_max else sum(costs)
    return replace(
        all_waiting((), context),
        actions=tuple(starts),
        cost=sum(costs),
        objective_value=value,
        lower_bound=value,
        greedy_cost=value,
    )


def end_actions(ends: Mapping[str, Overuse], held: Mapping[str, Grant]) -> tuple[Action, ...]:
    """One for every job that is to end, on all its devices."""
    actions = []
    for name, one in ends.items():
        places = (one.device.id, *(place for place in held[name].device_ids if place != one.device.id))
        actions.append(
            Action(
                kind=ActionKind.END,
                job_id=name,
                device_id=one.device.id,
                reason=str(one),
                device_ids=places if one.job.gpus > 1 else (),
                grant_bytes=one.granted_bytes,
            )
        )
    return tuple(actions)


def kept_actions(
    snapshot: Snapshot, moved: Collection[str], comes: Sequence[Action], slowdowns: Slowdowns
) -> tuple[Action, ...]:
    """One for every resident that stays. `moved`: who does not; `comes`: starts and moves."""
    if ActionKind.KEEP not in snapshot.limits.allowed:
        return ()
    joined = {action.partner_id: action.job_id for action in comes if action.partner_id}
    places: dict[str, list[Device]] = {}
    jobs: dict[str, Job] = {}
    for device in snapshot.devices:
        for job in device.residents:
            if job.id not in moved:
                places.setdefault(job.id, []).append(device)
                jobs[job.id] = job
    actions = []
    for name, devices in places.items():
        others = [one.id for one in devices[0].residents if one.id != name and one.id not in moved]
        others += [joined[name]] if name in joined else []
        actions.append(
            Action(
                kind=ActionKind.KEEP,
                job_id=name,
                device_id=devices[0].id,
                partner_id=others[0] if len(others) == 1 else "",
                slowdown=slowdowns.get(name, math.nan),
                device_ids=tuple(device.id for device in devices) if jobs[name].gpus > 1 else (),
                reason="it stays where it is",
            )
        )
    return tuple(actions)
