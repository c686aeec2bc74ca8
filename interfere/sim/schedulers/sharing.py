"""Which waiting job may join which running one: hosts, the rules that a pair must keep, and greedy placement.

Slowdown caps, the least joint throughput and the rule that guests end first are those of the server. The greedy
placement plans nothing jointly: each waiting job in order joins the host beside which the pair costs least.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from interfere.policy.rules.group_rules import does_not_pay, outlasts
from interfere.protocols import Predictor
from interfere.records import Device, JobProfile, MatrixBatch
from interfere.records.cluster import DEFAULT_SEATS
from interfere.records.limits import DEFAULT_MIN_JOINT_THROUGHPUT, DEFAULT_RISK
from interfere.sharing_modes import SharingMode
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Cluster, JobState, Start
from interfere.sim.free_devices import FreeDevices
from interfere.sim.schedulers.easy_backfill import BackfillReservation
from interfere.sim.schedulers.estimates import Estimate, ToldDurations, windows_from
from interfere.sim.world import LATE_S

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Options that are the same for all schedulers of a replay."""

    max_shared_gpus: int | None = None  # larger jobs never share
    guest_ends_first: bool = False  # only where no job is preempted: a preemptive scheduler gets devices back anyway
    whole_nodes: bool = True  # a job waits for as few nodes as it can do with; else it takes any free devices
    slice_s: float = 0.0  # running jobs are re-paired at most this often; 0: every 300 s
    duration_error: float = 0.0  # standard error of log run time, of schedulers that are told run times
    seed: int = 0  # of these errors
    round_s: float = 0.0  # decisions are made at whole multiples of it; 0: at every event
    limit_unit_s: float = 0.0  # schedulers are told time limits in whole units (Slurm: 60); 0: run times
    risk: float = DEFAULT_RISK  # of the server: probability with which a slowdown may pass its cap


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings(SchedulerOptions):
    """The predictor, the profiles and the limits that a scheduler gets in addition to its record."""

    predictor: Predictor
    profiles: Profiles
    mode: SharingMode
    max_slowdown: float = math.nan  # on predicted slowdowns; NaN: none, as the server has it by default
    min_joint_throughput: float = DEFAULT_MIN_JOINT_THROUGHPUT  # a pair shares only above it
    seats: int = DEFAULT_SEATS  # jobs that may share a device

    def predict_pairs(
        self, victims: Sequence[str], neighbours: Sequence[str], device_type: str
    ) -> tuple[Floats, Floats, Bools]:
        """Return the predicted slowdowns of workloads beside others, and whether cap and joint throughput allow a pair.

        All workloads must have profiles. float64[p, q] of victim i beside neighbour j, float64[p, q] of neighbour j
        beside victim i, bool[p, q]. A pair that nobody predicts is not allowed.
        """
        batch = MatrixBatch(
            victims=tuple(self.profiles[name, device_type] for name in victims),
            neighbours=tuple(self.profiles[name, device_type] for name in neighbours),
            device_type=device_type,
            mode=self.mode,
        )
        predicted = self.predictor.predict_matrix(batch)
        victim = predicted.victim_slowdown.astype(np.float64)
        neighbour = predicted.neighbour_slowdown.astype(np.float64)
        cap = math.inf if math.isnan(self.max_slowdown) else self.max_slowdown
        allowed = (victim <= cap) & (neighbour <= cap)  # NaN is never within
        return victim, neighbour, np.asarray(allowed & ~does_not_pay((victim, neighbour), self.min_joint_throughput))

    def profile(self, workload: str, device_type: str) -> JobProfile | None:
        """Return the solo profile of a workload; None where it has none."""
        return self.profiles.get((workload, device_type))


# --- hosts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A running or starting job with a free seat. On devices with more than two seats, its neighbours are included."""

    state: JobState
    device_ids: tuple[str, ...]
    device_type: str
    others: tuple[JobState, ...] = ()

    @property
    def residents(self) -> tuple[JobState, ...]:
        """The jobs on the devices, which a guest would run beside."""
        return (self.state, *self.others)


class GuestPlacement(Protocol):
    """A rule that chooses which waiting job joins which host."""

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
    """Return the running jobs that a guest may join: jobs without a partner; with more than two seats, groups with a
    free seat."""
    groups = cluster.groups_with_a_seat() if cluster.seats > DEFAULT_SEATS else zip(cluster.unshared_jobs())
    return [
        Host(state=first, device_ids=first.device_ids, device_type=first.devices[0].device.type, others=tuple(others))
        for first, *others in groups
    ]


def hosts_with_a_seat(hosts: Sequence[Host], starts: Iterable[Start], cluster: Cluster) -> list[Host]:
    """Return the hosts that still have a free seat after the given starts have joined them."""
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


# --- pairs ------------------------------------------------------------------------------------------------------------


class PairSlowdowns(NamedTuple):
    """Predicted slowdowns of a guest and its host beside each other."""

    guest: float
    host: float

    @property
    def cost(self) -> float:
        """Return the added slowdown of the two jobs together."""
        return self.guest + self.host - 2


AllowedPairs = dict[tuple[str, str, str], PairSlowdowns]
"""(guest's workload, host's workload, device type) -> predicted slowdowns, of pairs that no rule forbids."""


