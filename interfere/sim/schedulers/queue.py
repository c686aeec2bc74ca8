"""Non-preemptive schedulers: start jobs in the order of a queue, or admit deadlines by slots and start jobs at these.

A job that cannot start on free devices may be offered to a `GuestPlacement`, which joins it to a running job:
everything else is the same with sharing off and on, so that the difference is sharing. A scheduler that drops gives up
a job once its deadline is infeasible, and starts a job only on devices where it meets its deadline before they leave.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from interfere.policy.deadlines.admission import CapacityProfile, DeadlineDemand, Reservation, schedule_all
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
    windows_from,
)
from interfere.sim.schedulers.orders import Order, in_order
from interfere.sim.schedulers.sharing import GuestPlacement, Host, add_start, hosts_with_a_seat, running_hosts
from interfere.sim.world import LATE_S, SimDevice


class Backfill(StrEnum):
    """The rule on which later jobs start where an earlier job does not fit."""

    NONE = ""  # none: head of line
    FIRST_FIT = "first-fit"  # any that fits: nothing is reserved, and a job on many devices may starve
    EASY = "easy"  # jobs that do not delay the first waiting job


@dataclass(slots=True, kw_only=True)
class QueueScheduler:
    """A scheduler that starts jobs in order and stops none."""

    order: Order
    backfill: Backfill = Backfill.FIRST_FIT
    drop: bool = False  # give up jobs whose deadline is infeasible
    sharing: GuestPlacement | None = None
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with; else it takes any free devices
    estimate: Estimate = field(default_factory=ToldDurations)  # of run times, for EASY and deadlines
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
        return Decision(starts=self._start_jobs(queue, cluster), drops=tuple(drops), wake_s=wake_s)

    def _start_jobs(self, queue: list[JobState], cluster: Cluster) -> list[Start]:
        """Return the starts.

        Jobs are blocked for which there are no free devices that they may take; they are offered to `sharing`. Without
        backfill they are offered one by one, and the search ends at the first job without a host. With backfill they
        are offered all together, so that none delays the first of them where it has a reservation.
        """
        is_strict, sharing = self.backfill is Backfill.NONE, self.sharing
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
        return starts

    def _find_devices(self, free: FreeDevices, state: JobState, cluster: Cluster) -> tuple[Device, ...]:
        node_gpus = self._node_gpus(cluster)
        if self.drop:
            return find_timely_devices(free, state, cluster, node_gpus, self.estimate)
        return free.find(state.job.gpus, state.job.pools, node_gpus)

    def _node_gpus(self, cluster: Cluster) -> int:
        return cluster.node_gpus if self.whole_nodes else 0


# --- admission of deadlines by slots ----------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class SlotAdmission:
    """ElasticFlow's admission: a new deadline is promised if the job and all promised jobs can be laid out in slots.

    A job whose deadline cannot be promised is dropped. A job without a deadline runs where the layout of the promised
    jobs stays possible. The layout is the server's, `interfere.policy.deadlines.admission`.
    """

    sharing: GuestPlacement | None = None
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with, unless its slot is due
    estimate: Estimate = field(default_factory=ToldDurations)
    _promised: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)

    def decide(self, cluster: Cluster) -> Decision:
        """Admit new jobs, lay out all admitted jobs in slots, and start the jobs whose slots begin now, then others."""
        # 1. Admit or drop each job with a deadline that is new.
        capacity = _FreeCapacity(cluster, self.estimate)
        admitted = [state for state in cluster.waiting.values() if state.job.id in self._promised]
        promises, drops = self._admit(cluster, capacity, admitted)
        # 2. Lay the admitted jobs out, and see which slots begin now.
        slots = capacity.schedule(admitted)
        due = {slot.job_id for slot in slots or () if slot.from_s <= cluster.now_s + LATE_S}
        if slots is None:  # a checkpoint or sharing has cost too much: start admitted jobs by deadline
            due = set(self._promised)
        # 3. Start jobs by deadline, best effort last.
        queue = [
            state
            for state in sorted(cluster.waiting.values(), key=lambda state: (state.job.deadline_s, state.remaining_s))
            if state.job.id not in drops and (state.job.id in due or state.job.id not in self._promised)
        ]
        starts = self._start_jobs(queue, cluster, capacity, admitted)
        next_slots_s = [slot.from_s for slot in slots or () if slot.from_s > cluster.now_s + LATE_S]
        return Decision(starts=starts, drops=drops, promises=promises, wake_s=min(next_slots_s, default=math.inf))

    def _admit(
        self, cluster: Cluster, capacity: "_FreeCapacity", admitted: list[JobState]
    ) -> tuple[list[str], list[str]]:
        """Append the new jobs that can be scheduled to `admitted`. Returns the ids of admitted and of refused jobs."""
        promises, drops = [], []
        for state in cluster.waiting.values():
            if state.job.id in self._seen or not state.job.has_deadline:
                continue
            self._seen.add(state.job.id)
            if capacity.schedule([*admitted, state]) is not None:
                admitted.append(state)
                self._promised.add(state.job.id)
                promises.append(state.job.id)
            else:
                drops.append(state.job.id)
        return promises, drops

    def _start_jobs(
        self, queue: Sequence[JobState], cluster: Cluster, capacity: "_FreeCapacity", admitted: Sequence[JobState]
    ) -> list[Start]:
        free, starts = cluster.free.copy(), list[Start]()
        hosts = running_hosts(cluster) if self.sharing is not None else []
        blocked, unstarted = list[JobState](), list(admitted)
        node_gpus = cluster.node_gpus if self.whole_nodes else 0
        for state in queue:
            is_promised = state.job.id in self._promised
            devices = find_timely_devices(free, state, cluster, node_gpus, self.estimate)
            if not devices and is_promised:
                devices = find_timely_devices(free, state, cluster, 0, self.estimate)
                devices = devices or free.find(state.job.gpus, state.job.pools)
            others = [other for other in unstarted if other is not state]
            if devices and not is_promised and unstarted and not capacity.can_schedule_after(state, devices, others):
                devices = ()
            if not devices:
                blocked.append(state)
                continue
            capacity.reserve(state, devices)
            unstarted = others
            add_start(state, devices, free, starts, hosts)
        if self.sharing is not None and blocked and hosts:
            starts += self.sharing.join(blocked, hosts, cluster)
        return starts


class _FreeCapacity:
    """The free capacity over time: one profile for all devices of equal pool, type, speed and windows."""

    def __init__(self, cluster: Cluster, estimate: Estimate) -> None:
        self._cluster, self._estimate = cluster, estimate
        self._windows = {
            device_id: windows_from(device, cluster.now_s) for device_id, device in cluster.devices.items()
        }
        by_profile: dict[object, list[SimDevice]] = {}
        for device_id, device in cluster.devices.items():
            key = (device.device.pool, device.device.type, device.speed, self._windows[device_id])
            by_profile.setdefault(key, []).append(device)
        groups = list(by_profile.values())
        self._profile_of = {device.device.id: k for k, group in enumerate(groups) for device in group}
        self._first_devices = [group[0] for group in groups]
        self.profiles = [
            CapacityProfile(cluster.now_s, self._windows[group[0].device.id], len(group)) for group in groups
        ]
        for state in cluster.running.values():
            for device_id in state.device_ids:
                self._occupy(device_id, cluster.now_s + estimate.remaining_s(state, cluster) / (state.rate or 1.0))

    def _occupy(self, device_id: str, end_s: float) -> None:
        for from_s, until_s in self._windows[device_id]:
            start_s = max(from_s, self._cluster.now_s)
            if start_s < min(until_s, end_s):
                self.profiles[self._profile_of[device_id]].reserve(start_s, min(until_s, end_s), 1)

    def schedule(self, states: Sequence[JobState]) -> tuple[Reservation, ...] | None:
        """Return slots in which all these jobs meet their deadlines; None where no such slots were found."""
        return schedule_all([self._demand(state) for state in states], self.profiles)

    def can_schedule_after(self, state: JobState, devices: Sequence[Device], others: Sequence[JobState]) -> bool:
        """Return whether the other jobs can be scheduled once this job runs on these devices."""
        profiles = self.profiles
        self.profiles = [profile.copy() for profile in profiles]
        self.reserve(state, devices)
        is_possible = self.schedule(others) is not None
        self.profiles = profiles
        return is_possible

    def reserve(self, state: JobState, devices: Sequence[Device]) -> None:
        """Subtract a job that runs on these devices from now on from the free capacity."""
        for device in devices:
            speed = self._cluster.devices[device.id].speed
            self._occupy(device.id, self._cluster.now_s + self._remaining_s(state) / speed)

    def _remaining_s(self, state: JobState) -> float:
        return self._estimate.remaining_s(state, self._cluster)

    def _demand(self, state: JobState) -> DeadlineDemand:
        return DeadlineDemand(
            job_id=state.job.id,
            gpus=state.job.gpus,
            deadline_s=state.job.deadline_s + LATE_S,
            runtime_s=tuple(
                self._remaining_s(state) / device.speed
                if not state.job.pools or device.device.pool in state.job.pools
                else math.inf
                for device in self._first_devices
            ),
        )
