"""Migration of residents that had better run elsewhere: what moves save, against what their checkpoints cost.

All in weighted seconds: job i beside j loses w_i (s_ij - 1) each second of the remaining_s that it would run alone, and
a mover pays w_i · checkpoint_s (w = 1 where the objective counts every job the same). A migration is taken only if what
its jobs save exceeds `move_factor` times what its movers pay; migrations are taken largest gain first, on devices as
the earlier ones left them, until none gains. A migration is: leave a partner for an empty device; join a resident that
is alone, also to make room for a waiting job, which saves its weight for as long as the shortest remaining_s of any
resident; or swap places with another mover. Where no migration makes room, a waiting job of strictly higher priority
may preempt the resident of lowest priority, alone on its device, whose remaining_s would keep it waiting for longer
than the preemption costs.

Law 1: only preemptible jobs on one device may move, with known remaining_s, checkpoint_s and since_s, there for longer
than a promise lives, and none whose deadline can still be met. A device is left alone that has a younger resident, or
one of unknown age, a promise, or a start of this plan: so asking again at once moves no job. Law 2: no job moves twice
in a plan. Residents join and swap within a device class, and leave for an idle device of any type. Heuristic: each
migration gains, no bound says that no other set gains more; on small clusters where moving is free they save at least
95 % of what the best arrangement does (a test).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.objectives import WEIGHTED_EXCESS, weights
from interfere.policy.costs.pair_costs import pair_costs
from interfere.policy.device_class import DeviceClass
from interfere.policy.residents.migration_gain import MIN_GAIN_S, MigrationCandidate, MigrationKind, ResidentPairs
from interfere.policy.rules.availability import availability_rule, start_rule
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.runtime import runtimes
from interfere.policy.schedule.running import predicted_slowdowns_among_residents
from interfere.records import NAN, ActionKind, Device, Job, ObjectiveKind, Snapshot
from interfere.records.cluster import DEFAULT_SEATS

Floats = NDArray[np.float64]
PRIORITY_FACTOR = 10.0  # a second of a job counts as ten of a job of the next lower priority
UNWEIGHTED = (ObjectiveKind.TOTAL_SLOWDOWN, ObjectiveKind.COMPLETION_TIME)  # every job counts the same there


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Residents that move, or one that is preempted, with what that saves and costs in weighted seconds."""

    movers: tuple[str, ...]
    preempted: str = ""  # a resident that goes back to the queue, where there are no movers
    starts: str = ""  # a waiting job that gets the device which is left
    device_id: str = ""  # that device
    saved_s: float
    cost_s: float  # not multiplied by `move_factor`


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a mover ends, beside which job, and the slowdowns of both."""

    device_id: str
    partner_id: str
    slowdown: float
    partner_slowdown: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan:
    """All migrations of a plan, and the destination of each mover."""

    migrations: tuple[Migration, ...] = ()
    destinations: Mapping[str, Destination] = field(default_factory=dict)  # by job id


def plan_migrations(
    context: PlanningContext,
    closed_devices: Collection[str],
    waiting: Sequence[Job],
    free_devices: int,
) -> MigrationPlan:
    """Return the migrations that gain, and the preemptions where none makes room.

    `closed_devices` have a promise or a start of this plan; `waiting` are jobs on one device that nothing starts, in
    the order in which they should start; `free_devices` is the number of empty devices that may still be taken.
    """
    allowed = context.limits.allowed
    remaining_s = [job.remaining_s for device in context.snapshot.devices for job in device.residents]
    wait_s = float(np.nan_to_num(np.fmin.reduce(remaining_s, initial=math.nan)))
    queue, migrations, destinations = list(waiting), list[Migration](), dict[str, Destination]()
    pairs_of_class = _resident_pairs(context, closed_devices)
    for device_class, pairs in pairs_of_class.items() if ActionKind.MOVE in allowed else ():
        while not context.budget.expired and (
            taken := _take_disjoint(device_class, pairs, queue, wait_s, free_devices, context)
        ):
            free_devices -= sum(candidate.kind is MigrationKind.LEAVE for candidate, _ in taken)
            migrations += [migration for _, migration in taken]
        movers = {job_id for migration in migrations for job_id in migration.movers}
        destinations |= _destinations(pairs, movers)
    if ActionKind.PREEMPT in allowed:
        migrations += _preemptions(queue, pairs_of_class, context)
    return MigrationPlan(migrations=tuple(migrations), destinations=destinations)


def job_weight(job: Job, snapshot: Snapshot) -> float:
    """Weight of one of the job's seconds: weight · 10^priority."""
    if snapshot.objective in UNWEIGHTED and not snapshot.objective_terms:
        return 1.0
    return float(weights([job])[0]) * PRIORITY_FACTOR**job.priority


def is_movable(job: Job) -> bool:
    """Return whether a job may be moved or preempted at all, and what that costs is known."""
    return job.preemptible and job.gpus == 1 and not math.isnan(job.remaining_s + job.checkpoint_s)


