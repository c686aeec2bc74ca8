"""How long a job is thought to run when it arrives, alone: what orders of the queue by length are made of.

Law: an estimate from history reads only jobs that were over before. An oracle reads the trace, and says so.
"""

import math
from collections import defaultdict
from typing import Protocol

from interfere.sim.cluster import Cluster, Progress


class Estimate(Protocol):
    """Seconds alone, of the whole job."""

    def whole_s(self, one: Progress, cluster: Cluster) -> float:
        """Asked again and again; a job's estimate stays as it was first."""

    def left_s(self, one: Progress, cluster: Cluster) -> float:
        """Of what the job has left now."""


class Oracle:
    """The duration itself."""

    def whole_s(self, one: Progress, cluster: Cluster) -> float:
        """Known before it happens."""
        return one.job.duration_s

    def left_s(self, one: Progress, cluster: Cluster) -> float:
        """Checkpoints that are still to be paid included."""
        return one.left_s - (cluster.served_s(one) - one.served_s)


class History:
    """Mean duration of jobs over so far, of the nearest kind that has any: same user, workload and size, else same
    workload and size, else same user and size, else same size, else all; the order of Helios' QSSF (Hu et al., SC
    2021, section 4.2), which also falls back from a user's alike jobs to all."""

    def __init__(self) -> None:
        self._sums: dict[tuple[object, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._seen: set[str] = set()
        self._told: dict[str, float] = {}
        self._read = 0

    def whole_s(self, one: Progress, cluster: Cluster) -> float:
        """Never zero: what is not known at all counts as an hour, the first order of magnitude of all traces."""
        if one.job.id not in self._told:
            self._learn(cluster)
            self._told[one.job.id] = next(
                (total / count for total, count in map(self._sums.__getitem__, self._kinds(one)) if count), 3600.0
            )
        return self._told[one.job.id]

    def left_s(self, one: Progress, cluster: Cluster) -> float:
        """One that has run longer than was thought is thought to run as long again: lifetimes have heavy tails
        (Harchol-Balter and Downey, ACM TOCS 1997)."""
        whole_s, served_s = self.whole_s(one, cluster), cluster.served_s(one)
        return whole_s - served_s if whole_s >= served_s else served_s

    def _learn(self, cluster: Cluster) -> None:
        for span in cluster.spans[self._read :]:
            one = cluster.jobs[span.job_id]
            if not math.isnan(one.ended_s) and span.job_id not in self._seen:
                self._seen.add(span.job_id)
                for kind in self._kinds(one):
                    self._sums[kind][0] += one.served_s
                    self._sums[kind][1] += 1
        self._read = len(cluster.spans)

    @staticmethod
    def _kinds(one: Progress) -> list[tuple[object, ...]]:
        job = one.job
        return [
            (job.user, job.workload, job.gpus),
            (job.workload, job.gpus),
            ("", job.user, job.gpus, 0),
            (job.gpus,),
            (),
        ]
