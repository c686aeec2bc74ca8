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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from interfere.records import Device
from interfere.sim.cluster import Cluster, JobState
from interfere.sim.free_devices import FreeDevices
from interfere.sim.schedulers.duration_estimates import Estimate
from interfere.sim.world import LATE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillReservation:
    """Devices that the head is expected to take at the shadow time."""

    shadow_s: float
    device_ids: frozenset[str]
    estimate: Estimate

    def find(
        self, free: FreeDevices, unreserved: FreeDevices, state: JobState, cluster: Cluster, node_gpus: int
    ) -> tuple[Device, ...]:
        """Devices for a later job that does not delay the head; empty where there are none."""
        job = state.job
        if devices := free.find(job.gpus, job.pools, node_gpus):
            speed = min(cluster.devices[device.id].speed for device in devices)
            runtime_s = self.estimate.remaining_s(state, cluster) / speed
            if self._ends_in_time(runtime_s, cluster):
                return devices
        return unreserved.find(job.gpus, job.pools, node_gpus)

    def allows_pair(
        self,
        guest: JobState,
        host: JobState,
        device_ids: Iterable[str],
        slowdowns: tuple[float, float],
        cluster: Cluster,
    ) -> bool:
        """May a guest join a host? `slowdowns`: predicted, of the guest and of the host."""
        if self.device_ids.isdisjoint(device_ids):
            return True
        speed = min(cluster.devices[device_id].speed for device_id in device_ids)
        return all(
            self._ends_in_time(self.estimate.remaining_s(state, cluster) * slowdown / speed, cluster)
            for state, slowdown in zip((guest, host), slowdowns, strict=True)
        )

    def _ends_in_time(self, runtime_s: float, cluster: Cluster) -> bool:
        return cluster.now_s + runtime_s <= self.shadow_s + LATE_S


def reserve(
    head: JobState,
    free: FreeDevices,
    started: Iterable[tuple[JobState, tuple[Device, ...]]],
    cluster: Cluster,
    estimate: Estimate,
    node_gpus: int,
) -> BackfillReservation | None:
    """The reservation of the head; None where all present devices could not hold it.

    `started`: jobs that this decision starts, and their devices, which are no longer in `free`.
    """
    # 1. When do which devices come free?
    releases: list[tuple[float, Sequence[Device]]] = []
    for state, devices in started:
        speed = min(cluster.devices[device.id].speed for device in devices)
        releases.append((cluster.now_s + estimate.remaining_s(state, cluster) / speed, devices))
    for state in cluster.running.values():
        partner = state.partner
        if partner is not None and partner.arrival_rank < state.arrival_rank:
            continue  # a pair counts once
        members = (state,) if partner is None else (state, partner)
        end_s = cluster.now_s + max(estimate.remaining_s(member, cluster) / member.rate for member in members)
        freed = [device.device for device in state.devices if device.is_present(cluster.now_s)]
        releases.append((end_s, freed))
    releases.sort(key=lambda release: release[0])
    # 2. When does the head first find devices?
    coming = free.copy()
    for k, (end_s, released) in enumerate(releases):
        coming.add(released)
        if k + 1 < len(releases) and releases[k + 1][0] == end_s:
            continue
        if found := coming.find(head.job.gpus, head.job.pools, node_gpus):
            reserved = coming.prefer(found, lambda device: device.id in free)  # those that come free later first
            device_ids = frozenset(device.id for device in reserved)
            return BackfillReservation(shadow_s=end_s, device_ids=device_ids, estimate=estimate)
    return None