def may_leave(job: Job, device_class: DeviceClass) -> bool:
    """Return whether a job may be taken off the class of devices on which it runs."""
    return is_movable(job) and availability_rule(job, device_class) is None and math.isnan(job.deadline_s)


def outlived_promises(device: Device, context: PlanningContext) -> bool:
    """Whether every resident has been there for longer than a promise lives: no unexpired plan started one of them."""
    ttl_s = context.limits.timing.promise_ttl_s
    return all(job.gpus == 1 and context.now_s - job.since_s >= ttl_s for job in device.residents)


def _resident_pairs(context: PlanningContext, closed_devices: Collection[str]) -> dict[DeviceClass, ResidentPairs]:
    """Return the open devices with at most two residents, by class; only classes in which some job may move."""
    devices_of: dict[DeviceClass, list[Device]] = {}
    for device in context.snapshot.devices:
        if device.id not in closed_devices and len(device.residents) <= 2 and outlived_promises(device, context):
            device_class = context.device_class(device)
            if device_class.seats >= DEFAULT_SEATS:  # residents move in pairs, whatever more seats there are
                devices_of.setdefault(device_class, []).append(device)
    return {
        device_class: _pairs_of_class(device_class, devices, context)
        for device_class, devices in devices_of.items()
        if any(is_movable(job) for device in devices for job in device.residents)
    }


def _pairs_of_class(device_class: DeviceClass, devices: Sequence[Device], context: PlanningContext) -> ResidentPairs:
    """The residents of some devices of one class, their slowdowns beside each other and what moving them costs."""
    snapshot, limits = context.snapshot, context.limits
    jobs = [job for device in devices for job in device.residents]
    m = len(jobs)
    slowdown, allowed = np.ones((m + 1, m + 1)), np.ones((m + 1, m + 1), dtype=bool)
    slowdown[:m, :m], may_pair = slowdowns_beside(jobs, device_class, context)
    allowed[:m, :m] = may_pair & (ActionKind.START_SHARED in limits.allowed)
    partner = np.full(m + 1, m)
    index_of = {job.id: i for i, job in enumerate(jobs)}
    for device in devices:
        if len(device.residents) == 2:
            i, j = (index_of[job.id] for job in device.residents)
            partner[i], partner[j] = j, i
    weight = np.array([job_weight(job, snapshot) for job in jobs] + [0.0])
    checkpoint_s = [job.checkpoint_s if may_leave(job, device_class) else np.inf for job in jobs]
    return ResidentPairs(
        jobs=jobs,
        device_of=[device for device in devices for _ in device.residents],
        partner=partner,
        slowdown=slowdown,
        allowed=allowed,
        weight=weight,
        remaining_s=np.array([job.remaining_s for job in jobs] + [0.0]),
        migration_cost_s=np.append(weight[:m] * np.array(checkpoint_s), np.inf),
        empty=[device for device in devices if not device.residents],
    )


def slowdowns_beside(
    jobs: Sequence[Job], device_class: DeviceClass, context: PlanningContext
) -> tuple[Floats, NDArray[np.bool_]]:
    """float64[m, m]: slowdown of i beside j; bool[m, m]: whether i may come to where j runs, by all rules of pairs."""
    times = context.relative_times_on(device_class.type, jobs)
    # guest_ends_first is a rule of starts: of two jobs that run already, one always ends first.
    limits = context.limits
    residents_may_pair = replace(limits, allowed=limits.allowed | {ActionKind.START_SHARED}, guest_ends_first=False)
    costs = pair_costs(
        jobs,
        jobs,
        device_class,
        replace(
            context.subproblem(replace(context.snapshot, limits=residents_may_pair)),
            custom_objective=WEIGHTED_EXCESS,  # which jobs may pair; what that saves is counted in seconds
        ),
        row_times=times,
        column_times=times,
        running=True,
    )
    return costs.predictions.row_slowdown, np.isfinite(costs.cost)


def _take_disjoint(
    device_class: DeviceClass,
    pairs: ResidentPairs,
    queue: list[Job],
    wait_s: float,
    free_devices: int,
    context: PlanningContext,
) -> list[tuple[MigrationCandidate, Migration]]:
    """Carry out the migrations that gain, no two on one device; the job of `queue` that gets a device leaves it."""
    snapshot = context.snapshot
    next_start = next((job for job in queue if may_start_alone(job, device_class, context)), None)
    room_s = job_weight(next_start, snapshot) * wait_s if next_start is not None else 0.0
    taken: list[tuple[MigrationCandidate, Migration]] = []
    changed_devices: set[str] = set()
    for candidate in pairs.candidates(snapshot.limits.move_factor, room_s, may_leave=free_devices > 0):
        i, k, leaves = candidate.mover, candidate.other, candidate.kind is MigrationKind.LEAVE
        devices = {pairs.device_of[i].id} if leaves else {pairs.device_of[i].id, pairs.device_of[k].id}
        used = sum(other.kind is MigrationKind.LEAVE for other, _ in taken)
        no_empty_device = leaves and (not pairs.empty or used >= free_devices)
        if devices & changed_devices or no_empty_device or (candidate.makes_room and next_start not in queue):
            continue
        device_left = pairs.device_of[i].id
        pairs.carry_out(candidate)
        changed_devices |= devices | {pairs.device_of[i].id}
        started = next_start if candidate.makes_room else None
        if started is not None:
            queue.remove(started)
        movers = [i, k] if candidate.kind is MigrationKind.SWAP else [i]
        migration = Migration(
            movers=tuple(pairs.jobs[index].id for index in movers),
            starts=started.id if started else "",
            device_id=device_left if started else "",
            saved_s=candidate.saved_s,
            cost_s=candidate.cost_s,
        )
        taken.append((candidate, migration))
    return taken


