"""The scheduling problem of one decision, from its snapshot, its predictions and its rules.

Every rule of a single moment filters places over time too: pools, memory and grants, caps, joint throughput, windows,
and who may share at all. A rule about the time at which a device closes holds for starts of now; later starts only have
to fit into a window of their devices. What runs now are residents in groups that share devices, with the times at which
each is predicted to end.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext, numbered
from interfere.policy.costs.candidates import JobKeys, company_lengths
from interfere.policy.costs.group_costs import PairCosts
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.costs.objectives import Objective, PlannedObjective
from interfere.policy.device_class import DeviceClass, DeviceClassMembers
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.rules.runtime import P90_Z, TICK_S, pair_ends_s, remaining_quantile_s
from interfere.policy.schedule.problem import Deadlines, Floats, RunningJobs, ScheduleObjective, ScheduleProblem
from interfere.policy.schedule.timeline import EPSILON_S
from interfere.policy.slowdowns import resident_pairs
from interfere.records import ActionKind, Device, Job
from interfere.records.cluster import spans

# What ends cost where the matching of this moment decides, and an overdue job is protected.
UNPLANNED = PlannedObjective(rate=lambda _, own_s: 1.0 / own_s)
# Shorter jobs count as this long in a ratio of times: bounded slowdown (Feitelson and Rudolph, 1998).
MIN_RATIO_S = 10.0
# While no device is idle a resident may be slowed down this much further than its cap: 2.5 × by default.
MAX_RESIDENT_FACTOR = 5 / 3
UNKNOWN_S = 300.0  # that a job takes at least where no job says how long it takes: a usual time slice
# Pairs of kinds of jobs, over all device classes, whose slowdowns are tabulated: a second of one core.
MAX_CELLS = 4_000_000


def has_planned_objective(context: PlanningContext) -> bool:
    """Return whether the objective is about the ends of all jobs, and some job says how long it will run."""
    told = any(not math.isnan(job.remaining_s) for job in context.jobs.values())
    return told and context.objective.planned is not None


@dataclass(frozen=True, kw_only=True)
class SchedulingInstance:
    """A scheduling problem, and the jobs and device classes that its numbers stand for."""

    problem: ScheduleProblem
    pending: tuple[Job, ...]  # in the order of submission
    residents: tuple[Job, ...]
    classes: tuple[DeviceClassMembers, ...]
    is_estimated: bool  # whether a job does not say how long it will run
    # float64[n + r]: standard deviation of the logarithm of what remains of each job; 0 where it is known exactly, and
    # where some job has a deadline.
    spread: Floats

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Return all jobs, by number."""
        return (*self.pending, *self.residents)


