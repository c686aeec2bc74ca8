"""ElasticFlow's admission: promise a job's deadline on arrival if all promised jobs and it can be laid out in slots.

A job whose deadline cannot be promised is dropped. A job without a deadline runs where the layout of the promised jobs
stays possible. Run times are what an estimate says. The layout is `interfere.policy.deadlines.admission`, the server's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from interfere.policy.deadlines.admission import CapacityProfile, DeadlineDemand, Reservation, schedule_all
from interfere.records import Device
from interfere.sim.cluster import Cluster, Decision, JobState, Start
from interfere.sim.schedulers.estimates import Estimate, ToldDurations, find_timely_devices, windows_from
from interfere.sim.schedulers.sharing import GuestPlacement, add_start, running_hosts
from interfere.sim.world import LATE_S, SimDevice


@dataclass(slots=True, kw_only=True)
class SlotAdmission:
    """Promises deadlines at arrival, and starts jobs at their slots."""

    sharing: GuestPlacement | None = None
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with, unless its slot is due
    estimate: Estimate = field(default_factory=ToldDurations)
    _promised: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)

    def decide(self, cluster: Cluster) -> Decision:
        """Admit, lay out, and start what the layout starts now, then best-effort jobs."""
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
    """Devices of the same pool, type and known windows as capacity profiles, less what running jobs hold."""

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
        """Slots of all these jobs; None where none were found."""
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
        """The job runs on these devices from now on."""
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
