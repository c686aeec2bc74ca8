"""Device classes: devices that nothing in a plan tells apart."""

import math
from dataclasses import dataclass

from interfere.policy.rules.memory import Room
from interfere.policy.rules.runtime import opening, said
from interfere.records import NAN, Device, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    """Devices that nothing in a prediction tells apart."""

    type: str
    mode: str
    room: Room
    pool: str = ""
    open_s: float = math.inf  # that it stays open from now; 0: it is closed
    opens_s: float = 0.0  # until it opens

    @classmethod
    def of(cls, device: Device, now_s: float = NAN) -> "DeviceClass":
        """Class of a device now."""
        open_s, opens_s = opening(device, now_s)
        return cls(
            open_s=open_s,
            opens_s=opens_s,
            type=device.type,
            mode=device.mode,
            room=Room.of(device),
            pool=device.pool,
        )

    def shut_to(self, job: Job) -> str:
        """Why a job may not start there whoever else does, and however long it runs; empty where it may."""
        if job.pools and self.pool not in job.pools:
            return f"pool: {job.id} allows [{', '.join(job.pools)}], the device is in {self.pool or 'none'}"
        if self.open_s > 0:
            return ""
        return f"window: {self.name} is closed" + (
            f", and opens in {said(self.opens_s)}" if math.isfinite(self.opens_s) else ""
        )

    @property
    def name(self) -> str:
        """For people: its pool, or its type."""
        return self.pool or self.type
