"""Schedulers made of an order of the queue: head of line or backfill, with jobs stopped for others or not, and sharing
on top of the same order or none.

What cannot start alone may be offered to a `Sharing`, which joins it to jobs that run alone: all else is the same with
sharing off and on, so that what differs is sharing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from interfere.policy.solve.gangs import device_sets
from interfere.records import Device
from interfere.sim.cluster import Cluster, Decision, Progress, Start
from interfere.sim.schedulers.orders import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A job that runs alone, or is about to, and may be joined."""

    one: Progress
    device_ids: tuple[str, ...]
    device_type: str


class Sharing(Protocol):
    """Who joins whom."""

    def join(self, waiting: Sequence[Progress], hosts: Sequence[Host], cluster: Cluster) -> list[Start]:
        """Starts of waiting jobs, given in order, beside hosts; one guest a host."""


def seats(free: Sequence[Device], one: Progress, node_gpus: int) -> tuple[Device, ...]:
    """Empty devices of one type for a job, on as few nodes as can be; nothing where there are not enough.

    Nodes of `node_gpus` devices: no more nodes than the job must take. 0: as many as it happens to.
    """
    by_type: dict[str, list[Device]] = {}
    for device in free:
        if not one.job.pools or device.pool in one.job.pools:
            by_type.setdefault(f"{device.pool}/{device.type}", []).append(device)
    for devices in by_type.values():
        if len(devices) < one.job.gpus:
            continue
        taken = device_sets(devices, one.job.gpus, 1)[0]
        if not node_gpus or len({device.node for device in taken}) <= -(-one.job.gpus // node_gpus):
            return taken
    return ()


@dataclass(slots=True, kw_only=True)
class QueueScheduler:
    """Starts jobs in order, and stops none. With `slice_s`, sharing is thought about at most that often."""

    order: Order
    backfill: bool = True  # may who comes later start where who comes first does not fit?
    sharing: Sharing | None = None
    slice_s: float = 0.0
    whole_nodes: bool = True  # does a job wait for as few nodes as it can do with, or take any free devices?
    _next_s: float = 0.0

    def decide(self, cluster: Cluster) -> Decision:
        """In order: alone where it fits; else beside somebody; else it waits, and all behind it without backfill."""
        free = cluster.free()
        shares = self.sharing is not None and cluster.now_s >= self._next_s
        if not cluster.waiting or not (free or self.sharing is not None):
            return Decision()
        hosts = hosts_of(cluster) if shares else []
        node_gpus = cluster.node_gpus if self.whole_nodes else 0
        starts: list[Start] = []
        blocked: list[Progress] = []
        unseated: set[tuple[int, tuple[str, ...]]] = set()  # kinds that found no devices: these only get fewer
        for one in in_order(self.order, cluster.waiting.values(), cluster):
            kind = (one.job.gpus, one.job.pools)
            devices = seats(free, one, node_gpus) if kind not in unseated else ()
            if devices:
                free = started(one, devices, free, starts, hosts)
                continue
            unseated.add(kind)
            if self.backfill:
                blocked.append(one)
                if not free and not shares:
                    break
            else:
                joined = self.sharing.join([one], hosts, cluster) if self.sharing is not None and shares else []
                if not joined:
                    blocked.append(one)
                    break
                starts += joined
                hosts = without(hosts, joined)
        if not self.backfill or not blocked or self.sharing is None:
            return Decision(starts=starts)
        if shares:
            starts += self.sharing.join(blocked, hosts, cluster)
            if self.slice_s:
                self._next_s = cluster.now_s + self.slice_s
        return Decision(starts=starts, wake_s=self._next_s if self.slice_s else math.inf)


def in_order(order: Order, jobs: Iterable[Progress], cluster: Cluster) -> list[Progress]:
    """By key, then by arrival."""
    return sorted(jobs, key=lambda one: (order.key(one, cluster), one.order))


def without(hosts: Sequence[Host], starts: Sequence[Start]) -> list[Host]:
    """Hosts that nobody has joined."""
    taken = {start.device_ids for start in starts}
    return [host for host in hosts if host.device_ids not in taken]


def hosts_of(cluster: Cluster) -> list[Host]:
    """Who runs alone."""
    return [
        Host(one=one, device_ids=one.device_ids, device_type=one.devices[0].device.type) for one in cluster.sharable()
    ]


def started(
    one: Progress, devices: Sequence[Device], free: Sequence[Device], starts: list[Start], hosts: list[Host]
) -> list[Device]:
    """Add its start, and itself as a host; what is free then."""
    names = tuple(device.id for device in devices)
    starts.append(Start(job_id=one.job.id, device_ids=names))
    hosts.append(Host(one=one, device_ids=names, device_type=devices[0].type))
    taken = set(names)
    return [device for device in free if device.id not in taken]
