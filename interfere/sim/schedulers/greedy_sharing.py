"""GuestPlacement by greedy first fit: each waiting job in order joins the host beside which the pair costs least.

Slowdown caps, the least joint throughput and the rule that guests end first are those of the server; nothing is planned
jointly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from interfere.policy.rules.guest_ends_first import outlasts
from interfere.policy.rules.joint_throughput import does_not_pay
from interfere.protocols import Predictor
from interfere.records import JobProfile, MatrixBatch, MatrixPrediction
from interfere.records.limits import DEFAULT_MIN_JOINT_THROUGHPUT
from interfere.sharing_modes import SharingMode
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Cluster, JobState, Start
from interfere.sim.schedulers.deadlines import windows_from
from interfere.sim.schedulers.duration_estimates import Estimate, Oracle
from interfere.sim.schedulers.easy_backfill import BackfillReservation
from interfere.sim.schedulers.placement import Host, hosts_with_a_seat
from interfere.sim.world import LATE_S


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedySharing:
    """A pair costs (s_ij - 1) + (s_ji - 1) as predicted."""

    predictor: Predictor
    profiles: Profiles
    mode: SharingMode
    max_slowdown: float = math.inf
    min_joint_throughput: float = DEFAULT_MIN_JOINT_THROUGHPUT
    max_shared_gpus: int | None = None  # larger jobs never share
    guest_ends_first: bool = False  # a job joins only a host that is estimated to end no earlier
    meet_deadlines: bool = False  # a pair must leave both time to meet their deadlines before their devices leave
    estimate: Estimate = field(default_factory=Oracle)

    def join(
        self,
        waiting: Sequence[JobState],
        hosts: Sequence[Host],
        cluster: Cluster,
        reservation: BackfillReservation | None = None,
    ) -> list[Start]:
        """Return starts in order. A job that finds no host leaves all hosts to the next job."""
        starts: list[Start] = []
        pairs = allowed_pairs(
            waiting,
            hosts,
            self.predictor,
            self.profiles,
            self.mode,
            max_slowdown=self.max_slowdown,
            min_joint_throughput=self.min_joint_throughput,
        )
        open_hosts = list(hosts)
        hostless: set[tuple[str, int, tuple[str, ...]]] = set()  # (workload, size, pools): hosts only get fewer
        for state in waiting:
            job = state.job
            request = (job.workload, job.gpus, job.pools)
            if request in hostless or not open_hosts:
                continue
            options = [
                (pair, host)
                for host in open_hosts
                if (pair := pairs.get((job.workload, host.state.job.workload, host.device_type))) is not None
                and fits_on(state, host, cluster, self.max_shared_gpus)
            ]
            if not options:
                hostless.add(request)
            if self.guest_ends_first:
                options = [
                    (pair, host) for pair, host in options if ends_first(state, host, pair, self.estimate, cluster)
                ]
            if self.meet_deadlines:
                options = [
                    (pair, host)
                    for pair, host in options
                    if both_meet_deadlines(state, host, pair, self.estimate, cluster)
                ]
            if reservation is not None:
                options = [
                    (pair, host)
                    for pair, host in options
                    if reservation.allows_pair(state, host.state, host.device_ids, pair, cluster)
                ]
            if options:
                _, cheapest = min(options, key=lambda option: option[0].cost)
                starts.append(Start(job_id=job.id, device_ids=cheapest.device_ids))
                open_hosts = hosts_with_a_seat(open_hosts, starts[-1:], cluster)
        return starts


def ends_first(state: JobState, host: Host, pair: PairSlowdowns, estimate: Estimate, cluster: Cluster) -> bool:
    """Return whether a guest is expected to end no later than its host, given the slowdown of both."""
    guest_s, host_s = estimate.remaining_s(state, cluster), estimate.remaining_s(host.state, cluster)
    return not outlasts(guest_s * pair.guest, host_s * pair.host)


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


def allowed_pairs(
    waiting: Sequence[JobState],
    hosts: Sequence[Host],
    predictor: Predictor,
    profiles: Profiles,
    mode: SharingMode,
    *,
    max_slowdown: float = math.inf,
    min_joint_throughput: float,
) -> AllowedPairs:
    """Return the pairs of a waiting and a host workload that are worth sharing.

    The predicted medians of both slowdowns must be within the cap, and the joint throughput must reach its minimum.
    """
    allowed: AllowedPairs = {}
    guest_workloads = dict.fromkeys(state.job.workload for state in waiting)
    for device_type in dict.fromkeys(host.device_type for host in hosts):
        if predictor.knows(device_type, mode):
            continue
        host_workloads = dict.fromkeys(host.state.job.workload for host in hosts if host.device_type == device_type)
        guests, residents = (
            tuple(profiles[name, device_type] for name in workloads if (name, device_type) in profiles)
            for workloads in (guest_workloads, host_workloads)
        )
        if not guests or not residents:
            continue
        predicted = _predict(predictor, guests, residents, device_type, mode)
        guest_slowdown = predicted.victim_slowdown.astype(np.float64)
        host_slowdown = predicted.neighbour_slowdown.astype(np.float64)
        within_cap = (guest_slowdown <= max_slowdown) & (host_slowdown <= max_slowdown)  # NaN is never within
        pays = ~does_not_pay(guest_slowdown, host_slowdown, min_joint_throughput)
        for i, j in zip(*np.nonzero(within_cap & pays), strict=True):
            allowed[guests[i].workload, residents[j].workload, device_type] = PairSlowdowns(
                float(guest_slowdown[i, j]), float(host_slowdown[i, j])
            )
    return allowed


def _predict(
    predictor: Predictor,
    guests: tuple[JobProfile, ...],
    residents: tuple[JobProfile, ...],
    device_type: str,
    mode: SharingMode,
) -> MatrixPrediction:
    return predictor.predict_matrix(
        MatrixBatch(victims=guests, neighbours=residents, device_type=device_type, mode=mode)
    )


def fits_on(state: JobState, host: Host, cluster: Cluster, max_shared_gpus: int | None) -> bool:
    """Do size and pools allow a job to join a host, whatever the workloads?"""
    gpus = state.job.gpus
    if gpus != len(host.device_ids) or (max_shared_gpus is not None and gpus > max_shared_gpus):
        return False
    return not state.job.pools or all(
        cluster.devices[device_id].device.pool in state.job.pools for device_id in host.device_ids
    )
