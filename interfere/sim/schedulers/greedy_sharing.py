"""Sharing by greedy first fit: each waiting job in order joins the host beside which the pair costs least.

The same caps and the same rule about guests that outlast their host as the policy room has; nothing is planned jointly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from interfere.policy.rules.guest_ends_first import outlasts
from interfere.protocols import Predictor
from interfere.records import MatrixBatch
from interfere.sim.beliefs import Profiles
from interfere.sim.cluster import Cluster, Progress, Start
from interfere.sim.schedulers.duration_estimates import Estimate, Oracle
from interfere.sim.schedulers.queue import Host, without


class Pair(NamedTuple):
    """Predicted slowdowns."""

    guest: float
    host: float

    @property
    def cost(self) -> float:
        """Of the two together."""
        return self.guest + self.host - 2


Pairs = dict[tuple[str, str, str], Pair]
"""(guest's workload, host's workload, device type) -> the pair, where it is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyPacking:
    """A pair costs (s_ij - 1) + (s_ji - 1) as predicted."""

    predictor: Predictor
    profiles: Profiles
    mode: str
    max_slowdown: float = math.inf
    most_shared_gpus: int | None = None
    guest_ends_first: bool = False  # by the estimates
    estimate: Estimate = field(default_factory=Oracle)

    def join(self, waiting: Sequence[Progress], hosts: Sequence[Host], cluster: Cluster) -> list[Start]:
        """In order; a job that finds no host leaves them to the next."""
        starts: list[Start] = []
        pairs = allowed_pairs(waiting, hosts, self.predictor, self.profiles, self.mode, self.max_slowdown)
        left = list(hosts)
        barren: set[tuple[str, int, tuple[str, ...]]] = set()  # kinds that no host would do for: hosts only get fewer
        for one in waiting:
            job = one.job
            kind = (job.workload, job.gpus, job.pools)
            if kind in barren or not left:
                continue
            able = [
                (pair, host)
                for host in left
                if (pair := pairs.get((job.workload, host.one.job.workload, host.device_type))) is not None
                and joinable(one, host, cluster, self.most_shared_gpus)
            ]
            if not able:
                barren.add(kind)
            if self.guest_ends_first:
                able = [(pair, host) for pair, host in able if ends_first(one, host, pair, self.estimate, cluster)]
            if able:
                _, best = min(able, key=lambda found: found[0].cost)
                starts.append(Start(job_id=job.id, device_ids=best.device_ids))
                left = without(left, starts[-1:])
        return starts


def ends_first(one: Progress, host: Host, pair: Pair, estimate: Estimate, cluster: Cluster) -> bool:
    """Is a guest expected to end no later than its host, both in each other's company?"""
    guest_s, host_s = estimate.left_s(one, cluster), estimate.left_s(host.one, cluster)
    return not outlasts(guest_s * pair.guest, host_s * pair.host)


def allowed_pairs(
    waiting: Sequence[Progress],
    hosts: Sequence[Host],
    predictor: Predictor,
    profiles: Profiles,
    mode: str,
    max_slowdown: float,
) -> Pairs:
    """Of all workloads that wait beside all that may be joined, by predicted medians."""
    found: Pairs = {}
    for kind in dict.fromkeys(host.device_type for host in hosts):
        if predictor.knows(kind, mode):
            continue
        guests = dict.fromkeys(one.job.workload for one in waiting)
        theirs = dict.fromkeys(host.one.job.workload for host in hosts if host.device_type == kind)
        rows, columns = (
            tuple(profiles[name, kind] for name in side if (name, kind) in profiles) for side in (guests, theirs)
        )
        if not rows or not columns:
            continue
        said = predictor.predict_matrix(MatrixBatch(victims=rows, neighbours=columns, device_type=kind, mode=mode))
        ahead, back = said.victim_slowdown, said.neighbour_slowdown
        allowed = (ahead <= max_slowdown) & (back <= max_slowdown)  # NaN is neither
        for i, j in zip(*np.nonzero(allowed), strict=True):
            found[rows[i].workload, columns[j].workload, kind] = Pair(float(ahead[i, j]), float(back[i, j]))
    return found


def joinable(one: Progress, host: Host, cluster: Cluster, most_shared_gpus: int | None) -> bool:
    """Do sizes and pools allow it, whatever the workloads?"""
    gpus = one.job.gpus
    if gpus != len(host.device_ids) or (most_shared_gpus is not None and gpus > most_shared_gpus):
        return False
    return not one.job.pools or all(cluster.devices[n].device.pool in one.job.pools for n in host.device_ids)
