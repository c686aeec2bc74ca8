"""What runs now: residents in groups that share devices, with the times at which each is predicted to end."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClassMembers
from interfere.policy.schedule.problem import Floats, RunningJobs
from interfere.policy.schedule.timeline import EPSILON_S
from interfere.records import Job, PairBatch
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

SlowdownBeside = dict[tuple[str, str], float]
"""(job id, neighbour id) -> predicted median slowdown of the job; 1 for pairs that are absent."""


def running_jobs(
    context: PlanningContext,
    classes: Sequence[DeviceClassMembers],
    number_of: Mapping[str, int],
    work_s: Mapping[str, Floats],
) -> tuple[RunningJobs, ...]:
    """Return the residents in groups that share devices, once for each class of devices that a group is on.

    `number_of`: the number of each resident by id, `work_s` float64[c] its seconds alone on each class. A job may join
    a group only where it is one or two jobs on exactly the same devices of one class.
    """
    class_of = {device_id: k for k, members in enumerate(classes) for device_id in members.device_ids}
    slowdowns = predicted_slowdowns_among_residents(context)
    groups = []
    alone_s = {name: float(work_s[name][class_of[on[0].id]]) for name, on in context.resident_devices.items()}
    for names in groups_on_shared_devices(context):
        devices = {device.id for name in names for device in context.resident_devices[name]}
        on_class: dict[int, int] = {}
        for device_id in devices:
            on_class[class_of[device_id]] = on_class.get(class_of[device_id], 0) + 1
        same_devices = all(len(context.resident_devices[name]) == len(devices) for name in names)
        same_size = all(context.residents[name].gpus == len(devices) for name in names)
        ends_s = end_times_s(names, slowdowns, alone_s, context)
        groups += [
            RunningJobs(
                device_class=device_class,
                gpus=gpus,
                jobs=tuple(number_of[name] for name in names),
                ends_s=tuple(ends_s),
                may_be_joined=same_devices and same_size and len(on_class) == 1 and len(names) <= 2,
            )
            for device_class, gpus in on_class.items()
        ]
    return tuple(sorted(groups, key=lambda group: (group.jobs, group.device_class)))


def groups_on_shared_devices(context: PlanningContext) -> list[list[str]]:
    """Return the ids of the residents in groups that share devices, directly or through others, each group sorted."""
    group_of_device: dict[str, list[str]] = {}
    for name, devices in context.resident_devices.items():
        touched = {id(group): group for device in devices if (group := group_of_device.get(device.id)) is not None}
        merged = [*(member for group in touched.values() for member in group), name]
        for member in merged:
            group_of_device.update({device.id: merged for device in context.resident_devices[member]})
    groups = {id(group): group for group in group_of_device.values()}
    return [sorted(group) for group in groups.values()]


def end_times_s(
    names: Sequence[str], slowdowns: SlowdownBeside, alone_s: Mapping[str, float], context: PlanningContext
) -> list[float]:
    """Seconds until each resident of a group ends: together until the first does, then the others, to the last alone.

    `alone_s`: seconds that each would still run alone. A job beside several is slowed down by the product of its
    slowdowns beside each.
    """
    devices_of = {name: {device.id for device in context.resident_devices[name]} for name in names}
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


def predicted_slowdowns_among_residents(context: PlanningContext) -> SlowdownBeside:
    """Return the predicted slowdowns of jobs that share a device now, where the model knows both."""
    pairs: dict[tuple[str, SharingMode], dict[tuple[str, str], tuple[Job, Job]]] = {}
    for device in context.snapshot.devices:
        for job in device.residents:
            for other in device.residents:
                if other.id != job.id:
                    pairs.setdefault((device.type, device.mode or DEFAULT_MODE), {})[job.id, other.id] = (job, other)
    slowdowns: SlowdownBeside = {}
    for (device_type, mode), members in pairs.items():
        slowdowns |= _predicted(members, device_type, mode, context)
    return slowdowns


def _predicted(
    pairs: Mapping[tuple[str, str], tuple[Job, Job]], device_type: str, mode: SharingMode, context: PlanningContext
) -> SlowdownBeside:
    """Return the predicted slowdowns of some pairs on one device type; absent where the model does not know."""
    extrapolate = context.limits.allow_extrapolation
    profiles = {job.id: context.profile(job, device_type) for pair in pairs.values() for job in pair}
    known = [pair for pair in pairs if profiles[pair[0]] is not None and profiles[pair[1]] is not None]
    if not known or (context.predictor.knows(device_type, mode) and not extrapolate):
        return {}
    distinct = list({id(profile): profile for profile in profiles.values() if profile is not None}.values())
    index_of = {id(profile): k for k, profile in enumerate(distinct)}
    victim, neighbour = (np.array([index_of[id(profiles[pair[side]])] for pair in known]) for side in (0, 1))
    batch = PairBatch(
        jobs=tuple(distinct),
        victim=victim.astype(np.int64),
        neighbour=neighbour.astype(np.int64),
        device_type=device_type,
        mode=mode,
        allow_extrapolation=extrapolate,
    )
    median = context.predictor.predict_pairs(batch).median
    return {pair: float(value) for pair, value in zip(known, median.tolist(), strict=True) if not np.isnan(value)}
