"""What jobs hold in device memory, and why two do not fit.

Two fit when the sum of their peaks is at most capacity · (1 - headroom), and, where a misfit risk is given, when the
predicted probability that they do not fit is at most that; it knows the memory that profiles measured, not what a job
says of itself. Where nobody knows a peak, the peak that a static trace expects stands in, else the working set. Alone a
job may use all of a device. Memory that nobody knows forbids nothing.

A device that hands out its memory has floor(ρ · capacity / granule) granules, and a job needs what it asks for, else
its demand, in whole granules: alone and in company they must not come to more. With ρ > 1 this replaces the sum of
peaks, and working sets must fit capacity · (1 - headroom) where they are known: what every step touches must not be
swapped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.records import NAN, Device, DeviceSlots, Job, JobProfile, Limits
from interfere.records.promises import granules_for

GIB = float(2**30)
# The driver of NVIDIA GPUs maps device memory in pages of 2 MiB (CUDA Driver API, cuMemGetAllocationGranularity).
DEFAULT_GRANULE_BYTES = 2.0 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Memory of a device; a granule of 0 where it hands out none, a capacity that is NaN or below 0 where unknown."""

    memory_bytes: float
    oversubscription_ratio: float = 1.0
    granule_bytes: float = 0.0

    @classmethod
    def of(cls, device: Device) -> "Room":
        """Of a device; one that states a ratio alone has granules of the driver's pages."""
        granule = device.granule_bytes
        if math.isnan(granule):
            granule = DEFAULT_GRANULE_BYTES if device.oversubscription_ratio > 1 else 0.0
        return cls(
            memory_bytes=-1.0 if math.isnan(device.memory_bytes) else device.memory_bytes,
            oversubscription_ratio=device.oversubscription_ratio,
            granule_bytes=granule,
        )

    @property
    def hands_out(self) -> bool:
        """Does every job on it hold a grant?"""
        return self.granule_bytes > 0 and self.memory_bytes >= 0

    @property
    def granules(self) -> int:
        """In all. A millionth of one is rounding of the ratio."""
        return math.floor(self.memory_bytes * self.oversubscription_ratio / self.granule_bytes + 1e-6)

    @property
    def most_bytes(self) -> float:
        """What jobs may allocate on it."""
        return self.granules * self.granule_bytes if self.hands_out else self.memory_bytes

    def needs(self, one: "Demand") -> int:
        """Granules that it needs; none where nobody knows."""
        return 0 if math.isnan(one.bytes) else granules_for(one.bytes, self.granule_bytes)

    def __str__(self) -> str:
        return f"{self.granules} ({gib(self.memory_bytes)} × {self.oversubscription_ratio:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Memory that a job holds, NaN where unknown."""

    bytes: float
    what: str = ""  # where it is not a peak that somebody measured
    working_set_bytes: float = NAN  # what one step touches

    def __str__(self) -> str:
        return gib(self.bytes) + (f" ({self.what})" if self.what else "")


def gib(memory_bytes: float) -> str:
    """As people read it."""
    return f"{memory_bytes / GIB:.3g} GiB"


def slots_of(device: Device) -> DeviceSlots | None:
    """What a device hands out; None where it hands out nothing."""
    room = Room.of(device)
    if not room.hands_out:
        return None
    return DeviceSlots(
        device_id=device.id,
        device_type=device.type,
        granules=room.granules,
        granule_bytes=room.granule_bytes,
        oversubscription_ratio=room.oversubscription_ratio,
    )


