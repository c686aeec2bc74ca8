"""A world is what is replayed: jobs that arrive, and devices that are present in windows of time.

Deadlines are properties of jobs, and edge devices are devices with windows: neither needs a simulator of its own.
Law: a world is complete in itself: virtual clusters that share nothing are worlds of their own.
"""

import math
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from interfere.errors import InvalidInputError
from interfere.records import Device
from interfere.records.checks import check, number_violations, text_violations

DAY_S, HOUR_S = 86_400.0, 3_600.0
LATE_S = 1e-6  # rounding of the clock: a job that ends later than this after its deadline missed it


class Phase(StrEnum):
    """What a job does in a part of its run."""

    IDLE = "idle"
    LOADING = "loading"
    STEPS = "steps"
    ENDING = "ending"


ONLY_STEPS = ((Phase.STEPS, 0.0),)

Windows = tuple[tuple[float, float], ...]
"""Half-open intervals [from, until) in seconds, in order and disjoint."""

ALWAYS: Windows = ((0.0, math.inf),)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimJob:
    """One submitted job. `duration_s` is its run time on devices of speed 1 that it shares with no other job."""

    id: str
    workload: str  # as the truth names it; a workload that the truth does not know never shares
    arrival_s: float
    gpus: int
    duration_s: float
    user: str = ""
    pools: tuple[str, ...] = ()  # of devices that it may run on; empty: any
    deadline_s: float = math.inf  # inf: none
    checkpoint_s: float = 0.0  # seconds of work at speed 1 that every stop costs it
    preemptible: bool = True
    # Parts of `duration_s` in which it makes no step, in their order; see `phases`.
    idle_s: float = 0.0  # its place is taken and nothing runs yet: it slows no neighbour, and none slows it
    start_up_s: float = 0.0  # it loads
    shut_down_s: float = 0.0  # after its last step: its place is taken until its processes have ended

    def __post_init__(self) -> None:
        violations = text_violations(self, "id") + number_violations(
            self, "arrival_s", "duration_s", "checkpoint_s", "idle_s", "start_up_s", "shut_down_s", nan=False
        )
        check(violations + number_violations(self, "gpus", low=1.0, nan=False))
        without_steps_s = self.idle_s + self.start_up_s + self.shut_down_s
        if without_steps_s > self.duration_s + LATE_S:
            raise InvalidInputError(
                "a job makes no step for longer than it runs",
                value=f"{self.id}: {without_steps_s:g} s of {self.duration_s:g} s",
                remedy="count the time before the first and after the last step into duration_s",
            )

    @property
    def phases(self) -> "tuple[tuple[Phase, float], ...]":
        """The phases of a run that take time, in order, each with the work in seconds that is left at its end."""
        if not self.idle_s and not self.start_up_s and not self.shut_down_s:
            return ONLY_STEPS
        after_idle_s = self.duration_s - self.idle_s
        left_s = {
            Phase.IDLE: after_idle_s,
            Phase.LOADING: after_idle_s - self.start_up_s,
            Phase.STEPS: self.shut_down_s,
            Phase.ENDING: 0.0,
        }
        takes_s = {Phase.IDLE: self.idle_s, Phase.LOADING: self.start_up_s, Phase.ENDING: self.shut_down_s}
        return tuple((phase, max(0.0, left_s[phase])) for phase in Phase if takes_s.get(phase, math.inf) > 0)

    @property
    def has_deadline(self) -> bool:
        """Whether the job has a deadline. A job without a deadline is best effort."""
        return math.isfinite(self.deadline_s)


def with_turnover(job: SimJob, turnover_s: float) -> SimJob:
    """Return a job that has its place for longer before it runs: what a scheduler takes between two jobs."""
    return replace(job, idle_s=job.idle_s + turnover_s, duration_s=job.duration_s + turnover_s) if turnover_s else job


