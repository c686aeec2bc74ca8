"""The cluster of a decision as `completion_projection` sees it: run times alone, and the groups that run.

Only for objectives of time, where every pending job and resident says how long it will run. Deadlines and windows enter
as far as they forbid a start now; that a device closes later is left aside.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.policy.context import PlanningContext
from interfere.policy.costs.completion_projection import ProjectedCluster, RunningGroup
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.jobs_on_class import JobsOnClass
from interfere.policy.schedule.running import SlowdownBeside, predicted_slowdowns_among_residents
from interfere.records import Action, ActionKind

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def project_cluster(
    context: PlanningContext, may_run_alone: Mapping[DeviceClass, Bools] | None = None
) -> ProjectedCluster:
    """The pending jobs in the order of the request, and the residents with what is predicted among them.

    `may_run_alone` bool[n] by device class, where it is known already: no rule forbids the job alone on such a device.
    """
    snapshot = context.snapshot
    classes = [context.device_class(device) for device in snapshot.devices]
    place_of = {device_class: k for k, device_class in enumerate(dict.fromkeys(classes))}
    times = dict(zip(context.device_types, context.relative_times(snapshot.pending).T, strict=True))
    remaining_s = np.array([job.remaining_s for job in snapshot.pending], dtype=np.float64)
    runtime_s = np.full((len(snapshot.pending), len(place_of)), np.inf)
    for device_class, place in place_of.items():
        known = None if may_run_alone is None else may_run_alone.get(device_class)
        allowed = _may_run_alone(device_class, times[device_class.type], context) if known is None else known
        runtime_s[:, place] = np.where(allowed, remaining_s * times[device_class.type], np.inf)
    return ProjectedCluster(
        runtime_s=runtime_s,
        gpus=np.array([job.gpus for job in snapshot.pending], dtype=np.int64),
        device_class=np.array([place_of[device_class] for device_class in classes], dtype=np.int64),
        running=running_groups(context, (), predicted_slowdowns_among_residents(context)),
    )


def projected_mean_completion_s(
    context: PlanningContext, cluster: ProjectedCluster, actions: Sequence[Action]
) -> float:
    """Mean seconds until all jobs end: the starts among the actions now, then the others in order of submission."""
    return cluster.mean_completion_s(_groups_after(context, actions))


def starts_in_order(
    context: PlanningContext, cluster: ProjectedCluster, actions: Sequence[Action]
) -> dict[str, tuple[str, ...]]:
    """The waiting jobs that would start at once in order of submission after the starts among the actions, and where.

    As many as `max_devices` still allows.
    """
    starting = {action.job_id for action in actions if action.places}
    pending, devices = context.snapshot.pending, context.snapshot.devices
    waiting = [i for i, job in enumerate(pending) if job.id not in starting]
    groups = _groups_after(context, actions)
    schedule = cluster.schedule(waiting, groups)
    empty = {device.id for device in devices if not device.residents}
    left = context.limits.max_devices
    if left is not None:
        left -= len({name for action in actions for name in action.places if name in empty})
    starts: dict[str, tuple[str, ...]] = {}
    for i, taken in schedule.starts_now(groups):
        if left is None or pending[i].gpus <= left:
            left = left if left is None else left - pending[i].gpus
            starts[pending[i].id] = tuple(devices[k].id for k in taken)
    return starts


def _groups_after(context: PlanningContext, actions: Sequence[Action]) -> tuple[RunningGroup, ...]:
    """The groups that run once the starts among the actions are made."""
    starts = [action for action in actions if action.kind in (ActionKind.START_ALONE, ActionKind.START_SHARED)]
    slowdowns = predicted_slowdowns_among_residents(context)
    for action in starts:
        if action.partner_id:
            slowdowns[action.job_id, action.partner_id] = action.slowdown
            slowdowns[action.partner_id, action.job_id] = action.partner_slowdown
    return running_groups(context, starts, slowdowns)


def running_groups(
    context: PlanningContext, starts: Iterable[Action], slowdowns: SlowdownBeside
) -> tuple[RunningGroup, ...]:
    """The residents and the jobs that start, in groups that share devices."""
    place_of = {device.id: k for k, device in enumerate(context.snapshot.devices)}
    devices_of = {name: [place_of[each.id] for each in devices] for name, devices in context.resident_devices.items()}
    devices_of |= {action.job_id: [place_of[name] for name in action.places] for action in starts}
    alone_s = dict(zip(devices_of, _alone_s(devices_of, context), strict=True))
    waiting = {job.id: i for i, job in enumerate(context.snapshot.pending)}

    def slowdown(name: str, other: str) -> float:
        meet = name != other and set(devices_of[name]) & set(devices_of[other])
        return slowdowns.get((name, other), 1.0) if meet else 1.0

    return tuple(
        RunningGroup(
            devices=tuple(dict.fromkeys(device for name in names for device in devices_of[name])),
            alone_s=tuple(alone_s[name] for name in names),
            slowdown=tuple(tuple(slowdown(name, other) for other in names) for name in names),
            waiting=tuple(waiting.get(name, -1) for name in names),
        )
        for names in _connected(devices_of)
    )


def _connected(devices_of: Mapping[str, Sequence[int]]) -> list[list[str]]:
    """Jobs in groups that share devices, directly or through others."""
    group_of_device: dict[int, list[str]] = {}
    for name, devices in devices_of.items():
        met = {id(group): group for device in devices if (group := group_of_device.get(device)) is not None}
        merged = [*(member for group in met.values() for member in group), name]
        for member in merged:
            group_of_device.update(dict.fromkeys(devices_of[member], merged))
    return list({id(group): group for group in group_of_device.values()}.values())


def _alone_s(devices_of: Mapping[str, Sequence[int]], context: PlanningContext) -> list[float]:
    """Seconds that each job would still run alone where it runs."""
    jobs, types = [context.jobs[name] for name in devices_of], list(context.device_types)
    on_type = [types.index(context.snapshot.devices[devices[0]].type) for devices in devices_of.values()]
    times = context.relative_times(jobs)[np.arange(len(jobs)), on_type] if jobs else np.zeros(0)
    return [job.remaining_s * time for job, time in zip(jobs, times.tolist(), strict=True)]


def _may_run_alone(device_class: DeviceClass, times: Floats, context: PlanningContext) -> Bools:
    """bool[n]: may each pending job start on the device class without a neighbour?"""
    pending = context.snapshot.pending
    if ActionKind.START_ALONE not in context.limits.allowed:
        return np.zeros(len(pending), dtype=bool)
    jobs = JobsOnClass.of(pending, device_class, context, times, timed=True)
    return np.array([jobs.solo_rule(i) is None for i in range(len(pending))], dtype=bool)