def demand(job: Job, profile: JobProfile | None, used_bytes: float = NAN) -> Demand:
    """What the job asks for, else its own word before its profile's; a measured peak before an expected one before the
    working set. What its workload was measured to hold counts where nobody knows, and where it was more."""
    working_set = profile.memory_working_set_bytes if profile and _absent(job) else job.memory_working_set_bytes
    known = [
        (job.grant_bytes, "grant"),
        (job.memory_peak_bytes, ""),
        (profile.memory_peak_bytes if profile else NAN, ""),
        (job.memory_working_set_bytes, "working set"),
        (profile.static_memory_peak_bytes if profile else NAN, "static trace"),
        (profile.memory_working_set_bytes if profile else NAN, "working set"),
    ]
    size, what = next((one for one in known if not math.isnan(one[0])), (NAN, ""))
    if what != "grant" and not math.isnan(used_bytes) and not used_bytes <= size:
        more = "" if math.isnan(size) else f", more than the {gib(size)}{f' ({what})' if what else ''} known"
        size, what = used_bytes, f"measured use{more}"
    return Demand(bytes=size, what=what, working_set_bytes=working_set)


def _absent(job: Job) -> bool:
    return math.isnan(job.memory_working_set_bytes)


def too_large(one: Demand, room: Room) -> str:
    """Why a job does not fit a device even alone; empty when it does. No capacity (NaN, or below 0) forbids nothing."""
    if room.hands_out and room.needs(one) > room.granules:
        return f"grant: {one} = {room.needs(one)} granules of {gib(room.granule_bytes)} > {room}"
    if room.oversubscription_ratio > 1:
        if 0 <= room.memory_bytes < one.working_set_bytes:
            return f"working set: {gib(one.working_set_bytes)} > {gib(room.memory_bytes)}: it would be swapped"
        return ""
    if 0 <= room.memory_bytes < one.bytes:
        return f"memory: {one} > {gib(room.memory_bytes)}"
    return ""


def room_bytes(memory_bytes: float, limits: Limits) -> float:
    """What two jobs may hold together."""
    return memory_bytes * (1.0 - limits.memory.memory_headroom)


def do_not_fit(one: Demand, other: Demand, fits: float, room: Room, limits: Limits) -> str:
    """Why two do not fit; empty when they do. `fits` is the predicted probability, NaN where unknown."""
    most_bytes = room_bytes(room.memory_bytes, limits)
    most = gib(most_bytes)
    if limits.memory.memory_headroom:
        most += f" ({gib(room.memory_bytes)} less {limits.memory.memory_headroom:.3g} of it as headroom)"
    if room.hands_out and room.needs(one) + room.needs(other) > room.granules:
        granules = f"{room.needs(one)} + {room.needs(other)} granules of {gib(room.granule_bytes)}"
        return f"grants: {one} + {other} = {granules} > {room}"
    if room.oversubscription_ratio > 1:
        sets = [one.working_set_bytes, other.working_set_bytes]
        if 0 <= most_bytes < np.nansum(sets):
            return f"working sets: {' + '.join(gib(size) for size in sets if size > 0)} > {most}: they would be swapped"
    elif 0 <= most_bytes < one.bytes + other.bytes:
        return f"memory: {one} + {other} > {most}"
    if 1.0 - fits > limits.memory.misfit_risk:
        return (
            f"misfit risk: {1.0 - fits:.2g} > {limits.memory.misfit_risk:g} that both do not fit {gib(room.most_bytes)}"
        )
    return ""


def misfits(
    rows: Sequence[Demand], columns: Sequence[Demand], fits: NDArray[np.float64], room: Room, limits: Limits
) -> NDArray[np.bool_]:
    """bool[r, c]: `do_not_fit` of all; `fits` float64[r, c] probabilities."""
    if room.memory_bytes < 0:
        return np.zeros((len(rows), len(columns)), dtype=bool)
    over = 1.0 - fits > limits.memory.misfit_risk
    if room.hands_out:
        over |= np.add.outer([room.needs(one) for one in rows], [room.needs(one) for one in columns]) > room.granules
    if room.oversubscription_ratio > 1:
        sets = [np.nan_to_num([one.working_set_bytes for one in side]) for side in (rows, columns)]
    else:
        sets = [np.array([one.bytes for one in side]) for side in (rows, columns)]
    over |= np.add.outer(*sets) > room_bytes(room.memory_bytes, limits)
    return np.asarray(over)