@dataclass(frozen=True, slots=True, kw_only=True)
class SimDevice:
    """A device, its speed, its true windows of presence, and the windows that schedulers know beforehand.

    `announced` are the windows that all schedulers know; `windows` are the windows that come true. A device that leaves
    before its announced window ends is reclaimed: schedulers learn of it `notice_s` before.
    """

    device: Device  # as a snapshot names it, without residents
    speed: float = 1.0  # of every job that does not share; a gang runs at the speed of its slowest device
    windows: Windows = ALWAYS
    announced: Windows = ()  # empty: the same as `windows`
    notice_s: float = 0.0

    def __post_init__(self) -> None:
        for windows in (self.windows, self.announced):
            moments = [moment for window in windows for moment in window]
            if any(later <= earlier for earlier, later in pairwise(moments)):
                raise InvalidInputError(
                    "windows of a device must be in order and disjoint", value=windows, remedy="sort and merge them"
                )
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise InvalidInputError(
                "the speed of a device must be positive", value=self.speed, remedy="give 1.0 for the usual one"
            )

    def present_until_s(self, now_s: float) -> float:
        """Return the end of the window that contains `now_s`; `now_s` or less where the device is absent."""
        k = bisect_right(self.windows, now_s, key=lambda window: window[0]) - 1
        return self.windows[k][1] if k >= 0 else -math.inf

    def is_present(self, now_s: float) -> bool:
        """Return whether the device is present now."""
        return self.windows == ALWAYS or self.present_until_s(now_s) > now_s

    def known_windows(self, now_s: float) -> Windows:
        """Return the current and the next window as far as a scheduler can know them; empty for a device that is always
        present.

        While a device is reclaimed, no scheduler knows whether it returns before its next announced window.
        """
        if self.windows == ALWAYS:
            return ()
        upcoming = tuple(window for window in self.announced or self.windows if window[1] > now_s)[:2]
        until_s = self.present_until_s(now_s)
        if until_s <= now_s:
            return tuple(window for window in upcoming if window[0] > now_s) or ((math.inf, math.inf),)
        if until_s - now_s <= self.notice_s:
            return ((upcoming[0][0], until_s), *upcoming[1:])
        return upcoming


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Devices, and jobs in order of arrival. Jobs that arrive together are in the order in which they are queued."""

    name: str
    jobs: tuple[SimJob, ...]
    devices: tuple[SimDevice, ...]
    clock_s: float = 0.0  # time of day at second 0

    def __post_init__(self) -> None:
        if any(later.arrival_s < earlier.arrival_s for earlier, later in pairwise(self.jobs)):
            raise InvalidInputError("jobs must be in order of arrival", value=self.name, remedy="sort by arrival_s")
        if len({job.id for job in self.jobs}) < len(self.jobs):
            raise InvalidInputError("a job is in the world twice", value=self.name, remedy="give every job its own id")
        if len({device.device.id for device in self.devices}) < len(self.devices):
            raise InvalidInputError("a device is in the world twice", value=self.name, remedy="give each its own id")
        for job in self.jobs:
            suitable = sum(not job.pools or device.device.pool in job.pools for device in self.devices)
            if job.gpus > suitable:
                raise InvalidInputError(
                    f"{self.name}: a job asks for more devices than there are",
                    value=f"{job.id}: {job.gpus} of {suitable}",
                    remedy="leave it out: it never runs",
                )

    @property
    def has_deadlines(self) -> bool:
        """Whether any job has a deadline."""
        return any(job.has_deadline for job in self.jobs)

    @property
    def node_gpus(self) -> int:
        """Number of devices of the largest node."""
        return max(Counter(device.device.node for device in self.devices).values(), default=0)

    @property
    def load(self) -> float:
        """The offered load: requested device seconds divided by available device seconds (times speed).

        Available seconds count between the first and the last arrival. inf where all jobs arrive at once.
        """
        if not self.jobs:
            return math.inf
        first_s, last_s = self.jobs[0].arrival_s, self.jobs[-1].arrival_s
        always = sum(device.windows == ALWAYS and device.speed == 1.0 for device in self.devices)
        offered_s = always * (last_s - first_s) + sum(
            device.speed * max(0.0, min(until_s, last_s) - max(from_s, first_s))
            for device in self.devices
            if device.windows != ALWAYS or device.speed != 1.0
            for from_s, until_s in device.windows
        )
        asked_s = sum(job.gpus * job.duration_s for job in self.jobs)
        return asked_s / offered_s if offered_s > 0 else math.inf
