"""When jobs would end if the rest ran one after the other in order of submission: waits, and mean completion times.

The reference policy is list scheduling (Graham 1966): each waiting job in turn takes the devices of one class on which
it may run alone that come free soonest, of equals those where it ends soonest; a gang waits for as many as it takes. No
job joins another, and a job that comes later never delays one before it. Co-located jobs run at their slowdowns until
the first of them ends, and so on; every job ends when its own work is done.

Law 1: the schedule is consistent in time: asked again when any job has ended, it goes on as it was foreseen.
Law 2: so a policy whose every decision, followed by this one, projects no later mean than this one alone, never has a
later mean in the end where predictions are true.
Plain arrays and records; no prediction, no clock.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGroup:
    """k co-located jobs: the devices that all of them occupy until each ends, and how they slow each other down."""

    devices: tuple[int, ...]  # places among the devices
    alone_s: tuple[float, ...]  # seconds that each would still run there alone
    slowdown: tuple[tuple[float, ...], ...] = ((1.0,),)  # [i][j]: of job i beside job j; of more the product
    waiting: tuple[int, ...] = ()  # those of the jobs that start now, by their place among the waiting jobs; else -1

    def end_times_s(self) -> list[float]:
        """Seconds until each job ends: together until the first does, then the others, down to the last alone."""
        left_s, ends_s, now_s = dict(enumerate(self.alone_s)), [0.0] * len(self.alone_s), 0.0
        while left_s:
            slowed = {i: math.prod(self.slowdown[i][j] for j in left_s if j != i) for i in left_s}
            first = min(left_s, key=lambda i: left_s[i] * slowed[i])
            step_s = left_s[first] * slowed[first]
            now_s += step_s
            ends_s[first] = now_s
            left_s = {i: max(0.0, left_s[i] - step_s / slowed[i]) for i in left_s if i != first}
        return ends_s


@dataclass(frozen=True, slots=True, kw_only=True)
class FifoSchedule:
    """When and where each waiting job would run; NaN and no devices for a job that may run nowhere."""

    start_s: Floats  # float64[n]
    end_s: Floats  # float64[n]
    devices: tuple[tuple[int, ...], ...]

    def starts_now(self, running: Iterable[RunningGroup]) -> list[tuple[int, tuple[int, ...]]]:
        """(job, devices) of each job that starts at 0 beside the groups that run. A device that has a job is not free,
        however little that job has left to do."""
        taken = {device for group in running for device in group.devices}
        starts: list[tuple[int, tuple[int, ...]]] = []
        for i in np.flatnonzero(self.start_s == 0).tolist():
            if taken.isdisjoint(self.devices[i]):
                starts.append((i, self.devices[i]))
                taken.update(self.devices[i])
        return starts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectedCluster:
    """n waiting jobs in order of submission, d devices of c classes, and the jobs that run there now."""

    runtime_s: Floats  # float64[n, c]: seconds alone on a device of the class; inf where the job may not run
    gpus: Ints  # int64[n]: devices that each takes at once
    device_class: Ints  # int64[d]
    running: tuple[RunningGroup, ...] = ()

    def fifo_wait_s(self) -> Floats:
        """float64[n]: seconds until each job would start in order of submission; 0 for one that may run nowhere."""
        return np.nan_to_num(self.schedule(range(len(self.gpus)), self.running).start_s, nan=0.0)

    def waiting_end_s(self) -> Floats:
        """float64[n]: when each job would end that does not start now; NaN for one that may run nowhere.

        In order of submission, and not before the first of the others has ended.
        """
        alone_s = self.runtime_s.min(axis=1, initial=np.inf)
        ends_s = np.sort(alone_s)[:2]
        others_s = np.where(alone_s == ends_s[0], ends_s[-1], ends_s[0]) if len(alone_s) > 1 else np.inf
        running_s = min((end_s for group in self.running for end_s in group.end_times_s()), default=np.inf)
        first_s = np.minimum(others_s, running_s)
        in_order_s = self.schedule(range(len(self.gpus)), self.running).end_s
        return np.asarray(np.where(np.isfinite(first_s), np.maximum(in_order_s, first_s + alone_s), in_order_s))

    def fifo_starts(self) -> list[tuple[int, tuple[int, ...]]]:
        """(job, devices) of each job that would start now in order of submission."""
        return self.schedule(range(len(self.gpus)), self.running).starts_now(self.running)

    def mean_completion_s(self, running: Sequence[RunningGroup] | None = None) -> float:
        """Mean seconds until the jobs end, those that may run alone nowhere left out; NaN without any other.

        `running`: the groups that run once some of the waiting jobs have started, the others then run in order of
        submission; by default the groups that run already.
        """
        groups = self.running if running is None else running
        runnable: list[bool] = np.asarray(np.isfinite(self.runtime_s).any(axis=1)).tolist()
        ends_s: list[float] = []
        started: set[int] = set()
        for group in groups:
            waiting = group.waiting or (-1,) * len(group.alone_s)
            started.update(waiting)
            ends_s += [end for i, end in zip(waiting, group.end_times_s(), strict=True) if i < 0 or runnable[i]]
        schedule = self.schedule([i for i in range(len(self.gpus)) if i not in started], groups)
        ends_s += schedule.end_s[~np.isnan(schedule.end_s)].tolist()
        return math.fsum(ends_s) / len(ends_s) if ends_s else math.nan

    def schedule(self, waiting: Sequence[int], running: Sequence[RunningGroup]) -> FifoSchedule:
        """The schedule of some waiting jobs, in their order, on what the groups that run leave."""
        # 1. When each device comes free; of one class the soonest first.
        free_s = [0.0] * len(self.device_class)
        for group in running:
            end_s = max(group.end_times_s(), default=0.0)
            for device in group.devices:
                free_s[device] = max(free_s[device], end_s)
        queues: list[list[tuple[float, int]]] = [[] for _ in range(self.runtime_s.shape[1])]
        for device, device_class in enumerate(self.device_class.tolist()):
            queues[device_class].append((free_s[device], device))
        for queue in queues:
            heapq.heapify(queue)
        # 2. Each job in turn takes the devices that come free soonest.
        starts_s, ends_s = np.full(len(self.gpus), np.nan), np.full(len(self.gpus), np.nan)
        devices: list[tuple[int, ...]] = [()] * len(self.gpus)
        for i in waiting:
            gpus, soonest = int(self.gpus[i]), (math.inf, math.inf, -1)
            for place in np.flatnonzero(np.isfinite(self.runtime_s[i])).tolist():
                queue = queues[place]
                if len(queue) >= gpus:
                    free = queue[0][0] if gpus == 1 else heapq.nsmallest(gpus, queue)[-1][0]
                    soonest = min(soonest, (free, free + float(self.runtime_s[i, place]), place))
            if soonest[2] < 0:
                continue
            starts_s[i], ends_s[i], place = soonest
            taken = [heapq.heappop(queues[place])[1] for _ in range(gpus)]
            for device in taken:
                heapq.heappush(queues[place], (soonest[1], device))
            devices[i] = tuple(taken)
        return FifoSchedule(start_s=starts_s, end_s=ends_s, devices=tuple(devices))