def scheduling_instance(
    context: PlanningContext, latest_end_s: Mapping[str, float], *, shares: bool
) -> SchedulingInstance | None:
    """Return the scheduling problem of a context; None where the tables of pairs would be too large.

    `latest_end_s`: bounds of jobs by id, on the caller's clock. `shares`: whether later starts may share devices;
    without sharing no pair is predicted, and deadlines, which other rules keep, are no bounds.
    """
    snapshot = context.snapshot
    place = {job.id: k for k, job in enumerate(snapshot.pending)}
    pending = sorted(snapshot.pending, key=lambda job: (-_known(job.elapsed_s), place[job.id]))
    residents = sorted(context.residents.values(), key=lambda job: job.id)
    classes = sorted(context.device_classes, key=repr)
    jobs = (*pending, *residents)
    # 1. Seconds alone on each class.
    times = context.relative_times(jobs)
    type_index = [context.device_types.index(members.device_class.type) for members in classes]
    remaining_s = estimated_remaining_s(jobs)
    deadlines = _deadlines(jobs, 0.0 if math.isnan(context.now_s) else context.now_s)
    # The chance of a missed deadline is reckoned from medians.
    spread = np.zeros(len(jobs)) if deadlines.any else deadlines.spread
    # Jobs that are said to be short start first. So jobs that run take longer than they say, against those that wait:
    # 1.3 times in 48 streams of gangs with a spread of .7, where the mean of a time is 1.28 times its median.
    remaining_s[len(pending) :] *= np.exp(spread[len(pending) :] ** 2 / 2)
    work_s = np.maximum(EPSILON_S * 10, remaining_s[:, None] * times[:, type_index])
    # 2. Kinds of jobs, and what is predicted of each pair of them.
    kinds = _Kinds.of(context, pending, residents if shares else ())
    if shares and len(kinds.pending) * (len(kinds.pending) + len(kinds.residents)) * len(classes) > MAX_CELLS:
        return None
    tables = [_class_tables(members.device_class, kinds, context, shares=shares) for members in classes]
    # 3. What runs, the objective, and the bounds.
    now_s = 0.0 if math.isnan(context.now_s) else context.now_s
    bounds_s = [latest_end_s.get(job.id, math.inf) - now_s for job in jobs]
    kind_of = np.array(kinds.kind_of, dtype=np.int64) if shares else np.zeros(len(jobs), dtype=np.int64)
    pending_kind = np.array(kinds.kind_of[: len(pending)], dtype=np.int64)
    problem = ScheduleProblem(
        pending=len(pending),
        work_s=work_s,
        may_run_alone=np.stack([table.may_run_alone[pending_kind] for table in tables], axis=1),
        may_start_alone=np.stack([table.may_start_alone[pending_kind] for table in tables], axis=1),
        gpus=np.array([job.gpus for job in jobs], dtype=np.int64),
        kind=kind_of,
        guest_slowdown=np.stack([table.guest_slowdown for table in tables]),
        host_slowdown=np.stack([table.host_slowdown for table in tables]),
        slows_resident=np.stack([table.slows_resident for table in tables]),
        joint_throughput=np.stack([table.joint_throughput for table in tables]),
        open_intervals=tuple(
            tuple((from_s - now_s, until_s - now_s) for from_s, until_s in spans(members.windows) if until_s > now_s)
            for members in classes
        ),
        devices=tuple(len(members.device_ids) for members in classes),
        running=running_jobs(context, classes, {job.id: len(pending) + k for k, job in enumerate(residents)}, work_s),
        objective=_objective(context.objective, jobs, remaining_s, by_priority=not shares),
        latest_end_s=np.array(bounds_s, dtype=np.float64),
        elapsed_s=np.array([_known(job.elapsed_s) for job in pending], dtype=np.float64),
        weight=np.array([job.weight for job in pending], dtype=np.float64),
        checkpoint_s=np.array([job.checkpoint_s if job.preemptible else math.nan for job in pending], dtype=np.float64),
        deadlines=deadlines if shares else Deadlines.none(len(jobs)),
        max_new_devices=math.inf if snapshot.limits.max_devices is None else snapshot.limits.max_devices,
    )
    return SchedulingInstance(
        problem=problem,
        pending=tuple(pending),
        residents=tuple(residents),
        classes=tuple(classes),
        is_estimated=any(math.isnan(job.remaining_s) for job in jobs),
        spread=spread,
    )


def estimated_remaining_s(jobs: Sequence[Job]) -> Floats:
    """float64[n]: the seconds that each job says it still takes alone, and an estimate for each job that says nothing.

    The estimate is the median remaining time, given its attained service, of the jobs that say how long they take: who
    has outlived most of them is not about to end. Where no job says anything, jobs take twice what the running ones
    have got in the median, at least `UNKNOWN_S`. A job that outlived all takes as long again as it has run.
    """
    remaining_s = np.array([job.remaining_s for job in jobs], dtype=np.float64)
    attained_s = np.array([_known(job.attained_s) for job in jobs], dtype=np.float64)
    told = ~np.isnan(remaining_s)
    total_s = (attained_s + remaining_s)[told]
    usual_s = float(np.median(total_s)) if told.any() else _usual_length_s(attained_s)
    total_s.sort()
    untold_s = attained_s[~told]
    outlived = np.searchsorted(total_s, untold_s, side="right")
    remaining_s[~told] = np.maximum(usual_s, untold_s)
    longer = np.flatnonzero(outlived < len(total_s))
    low, high = (outlived[longer] + len(total_s) - 1) // 2, (outlived[longer] + len(total_s)) // 2
    medians_s = (total_s[low] + total_s[high]) / 2
    remaining_s[np.flatnonzero(~told)[longer]] = medians_s - untold_s[longer]
    return remaining_s


def _usual_length_s(attained_s: Floats) -> float:
    """Return the seconds that jobs take by the service that the running ones have got, seen half way on average."""
    running_s = attained_s[attained_s > 0]
    return max(UNKNOWN_S, 2 * float(np.median(running_s))) if len(running_s) else UNKNOWN_S


def _known(value: float) -> float:
    """Return the number, and 0 where it is absent."""
    return 0.0 if math.isnan(value) else value


