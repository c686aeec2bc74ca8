"""Where a job can start: free devices for it alone, or a host that it joins."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from interfere.records import Device
from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.cluster import Cluster, JobState, Start
from interfere.sim.free_devices import FreeDevices
from interfere.sim.schedulers.easy_backfill import BackfillReservation


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A running or starting job with a free seat. On devices with more than two seats, its neighbours are included."""

    state: JobState
    device_ids: tuple[str, ...]
    device_type: str
    others: tuple[JobState, ...] = ()

    @property
    def residents(self) -> tuple[JobState, ...]:
        """All jobs that a guest would join."""
        return (self.state, *self.others)


class GuestPlacement(Protocol):
    """Chooses which waiting job joins which host."""

    def join(
        self,
        waiting: Sequence[JobState],
        hosts: Sequence[Host],
        cluster: Cluster,
        reservation: BackfillReservation | None = None,
    ) -> list[Start]:
        """Return starts of waiting jobs beside hosts, in the order of `waiting`.

        No device gets more jobs than it has seats, and no start delays the job with the reservation.
        """


def running_hosts(cluster: Cluster) -> list[Host]:
    """Return the running jobs with a free seat: jobs without a partner, or groups where devices have more than two
    seats."""
    groups = cluster.groups_with_a_seat() if cluster.seats > DEFAULT_SEATS else zip(cluster.unshared_jobs())
    return [
        Host(state=first, device_ids=first.device_ids, device_type=first.devices[0].device.type, others=tuple(others))
        for first, *others in groups
    ]


def hosts_with_a_seat(hosts: Sequence[Host], starts: Iterable[Start], cluster: Cluster) -> list[Host]:
    """The hosts that still leave a seat once these starts have joined them."""
    guests: dict[tuple[str, ...], tuple[JobState, ...]] = {}
    for start in starts:
        guests[start.device_ids] = (*guests.get(start.device_ids, ()), cluster.jobs[start.job_id])
    joined = (
        replace(host, others=(*host.others, *guests[host.device_ids])) if host.device_ids in guests else host
        for host in hosts
    )
    return [host for host in joined if len(host.residents) < cluster.seats]


def add_start(
    state: JobState, devices: Sequence[Device], free: FreeDevices, starts: list[Start], started: list[Host]
) -> None:
    """Append a start on free devices to `starts`, and the job to `started`; the devices are no longer free."""
    device_ids = tuple(device.id for device in devices)
    starts.append(Start(job_id=state.job.id, device_ids=device_ids))
    started.append(Host(state=state, device_ids=device_ids, device_type=devices[0].type))
    free.remove(devices)
