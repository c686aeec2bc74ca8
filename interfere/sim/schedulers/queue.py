"""Non-preemptive schedulers: start jobs in the order of a queue, with or without backfill, dropping and sharing.

A job that cannot start on free devices may be offered to a `GuestPlacement`, which joins it to a running job:
everything else is the same with sharing off and on, so that the difference is sharing. A scheduler that drops gives up
a job once its deadline is infeasible, and starts a job only on devices where it meets its deadline before they leave.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum

from interfere.records import Device
from interfere.sim.cluster import Cluster, Decision, JobState, Start
from interfere.sim.free_devices import FreeDevices
from interfere.sim.schedulers.easy_backfill import ExpectedEnds, reserve
from interfere.sim.schedulers.estimates import (
    Estimate,
    ToldDurations,
    find_timely_devices,
    is_infeasible,
    next_infeasible_s,
)
from interfere.sim.schedulers.orders import Order, in_order
from interfere.sim.schedulers.sharing import GuestPlacement, Host, add_start, hosts_with_a_seat, running_hosts


class Backfill(StrEnum):
    """Which later jobs start where an earlier one does not fit."""

    NONE = ""  # none: head of line
    FIRST_FIT = "first-fit"  # any that fits: nothing is reserved, and a job on many devices may starve
    EASY = "easy"  # jobs that do not delay the first waiting job


@dataclass(slots=True, kw_only=True)
class QueueScheduler:
    """Starts jobs in order, and stops none. With `slice_s`, sharing is decided at most that often."""

    order: Order
    backfill: Backfill = Backfill.FIRST_FIT
    drop: bool = False  # give up jobs whose deadline is infeasible
    sharing: GuestPlacement | None = None
    slice_s: float = 0.0
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with; else it takes any free devices
    estimate: Estimate = field(default_factory=ToldDurations)  # of run times, for EASY and deadlines
    _next_sharing_s: float = 0.0
    _ends: ExpectedEnds = field(init=False)

    def __post_init__(self) -> None:
        self._ends = ExpectedEnds(self.estimate)

    def decide(self, cluster: Cluster) -> Decision:
        """Drop jobs with infeasible deadlines where `drop` says so, then start waiting jobs in order.

        A job starts on free devices, or else beside a host, or else it waits. Without backfill, all later jobs wait
        too.
        """
        if not cluster.waiting:
            return Decision()
        # 1. Drop jobs whose deadline is infeasible.
        drops = dict.fromkeys(
            state.job.id
            for state in cluster.waiting.values()
            if self.drop and is_infeasible(state, cluster, self.estimate)
        )
        candidates = [state for state in cluster.waiting.values() if state.job.id not in drops]
        wake_s = next_infeasible_s(candidates, cluster, self.estimate) if self.drop else math.inf
        if not cluster.free and self.sharing is None:
            return Decision(drops=tuple(drops), wake_s=wake_s)
        # 2. Start jobs in order.
        queue = in_order(self.order, candidates, cluster)
        sharing = self.sharing if cluster.now_s >= self._next_sharing_s else None
        starts, blocked = self._start_jobs(queue, cluster, sharing)
        # 3. Decide about sharing again one slice later.
        if self.slice_s and self.sharing is not None and blocked:
            if sharing is not None:
                self._next_sharing_s = cluster.now_s + self.slice_s
            wake_s = min(wake_s, self._next_sharing_s)
        return Decision(starts=starts, drops=tuple(drops), wake_s=wake_s)

    def _start_jobs(
        self, queue: list[JobState], cluster: Cluster, sharing: GuestPlacement | None
    ) -> tuple[list[Start], list[JobState]]:
        """Return the starts, and the blocked jobs: those that found no free devices which they may take.

        `sharing` is offered the blocked jobs: without backfill one by one, until one of them finds no host, which ends
        the search; with backfill all together, so that none delays the first of them where it has a reservation.
        """
        is_strict = self.backfill is Backfill.NONE
        free, node_gpus = cluster.free.copy(), self._node_gpus(cluster)
        unreserved, reservation = free, None
        hosts: list[Host] = running_hosts(cluster) if is_strict and sharing is not None else []
        starts: list[Start] = []
        blocked: list[JobState] = []
        too_large: set[tuple[int, tuple[str, ...]]] = set()  # (size, pools) without devices: these only get fewer
        for state in queue:
            # 1. Start the job on free devices, where it delays no reservation.
            request = (state.job.gpus, state.job.pools)
            devices = self._find_devices(free, state, cluster) if request not in too_large else ()
            if not devices and not self.drop:  # else another job of this size may still meet its deadline here
                too_large.add(request)
            if devices and reservation is not None:
                devices = reservation.allowed(devices, unreserved, state, cluster, node_gpus)
            if devices:
                add_start(state, devices, free, starts, hosts)
                if unreserved is not free:
                    unreserved.remove(devices)
                continue
            # 2. Else let it join a host, or reserve devices for it, as the backfill says.
            blocked.append(state)
            if is_strict:
                joined = sharing.join([state], hosts, cluster) if sharing is not None else []
                if not joined:
                    break
                starts += joined
                hosts = hosts_with_a_seat(hosts, joined, cluster)
            elif not free and sharing is None:
                break
            elif self.backfill is Backfill.EASY and len(blocked) == 1:
                reservation = reserve(state, free, starts, cluster, self._ends, node_gpus)
                if reservation is not None:
                    unreserved = free.copy()
                    unreserved.remove(cluster.devices[device_id].device for device_id in reservation.device_ids)
        if sharing is not None and blocked and not is_strict:
            starts += sharing.join(blocked, [*running_hosts(cluster), *hosts], cluster, reservation)
        return starts, blocked

    def _find_devices(self, free: FreeDevices, state: JobState, cluster: Cluster) -> tuple[Device, ...]:
        node_gpus = self._node_gpus(cluster)
        if self.drop:
            return find_timely_devices(free, state, cluster, node_gpus, self.estimate)
        return free.find(state.job.gpus, state.job.pools, node_gpus)

    def _node_gpus(self, cluster: Cluster) -> int:
        return cluster.node_gpus if self.whole_nodes else 0
