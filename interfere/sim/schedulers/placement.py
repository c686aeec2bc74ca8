"""Where a job can start: free devices for it alone, or a host that it joins."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from interfere.records import Device
from interfere.sim.cluster import Cluster, JobState, Start
from interfere.sim.free_devices import FreeDevices
from interfere.sim.schedulers.easy_backfill import BackfillReservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A job that runs without a partner, or is about to, and may be joined."""

    state: JobState
    device_ids: tuple[str, ...]
    device_type: str


class Sharing(Protocol):
    """Chooses which waiting job joins which host."""

    def join(
        self,
        waiting: Sequence[JobState],
        hosts: Sequence[Host],
        cluster: Cluster,
        reservation: BackfillReservation | None = None,
    ) -> list[Start]:
        """Starts of waiting jobs, given in order, beside hosts; at most one guest a host, and none that delays the job
        that the reservation is for."""


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
    state: JobState, devices: Sequence[Device], free: FreeDevices, starts: list[Start], started: list[Host]
) -> None:
    """Append a start on free devices to `starts`, and the job to `started`; the devices are no longer free."""
    device_ids = tuple(device.id for device in devices)
    starts.append(Start(job_id=state.job.id, device_ids=device_ids))
    started.append(Host(state=state, device_ids=device_ids, device_type=devices[0].type))
    free.remove(devices)
