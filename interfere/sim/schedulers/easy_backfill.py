"""EASY backfill: later jobs start early only where they do not delay the first job that waits (Lifka, JSSPP 1995).

The head is the first job in order that finds no devices. Its shadow time is the earliest time at which it would find
devices if nothing else started and every running job ended when it is estimated to: at its remaining run time over its
present rate, devices of a pair when both have ended. The devices that it would take then are reserved, on each node as
few of those that are free now as possible. A later job starts on any free devices if it is estimated to end by the
shadow time, on reserved ones of a node first, else on devices that are not reserved; a guest joins
a host on reserved devices only where both, slowed down by each other as predicted, are estimated to end by then. The
reservation is made anew at every decision. A job that all present devices together could not hold reserves none.
Estimates are those of the order where it has any (qssf: from history), else the true run times.
"""

import math
from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter

from interfere.records import Device
from interfere.sim.cluster import Cluster, JobState, Start
from interfere.sim.free_devices import FreeDevices
from interfere.sim.schedulers.estimates import Estimate
from interfere.sim.world import LATE_S, SimDevice

MAX_STALE = 64  # entries of jobs that ended or changed their rate, kept until there are more


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReservation:
    """The devices that the first waiting job (the head) is expected to take, and the time at which they are free."""

    shadow_s: float
    device_ids: frozenset[str]
    estimate: Estimate

    def allowed(
        self,
        found: tuple[Device, ...],
        unreserved: FreeDevices,
        state: JobState,
        cluster: Cluster,
        node_gpus: int,
    ) -> tuple[Device, ...]:
        """Return devices for a later job such that it does not delay the head of the queue; empty where there are none.

        A job that ends in time gets the devices in `found`, any other job devices that are not reserved.
        """
        speed = min(cluster.devices[device.id].speed for device in found)
        if self._ends_in_time(self.estimate.remaining_s(state, cluster) / speed, cluster):
            return found
        return unreserved.find(state.job.gpus, state.job.pools, node_gpus)

    def allows_group(
        self, members: Iterable[JobState], device_ids: Iterable[str], slowdowns: Iterable[float], cluster: Cluster
    ) -> bool:
        """Return whether jobs may share devices without delaying the reservation. `slowdowns`: the predicted slowdown
        of each."""
        device_ids = tuple(device_ids)
        if self.device_ids.isdisjoint(device_ids):
            return True
        speed = min(cluster.devices[device_id].speed for device_id in device_ids)
        return all(
            self._ends_in_time(self.estimate.remaining_s(state, cluster) * slowdown / speed, cluster)
            for state, slowdown in zip(members, slowdowns, strict=True)
        )

    def _ends_in_time(self, runtime_s: float, cluster: Cluster) -> bool:
        return cluster.now_s + runtime_s <= self.shadow_s + LATE_S


class ExpectedEnds:
    """The sorted times at which running jobs are expected to end at their present rates.

    The times are kept up to date between decisions: the expected end of a job changes only with its rate, or once it
    has passed.
    """

    def __init__(self, estimate: Estimate) -> None:
        self.estimate = estimate
        self._sorted: list[tuple[float, int, int, str]] = []  # (end, arrival rank, rate version, job id)
        self._rates_read = 0

    def update(self, cluster: Cluster) -> None:
        """Compute anew the expected end of every job whose rate changed, or whose expected end has passed."""
        for state in cluster.changed_rates[self._rates_read :]:
            self._insert(state, cluster)
        self._rates_read = len(cluster.changed_rates)
        while self._sorted and self._sorted[0][0] <= cluster.now_s:  # has run for longer than was expected
            entry = self._sorted.pop(0)
            if self._is_current(entry, cluster):
                self._insert(cluster.jobs[entry[3]], cluster)
        if len(self._sorted) > 2 * len(cluster.running) + MAX_STALE:
            self._sorted = [entry for entry in self._sorted if self._is_current(entry, cluster)]

    def releases(self, cluster: Cluster) -> Iterator[tuple[float, int, tuple[SimDevice, ...]]]:
        """Yield (time, arrival rank, devices that are free then) by time; shared devices are free once all their jobs
        ended."""
        ended: set[str] = set()
        for entry in self._sorted:
            if self._is_current(entry, cluster):
                state = cluster.running[entry[3]]
                ended.add(entry[3])
                if ended.issuperset(other.job.id for other in state.company):
                    yield entry[0], entry[1], state.devices

    def _insert(self, state: JobState, cluster: Cluster) -> None:
        if state.devices:
            end_s = cluster.now_s + self.estimate.remaining_s(state, cluster) / state.rate
            end_s = max(end_s, math.nextafter(cluster.now_s, math.inf))
            insort(self._sorted, (end_s, state.arrival_rank, state.rate_version, state.job.id))

    @staticmethod
    def _is_current(entry: tuple[float, int, int, str], cluster: Cluster) -> bool:
        state = cluster.running.get(entry[3])
        return state is not None and state.rate_version == entry[2]


def reserve(
    head: JobState,
    free: FreeDevices,
    starts: Iterable[Start],
    cluster: Cluster,
    ends: ExpectedEnds,
    node_gpus: int,
) -> BackfillReservation | None:
    """Return the reservation of the head of the queue; None where all present devices together are too few.

    `starts`: starts of this decision, on devices that are no longer in `free`.
    """
    ends.update(cluster)
    starting = []
    for start in starts:
        state, devices = cluster.jobs[start.job_id], tuple(cluster.devices[device_id] for device_id in start.device_ids)
        runtime_s = ends.estimate.remaining_s(state, cluster) / min(device.speed for device in devices)
        starting.append((cluster.now_s + runtime_s, state.arrival_rank, devices))
    coming = free.copy()
    for end_s, released in groupby(
        merge(ends.releases(cluster), sorted(starting, key=_end), key=_end), key=itemgetter(0)
    ):
        coming.add(device.device for _, _, devices in released for device in devices)
        if found := coming.find(head.job.gpus, head.job.pools, node_gpus):
            reserved = coming.prefer(found, lambda device: device.id in free)  # devices freed later come first
            device_ids = frozenset(device.id for device in reserved)
            return BackfillReservation(shadow_s=end_s, device_ids=device_ids, estimate=ends.estimate)
    return None


def _end(release: tuple[float, int, tuple[SimDevice, ...]]) -> tuple[float, int]:
    return release[:2]
