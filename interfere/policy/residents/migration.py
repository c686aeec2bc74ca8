"""Residents that had better run elsewhere: what a move saves over the time that is left, against its checkpoint.

All in weighted seconds: job i beside j loses w_i (s_ij - 1) each second of the remaining_s that it would run alone, and
who moves pays w_i · checkpoint_s (w = 1 where the objective counts every job the same). A step is taken only if what
its jobs save exceeds `move_factor` times what its movers pay; steps are taken largest net first, on devices as the
steps before left them, until none pays. A step is: leave a partner for an empty device; join a resident that is alone,
also to make room for a job that waits, which saves its weight for as long as the shortest remaining_s of any resident;
or change places with another. Where no move makes room, a job of strictly higher priority that waits may stop the
resident of lowest priority, alone on its device, whose remaining_s would keep it waiting for longer than that costs.

Law 1: movable are preemptible jobs on one device whose remaining_s, checkpoint_s and since_s are known and who have
been there for longer than a promise lives, but none whose deadline can still be met. A device is left alone that has a
younger resident, or one whose age is not known, a promise, or a start of this plan: so asking again at once moves
nobody. Law 2: nobody moves twice in a plan.
Moves stay within a device class. Heuristic: each step is worth it, no bound says that no other set is better;
on small clusters where moving is free the steps save at least 95 % of what the best arrangement does (a test).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.costs.objectives import weights
from interfere.policy.costs.pair_costs import pair_costs
from interfere.policy.device_class import DeviceClass
from interfere.policy.residents.migration_gain import Field
from interfere.policy.rules.availability import availability_rule, start_rule
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.runtime import runtimes
from interfere.records import NAN, ActionKind, Device, Job, Limits, ObjectiveKind, Snapshot

UNWEIGHTED = (ObjectiveKind.TOTAL_SLOWDOWN, ObjectiveKind.COMPLETION_TIME)  # every job counts the same there


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Residents that move, what that saves and what it pays, in weighted seconds."""

    movers: tuple[str, ...]
    stopped: str = ""  # a resident that goes back to the queue, in place of movers
    starts: str = ""  # a waiting job that gets the device which is left
    device_id: str = ""  # that device
    saves_s: float
    pays_s: float  # without the factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Berth:
    """Where a mover ends, beside whom, and how both fare."""

    device_id: str
    partner_id: str
    slowdown: float
    partner_slowdown: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What changes among the residents."""

    steps: tuple[Step, ...] = ()
    to: Mapping[str, Berth] = field(default_factory=dict)  # of each mover


def find_moves(
    context: PlanningContext,
    closed: Collection[str],
    waiting: Sequence[Job],
    spare: int,
) -> Moves:
    """Steps until none pays.

    `closed`: devices with a promise or a start of this plan; `waiting`: jobs on one device that nothing starts, in the
    order in which they should; `spare`: empty devices that may still be taken.
    """
    snapshot = context.snapshot
    left = [job.remaining_s for device in snapshot.devices for job in device.residents]
    wait_s = float(np.nan_to_num(np.fmin.reduce(left, initial=math.nan)))
    queue, steps, to = list(waiting), list[Step](), dict[str, Berth]()
    fields = _fields(context, closed)
    for where, field_ in fields.items() if ActionKind.MOVE in snapshot.limits.allowed else ():
        while taken := _sweep(where, field_, queue, wait_s, spare, context):
            spare -= sum(leaves for _, leaves in taken)
            steps += [step for step, _ in taken]
        to |= _berths(field_, {name for step in steps for name in step.movers})
    if ActionKind.PREEMPT in snapshot.limits.allowed:
        steps += _stops(queue, fields, context)
    return Moves(steps=tuple(steps), to=to)


def weight_of(job: Job, snapshot: Snapshot) -> float:
    """Of one of its seconds."""
    return 1.0 if snapshot.objective in UNWEIGHTED and not snapshot.objective_terms else float(weights([job])[0])


def movable(job: Job) -> bool:
    """May it be moved or stopped at all, and is known what that costs?"""
    return job.preemptible and job.gpus == 1 and not math.isnan(job.remaining_s + job.checkpoint_s)


def settled(device: Device, snapshot: Snapshot) -> bool:
    """Are all its residents there for longer than a promise lives? So no unexpired plan started any of them."""
    ttl_s = snapshot.limits.timing.promise_ttl_s
    return all(job.gpus == 1 and snapshot.now_s - job.since_s >= ttl_s for job in device.residents)


def _fields(context: PlanningContext, closed: Collection[str]) -> dict[DeviceClass, Field]:
    """The open devices with at most two residents, by class; only classes in which somebody may move."""
    snapshot = context.snapshot
    devices: dict[DeviceClass, list[Device]] = {}
    for device in snapshot.devices:
        if device.id not in closed and len(device.residents) <= 2 and settled(device, snapshot):
            devices.setdefault(DeviceClass.of(device, snapshot.now_s), []).append(device)
    limits = replace(snapshot.limits, allowed=snapshot.limits.allowed | {ActionKind.START_SHARED})
    share = ActionKind.START_SHARED in snapshot.limits.allowed
    return {
        where: _field(where, some, context, limits, share=share)
        for where, some in devices.items()
        if any(movable(job) for device in some for job in device.residents)
    }


def _field(
    where: DeviceClass,
    devices: Sequence[Device],
    context: PlanningContext,
    limits: Limits,
    *,
    share: bool,
) -> Field:
    snapshot = context.snapshot
    jobs = [job for device in devices for job in device.residents]
    m = len(jobs)
    times = context.relative_times_on(where.type, jobs)
    free_to_stay = replace(limits, guest_ends_first=False)  # a rule of starts: of two that run, one always ends first
    costs = pair_costs(
        jobs,
        jobs,
        where,
        context.with_snapshot(
            replace(snapshot, limits=free_to_stay, objective=ObjectiveKind.WEIGHTED_EXCESS, objective_terms=()),
            context.device_types,
        ),
        row_times=times,
        column_times=times,
        running=True,
    )
    slowdown, allowed = np.ones((m + 1, m + 1)), np.ones((m + 1, m + 1), dtype=bool)
    slowdown[:m, :m], allowed[:m, :m] = costs.predictions.row_slowdown, np.isfinite(costs.cost) & share
    mate = np.full(m + 1, m)
    place = {job.id: i for i, job in enumerate(jobs)}
    for device in devices:
        if len(device.residents) == 2:
            i, j = (place[job.id] for job in device.residents)
            mate[i], mate[j] = j, i
    weight = np.array([weight_of(job, snapshot) for job in jobs] + [0.0])
    empty = [device for device in devices if not device.residents]
    free = [movable(job) and availability_rule(job, where) is None and math.isnan(job.deadline_s) for job in jobs]
    pays = [job.checkpoint_s if may else np.inf for job, may in zip(jobs, free, strict=True)]
    return Field(
        jobs=jobs,
        at=[device for device in devices for _ in device.residents],
        mate=mate,
        slowdown=slowdown,
        allowed=allowed,
        weight=weight,
        left_s=np.array([job.remaining_s for job in jobs] + [0.0]),
        pays_s=np.append(weight[:m] * np.array(pays), np.inf),
        empty=empty,
    )


def _sweep(
    where: DeviceClass,
    field_: Field,
    queue: list[Job],
    wait_s: float,
    spare: int,
    context: PlanningContext,
) -> list[tuple[Step, bool]]:
    """Take the steps that pay, each on devices that no other of this sweep touched: (step, is an empty one taken?)."""
    snapshot = context.snapshot
    starts = next((job for job in queue if _fits_alone(job, where, context)), None)
    room_s = weight_of(starts, snapshot) * wait_s if starts is not None else 0.0
    taken: list[tuple[Step, bool]] = []
    touched: set[str] = set()
    for one in field_.candidates(snapshot.limits.move_factor, room_s, leave=spare > 0):
        i, k, leaves = one.mover, one.other, one.kind == "leave"
        places = {field_.at[i].id} if leaves else {field_.at[i].id, field_.at[k].id}
        full = leaves and (not field_.empty or sum(took for _, took in taken) >= spare)
        if places & touched or full or (one.room and starts not in queue):
            continue
        left = field_.at[i].id
        field_.take(one)
        touched |= places | {field_.at[i].id}
        room = starts if one.room else None
        if room is not None:
            queue.remove(room)
        movers = (field_.jobs[i].id, field_.jobs[k].id) if one.kind == "swap" else (field_.jobs[i].id,)
        step = Step(
            movers=movers,
            starts=room.id if room else "",
            device_id=left if room else "",
            saves_s=one.saves_s,
            pays_s=one.pays_s,
        )
        taken.append((step, leaves))
    return taken


def _stops(queue: Sequence[Job], fields: Mapping[DeviceClass, Field], context: PlanningContext) -> list[Step]:
    """For each job of the queue the resident alone on its device, of strictly lower priority, that is cheapest to
    stop, where that pays."""
    snapshot = context.snapshot
    alone = [
        (other.priority, float(field_.pays_s[i]), other.id, other.remaining_s, where, field_.at[i].id)
        for where, field_ in fields.items()
        for i, other in enumerate(field_.jobs)
        if field_.mate[i] == len(field_.jobs) and np.isfinite(field_.pays_s[i])
    ]
    alone.sort(key=lambda one: one[:3])
    steps: list[Step] = []
    for job in queue:
        for one in alone:
            priority, pays_s, name, left_s, where, place = one
            if priority >= job.priority:
                break
            saves_s = weight_of(job, snapshot) * left_s
            if saves_s > snapshot.limits.move_factor * pays_s and _fits_alone(job, where, context):
                steps.append(
                    Step(movers=(), stopped=name, starts=job.id, device_id=place, saves_s=saves_s, pays_s=pays_s)
                )
                alone.remove(one)
                break
    return steps


def _berths(field_: Field, movers: Collection[str]) -> dict[str, Berth]:
    found = {}
    m = len(field_.jobs)
    for i, job in enumerate(field_.jobs):
        if job.id in movers:
            k = int(field_.mate[i])
            found[job.id] = Berth(
                device_id=field_.at[i].id,
                partner_id=field_.jobs[k].id if k < m else "",
                slowdown=float(field_.slowdown[i, k]),
                partner_slowdown=float(field_.slowdown[k, i]) if k < m else NAN,
            )
    return found


def _fits_alone(job: Job, where: DeviceClass, context: PlanningContext) -> bool:
    """May it start alone on a device of that class?"""
    snapshot = context.snapshot
    (runtime,) = runtimes(
        [job],
        context.relative_times_on(where.type, [job]),
        where.open_s,
        snapshot.now_s,
        snapshot.limits.slowdown.risk,
    )
    if ActionKind.START_ALONE not in snapshot.limits.allowed or start_rule(job, runtime, where) is not None:
        return False
    return solo_memory_rule(job.id, context.demand(job, where), where.memory) is None
