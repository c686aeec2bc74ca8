"""Device classes: sets of devices that are interchangeable for the planner."""

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
    """The facts of a device that affect a plan; two devices of equal class are interchangeable at the present time."""

    type: str
    mode: SharingMode
    memory: DeviceMemory
    pool: str = ""
    open_s: float = math.inf  # seconds from now until the device closes; 0: closed
    opens_s: float = 0.0  # seconds until the device opens
    price_per_hour: float = 0.0  # 0 where unknown
    power_w: float = 0.0
    seats: int = DEFAULT_SEATS  # jobs that may share a device

    def __hash__(self) -> int:
        """Hash the facts in which classes usually differ; each stage looks up the class of every device."""
        return hash((self.type, self.pool, self.open_s))

    @classmethod
    def of(cls, device: Device, now_s: float = NAN) -> "DeviceClass":
        """Return the class of a device at a time; the device must state a sharing mode (`PlanningContext` sets it)."""
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
        """Return the name for messages: the pool, or the device type where the device is in no pool."""
        return self.pool or self.type


def device_facts(device: Device) -> tuple[object, ...]:
    """Return what a device class depends on, windows aside; -1 for a number that the device does not state."""
    return (
        device.type,
        device.mode,
        device.pool,
        device.memory_bytes if device.memory_bytes >= 0 else -1.0,
        device.oversubscription_ratio,
        device.granule_bytes if device.granule_bytes >= 0 else -1.0,
        device.host_reserve_bytes if device.host_reserve_bytes >= 0 else -1.0,
        device.price_per_hour if device.price_per_hour >= 0 else -1.0,
        device.power_w if device.power_w >= 0 else -1.0,
        device.seats,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClassMembers:
    """Devices of one class with the same availability windows, hence interchangeable at every later time too."""

    device_class: DeviceClass
    windows: tuple[Window, ...]
    device_ids: tuple[str, ...]


def group_devices(
    devices: Sequence[Device], class_of: Callable[[Device], DeviceClass]
) -> tuple[DeviceClassMembers, ...]:
    """Return the devices grouped by class and windows, in order of first occurrence."""
    groups: dict[tuple[DeviceClass, tuple[Window, ...]], list[str]] = {}
    for device in devices:
        groups.setdefault((class_of(device), device.windows), []).append(device.id)
    return tuple(
        DeviceClassMembers(device_class=device_class, windows=windows, device_ids=tuple(device_ids))
        for (device_class, windows), device_ids in groups.items()
    )


def seats_of_grants(device: Device) -> int | None:
    """Return how many memory granules a device has, at most `MAX_SEATS`; None where the device states no granule size.

    Each job of such a device holds at least one granule, so their number limits the jobs. A ratio of oversubscription
    without a granule size implies no such limit.
    """
    if math.isnan(device.granule_bytes):
        return None
    memory = DeviceMemory.of(device)
    if not memory.grants_memory:
        return None
    return min(MAX_SEATS, max(1, memory.granules))


def with_seats(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with explicit `seats` on each device whose memory grants do not imply the usual two."""
    granting = {
        device.id: seats
        for device in snapshot.devices
        if device.seats is None
        and device.granule_bytes >= 0
        and (seats := seats_of_grants(device)) not in (None, DEFAULT_SEATS)
    }
    if not granting:
        return snapshot
    devices = (replace(each, seats=granting[each.id]) if each.id in granting else each for each in snapshot.devices)
    return replace(snapshot, devices=tuple(devices))
