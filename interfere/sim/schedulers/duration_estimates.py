"""How long a job is expected to run without sharing: what schedulers that order jobs by length or deadline go by.

Law: an estimate from history reads only jobs that have ended. An oracle reads the trace, and says so, as do durations
with an error, which read the trace and put an error on it.
"""

import math
import zlib
from collections import defaultdict
from collections.abc import Sequence
from statistics import NormalDist
from typing import Protocol

import numpy as np

from interfere.sim.cluster import Cluster, JobState

OPTIMISTIC_QUANTILE = 0.1  # of a job's run time: a deadline is given up only where even this misses it
LEAST_LEFT = 0.05  # of its estimate: what a job that has run for longer than that is expected to have left
UNKNOWN_S = 3600.0  # where nothing is known at all: the order of magnitude of the mean of all traces


class Estimate(Protocol):
    """Expected run time in seconds at speed 1."""

    def total_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the expected run time of the whole job. The estimate of a job stays as it was when first requested."""

    def remaining_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the expected remaining run time of the job, from now on."""

    def all_remaining_s(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return `remaining_s` of every job."""

    def optimistic_s(self, state: JobState, cluster: Cluster) -> float:
        """Return a lower bound of the remaining run time, as far as the estimate can give one."""

    @property
    def error(self) -> float:
        """Standard error of the logarithm of the run time; 0 where the estimate claims to be exact or knows none."""


class Oracle:
    """The duration itself, which no real scheduler knows."""

    def total_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the true duration of the job."""
        return state.job.duration_s

    def remaining_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the true remaining time, including checkpoints that the job still has to pay for."""
        return max(0.0, state.remaining_s - state.rate * (cluster.now_s - state.accounted_s))

    def all_remaining_s(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return `remaining_s` of every job, faster than single calls would."""
        now_s = cluster.now_s
        left_s = [state.remaining_s - state.rate * (now_s - state.accounted_s) for state in states]
        return [each_s if each_s > 0.0 else 0.0 for each_s in left_s]

    def optimistic_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the true remaining time."""
        return self.remaining_s(state, cluster)

    @property
    def error(self) -> float:
        """0, because the oracle makes no error."""
        return 0.0


class NoisyDurations:
    """The duration times exp(error · z), z standard normal, drawn once for each job by its id and a seed."""

    def __init__(self, error: float, seed: int = 0) -> None:
        self._error, self._seed = error, seed
        self._totals_s: dict[str, float] = {}
        self._optimistic = math.exp(NormalDist().inv_cdf(OPTIMISTIC_QUANTILE) * error)

    @property
    def error(self) -> float:
        """The standard error that this estimate was given."""
        return self._error

    def total_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the duration with its error."""
        if state.job.id not in self._totals_s:
            z = np.random.default_rng([self._seed, zlib.crc32(state.job.id.encode())]).standard_normal()
            self._totals_s[state.job.id] = state.job.duration_s * math.exp(self._error * float(z))
        return self._totals_s[state.job.id]

    def remaining_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the estimate minus the work done, which is known, plus checkpoints that the job still has to pay
        for."""
        return self._remaining_s(self.total_s(state, cluster), state, cluster)

    def all_remaining_s(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return `remaining_s` of every job."""
        return [self.remaining_s(state, cluster) for state in states]

    def optimistic_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the remaining run time if the job's total were at the `OPTIMISTIC_QUANTILE` of its distribution."""
        return self._remaining_s(self.total_s(state, cluster) * self._optimistic, state, cluster)

    def _remaining_s(self, total_s: float, state: JobState, cluster: Cluster) -> float:
        left_s = state.remaining_s - (cluster.served_s(state) - state.served_s)
        done_s = state.job.duration_s - left_s
        return total_s - done_s if total_s > done_s else LEAST_LEFT * total_s


class History:
    """Mean run time of ended jobs of the most similar group that has any.

    Groups from the most similar on: same user, workload and size; same workload and size; same user and size; same
    size; all. This is the order of Helios' QSSF (Hu et al., SC 2021, section 4.2), which also falls back from a user's
    similar jobs to all.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[object, ...], list[float]] = defaultdict(lambda: [0.0, 0.0])  # group -> seconds, jobs
        self._ended: set[str] = set()
        self._estimates: dict[str, float] = {}
        self._spans_read = 0

    def total_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the mean run time of the most similar group; never zero."""
        if state.job.id not in self._estimates:
            self._read_spans(cluster)
            self._estimates[state.job.id] = next(
                (total_s / count for total_s, count in map(self._sums.__getitem__, self._groups(state)) if count),
                UNKNOWN_S,
            )
        return self._estimates[state.job.id]

    def remaining_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the estimate minus the time served.

        A job that has run longer than its estimate is expected to run as long again, because lifetimes have heavy tails
        (Harchol-Balter and Downey, ACM TOCS 1997).
        """
        total_s, served_s = self.total_s(state, cluster), cluster.served_s(state)
        return total_s - served_s if total_s >= served_s else served_s

    def all_remaining_s(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return `remaining_s` of every job."""
        return [self.remaining_s(state, cluster) for state in states]

    def optimistic_s(self, state: JobState, cluster: Cluster) -> float:
        """Return `remaining_s`, because a group's mean says nothing about its spread."""
        return self.remaining_s(state, cluster)

    @property
    def error(self) -> float:
        """0, although the error of this estimate is unknown."""
        return 0.0

    def _read_spans(self, cluster: Cluster) -> None:
        for span in cluster.spans[self._spans_read :]:
            state = cluster.jobs[span.job_id]
            if not math.isnan(state.ended_s) and span.job_id not in self._ended:
                self._ended.add(span.job_id)
                for group in self._groups(state):
                    self._sums[group][0] += state.served_s
                    self._sums[group][1] += 1
        self._spans_read = len(cluster.spans)

    @staticmethod
    def _groups(state: JobState) -> list[tuple[object, ...]]:
        job = state.job
        return [
            (job.user, job.workload, job.gpus),
            (job.workload, job.gpus),
            ("", job.user, job.gpus, 0),
            (job.gpus,),
            (),
        ]