def allowed_pairs(waiting: Sequence[JobState], hosts: Sequence[Host], settings: SchedulerSettings) -> AllowedPairs:
    """Return the pairs of a waiting and a host workload that are worth sharing.

    The predicted medians of both slowdowns must be within the cap, and the joint throughput must reach its minimum.
    """
    allowed: AllowedPairs = {}
    for device_type in dict.fromkeys(host.device_type for host in hosts):
        if settings.predictor.knows(device_type, settings.mode):
            continue
        names = (
            dict.fromkeys(state.job.workload for state in waiting),
            dict.fromkeys(host.state.job.workload for host in hosts if host.device_type == device_type),
        )
        guests, residents = ([name for name in each if settings.profile(name, device_type)] for each in names)
        if not guests or not residents:
            continue
        guest_slowdown, host_slowdown, is_allowed = settings.predict_pairs(guests, residents, device_type)
        for i, j in zip(*np.nonzero(is_allowed), strict=True):
            allowed[guests[i], residents[j], device_type] = PairSlowdowns(
                float(guest_slowdown[i, j]), float(host_slowdown[i, j])
            )
    return allowed


def fitting_pair(
    state: JobState, host: Host, pairs: AllowedPairs, settings: SchedulerSettings, cluster: Cluster
) -> PairSlowdowns | None:
    """Return the predicted slowdowns of a job and a host that are an allowed pair, and whose size and pools fit; else
    None."""
    pair = pairs.get((state.job.workload, host.state.job.workload, host.device_type))
    gpus, limit = state.job.gpus, settings.max_shared_gpus
    if pair is None or gpus != len(host.device_ids) or (limit is not None and gpus > limit):
        return None
    pools = state.job.pools
    return pair if not pools or all(cluster.devices[each].device.pool in pools for each in host.device_ids) else None


def is_timely(
    state: JobState,
    host: Host,
    pair: PairSlowdowns,
    settings: SchedulerSettings,
    estimate: Estimate,
    cluster: Cluster,
    reservation: BackfillReservation | None,
) -> bool:
    """Return whether a guest ends before its host, where that is the rule, and delays no reservation."""
    if settings.guest_ends_first:
        guest_s, host_s = estimate.remaining_s(state, cluster), estimate.remaining_s(host.state, cluster)
        if outlasts(guest_s * pair.guest, host_s * pair.host):
            return False
    return reservation is None or reservation.allows_group((state, host.state), host.device_ids, pair, cluster)


def both_meet_deadlines(state: JobState, host: Host, pair: PairSlowdowns, estimate: Estimate, cluster: Cluster) -> bool:
    """Return whether guest and host, sharing until the end, meet their deadlines before their devices leave.

    A host that misses its deadline anyway counts as a job without a deadline, which may take any time.
    """
    devices = [cluster.devices[device_id] for device_id in host.device_ids]
    speed = min(device.speed for device in devices)
    leave_s = min(windows_from(device, cluster.now_s)[0][1] for device in devices) + LATE_S
    for member, slowdown in ((state, pair.guest), (host.state, pair.host)):
        if not member.job.has_deadline:
            continue
        remaining_s = estimate.remaining_s(member, cluster)
        latest_s = min(member.job.deadline_s + LATE_S, leave_s)
        is_late = cluster.now_s + remaining_s * slowdown / speed > latest_s
        if is_late and (member is state or cluster.now_s + remaining_s / speed <= latest_s):
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedySharing:
    """A placement in which each job in order joins the host with the least predicted (s_ij - 1) + (s_ji - 1)."""

    settings: SchedulerSettings
    estimate: Estimate = field(default_factory=ToldDurations)
    meet_deadlines: bool = False  # a pair must leave both time to meet their deadlines before their devices leave

    def join(
        self,
        waiting: Sequence[JobState],
        hosts: Sequence[Host],
        cluster: Cluster,
        reservation: BackfillReservation | None = None,
    ) -> list[Start]:
        """Return the starts in the order of the waiting jobs. A job without a suitable host takes no host from the next
        job."""
        starts: list[Start] = []
        pairs = allowed_pairs(waiting, hosts, self.settings)
        open_hosts = list(hosts)
        hostless: set[tuple[str, int, tuple[str, ...]]] = set()  # (workload, size, pools): hosts only get fewer

        for state in waiting:
            request = (state.job.workload, state.job.gpus, state.job.pools)
            if request in hostless or not open_hosts:
                continue
            fitting = [(fitting_pair(state, host, pairs, self.settings, cluster), host) for host in open_hosts]
            options = [(pair, host) for pair, host in fitting if pair is not None]
            if not options:
                hostless.add(request)
            timely = [
                (pair, host)
                for pair, host in options
                if is_timely(state, host, pair, self.settings, self.estimate, cluster, reservation)
                and (not self.meet_deadlines or both_meet_deadlines(state, host, pair, self.estimate, cluster))
            ]
            if timely:
                _, cheapest = min(timely, key=lambda option: option[0].cost)
                starts.append(Start(job_id=state.job.id, device_ids=cheapest.device_ids))
                open_hosts = hosts_with_a_seat(open_hosts, starts[-1:], cluster)
        return starts
