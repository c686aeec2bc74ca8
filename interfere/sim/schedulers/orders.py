"""Who comes first: the orders that the literature compares, as keys. Smaller is first; ties go to who arrived first."""

import math
from dataclasses import dataclass, field
from typing import Protocol

from interfere.sim.cluster import Cluster, Progress
from interfere.sim.schedulers.duration_estimates import Estimate, Oracle


class Order(Protocol):
    """A rule of the queue."""

    def key(self, one: Progress, cluster: Cluster) -> float:
        """Of a job that waits or runs."""

    def changes_s(self, one: Progress, cluster: Cluster) -> float:
        """When a job's key next changes by a step, at its rate of now, or at 1 as it starts; inf where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """By arrival."""

    def key(self, one: Progress, cluster: Cluster) -> float:
        """0: all alike, ties go by arrival."""
        return 0.0

    def changes_s(self, one: Progress, cluster: Cluster) -> float:
        """Never."""
        return math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortestFirst:
    """By the estimated time of the whole job; of what remains of it where `remaining`."""

    estimate: Estimate = field(default_factory=Oracle)
    remaining: bool = False
    per_gpu: bool = False  # times its devices, as QSSF does

    def key(self, one: Progress, cluster: Cluster) -> float:
        """Seconds alone, or device seconds."""
        time_s = self.estimate.left_s(one, cluster) if self.remaining else self.estimate.whole_s(one, cluster)
        return time_s * (one.job.gpus if self.per_gpu else 1)

    def changes_s(self, one: Progress, cluster: Cluster) -> float:
        """It moves steadily: what runs only gets nearer to its end."""
        return math.inf


# Device seconds at which Tiresias' two queues part, as Lucid's reproduction runs it (simulation/policy/tiresias.py).
TIRESIAS_S = 18_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastAttained:
    """By arrival, who has had little service (device seconds) first: two queues (Gu et al., NSDI 2019, section 3.2)."""

    threshold_s: float = TIRESIAS_S

    def key(self, one: Progress, cluster: Cluster) -> float:
        """0 for the first queue, 1 for the second."""
        return float(cluster.served_s(one) * one.job.gpus >= self.threshold_s - 1e-6)

    def changes_s(self, one: Progress, cluster: Cluster) -> float:
        """When it falls into the second."""
        left = self.threshold_s - cluster.served_s(one) * one.job.gpus
        return cluster.now_s + left / ((one.rate or 1.0) * one.job.gpus) if left > 1e-6 else math.inf
