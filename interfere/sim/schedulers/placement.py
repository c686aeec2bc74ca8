"""Where a job can start: free devices for it alone, or a host that it joins."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from interfere.policy.solve.gangs import device_sets
from interfere.records import Device
from interfere.sim.cluster import Cluster, JobState, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A job that runs without a partner, or is about to, and may be joined."""

    state: JobState
    device_ids: tuple[str, ...]
    device_type: str


class Sharing(Protocol):
    """Chooses which waiting job joins which host."""

    def join(self, waiting: Sequence[JobState], hosts: Sequence[Host], cluster: Cluster) -> list[Start]:
        """Starts of waiting jobs, given in order, beside hosts; at most one guest a host."""


def find_devices(free: Sequence[Device], state: JobState, node_gpus: int) -> tuple[Device, ...]:
    """Free devices of one pool and type for a job, on as few nodes as the free devices allow; empty where there are
    not enough.

    `node_gpus`: devices of a node; the job then takes no more nodes than it would on empty ones. 0: any nodes.
    """
    by_type: dict[str, list[Device]] = {}
    for device in free:
        if not state.job.pools or device.pool in state.job.pools:
            by_type.setdefault(f"{device.pool}/{device.type}", []).append(device)
    for devices in by_type.values():
        if len(devices) < state.job.gpus:
            continue
        chosen = device_sets(devices, state.job.gpus, 1)[0]
        if not node_gpus or len({device.node for device in chosen}) <= -(-state.job.gpus // node_gpus):
            return chosen
    return ()


def running_hosts(cluster: Cluster) -> list[Host]:
    """Running jobs without a partner."""
    return [
        Host(state=state, device_ids=state.device_ids, device_type=state.devices[0].device.type)
        for state in cluster.unshared_jobs()
    ]


def unjoined_hosts(hosts: Sequence[Host], starts: Iterable[Start]) -> list[Host]:
    """Hosts that none of these starts joins."""
    joined = {start.device_ids for start in starts}
    return [host for host in hosts if host.device_ids not in joined]


def add_start(
    state: JobState, devices: Sequence[Device], free: Sequence[Device], starts: list[Start], hosts: list[Host]
) -> list[Device]:
    """Append a start on free devices to `starts`, and the job to `hosts`. Returns the devices that stay free."""
    device_ids = tuple(device.id for device in devices)
    starts.append(Start(job_id=state.job.id, device_ids=device_ids))
    hosts.append(Host(state=state, device_ids=device_ids, device_type=devices[0].type))
    taken = set(device_ids)
    return [device for device in free if device.id not in taken]
