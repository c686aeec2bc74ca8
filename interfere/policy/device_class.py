"""Device classes: devices that the planner cannot tell apart."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from interfere.policy.rules.memory import DeviceMemory
from interfere.policy.rules.runtime import opening_times
from interfere.records import NAN, Device, Snapshot, Window
from interfere.records.cluster import DEFAULT_SEATS, MAX_SEATS
from interfere.sharing_modes import DEFAULT_MODE, SharingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """What the planner knows of a device; devices of equal class are interchangeable now."""

    type: str
    mode: SharingMode
    memory: DeviceMemory
    pool: str = ""
    open_s: float = math.inf  # seconds that it stays open from now; 0: it is closed
    opens_s: float = 0.0  # seconds until it opens
    price_per_hour: float = 0.0  # 0 where it is not known
    power_w: float = 0.0
    seats: int = DEFAULT_SEATS  # jobs that may share a device

    @classmethod
    def of(cls, device: Device, now_s: float = NAN) -> "DeviceClass":
        """Class of a device at a time. Devices of a `PlanningContext` name their sharing mode."""
        open_s, opens_s = opening_times(device, now_s)
        return cls(
            open_s=open_s,
            opens_s=opens_s,
            type=device.type,
            mode=device.mode or DEFAULT_MODE,
            memory=DeviceMemory.of(device),
            pool=device.pool,
            price_per_hour=0.0 if math.isnan(device.price_per_hour) else device.price_per_hour,
            power_w=0.0 if math.isnan(device.power_w) else device.power_w,
            seats=DEFAULT_SEATS if device.seats is None else device.seats,
        )

    @property
    def name(self) -> str:
        """The name that reasons use: the pool, or the device type where there is none."""
        return self.pool or self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClassMembers:
    """The devices of a snapshot that stay interchangeable at any later time: of one class, with the same windows."""

    device_class: DeviceClass
    windows: tuple[Window, ...]
    device_ids: tuple[str, ...]


def group_devices(
    devices: Sequence[Device], class_of: Callable[[Device], DeviceClass]
) -> tuple[DeviceClassMembers, ...]:
    """The devices by class and windows, in the order in which each class first occurs."""
    groups: dict[tuple[DeviceClass, tuple[Window, ...]], list[str]] = {}
    for device in devices:
        groups.setdefault((class_of(device), device.windows), []).append(device.id)
    return tuple(
        DeviceClassMembers(device_class=device_class, windows=windows, device_ids=tuple(device_ids))
        for (device_class, windows), device_ids in groups.items()
    )


def seats_of_grants(device: Device) -> int | None:
    """The granules of a device that names their size, at most `MAX_SEATS`; None for a device without granules.

    A site that divides the memory of a device into granules says how many jobs it may hold: one for each granule at
    most. A ratio of oversubscription without a granule says nothing of that.
    """
    memory = DeviceMemory.of(device)
    if math.isnan(device.granule_bytes) or not memory.grants_memory:
        return None
    return min(MAX_SEATS, max(1, memory.granules))


def with_seats(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which every device whose grants allow other than two seats says how many seats it has."""
    granting = {
        device.id: seats
        for device in snapshot.devices
        if device.seats is None and (seats := seats_of_grants(device)) not in (None, DEFAULT_SEATS)
    }
    if not granting:
        return snapshot
    devices = (replace(each, seats=granting[each.id]) if each.id in granting else each for each in snapshot.devices)
    return replace(snapshot, devices=tuple(devices))
