"""What is replayed: jobs that arrive, and devices that are there in windows of time.

Law: a world is complete in itself: virtual clusters that share nothing are worlds of their own.
"""

import math
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from interfere.errors import InvalidInputError
from interfere.records import Device
from interfere.records.checks import check, number_violations, text_violations

ALWAYS = ((0.0, math.inf),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimJob:
    """One submission. `duration_s` is its time alone on devices of speed 1."""

    id: str
    workload: str  # as the truth names it; one that it does not know runs alone
    arrival_s: float
    gpus: int
    duration_s: float
    user: str = ""
    pools: tuple[str, ...] = ()  # of devices that it may run on; empty: any
    deadline_s: float = math.inf
    checkpoint_s: float = 0.0  # of work at its own pace that every stop costs it
    preemptible: bool = True

    def __post_init__(self) -> None:
        bad = text_violations(self, "id") + number_violations(
            self, "arrival_s", "duration_s", "checkpoint_s", nan=False
        )
        check(bad + number_violations(self, "gpus", low=1.0, nan=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimDevice:
    """A device, how fast it is, and when it is there: half-open windows [from, until) in order, apart."""

    device: Device  # as a snapshot names it, without residents
    speed: float = 1.0  # of every job alone on it; a gang runs at that of its slowest device
    windows: tuple[tuple[float, float], ...] = ALWAYS

    def __post_init__(self) -> None:
        ends = [time for window in self.windows for time in window]
        if any(later <= earlier for earlier, later in pairwise(ends)):
            raise InvalidInputError(
                "windows of a device must be in order and apart", value=self.windows, remedy="sort and merge them"
            )
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise InvalidInputError("a device needs a speed", value=self.speed, remedy="give 1.0 for the usual one")

    def until_s(self, now_s: float) -> float:
        """When it goes; `now_s` or less where it is not there."""
        k = bisect_right(self.windows, now_s, key=lambda window: window[0]) - 1
        return self.windows[k][1] if k >= 0 else -math.inf

    def there(self, now_s: float) -> bool:
        """Is it there now?"""
        return self.until_s(now_s) > now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Jobs in order of arrival, ties as they are to be taken, and devices."""

    name: str
    jobs: tuple[SimJob, ...]
    devices: tuple[SimDevice, ...]

    def __post_init__(self) -> None:
        if any(later.arrival_s < one.arrival_s for one, later in pairwise(self.jobs)):
            raise InvalidInputError("jobs must be in order of arrival", value=self.name, remedy="sort by arrival_s")
        if len({job.id for job in self.jobs}) < len(self.jobs):
            raise InvalidInputError("a job is in the world twice", value=self.name, remedy="give every job its own id")
        if len({one.device.id for one in self.devices}) < len(self.devices):
            raise InvalidInputError("a device is in the world twice", value=self.name, remedy="give each its own id")
        for job in self.jobs:
            fit = sum(not job.pools or one.device.pool in job.pools for one in self.devices)
            if job.gpus > fit:
                raise InvalidInputError(
                    f"{self.name}: a job asks for more devices than there are",
                    value=f"{job.id}: {job.gpus} of {fit}",
                    remedy="leave it out: it never runs",
                )

    @property
    def node_gpus(self) -> int:
        """Devices of the largest node."""
        return max(Counter(one.device.node for one in self.devices).values(), default=0)

    @property
    def load(self) -> float:
        """Offered load: device seconds asked for over those there are between the first and the last arrival."""
        asked = sum(job.gpus * job.duration_s for job in self.jobs)
        span_s = self.jobs[-1].arrival_s - self.jobs[0].arrival_s if self.jobs else 0.0
        return asked / (len(self.devices) * span_s) if span_s > 0 else math.inf
