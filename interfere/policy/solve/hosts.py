"""Where groups may start: empty devices by class, and devices that run jobs and have seats left.

Jobs on several devices join only residents that run on exactly the same devices, as in pairs.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from interfere.policy.context import PlanningContext
from interfere.policy.costs.job_classes import JobKeys
from interfere.policy.device_class import DeviceClass
from interfere.records import Device, Job, Snapshot
from interfere.records.cluster import DEFAULT_SEATS


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlace:
    """A set of devices of one class that the same residents occupy, as many devices as each of them takes."""

    devices: tuple[Device, ...]
    residents: tuple[Job, ...]  # in the order of the classes of their host class


@dataclass(frozen=True, slots=True, kw_only=True)
class HostClass:
    """Host places of one device class whose residents are equal to every rule and prediction."""

    device_class: DeviceClass
    size: int  # devices that each job takes
    places: tuple[HostPlace, ...]

    @property
    def residents(self) -> tuple[Job, ...]:
        """The jobs that stand for those that run there."""
        return self.places[0].residents

    @property
    def room(self) -> int:
        """Jobs that may still start."""
        return self.device_class.seats - len(self.residents)


def has_groups(snapshot: Snapshot) -> bool:
    """Does a device have other than two seats?"""
    return any(device.seats not in (None, DEFAULT_SEATS) for device in snapshot.devices)


def host_classes(context: PlanningContext, size: int, keys: JobKeys) -> tuple[HostClass, ...]:
    """The places beside residents that have a free seat, by class, in the order of the snapshot."""
    number: dict[Hashable, int] = {}  # of each class of residents: gives them one order everywhere
    classes: dict[Hashable, list[HostPlace]] = {}
    for devices, residents in _shared_devices(context, size):
        device_class = context.device_class(devices[0])
        if any(context.device_class(device) != device_class for device in devices[1:]):
            continue
        if len(residents) >= device_class.seats:
            continue
        if len(residents) == 1:
            kind = number.setdefault(keys.of(residents[0]), len(number))
            place = HostPlace(devices=devices, residents=tuple(residents))
            classes.setdefault((device_class, (kind,)), []).append(place)
            continue
        of = {job.id: number.setdefault(keys.of(job), len(number)) for job in residents}
        ordered = tuple(sorted(residents, key=lambda job: of[job.id]))
        kinds = tuple(of[job.id] for job in ordered)
        classes.setdefault((device_class, kinds), []).append(HostPlace(devices=devices, residents=ordered))
    return tuple(
        HostClass(device_class=context.device_class(places[0].devices[0]), size=size, places=tuple(places))
        for places in classes.values()
    )


def _shared_devices(context: PlanningContext, size: int) -> list[tuple[tuple[Device, ...], Sequence[Job]]]:
    """Return sets of `size` devices on which the same residents run, each of them on exactly `size` devices.

    A single device needs a free seat.
    """
    if size == 1:
        return [
            ((device,), device.residents)
            for device in context.snapshot.devices
            if device.residents
            and len(device.residents) < (device.seats or DEFAULT_SEATS)
            and not [job for job in device.residents if job.gpus > 1]
        ]
    found: dict[frozenset[str], tuple[Device, ...]] = {}
    for device in context.snapshot.devices:
        if device.residents and not [job for job in device.residents if job.gpus != size]:
            ids = frozenset(job.id for job in device.residents)
            found[ids] = (*found.get(ids, ()), device)
    return [
        (devices, devices[0].residents)
        for devices in found.values()
        if len(devices) == size and all(len(context.resident_devices[job.id]) == size for job in devices[0].residents)
    ]
