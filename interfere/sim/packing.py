"""Sharing by greedy first fit: each waiting job in order joins the host beside which the pair costs least."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.protocols import Predictor
from interfere.sim.cluster import Cluster, Progress, Start
from interfere.sim.forecast import Profiles
from interfere.sim.queueing import Host, without

PairCost = dict[tuple[str, str, str], float]
"""(guest's workload, host's workload, device type) -> what the pair costs; only pairs that are allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyPacking:
    """A pair costs (s_ij - 1) + (s_ji - 1) as predicted; none in which a job passes the cap."""

    predictor: Predictor
    profiles: Profiles
    mode: str
    max_slowdown: float = math.inf
    most_shared_gpus: int | None = None
    name: str = "greedy sharing"

    def join(self, waiting: Sequence[Progress], hosts: Sequence[Host], cluster: Cluster) -> list[Start]:
        """In order; a job that finds no host leaves them to the next."""
        starts: list[Start] = []
        cost = allowed_pairs(waiting, hosts, self.predictor, self.profiles, self.mode, self.max_slowdown)
        left = list(hosts)
        barren: set[tuple[str, int, tuple[str, ...]]] = set()  # kinds of jobs that found nobody: hosts only get fewer
        for one in waiting:
            job = one.job
            kind = (job.workload, job.gpus, job.pools)
            if kind in barren or not left:
                continue
            best = min(
                (host for host in left if joinable(one, host, cluster, self.most_shared_gpus)),
                key=lambda host: cost.get((job.workload, host.one.job.workload, host.device_type), math.inf),
                default=None,
            )
            if best is None or (job.workload, best.one.job.workload, best.device_type) not in cost:
                barren.add(kind)
                continue
            starts.append(Start(job_id=job.id, device_ids=best.device_ids))
            left = without(left, starts[-1:])
        return starts


def allowed_pairs(
    waiting: Sequence[Progress],
    hosts: Sequence[Host],
    predictor: Predictor,
    profiles: Profiles,
    mode: str,
    max_slowdown: float,
) -> PairCost:
    """Of all workloads that wait beside all that may be joined, by predicted medians."""
    found: PairCost = {}
    for kind in dict.fromkeys(host.device_type for host in hosts):
        if predictor.knows(kind, mode):
            continue
        guests = dict.fromkeys(one.job.workload for one in waiting)
        theirs = dict.fromkeys(host.one.job.workload for host in hosts if host.device_type == kind)
        rows, columns = (
            [profiles[name, kind] for name in side if (name, kind) in profiles] for side in (guests, theirs)
        )
        if not rows or not columns:
            continue
        said = predictor.predict_matrix(rows, columns, kind, mode)
        ahead, back = said.victim_slowdown, said.neighbour_slowdown
        allowed = (ahead <= max_slowdown) & (back <= max_slowdown)  # NaN is neither
        for i, j in zip(*np.nonzero(allowed), strict=True):
            found[rows[i].workload, columns[j].workload, kind] = float(ahead[i, j] + back[i, j] - 2)
    return found


def joinable(one: Progress, host: Host, cluster: Cluster, most_shared_gpus: int | None) -> bool:
    """Do sizes and pools allow it, whatever the workloads?"""
    gpus = one.job.gpus
    if gpus != len(host.device_ids) or (most_shared_gpus is not None and gpus > most_shared_gpus):
        return False
    return not one.job.pools or all(cluster.devices[n].device.pool in one.job.pools for n in host.device_ids)
