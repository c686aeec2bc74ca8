"""Device classes: devices that nothing in a plan tells apart."""

import math
from dataclasses import dataclass

from interfere.policy.rules.memory import DeviceMemory
from interfere.policy.rules.runtime import opening_times
from interfere.records import NAN, Device


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """Devices that nothing in a prediction tells apart."""

    type: str
    mode: str
    memory: DeviceMemory
    pool: str = ""
    open_s: float = math.inf  # that it stays open from now; 0: it is closed
    opens_s: float = 0.0  # until it opens

    @classmethod
    def of(cls, device: Device, now_s: float = NAN) -> "DeviceClass":
        """Class of a device now."""
        open_s, opens_s = opening_times(device, now_s)
        return cls(
            open_s=open_s,
            opens_s=opens_s,
            type=device.type,
            mode=device.mode,
            memory=DeviceMemory.of(device),
            pool=device.pool,
        )

    @property
    def name(self) -> str:
        """For people: its pool, or its type."""
        return self.pool or self.type
