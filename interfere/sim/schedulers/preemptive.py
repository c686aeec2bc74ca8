"""Preemptive schedulers: stop jobs that come later in the order for jobs that come earlier, with or without sharing.

In order: a running job keeps its devices; a waiting job gets free ones, else those of running jobs that come after it,
the last first. Jobs that still wait may share. With sharing, a pair is separated once devices are free and no job
waits for them, if that saves more than twice the checkpoint: the rule of the server's migrations. A pair ranks as the
earlier of its two jobs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from interfere.records import Device
from interfere.records.cluster import DEFAULT_MOVE_FACTOR
from interfere.sim.cluster import Cluster, Decision, JobState, Start
from interfere.sim.schedulers.duration_estimates import Estimate, Oracle
from interfere.sim.schedulers.orders import Order, in_order
from interfere.sim.schedulers.placement import Host, Sharing


@dataclass(slots=True, kw_only=True)
class PreemptiveScheduler:
    """At every event, the order decides which jobs run."""

    order: Order
    backfill: bool = True  # may a later job start where an earlier one does not fit?
    sharing: Sharing | None = None
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with; else it takes any devices
    estimate: Estimate = field(default_factory=Oracle)  # for what separating a pair saves

    def decide(self, cluster: Cluster) -> Decision:
        """Starts and stops."""
        if not cluster.waiting and (self.sharing is None or not cluster.free):
            return Decision(wake_s=self._wake_s(cluster, ()))
        queue = in_order(self.order, (*cluster.waiting.values(), *cluster.running.values()), cluster)
        draft = _DraftDecision(cluster, queue)
        node_gpus = cluster.node_gpus if self.whole_nodes else 0
        # 1. Give devices to jobs in order, and stop later jobs where that is needed.
        blocked: list[JobState] = []
        for state in draft.queue:
            if state.job.id in draft.kept_devices:
                continue
            if devices := draft.make_room(state, node_gpus):
                draft.start(state, devices)
                continue
            blocked.append(state)
            if not self.backfill:
                break
        # 2. Let jobs share that still wait; where none does, separate pairs onto free devices.
        if self.sharing is not None:
            considered = {*draft.starts, *(state.job.id for state in blocked)}
            blocked += [
                state for state in draft.queue if state.job.id in draft.stopped and state.job.id not in considered
            ]
            if not blocked:
                self._separate_pairs(draft, node_gpus)
            for start in self.sharing.join(in_order(self.order, blocked, cluster), draft.hosts(), cluster):
                draft.starts[start.job_id] = start
        wake_s = self._wake_s(cluster, draft.starts)
        return Decision(starts=list(draft.starts.values()), stops=list(draft.stopped), wake_s=wake_s)

    def _separate_pairs(self, draft: "_DraftDecision", node_gpus: int) -> None:
        """Move jobs that share to free devices of their own."""
        for state in draft.queue:
            partner = state.partner
            if partner is None or not {state.job.id, partner.job.id} <= draft.kept_devices.keys():
                continue
            if not state.job.preemptible or self._separation_saves_s(state, partner, draft.cluster) <= 0:
                continue
            if devices := draft.free.find(state.job.gpus, state.job.pools, node_gpus):
                draft.stop(state)
                draft.start(state, devices)
                draft.separated |= {state.job.id, partner.job.id}

    def _separation_saves_s(self, state: JobState, partner: JobState, cluster: Cluster) -> float:
        """Seconds by which the two end sooner in sum, less twice the checkpoint."""
        shared_s = min(self.estimate.remaining_s(member, cluster) * member.slowdown for member in (state, partner))
        lost_speed = (1 - 1 / state.slowdown) + (1 - 1 / partner.slowdown)
        return shared_s * lost_speed - DEFAULT_MOVE_FACTOR * state.job.checkpoint_s

    def _wake_s(self, cluster: Cluster, starting: Iterable[str]) -> float:
        """When the order next changes by itself; too early where sharing slows a job, which costs one more decision."""
        states = (*cluster.running.values(), *(cluster.jobs[job_id] for job_id in starting))
        return min((self.order.next_change_s(state, cluster) for state in states), default=math.inf)


def _turn(victims: Sequence[JobState], device: Device) -> int:
    """Of the devices of a node, those that are free are taken first, then those of the first victims."""
    return next((k for k, victim in enumerate(victims) if device.id in victim.device_ids), -1)


class _DraftDecision:
    """Starts and stops decided so far, and what the devices would be like after them."""

    def __init__(self, cluster: Cluster, queue: Sequence[JobState]) -> None:
        self.cluster, self.queue = cluster, queue
        self.free = cluster.free.copy()
        self.kept_devices = {job_id: state.device_ids for job_id, state in cluster.running.items()}
        self.starts: dict[str, Start] = {}
        self.stopped: dict[str, None] = {}
        self.separated: set[str] = set()
        self._ranks = {state.job.id: rank for rank, state in enumerate(queue)}
        one_of_pair = {state.device_ids: state for state in cluster.running.values()}
        self._last_first = sorted(one_of_pair.values(), key=self._pair_rank, reverse=True)

    def _pair_rank(self, state: JobState) -> int:
        """Rank of a running job: the earlier of it and its partner."""
        rank = self._ranks[state.job.id]
        return rank if state.partner is None else min(rank, self._ranks[state.partner.job.id])

    def make_room(self, state: JobState, node_gpus: int) -> tuple[Device, ...]:
        """Free devices for a job, else devices of later jobs, which are stopped; empty where there are not enough."""
        if devices := self.free.find(state.job.gpus, state.job.pools, node_gpus):
            return devices
        free, victims = self.free.copy(), []
        for victim in self._last_first:
            if self._pair_rank(victim) < self._ranks[state.job.id]:
                break
            if victim.job.id in self.kept_devices and self._is_preemptible(victim):
                victims.append(victim)
                free.add(device.device for device in victim.devices)
                if devices := free.find(state.job.gpus, state.job.pools, node_gpus):
                    devices = free.prefer(devices, partial(_turn, victims))
                    self._preempt(victims, devices)
                    return devices
        return ()

    @staticmethod
    def _is_preemptible(state: JobState) -> bool:
        return state.job.preemptible and (state.partner is None or state.partner.job.preemptible)

    def _preempt(self, victims: Sequence[JobState], devices: Sequence[Device]) -> None:
        """Stop the victims that are on these devices, with their partners."""
        wanted = {device.id for device in devices}
        for victim in victims:
            if wanted.intersection(victim.device_ids):
                self.stop(victim)
                if victim.partner is not None:
                    self.stop(victim.partner)

    def stop(self, state: JobState) -> None:
        """A job leaves its devices, which are free once no job keeps them."""
        device_ids = self.kept_devices.pop(state.job.id)
        self.stopped[state.job.id] = None
        if state.partner is None or state.partner.job.id not in self.kept_devices:
            self.free.add(self.cluster.devices[device_id].device for device_id in device_ids)

    def start(self, state: JobState, devices: Sequence[Device]) -> None:
        """A job starts on free devices."""
        device_ids = tuple(device.id for device in devices)
        self.starts[state.job.id] = Start(job_id=state.job.id, device_ids=device_ids)
        self.free.remove(devices)

    def hosts(self) -> list[Host]:
        """Jobs that run, or will, without a partner; those just separated from theirs are left out."""
        hosts = []
        for state in self.queue:
            job_id = state.job.id
            unshared = job_id in self.kept_devices and (
                state.partner is None or state.partner.job.id not in self.kept_devices
            )
            if job_id in self.separated or not (unshared or job_id in self.starts):
                continue
            device_ids = self.starts[job_id].device_ids if job_id in self.starts else self.kept_devices[job_id]
            device_type = self.cluster.devices[device_ids[0]].device.type
            hosts.append(Host(state=state, device_ids=device_ids, device_type=device_type))
        return hosts
