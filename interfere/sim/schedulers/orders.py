"""Orders of the queue that the literature compares, as sort keys: the smallest key comes first, ties go by arrival."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from interfere.sim.cluster import Cluster, JobState
from interfere.sim.schedulers.estimates import Estimate, ToldDurations


class Order:
    """An order of jobs: a key for each job, of which the smallest comes first."""

    jumps: ClassVar[bool] = False  # do keys of running jobs change in jumps, so that the order must be computed again?

    def keys(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return the sort keys of waiting or running jobs."""
        raise NotImplementedError

    def next_change_s(self, state: JobState, cluster: Cluster) -> float:
        """Return when a job's key next jumps at its current rate (rate 1 if it starts now); inf where it never
        jumps."""
        return math.inf


def in_order(order: Order, states: Iterable[JobState], cluster: Cluster) -> list[JobState]:
    """Return the jobs sorted by key, then by arrival."""
    unsorted = list(states)
    keyed = zip(order.keys(unsorted, cluster), unsorted, strict=True)
    return [state for _, state in sorted(keyed, key=lambda entry: (entry[0], entry[1].arrival_rank))]


@dataclass(frozen=True, kw_only=True)
class Fifo(Order):
    """First come, first served."""

    def keys(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return 0 for every job, so that arrival decides."""
        return [0.0] * len(states)


@dataclass(frozen=True, kw_only=True)
class ShortestFirst(Order):
    """Orders jobs by the expected run time of the whole job or, with `remaining`, by the expected remaining time."""

    estimate: Estimate = field(default_factory=ToldDurations)
    remaining: bool = False
    per_gpu: bool = False  # times the number of its devices, as QSSF does

    def keys(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return the expected times in seconds, or in device seconds with `per_gpu`."""
        if self.remaining:
            times_s = self.estimate.all_remaining_s(states, cluster)
        else:
            times_s = [self.estimate.total_s(state, cluster) for state in states]
        if not self.per_gpu:
            return times_s
        return [time_s * state.job.gpus for time_s, state in zip(times_s, states, strict=True)]


# Device seconds at which a job falls into the second queue, as in Lucid's reproduction (simulation/policy/tiresias.py).
TIRESIAS_THRESHOLD_S = 18_000.0


@dataclass(kw_only=True)
class LeastAttained(Order):
    """Orders jobs with little service (in device seconds) first. Source: Gu et al., NSDI 2019, section 3.2.

    Each of its two queues is ordered by arrival. No job ever leaves the second queue, so its members are remembered.
    """

    jumps: ClassVar[bool] = True
    threshold_s: float = TIRESIAS_THRESHOLD_S
    _second: set[str] = field(default_factory=set)  # ids of jobs of this cluster that it saw in the second queue
    _cluster: Cluster | None = None  # that it was last asked about

    def keys(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return 0 for jobs in the first queue and 1 for jobs in the second."""
        if cluster is not self._cluster:
            self._cluster, self._second = cluster, set()
        second = self._second
        unsure = [state for state in states if state.job.id not in second]
        for state, served_s in zip(unsure, cluster.all_served_s(unsure), strict=True):
            if served_s * state.job.gpus >= self.threshold_s - 1e-6:
                second.add(state.job.id)
        return [1.0 if state.job.id in second else 0.0 for state in states]

    def next_change_s(self, state: JobState, cluster: Cluster) -> float:
        """Return when the job falls into the second queue."""
        until_s = self.threshold_s - cluster.served_s(state) * state.job.gpus
        return cluster.now_s + until_s / ((state.rate or 1.0) * state.job.gpus) if until_s > 1e-6 else math.inf


@dataclass(frozen=True, kw_only=True)
class EarliestDeadline(Order):
    """Orders jobs by deadline. Jobs without a deadline come last."""

    def keys(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return the deadlines of the jobs."""
        return [state.job.deadline_s for state in states]
