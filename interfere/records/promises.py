"""What a scope has given away: places to planned starts and moves, which the scheduler may be carrying out, and memory
to whoever runs. Nobody else gets either meanwhile."""

import math
from dataclasses import dataclass

from interfere.records.checks import NAN
from interfere.records.plans import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One planned start or move, and every decision that told of it."""

    action: Action  # with the time by which it expires
    decision_ids: tuple[str, ...]  # the first made it, the others repeated it
    from_device_id: str = ""  # where a resident that is to move runs now
    since_s: float = NAN  # when it was first told; its grant holds since then

    @property
    def places(self) -> tuple[str, ...]:
        """Every device that it holds."""
        return (*self.action.places, self.from_device_id) if self.from_device_id else self.action.places


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Memory that a job holds on each of its devices."""

    job_id: str
    workload: str
    device_ids: tuple[str, ...]
    bytes: float  # whole granules; NaN: none, for nobody knew what it needs when it came
    since_s: float  # on the caller's clock
    planned: bool = False  # its job is still to start there


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSlots:
    """What a device hands out: so many granules of memory."""

    device_id: str
    device_type: str
    granules: int
    granule_bytes: float
    oversubscription_ratio: float

    def needs(self, memory_bytes: float) -> int:
        """Granules that hold so much."""
        return granules_for(memory_bytes, self.granule_bytes)


def granules_for(memory_bytes: float, granule_bytes: float) -> int:
    """The fewest whole granules that hold so much, one at least. A millionth of one is rounding."""
    return max(1, math.ceil(memory_bytes / granule_bytes - 1e-6))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeLedger:
    """What one scope has been promised and granted. `revision` grows by one with every write; 0 before the first."""

    scope: str
    revision: int = 0
    now_s: float = 0.0  # the caller's clock at the last decision
    promises: tuple[Promise, ...] = ()
    grants: tuple[Grant, ...] = ()  # of jobs that run; what is planned holds the grant of its action
    slots: tuple[DeviceSlots, ...] = ()  # of the devices that hand out memory
