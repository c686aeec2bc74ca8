"""What a migration of residents saves and costs, in weighted seconds, and which residents may move at all.

Job i beside j loses w_i (s_ij - 1) in each second of its remaining_s alone, and a moving job pays w_i · checkpoint_s (w
= 1 where the objective counts every job the same). A migration is taken only if its saving exceeds `move_factor` times
its cost. A waiting job that gets the device of a mover saves its weight for the shortest remaining_s of any resident.
Where no migration makes room, a waiting job of strictly higher priority may preempt the resident of lowest priority
that is alone on its device, if waiting for its end would cost more than the preemption.

Law 1: only preemptible jobs on one device move, with known remaining_s, checkpoint_s and since_s, with no feasible
deadline, and after more time on the device than a promise lives. A device does not change if it has a younger resident,
a resident of unknown age, a promise, or a start of this plan; so an immediate second request moves no job. Law 2: no
job moves twice in a plan. Residents move within a device class (`assignment`), and alone to an idle device of any type.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.answer.starts import start_alone
from interfere.policy.context import PlanningContext
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.costs.objectives import WEIGHTED_EXCESS, weights
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.jobs_on_class import availability_rule, start_rule
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.runtime import runtimes
from interfere.policy.rules.text import render
from interfere.policy.slowdowns import all_residents, resident_pairs
from interfere.records import NAN, Action, ActionKind, Device, Job, ObjectiveKind, Rule, RuleKind, Snapshot
from interfere.records.cluster import DEFAULT_SEATS

Floats = NDArray[np.float64]
MIN_GAIN_S = 1e-6  # weighted seconds; a smaller gain is a rounding error
PRIORITY_FACTOR = 10.0  # one second of a job counts as ten seconds at the next lower priority
UNWEIGHTED = (ObjectiveKind.TOTAL_SLOWDOWN, ObjectiveKind.COMPLETION_TIME)  # objectives without job weights


def open_devices(context: PlanningContext, closed_devices: Collection[str]) -> dict[DeviceClass, list[Device]]:
    """Return by class the devices whose jobs may be rearranged, devices with residents first.

    Residents run in pairs, even where a device has more seats.
    """
    devices_of: dict[DeviceClass, list[Device]] = {}
    for device in sorted(context.snapshot.devices, key=lambda device: not device.residents):
        if device.id not in closed_devices and len(device.residents) <= 2 and outlived_promises(device, context):
            device_class = context.device_class(device)
            if device_class.seats >= DEFAULT_SEATS and (device.residents or device_class in devices_of):
                devices_of.setdefault(device_class, []).append(device)
    return devices_of


def job_weight(job: Job, snapshot: Snapshot) -> float:
    """Return the weight of each second of a job: weight · 10^priority."""
    if snapshot.objective in UNWEIGHTED and not snapshot.objective_terms:
        return 1.0
    return float(weights([job])[0]) * PRIORITY_FACTOR**job.priority


def is_movable(job: Job) -> bool:
    """Return whether a job is preemptible, runs on one device, and has a known migration cost."""
    return job.preemptible and job.gpus == 1 and not math.isnan(job.remaining_s + job.checkpoint_s)


def may_leave(job: Job, device_class: DeviceClass, *, unknown_length: bool = False) -> bool:
    """Return whether a job may leave its device of a class.

    `unknown_length`: also a job whose attained service alone is known.
    """
    known = unknown_length and not math.isnan(job.attained_s)
    movable = is_movable(replace(job, remaining_s=job.attained_s) if known and math.isnan(job.remaining_s) else job)
    return movable and availability_rule(job, device_class) is None and math.isnan(job.deadline_s)


def leaving_action(
    kind: ActionKind,
    job: Job,
    device_id: str,
    saved_s: float,
    paid_s: float,
    *,
    starts: str = "",
    partner_id: str = "",
    slowdown: float = NAN,
    partner_slowdown: float = NAN,
) -> Action:
    """Return the move or preemption of a resident, with what it saves and pays, in weighted seconds.

    `starts`: the job that starts on the vacated device; empty: none.
    """
    of_kind = RuleKind.PREEMPTED if kind is ActionKind.PREEMPT else RuleKind.MIGRATION_GAIN
    rule = Rule(kind=of_kind, job_id=job.id, partner_id=starts, saved_s=saved_s, paid_s=paid_s)
    return Action(
        kind=kind,
        job_id=job.id,
        device_id=device_id,
        partner_id=partner_id,
        slowdown=slowdown,
        partner_slowdown=partner_slowdown,
        reason=render(rule),
        rule=rule,
    )


def start_where_vacated(
    job: Job, device: Device, leaving_id: str, kind: ActionKind, context: PlanningContext
) -> Action:
    """Return the start of a waiting job on the device that a resident leaves."""
    rule = Rule(kind=RuleKind.DEVICE_VACATED, job_id=job.id, partner_id=leaving_id, action=kind)
    return start_alone(job, (device,), context, rule=rule)


def outlived_promises(device: Device, context: PlanningContext) -> bool:
    """Return whether every resident has run on a device for longer than a promise lives.

    Then no resident was started by a plan whose promise is unexpired.
    """
    ttl_s = context.limits.timing.promise_ttl_s
    return all(job.gpus == 1 and context.now_s - job.since_s >= ttl_s for job in device.residents)


def slowdowns_beside(
    jobs: Sequence[Job], device_class: DeviceClass, context: PlanningContext
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return float64[m, m]: slowdown of i beside j, and bool[m, m]: whether the pair rules let i join j."""
    # guest_ends_first restricts starts only: of two running jobs one always ends first.
    limits = context.limits
    residents_may_pair = replace(limits, allowed=limits.allowed | {ActionKind.START_SHARED}, guest_ends_first=False)
    context = replace(
        context.subproblem(replace(context.snapshot, limits=residents_may_pair)),
        custom_objective=WEIGHTED_EXCESS,  # decides which jobs may pair; savings are computed in seconds
    )
    costs = GroupTable(jobs, jobs, device_class, context).resident_pairs
    assert costs is not None
    return costs.slowdown[0], costs.allowed


