"""Schedulers that stop who comes later in their order for who comes earlier, with sharing on top of it or none.

In order: who runs keeps its devices; who waits gets empty ones, else those of running jobs that come after it, the last
first. What is left waiting may share. With sharing, a pair is parted once devices would stand empty and parting saves
more than twice the checkpoint, the rule of the server's moves. A pair counts as the earlier of its two.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from interfere.records import Device
from interfere.records.cluster import DEFAULT_MOVE_FACTOR
from interfere.sim.cluster import Cluster, Decision, Progress, Start
from interfere.sim.schedulers.duration_estimates import Estimate, Oracle
from interfere.sim.schedulers.orders import Order
from interfere.sim.schedulers.queue import Host, Sharing, in_order, seats


@dataclass(slots=True, kw_only=True)
class PreemptiveScheduler:
    """The order decides who runs, at every event."""

    order: Order
    backfill: bool = True  # may who waits start where somebody before it does not fit?
    sharing: Sharing | None = None
    whole_nodes: bool = True
    estimate: Estimate = field(default_factory=Oracle)  # of what parting a pair saves

    def decide(self, cluster: Cluster) -> Decision:
        """Starts and stops."""
        if not cluster.waiting and (self.sharing is None or not cluster.empty):
            return Decision(wake_s=self._wake_s(cluster, ()))
        board = _Board(cluster, in_order(self.order, (*cluster.waiting.values(), *cluster.running.values()), cluster))
        node_gpus = cluster.node_gpus if self.whole_nodes else 0
        blocked: list[Progress] = []
        for one in board.queue:
            if one.job.id in board.held:
                continue
            if not (devices := board.devices_for(one, node_gpus)):
                blocked.append(one)
                if not self.backfill:
                    break
            else:
                board.give(one, devices)
        if self.sharing is not None:
            there = {*board.starts, *(one.job.id for one in blocked)}
            blocked += [one for one in board.queue if one.job.id in board.stopped and one.job.id not in there]
            if not blocked:
                self._part(board, node_gpus)
            for start in self.sharing.join(in_order(self.order, blocked, cluster), board.hosts(), cluster):
                board.starts[start.job_id] = start
        wake_s = self._wake_s(cluster, board.starts)
        return Decision(starts=list(board.starts.values()), stops=list(board.stopped), wake_s=wake_s)

    def _part(self, board: "_Board", node_gpus: int) -> None:
        """Give who shares devices of its own, while some are empty."""
        for one in board.queue:
            partner = one.partner
            if partner is None or not {one.job.id, partner.job.id} <= board.held.keys():
                continue
            if not one.job.preemptible or self._parting_saves_s(one, partner, board.cluster) <= 0:
                continue
            if devices := seats(board.free, one, node_gpus):
                board.stop(one)
                board.give(one, devices)
                board.parted |= {one.job.id, partner.job.id}

    def _parting_saves_s(self, one: Progress, partner: Progress, cluster: Cluster) -> float:
        """Seconds that both end sooner, less twice the checkpoint."""
        ends = (self.estimate.left_s(job, cluster) * job.slowdown for job in (one, partner))
        lost = (1 - 1 / one.slowdown) + (1 - 1 / partner.slowdown)
        return min(ends) * lost - DEFAULT_MOVE_FACTOR * one.job.checkpoint_s

    def _wake_s(self, cluster: Cluster, starting: Iterable[str]) -> float:
        """When the order next changes by itself; too early where company slows a job, which costs one more look."""
        jobs = (*cluster.running.values(), *(cluster.jobs[name] for name in starting))
        return min((self.order.changes_s(one, cluster) for one in jobs), default=math.inf)


class _Board:
    """What the decision has come to so far."""

    def __init__(self, cluster: Cluster, queue: Sequence[Progress]) -> None:
        self.cluster, self.queue = cluster, queue
        self.place = {one.job.id: k for k, one in enumerate(queue)}
        self.held = {name: one.device_ids for name, one in cluster.running.items()}
        self.free: list[Device] = cluster.free()
        self.starts: dict[str, Start] = {}
        self.stopped: dict[str, None] = {}
        self.parted: set[str] = set()
        groups = {one.device_ids: one for one in cluster.running.values()}
        self.last_first = sorted(groups.values(), key=self._rank, reverse=True)

    def _rank(self, one: Progress) -> int:
        """Of a job that runs: the earlier of it and its partner."""
        mine = self.place[one.job.id]
        return mine if one.partner is None else min(mine, self.place[one.partner.job.id])

    def devices_for(self, one: Progress, node_gpus: int) -> tuple[Device, ...]:
        """Empty ones, else those that running jobs after it would leave; who is not in the way stays."""
        if devices := seats(self.free, one, node_gpus):
            return devices
        free, chosen = list(self.free), []
        for other in self.last_first:
            if self._rank(other) < self.place[one.job.id]:
                break
            if other.job.id in self.held and self._may_stop(other):
                chosen.append(other)
                free += [self.cluster.devices[name].device for name in other.device_ids]
                if len(free) >= one.job.gpus and (devices := seats(free, one, node_gpus)):
                    self._evict(chosen, devices)
                    return devices
        return ()

    @staticmethod
    def _may_stop(other: Progress) -> bool:
        return other.job.preemptible and (other.partner is None or other.partner.job.preemptible)

    def _evict(self, chosen: Sequence[Progress], devices: Sequence[Device]) -> None:
        wanted = {device.id for device in devices}
        for other in chosen:
            if wanted.intersection(other.device_ids):
                self.stop(other)
                if other.partner is not None:
                    self.stop(other.partner)

    def stop(self, one: Progress) -> None:
        """It leaves its devices; they are free once nobody is on them."""
        places = self.held.pop(one.job.id)
        self.stopped[one.job.id] = None
        if one.partner is None or one.partner.job.id not in self.held:
            self.free += [self.cluster.devices[name].device for name in places]

    def give(self, one: Progress, devices: Sequence[Device]) -> None:
        """A job starts alone."""
        names = tuple(device.id for device in devices)
        self.starts[one.job.id] = Start(job_id=one.job.id, device_ids=names)
        self.free = [device for device in self.free if device.id not in names]

    def hosts(self) -> list[Host]:
        """Who runs alone, or will, and was not parted from somebody just now."""
        found = []
        for one in self.queue:
            name = one.job.id
            alone = name in self.held and (one.partner is None or one.partner.job.id not in self.held)
            if name in self.parted or not (alone or name in self.starts):
                continue
            ids = self.starts[name].device_ids if name in self.starts else self.held[name]
            found.append(Host(one=one, device_ids=ids, device_type=self.cluster.devices[ids[0]].device.type))
        return found
