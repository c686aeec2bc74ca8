"""What schedulers know of run times and deadlines: how long a job is expected to run, and whether it ends in time.

A deadline is given up only where even an optimistic run time misses it. Windows of devices are known as far as they are
announced.
Law: an estimate from history reads only jobs that have ended. Durations that are told read the trace, and say so.
"""

import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import NormalDist

import numpy as np

from interfere.records import Device
from interfere.sim.cluster import Cluster, JobState
from interfere.sim.free_devices import FreeDevices
from interfere.sim.world import ALWAYS, LATE_S, SimDevice, Windows

OPTIMISTIC_QUANTILE = 0.1  # of a job's run time: a deadline is given up only where even this misses it
LEAST_LEFT = 0.05  # of its estimate: what a job that has run for longer than that is expected to have left
UNKNOWN_S = 3600.0  # where nothing is known at all: the order of magnitude of the mean of all traces


class Estimate:
    """An estimate of run times in seconds at speed 1."""

    error: float = 0.0  # standard error of the logarithm of the run time; 0 where it claims to be exact or knows none

    def total_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the expected run time of the whole job. Later calls for the same job return the same value."""
        raise NotImplementedError

    def remaining_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the expected remaining run time of the job, from now on."""
        raise NotImplementedError

    def all_remaining_s(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return `remaining_s` of every job."""
        return [self.remaining_s(state, cluster) for state in states]

    def optimistic_s(self, state: JobState, cluster: Cluster) -> float:
        """Return a lower bound of the remaining run time, as far as the estimate can give one; else `remaining_s`."""
        return self.remaining_s(state, cluster)


class ToldDurations(Estimate):
    """An estimate that is the true duration, which no real scheduler knows, times exp(error · z) with z standard
    normal.

    z is drawn once for each job by its id and a seed. Without an error the estimate is exact.
    """

    def __init__(self, error: float = 0.0, seed: int = 0) -> None:
        self.error, self._seed = error, seed
        self._totals_s: dict[str, float] = {}
        self._optimistic = math.exp(NormalDist().inv_cdf(OPTIMISTIC_QUANTILE) * error)

    def total_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the duration with its error."""
        if not self.error:
            return state.job.duration_s
        if state.job.id not in self._totals_s:
            z = np.random.default_rng([self._seed, zlib.crc32(state.job.id.encode())]).standard_normal()
            self._totals_s[state.job.id] = state.job.duration_s * math.exp(self.error * float(z))
        return self._totals_s[state.job.id]

    def remaining_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the estimate minus the work done, which is known, plus checkpoints that the job still has to pay
        for."""
        if not self.error:
            return max(0.0, state.remaining_s - state.rate * (cluster.now_s - state.accounted_s))
        return self._remaining_s(self.total_s(state, cluster), state, cluster)

    def all_remaining_s(self, states: Sequence[JobState], cluster: Cluster) -> list[float]:
        """Return `remaining_s` of every job, without an error faster than single calls would."""
        if self.error:
            return super().all_remaining_s(states, cluster)
        now_s = cluster.now_s
        left_s = [state.remaining_s - state.rate * (now_s - state.accounted_s) for state in states]
        return [each_s if each_s > 0.0 else 0.0 for each_s in left_s]

    def optimistic_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the remaining run time if the job's total were at the `OPTIMISTIC_QUANTILE` of its distribution."""
        if not self.error:
            return self.remaining_s(state, cluster)
        return self._remaining_s(self.total_s(state, cluster) * self._optimistic, state, cluster)

    def _remaining_s(self, total_s: float, state: JobState, cluster: Cluster) -> float:
        left_s = state.remaining_s - state.rate * (cluster.now_s - state.accounted_s)
        done_s = state.job.duration_s - max(0.0, left_s)
        return total_s - done_s if total_s > done_s else LEAST_LEFT * total_s


class TimeLimits(Estimate):
    """An estimate that is the time limit of a job: its run time alone, in whole units, the next larger number.

    Slurm counts limits in minutes, and from the start of a job, whatever slows it down.
    """

    def __init__(self, unit_s: float) -> None:
        self._unit_s = unit_s

    def total_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the time limit."""
        return math.ceil(state.job.duration_s / self._unit_s) * self._unit_s

    def remaining_s(self, state: JobState, cluster: Cluster) -> float:
        """Return the work that the job would do until its limit at its present rate; the limit where it waits."""
        total_s = self.total_s(state, cluster)
        if not state.devices:
            return total_s
        left_s = state.started_s + total_s - cluster.now_s
        return state.rate * (left_s if left_s > 0.0 else LEAST_LEFT * total_s)


class History(Estimate):
    """An estimate that is the mean run time of ended jobs of the most similar group that has any.

    Groups from the most similar on: same user, workload and size; same workload and size; same user and size; same
    size; all. This is the order of Helios' QSSF (Hu et al., SC 2021, section 4.2), which also falls back from a user's
    similar jobs to all. The error of the estimate is unknown, so there is no lower bound.
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


# --- deadlines --------------------------------------------------------------------------------------------------------


def is_infeasible(state: JobState, cluster: Cluster, estimate: Estimate) -> bool:
    """Return whether a waiting job would miss its deadline even if it started now on a device of speed 1."""
    return cluster.now_s + estimate.optimistic_s(state, cluster) > state.job.deadline_s + LATE_S


def next_infeasible_s(states: Iterable[JobState], cluster: Cluster, estimate: Estimate) -> float:
    """Return the next time at which a deadline of these waiting jobs becomes infeasible; inf where none does."""
    moments_s = (state.job.deadline_s - estimate.optimistic_s(state, cluster) + 2 * LATE_S for state in states)
    return min((moment_s for moment_s in moments_s if moment_s > cluster.now_s), default=math.inf)


def find_timely_devices(
    free: FreeDevices, state: JobState, cluster: Cluster, node_gpus: int, estimate: Estimate
) -> tuple[Device, ...]:
    """Return free devices on which a job meets its deadline before they leave; empty where there are not enough.

    A job without a deadline gets any free devices.
    """
    if not state.job.has_deadline:
        return free.find(state.job.gpus, state.job.pools, node_gpus)
    timely, remaining_s = [], estimate.optimistic_s(state, cluster)
    for device in free:
        sim_device = cluster.devices[device.id]
        end_s = cluster.now_s + remaining_s / sim_device.speed - LATE_S
        until_s = windows_from(sim_device, cluster.now_s)[0][1]
        if end_s <= min(state.job.deadline_s, until_s):
            timely.append(device)
    return free.only(timely).find(state.job.gpus, state.job.pools, node_gpus)


def windows_from(device: SimDevice, now_s: float) -> Windows:
    """Return the windows from now on in which a device is known to be present; at least one window."""
    return device.known_windows(now_s) or ALWAYS
