"""Schedulers of deadlines in the literature: an order of the queue, hopeless jobs dropped or not, sharing or not.

All backfill, start jobs alone where they can, and know durations and speeds. One that drops gives a job up as soon as
its deadline cannot be met any more even alone on the fastest device, and does not start it where it would be late, nor
where the device is known to go before it ends.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from interfere.policy.deadlines.admission import CapacityProfile, DeadlineDemand, Reservation, schedule_all
from interfere.records import Device
from interfere.sim.cluster import Cluster, Decision, Progress, Start
from interfere.sim.deadlines import LATE_S, EdgeWorld
from interfere.sim.schedulers.orders import Order
from interfere.sim.schedulers.queue import Sharing, hosts_of, in_order, seats, started
from interfere.sim.world import SimDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class EarliestDeadline:
    """By deadline; who has none comes last."""

    def key(self, one: Progress, cluster: Cluster) -> float:
        """The deadline."""
        return one.job.deadline_s

    def changes_s(self, one: Progress, cluster: Cluster) -> float:
        """Never."""
        return math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLaxity:
    """By the time that is left to its last chance; who has none comes last."""

    def key(self, one: Progress, cluster: Cluster) -> float:
        """Deadline - now - what is left of it."""
        return one.job.deadline_s - cluster.now_s - left_s(one)

    def changes_s(self, one: Progress, cluster: Cluster) -> float:
        """It falls alike for all that wait."""
        return math.inf


def left_s(one: Progress) -> float:
    """Of a job that waits, alone at speed 1."""
    return one.left_s


@dataclass(slots=True, kw_only=True)
class DeadlineQueue:
    """Starts in order, as many as fit."""

    order: Order
    edge: EdgeWorld
    drop: bool = False
    sharing: Sharing | None = None

    def decide(self, cluster: Cluster) -> Decision:
        """In order: alone where it fits, else beside somebody, else it waits."""
        drops = [one.job.id for one in cluster.waiting.values() if self.drop and hopeless(one, cluster)]
        gone = set(drops)
        queue = in_order(self.order, (one for one in cluster.waiting.values() if one.job.id not in gone), cluster)
        free, starts, blocked = cluster.free(), list[Start](), list[Progress]()
        hosts = hosts_of(cluster) if self.sharing is not None else []
        for one in queue:
            taken = in_time(free, one, cluster, self.edge) if self.drop else seats(free, one, 0)
            if not taken:
                blocked.append(one)
                if not free and self.sharing is None:
                    break
                continue
            free = started(one, taken, free, starts, hosts)
        if self.sharing is not None and blocked and hosts:
            starts += self.sharing.join(blocked, hosts, cluster)
        return Decision(starts=starts, drops=drops, wake_s=last_chance_s(queue, cluster) if self.drop else math.inf)


def hopeless(one: Progress, cluster: Cluster) -> bool:
    """Would it miss its deadline even if it started now on the fastest device?"""
    return cluster.now_s + left_s(one) > one.job.deadline_s + LATE_S


def in_time(free: Sequence[Device], one: Progress, cluster: Cluster, edge: EdgeWorld) -> tuple[Device, ...]:
    """Devices on which it meets its deadline, if any, before they go; all the same to who has none."""
    if math.isinf(one.job.deadline_s):
        return seats(free, one, 0)
    able = []
    for device in free:
        there = cluster.devices[device.id]
        end_s = cluster.now_s + left_s(one) / there.speed - LATE_S
        if end_s <= min(one.job.deadline_s, _ahead(there, cluster.now_s, edge)[0][1]):
            able.append(device)
    return seats(able, one, 0)


def last_chance_s(queue: Iterable[Progress], cluster: Cluster) -> float:
    """When the next waiting job becomes hopeless."""
    later = (one.job.deadline_s - left_s(one) + 2 * LATE_S for one in queue)
    return min((at_s for at_s in later if at_s > cluster.now_s), default=math.inf)


@dataclass(slots=True, kw_only=True)
class SlotAdmission:
    """Admits a job with a deadline when it arrives, if all admitted ones and it can be laid out (`policy.admission`),
    else drops it; who has no deadline runs where that leaves the layout as it is. Durations are exact."""

    edge: EdgeWorld
    sharing: Sharing | None = None
    promised: dict[str, float] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def decide(self, cluster: Cluster) -> Decision:
        """Admit, lay out, start what the layout starts now, then the others."""
        lanes = _Lanes(cluster, self.edge)
        admitted = [one for one in cluster.waiting.values() if one.job.id in self.promised]
        drops = []
        for one in list(cluster.waiting.values()):
            if one.job.id in self._seen or math.isinf(one.job.deadline_s):
                continue
            self._seen.add(one.job.id)
            if lanes.laid([*admitted, one]) is not None:
                admitted.append(one)
                self.promised[one.job.id] = one.job.deadline_s
            else:
                drops.append(one.job.id)
        slots = lanes.laid(admitted)
        due = {slot.job_id for slot in slots or () if slot.from_s <= cluster.now_s + LATE_S}
        if slots is None:  # a checkpoint, or company, has cost too much: by deadline, then
            due = set(self.promised)
        free, starts, hosts = cluster.free(), list[Start](), hosts_of(cluster) if self.sharing is not None else []
        gone, blocked, wait = set(drops), list[Progress](), list(admitted)
        order = sorted(cluster.waiting.values(), key=lambda one: (one.job.deadline_s, left_s(one)))
        for one in order:
            if one.job.id in gone or (one.job.id in self.promised and one.job.id not in due):
                continue
            taken = in_time(free, one, cluster, self.edge) or (
                seats(free, one, 0) if one.job.id in self.promised else ()
            )
            rest = [other for other in wait if other is not one]
            if taken and one.job.id not in self.promised and wait and not lanes.leaves(one, taken, rest):
                taken = ()
            if not taken:
                blocked.append(one)
                continue
            lanes.hold(one, taken)
            wait = rest
            free = started(one, taken, free, starts, hosts)
        if self.sharing is not None and blocked and hosts:
            starts += self.sharing.join(blocked, hosts, cluster)
        later = [slot.from_s for slot in slots or () if slot.from_s > cluster.now_s + LATE_S]
        return Decision(starts=starts, drops=drops, wake_s=min(later, default=math.inf))


class _Lanes:
    """The pools of a cluster as lanes of admission, with what runs there now."""

    def __init__(self, cluster: Cluster, edge: EdgeWorld) -> None:
        self._cluster = cluster
        self._windows = {name: _ahead(one, cluster.now_s, edge) for name, one in cluster.devices.items()}
        alike: dict[object, list[SimDevice]] = {}
        for name, one in cluster.devices.items():
            alike.setdefault((one.device.pool, tuple(self._windows[name])), []).append(one)
        groups = list(alike.values())
        self._lane_of = {one.device.id: k for k, group in enumerate(groups) for one in group}
        self._speed = [group[0].speed for group in groups]
        self.lanes = [CapacityProfile(cluster.now_s, self._windows[group[0].device.id], len(group)) for group in groups]
        for job in cluster.running.values():
            for name in job.device_ids:
                self._take(name, job.end_s())

    def _take(self, name: str, until_s: float) -> None:
        for from_s, to_s in self._windows[name]:
            start_s = max(from_s, self._cluster.now_s)
            if start_s < min(to_s, until_s):
                self.lanes[self._lane_of[name]].reserve(start_s, min(to_s, until_s), 1)

    def laid(self, jobs: Sequence[Progress]) -> tuple[Reservation, ...] | None:
        """Slots of all of them, or None."""
        return schedule_all([self._need(one) for one in jobs], self.lanes)

    def leaves(self, one: Progress, devices: Sequence[Device], rest: Sequence[Progress]) -> bool:
        """Can the rest be laid out once it runs there?"""
        kept = self.lanes
        self.lanes = [lane.copy() for lane in kept]
        self.hold(one, devices)
        fits = self.laid(rest) is not None
        self.lanes = kept
        return fits

    def hold(self, one: Progress, devices: Sequence[Device]) -> None:
        """It runs there from now on."""
        for device in devices:
            speed = self._cluster.devices[device.id].speed
            self._take(device.id, self._cluster.now_s + left_s(one) / speed)

    def _need(self, one: Progress) -> DeadlineDemand:
        return DeadlineDemand(
            job_id=one.job.id,
            gpus=one.job.gpus,
            deadline_s=one.job.deadline_s + LATE_S,
            runtime_s=tuple(left_s(one) / speed for speed in self._speed),
        )


def _ahead(one: SimDevice, now_s: float, edge: EdgeWorld) -> tuple[tuple[float, float], ...]:
    """Its windows from now on, as far as they are known."""
    return edge.known_s(one, now_s) or ((-math.inf, math.inf),)