def plan_moves_across_types(
    context: PlanningContext, closed_devices: Collection[str], free_devices: int
) -> list[Action]:
    """Return the moves of residents to idle devices of another type that save more than they cost.

    A resident saves the difference between its remaining time beside its neighbour on the present type and alone on the
    other type; the neighbour saves its slowdown. Moves are taken in order of gain. `closed_devices` and `free_devices`
    as in `assignment.plan_assignments`.
    """
    devices = [device for device in context.snapshot.devices if device.id not in closed_devices]
    idle: dict[DeviceClass, list[Device]] = {}
    for device in devices:
        if not device.residents:
            idle.setdefault(context.device_class(device), []).append(device)
    if not idle or free_devices <= 0:
        return []
    slowdowns = resident_pairs(all_residents(context), context)
    times = {name: context.relative_times([job])[0] for name, job in context.residents.items() if is_movable(job)}
    types, factor = context.device_types, context.limits.move_factor
    candidates: list[tuple[float, str, Device, DeviceClass, float, float]] = []
    for device in devices:
        here = context.device_class(device)
        if len(device.residents) > 2 or not outlived_promises(device, context):
            continue
        for job in device.residents:
            if not may_leave(job, here):
                continue
            weight = job_weight(job, context.snapshot)
            partners = [other for other in device.residents if other is not job]
            slowed = math.prod(slowdowns.get((job.id, other.id), 1.0) for other in partners)
            relieved_s = sum(
                job_weight(other, context.snapshot)
                * (slowdowns.get((other.id, job.id), 1.0) - 1.0)
                * float(context.relative_times_on(here.type, [other])[0] * np.nan_to_num(other.remaining_s))
                for other in partners
            )
            for there in idle:
                gained = float(times[job.id][types.index(here.type)] * slowed - times[job.id][types.index(there.type)])
                saved_s, cost_s = weight * job.remaining_s * gained + relieved_s, weight * job.checkpoint_s
                if there.type != here.type and saved_s - factor * cost_s > MIN_GAIN_S:
                    candidates.append((factor * cost_s - saved_s, job.id, device, there, saved_s, cost_s))
    candidates.sort(key=lambda candidate: candidate[:2])
    moves: list[Action] = []
    changed: set[str] = set()  # jobs that move, and devices that they leave
    for _, name, device, there, saved_s, cost_s in candidates:
        is_open = not changed & {name, device.id} and len(moves) < free_devices
        if is_open and idle[there] and may_start_alone(context.residents[name], there, context):
            place, job = idle[there].pop(0), context.residents[name]
            moves.append(leaving_action(ActionKind.MOVE, job, place.id, saved_s, cost_s, slowdown=1.0))
            changed |= {name, device.id}
    return moves


def plan_preemptions(context: PlanningContext, closed_devices: Collection[str], queue: Sequence[Job]) -> list[Action]:
    """Return for each queued job the cheapest preemption that gains, of a resident of strictly lower priority, and the
    start of the job.

    A resident that is preempted is alone on its device. `closed_devices` have a promise, or a start or a move of this
    plan; `queue`: jobs on one device, in start order.
    """
    residents: list[tuple[Job, Device]] = []
    for device_class, devices in open_devices(context, closed_devices).items():
        alone = ((device.residents[0], device) for device in devices if len(device.residents) == 1)
        residents += [(job, device) for job, device in alone if may_leave(job, device_class)]
    cost_s_of = {job.id: job_weight(job, context.snapshot) * job.checkpoint_s for job, _ in residents}
    residents.sort(key=lambda place: (place[0].priority, cost_s_of[place[0].id], place[0].id))
    changes: list[Action] = []
    for job in queue:
        weight = job_weight(job, context.snapshot)
        for k, (resident, device) in enumerate(residents):
            if resident.priority >= job.priority:
                break
            saved_s, cost_s, kind = weight * resident.remaining_s, cost_s_of[resident.id], ActionKind.PREEMPT
            gains = saved_s > context.limits.move_factor * cost_s
            if gains and may_start_alone(job, context.device_class(device), context):
                changes.append(leaving_action(kind, resident, device.id, saved_s, cost_s, starts=job.id))
                changes.append(start_where_vacated(job, device, resident.id, kind, context))
                del residents[k]
                break
    return changes


def may_start_alone(job: Job, device_class: DeviceClass, context: PlanningContext) -> bool:
    """Return whether a job may start alone on a device of a class."""
    (runtime,) = runtimes(
        [job],
        context.relative_times_on(device_class.type, [job]),
        device_class.open_s,
        context.now_s,
        context.limits.slowdown.risk,
    )
    if ActionKind.START_ALONE not in context.limits.allowed or start_rule(job, runtime, device_class) is not None:
        return False
    return solo_memory_rule(job.id, context.demand(job, device_class), device_class.memory) is None
