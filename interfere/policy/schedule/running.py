"""What runs now: residents in groups that share devices, with the times at which each is predicted to end."""

import math
from collections.abc import Mapping, Sequence

from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClassMembers
from interfere.policy.schedule.problem import Floats, RunningJobs
from interfere.policy.schedule.timeline import EPSILON_S
from interfere.policy.slowdowns import all_residents, resident_pairs
from interfere.records import Device

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
    slowdowns = resident_pairs(all_residents(context), context)
    rows = work_s.tolist()
    groups = []
    on_several: dict[str, tuple[Device, ...]] = {}  # the jobs that share devices with a job on several
    for device in context.snapshot.devices:
        if any(job.gpus > 1 for job in device.residents):
            on_several |= {job.id: context.resident_devices[job.id] for job in device.residents}
        elif device.residents:
            k = class_of[device.id]
            names = sorted([job.id for job in device.residents])
            numbers = tuple([number_of[name] for name in names])
            ends_s = _ends_on_one_device_s(names, [rows[number][k] for number in numbers], slowdowns)
            is_joined = len(names) <= 2
            groups.append(
                RunningJobs(device_class=k, gpus=1, jobs=numbers, ends_s=tuple(ends_s), may_be_joined=is_joined)
            )
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


def _ends_on_one_device_s(names: Sequence[str], alone_s: Sequence[float], slowdowns: SlowdownBeside) -> Sequence[float]:
    """Seconds until each resident of one device ends, as `_end_times_s`; of one and of two without its loop."""
    if len(names) == 1:
        return [max(10 * EPSILON_S, alone_s[0])]
    if len(names) == 2:
        slowed = slowdowns.get((names[0], names[1]), 1.0), slowdowns.get((names[1], names[0]), 1.0)
        together_s = [alone_s[0] * slowed[0], alone_s[1] * slowed[1]]
        first = 0 if together_s[0] <= together_s[1] else 1
        step_s = together_s[first]
        ends_s = [0.0, 0.0]
        ends_s[first] = max(10 * EPSILON_S, step_s)
        left_s = max(0.0, alone_s[1 - first] - step_s / slowed[1 - first])
        ends_s[1 - first] = max(10 * EPSILON_S, step_s + left_s)
        return ends_s
    return _end_times_s(names, slowdowns, dict(zip(names, alone_s, strict=True)), {name: {""} for name in names})


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