def _or_inf(value: float) -> float:
    """Return the number, and infinity where it is absent."""
    return math.inf if math.isnan(value) else value


def _deadlines(jobs: Sequence[Job], now_s: float) -> Deadlines:
    """Return the deadlines of jobs, in seconds from now."""
    is_spread = [job.remaining_p90_s > job.remaining_s > 0 for job in jobs]
    return Deadlines(
        at_s=np.array([_or_inf(job.deadline_s) - now_s for job in jobs], dtype=np.float64),
        spread=np.array(
            [
                math.log(job.remaining_p90_s / job.remaining_s) / P90_Z if spread else 0.0
                for job, spread in zip(jobs, is_spread, strict=True)
            ],
            dtype=np.float64,
        ),
        weight=np.array([job.weight for job in jobs], dtype=np.float64),
    )


def _objective(
    objective: Objective, jobs: Sequence[Job], remaining_s: Floats, *, by_priority: bool
) -> ScheduleObjective:
    """Return what the jobs' end times cost. `by_priority`: whatever the objective says."""
    planned, by_priority = objective.planned or UNPLANNED, by_priority or objective.by_priority
    weight = np.array([job.weight for job in jobs], dtype=np.float64)
    elapsed_s = np.array([_known(job.elapsed_s) for job in jobs], dtype=np.float64)
    own_s = np.array([_known(job.attained_s) for job in jobs], dtype=np.float64) + remaining_s
    rate = planned.rate(weight, np.maximum(MIN_RATIO_S, own_s))
    return ScheduleObjective(
        constant=elapsed_s * rate if planned.from_submission else np.zeros(len(jobs)),
        rate=rate,
        aggregate=objective.aggregate,
        counts_misses=objective.deadline_miss_price > 0,
        priority=np.array([job.priority if by_priority else 0 for job in jobs], dtype=np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kinds:
    """Kinds of jobs: jobs of one kind are equal to every rule and prediction. Kinds of pending jobs come first."""

    pending: tuple[Job, ...]  # one job of each kind
    residents: tuple[Job, ...]
    kind_of: tuple[int, ...]  # of each job, the pending ones first
    shares: tuple[bool, ...]  # whether the pending jobs of each kind may share: not on more devices than the limit

    @classmethod
    def of(cls, context: PlanningContext, pending: Sequence[Job], residents: Sequence[Job]) -> "_Kinds":
        """Return the kinds of these jobs."""
        snapshot = company_lengths(context.snapshot, custom_rules=context.custom_rules, rules_only=True).snapshot
        counts_as = {job.id: job for job in snapshot.pending}
        counts_as |= {job.id: job for device in snapshot.devices for job in device.residents}
        pending, residents = ([counts_as[job.id] for job in side] for side in (pending, residents))
        keys = JobKeys(snapshot, context.custom_objective, context.custom_rules, rules_only=True)
        most = context.limits.most_shared_gpus
        limit = math.inf if most is None else most
        (pending_kind, first), (resident_kind, first_resident) = (
            numbered((job.gpus > limit, keys.of(job)) for job in side) for side in (pending, residents)
        )
        kinds, others = tuple(pending[k] for k in first), tuple(residents[k] for k in first_resident)
        return cls(
            pending=kinds,
            residents=others,
            kind_of=(*pending_kind, *(len(kinds) + kind for kind in resident_kind)),
            shares=tuple(job.gpus <= limit for job in (*kinds, *others)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClassTables:
    """What holds on one device class: of p kinds of pending jobs, and of pairs of all k kinds."""

    may_run_alone: NDArray[np.bool_]  # bool[p]
    may_start_alone: NDArray[np.bool_]  # bool[p]
    guest_slowdown: Floats  # float64[k, k]
    host_slowdown: Floats
    slows_resident: NDArray[np.bool_]  # bool[k, k]
    joint_throughput: Floats


def _class_tables(device_class: DeviceClass, kinds: _Kinds, context: PlanningContext, *, shares: bool) -> _ClassTables:
    """Return the tables of one class; later starts are judged as if the devices stayed open.

    `shares`: whether jobs may share devices; else all kinds count as one in the tables of pairs.
    """
    opened = replace(device_class, open_s=math.inf, opens_s=0.0)
    p, k = len(kinds.pending), len(kinds.pending) + len(kinds.residents) if shares else 1
    times = context.relative_times_on(device_class.type, kinds.pending)
    is_allowed = ActionKind.START_ALONE in context.limits.allowed

    def may_run(on: DeviceClass) -> NDArray[np.bool_]:
        """bool[p]: whether no rule forbids each kind alone on such devices."""
        jobs = JobsOnClass.of(kinds.pending, on, context, times, timed=True)
        return np.array([is_allowed and jobs.solo_rule(i) is None for i in range(p)], dtype=bool)

    may_run_alone = may_run(opened)
    guest, host = np.full((k, k), np.nan), np.full((k, k), np.nan)
    slows_resident = np.zeros((k, k), dtype=bool)
    if shares and device_class.seats == 2 and ActionKind.START_SHARED in context.limits.allowed:
        shared_class = device_class if device_class.open_s > 0 else opened
        pending = _without_unkept_deadlines(kinds.pending, device_class, context)
        residents = _without_unkept_deadlines(kinds.residents, device_class, context)
        table = GroupTable(pending, residents, shared_class, context)
        guest[:p, :p], host[:p, :p] = _slowdowns(table.pairs_in_own_mode)
        if table.resident_pairs is not None:
            guest[:p, p:], host[:p, p:] = _slowdowns(table.resident_pairs)
            upper = table.resident_upper()
            cap = context.limits.slowdown.resident_cap
            slows_resident[:p, p:] = upper > cap
            guest[:p, p:][upper > MAX_RESIDENT_FACTOR * cap] = np.nan
        unshared = ~np.array(kinds.shares, dtype=bool)
        guest[unshared, :], guest[:, unshared] = np.nan, np.nan
    joint = 1.0 / guest + 1.0 / host
    return _ClassTables(
        may_run_alone=may_run_alone,
        may_start_alone=may_run_alone if opened == device_class else may_run(device_class),
        guest_slowdown=guest,
        host_slowdown=host,
        slows_resident=slows_resident,
        joint_throughput=np.where(np.isnan(joint), -np.inf, joint),
    )


def _without_unkept_deadlines(
    jobs: Sequence[Job], device_class: DeviceClass, context: PlanningContext
) -> tuple[Job, ...]:
    """Return the jobs, without the deadlines that are missed even alone at the quantile 1 - risk of the remaining time.

    A deadline caps how far a job is slowed down. No cap keeps one that is missed alone, so the plan weighs its chance.
    """
    level = 1 - context.limits.slowdown.risk
    times = context.relative_times_on(device_class.type, jobs).tolist()
    return tuple(
        replace(job, deadline_s=math.nan)
        if context.now_s + remaining_quantile_s(job, level) * tau > job.deadline_s + TICK_S
        else job
        for job, tau in zip(jobs, times, strict=True)
    )


def _slowdowns(table: PairCosts) -> tuple[Floats, Floats]:
    """Return the slowdowns of row and column jobs, paging included; NaN where a rule forbids the pair."""
    rows, columns = (np.where(table.allowed, np.maximum(1.0, slowdown), np.nan) for slowdown in table.paged)
    return rows, columns


SlowdownBeside = Mapping[tuple[str, str], float]
"""(job id, neighbour id) -> predicted median slowdown of the job; 1 for pairs that are absent."""


def running_jobs(
    context: PlanningContext, classes: Sequence[DeviceClassMembers], number_of: Mapping[str, int], work_s: Floats
) -> tuple[RunningJobs, ...]:
    """Return the residents in groups that share devices, once for each class of devices that a group is on.

    `number_of`: the number of each resident by id, `work_s` float64[n, c] the seconds alone of each number on each
    class. A job may join a group only where it is one or two jobs on exactly the same devices of one class.
    """
    class_of = {device_id: k for k, members in enumerate(classes) for device_id in members.device_ids}
    shared = [
        (device, job) for device in context.snapshot.devices if len(device.residents) > 1 for job in device.residents
    ]
    slowdowns = resident_pairs(shared, context)
    rows = work_s.tolist()
    groups = []
    # The jobs that share devices with a job on several devices, or with two others.
    on_several: dict[str, tuple[Device, ...]] = {}
    pairs: list[tuple[int, str, str]] = []  # (device class, name, name)
    for device in context.snapshot.devices:
        residents = device.residents
        if not residents:
            continue
        k = class_of[device.id]
        if len(residents) > 2 or any(job.gpus > 1 for job in residents):
            on_several |= {job.id: context.resident_devices[job.id] for job in residents}
        elif len(residents) == 1:
            number = number_of[residents[0].id]
            end_s = max(10 * EPSILON_S, rows[number][k])
            groups.append(RunningJobs(device_class=k, gpus=1, jobs=(number,), ends_s=(end_s,)))
        else:
            name, other = sorted(job.id for job in residents)
            pairs.append((k, name, other))
    groups += _pairs_on_one_device(pairs, slowdowns, number_of, work_s)
    for names in _groups_on_shared_devices(on_several):
        devices_of = {name: {device.id for device in on_several[name]} for name in names}
        devices = set().union(*devices_of.values())
        on_class: dict[int, int] = {}
        for device_id in devices:
            on_class[class_of[device_id]] = on_class.get(class_of[device_id], 0) + 1
        same_devices = all(devices_of[name] == devices for name in names)
        same_size = all(context.residents[name].gpus == len(devices) for name in names)
        alone_s = {name: rows[number_of[name]][class_of[on_several[name][0].id]] for name in names}
        numbers, ends_s = tuple(number_of[name] for name in names), _end_times_s(names, slowdowns, alone_s, devices_of)
        groups += [
            RunningJobs(
                device_class=device_class,
                gpus=gpus,
                jobs=numbers,
                ends_s=tuple(ends_s),
                may_be_joined=same_devices and same_size and len(on_class) == 1 and len(names) <= 2,
            )
            for device_class, gpus in on_class.items()
        ]
    return tuple(sorted(groups, key=lambda group: (group.jobs, group.device_class)))


def _groups_on_shared_devices(devices_of: Mapping[str, Sequence[Device]]) -> list[list[str]]:
    """Return the names of jobs in groups that share devices, directly or through others, each group sorted."""
    group_of_device: dict[str, list[str]] = {}
    for name, devices in devices_of.items():
        touched = {id(group): group for device in devices if (group := group_of_device.get(device.id)) is not None}
        merged = [*(member for group in touched.values() for member in group), name]
        for member in merged:
            group_of_device.update({device.id: merged for device in devices_of[member]})
    groups = {id(group): group for group in group_of_device.values()}
    return [sorted(group) for group in groups.values()]


def _pairs_on_one_device(
    pairs: Sequence[tuple[int, str, str]], slowdowns: SlowdownBeside, number_of: Mapping[str, int], work_s: Floats
) -> list[RunningJobs]:
    """Return the pairs of residents that share one device, of (device class, name, name), with their ends."""
    device_class = np.array([k for k, _, _ in pairs], dtype=np.int64)
    numbers = [(number_of[name], number_of[other]) for _, name, other in pairs]
    first, second = np.array(numbers, dtype=np.int64).reshape(len(pairs), 2).T
    ends_s = pair_ends_s(
        work_s[first, device_class],
        work_s[second, device_class],
        np.array([slowdowns.get((name, other), 1.0) for _, name, other in pairs]),
        np.array([slowdowns.get((other, name), 1.0) for _, name, other in pairs]),
    )
    ends = np.maximum(10 * EPSILON_S, np.stack(ends_s, axis=1)).tolist()
    return [
        RunningJobs(device_class=k, gpus=1, jobs=jobs, ends_s=tuple(pair))
        for (k, _, _), jobs, pair in zip(pairs, numbers, ends, strict=True)
    ]


def _end_times_s(
    names: Sequence[str],
    slowdowns: SlowdownBeside,
    alone_s: Mapping[str, float],
    devices_of: Mapping[str, set[str]],
) -> list[float]:
    """Return the seconds until each resident of a group ends.

    They run together until the first ends, then the others go on without it, down to the last one alone.

    `alone_s`: seconds that each would still run alone. A job beside several is slowed down by the product of its
    slowdowns beside each.
    """
    left_s = {name: alone_s[name] for name in names}
    ends_s: dict[str, float] = {}
    now_s = 0.0
    while left_s:
        slowed = {
            name: math.prod(
                slowdowns.get((name, other), 1.0)
                for other in left_s
                if other != name and devices_of[name] & devices_of[other]
            )
            for name in left_s
        }
        first = min(left_s, key=lambda name: left_s[name] * slowed[name])
        step_s = left_s[first] * slowed[first]
        now_s += step_s
        ends_s[first] = max(10 * EPSILON_S, now_s)
        left_s = {name: max(0.0, left_s[name] - step_s / slowed[name]) for name in left_s if name != first}
    return [ends_s[name] for name in names]