def plan_moves_across_types(
    context: PlanningContext, closed_devices: Collection[str], free_devices: int
) -> MigrationPlan:
    """Return the moves of residents to idle devices of another type on which they end so much sooner that it pays.

    A resident saves what its remaining work takes longer where it runs now, slowed down by its neighbour, than alone on
    the other type; the neighbour saves its slowdown. The move of the largest gain is taken first. `closed_devices` and
    `free_devices` as in `plan_migrations`.
    """
    devices = [device for device in context.snapshot.devices if device.id not in closed_devices]
    idle: dict[DeviceClass, list[Device]] = {}
    for device in devices:
        if not device.residents:
            idle.setdefault(context.device_class(device), []).append(device)
    if not idle or free_devices <= 0:
        return MigrationPlan()
    slowdowns = predicted_slowdowns_among_residents(context)
    times = {name: context.relative_times([job])[0] for name, job in context.residents.items() if is_movable(job)}
    types, factor = context.device_types, context.limits.move_factor
    candidates: list[tuple[float, str, Device, DeviceClass, Migration]] = []
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
                    migration = Migration(movers=(job.id,), saved_s=saved_s, cost_s=cost_s)
                    candidates.append((factor * cost_s - saved_s, job.id, device, there, migration))
    candidates.sort(key=lambda candidate: candidate[:2])
    migrations: list[Migration] = []
    destinations: dict[str, Destination] = {}
    left: set[str] = set()
    for _, name, device, there, migration in candidates:
        is_open = name not in destinations and device.id not in left and len(migrations) < free_devices
        if is_open and idle[there] and may_start_alone(context.residents[name], there, context):
            place = idle[there].pop(0)
            destinations[name] = Destination(device_id=place.id, partner_id="", slowdown=1.0, partner_slowdown=NAN)
            migrations.append(migration)
            left.add(device.id)
    return MigrationPlan(migrations=tuple(migrations), destinations=destinations)


class _Preemptable(NamedTuple):
    """A resident that is alone on its device and may be preempted; compares by the first three fields."""

    priority: int
    cost_s: float
    job_id: str
    remaining_s: float
    device_class: DeviceClass
    device_id: str


def _preemptions(
    queue: Sequence[Job], pairs_of_class: Mapping[DeviceClass, ResidentPairs], context: PlanningContext
) -> list[Migration]:
    """For each job of the queue the cheapest resident of strictly lower priority that it may preempt, if that gains."""
    residents = [
        _Preemptable(
            priority=job.priority,
            cost_s=float(pairs.migration_cost_s[i]),
            job_id=job.id,
            remaining_s=job.remaining_s,
            device_class=device_class,
            device_id=pairs.device_of[i].id,
        )
        for device_class, pairs in pairs_of_class.items()
        for i, job in enumerate(pairs.jobs)
        if pairs.partner[i] == len(pairs.jobs) and np.isfinite(pairs.migration_cost_s[i])
    ]
    residents.sort(key=lambda resident: (resident.priority, resident.cost_s, resident.job_id))
    preemptions: list[Migration] = []
    for job in queue:
        for resident in residents:
            if resident.priority >= job.priority:
                break
            saved_s = job_weight(job, context.snapshot) * resident.remaining_s
            gains = saved_s > context.limits.move_factor * resident.cost_s
            if gains and may_start_alone(job, resident.device_class, context):
                preemptions.append(
                    Migration(
                        movers=(),
                        preempted=resident.job_id,
                        starts=job.id,
                        device_id=resident.device_id,
                        saved_s=saved_s,
                        cost_s=resident.cost_s,
                    )
                )
                residents.remove(resident)
                break
    return preemptions


def _destinations(pairs: ResidentPairs, movers: Collection[str]) -> dict[str, Destination]:
    """Return where the movers of one class have ended, by job id."""
    destinations = {}
    m = len(pairs.jobs)
    for i, job in enumerate(pairs.jobs):
        if job.id in movers:
            k = int(pairs.partner[i])
            destinations[job.id] = Destination(
                device_id=pairs.device_of[i].id,
                partner_id=pairs.jobs[k].id if k < m else "",
                slowdown=float(pairs.slowdown[i, k]),
                partner_slowdown=float(pairs.slowdown[k, i]) if k < m else NAN,
            )
    return destinations


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
