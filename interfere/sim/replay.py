"""The clock of the simulator: takes a world through its events under one scheduler and records every job's fate.

Law 1: the same world, truth and scheduler give the same answer. Law 2: every job ends or is dropped; where jobs could
wait for ever, the replay raises. Law 3: nothing starts before it arrives.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import UnfitError
from interfere.records.cluster import DEFAULT_SEATS
from interfere.sim.cluster import Cluster, JobState, Scheduler, Span, Truth
from interfere.sim.world import World

Floats = NDArray[np.float64]
PROGRESS_EVENTS = 1000  # events between two reports of progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay: n jobs in order of arrival, and m moments at which the number of busy devices may
    change."""

    world: World
    started_s: Floats  # float64[n], first start; NaN where it never started
    ended_s: Floats  # float64[n]; inf where the scheduler dropped it
    promised_s: Floats  # float64[n], deadline that the scheduler promised; NaN: none
    stops: NDArray[np.int64]  # int64[n]
    spans: tuple[Span, ...]
    at_s: Floats  # float64[m]
    busy: NDArray[np.int64]  # int64[m], devices with a job from that moment on
    shared: NDArray[np.int64]  # int64[m], devices with two jobs or more
    waiting: NDArray[np.int64]  # int64[m], jobs

    @property
    def completion_s(self) -> Floats:
        """float64[n]: seconds from arrival to end; inf where the job was dropped."""
        return np.asarray(self.ended_s - np.array([job.arrival_s for job in self.world.jobs]))


def replay(
    world: World,
    truth: Truth,
    scheduler: Scheduler,
    *,
    seats: int = DEFAULT_SEATS,
    report: Callable[[int, int], None] | None = None,
) -> Replayed:
    """Replay a world to the end of its last job.

    `report` is called now and then with the number of jobs that are over and the number of all jobs. `seats`: jobs that
    may share a device. Raises UnfitError where jobs wait and no event will ever come; ValueError where a decision is
    not allowed.
    """
    cluster = Cluster(world, truth, seats)
    arrivals = [job.arrival_s for job in world.jobs]
    presence_changes = sorted(
        {moment for device in world.devices for window in device.windows for moment in window if moment < math.inf}
    )
    ends: list[tuple[float, int, int, str]] = []  # of phases: heap of (end, arrival rank, rate version, job id)
    usage: list[tuple[float, int, int, int]] = []  # time; busy devices, shared devices, waiting jobs
    arrived, changes, over, rates_read, wake_s = 0, 0, 0, 0, math.inf
    while over < len(world.jobs):
        # 1. Find the next event.
        while ends and _is_void(cluster.running.get(ends[0][3]), ends[0][2]):
            heapq.heappop(ends)
        now_s = min(
            arrivals[arrived] if arrived < len(arrivals) else math.inf,
            presence_changes[changes] if changes < len(presence_changes) else math.inf,
            ends[0][0] if ends else math.inf,
            wake_s,
        )
        if now_s == math.inf:
            raise UnfitError(
                f"{world.name}: jobs wait for ever under this scheduler",
                value=", ".join([*cluster.waiting][:5]),
                remedy="give them devices that they fit on, or another scheduler",
            )
        # 2. Apply all events of this moment: ends, devices, arrivals.
        cluster.now_s = now_s
        while ends and ends[0][0] <= now_s:
            _, _, rate_version, job_id = heapq.heappop(ends)
            if not _is_void(cluster.running.get(job_id), rate_version):
                cluster.end_phase(job_id)
                over += job_id not in cluster.running
        if changes < len(presence_changes) and presence_changes[changes] <= now_s:
            changes += 1
            cluster.update_presence()
        while arrived < len(arrivals) and arrivals[arrived] <= now_s:
            cluster.arrive(world.jobs[arrived])
            arrived += 1
        # 3. Ask the scheduler and carry out its decision.
        decision = scheduler.decide(cluster)
        cluster.apply(decision)
        over += len(decision.drops)
        wake_s = decision.wake_s if decision.wake_s > now_s else math.inf
        # 4. Foresee the ends of phases of jobs whose rate is new.
        for state in cluster.changed_rates[rates_read:]:
            if state.devices:
                heapq.heappush(ends, (state.phase_end_s(), state.arrival_rank, state.rate_version, state.job.id))
        rates_read = len(cluster.changed_rates)
        usage.append((now_s, cluster.busy, cluster.shared, len(cluster.waiting)))
        if report is not None and len(usage) % PROGRESS_EVENTS == 0:
            report(over, len(world.jobs))
    return _replayed(world, cluster, usage)


def _is_void(state: JobState | None, rate_version: int) -> bool:
    """Return whether the rate has changed since this end was computed."""
    return state is None or state.rate_version != rate_version


def _replayed(world: World, cluster: Cluster, usage: list[tuple[float, int, int, int]]) -> Replayed:
    states = [cluster.jobs[job.id] for job in world.jobs]
    at_s, busy, shared, waiting = zip(*usage, strict=True) if usage else ((), (), (), ())
    return Replayed(
        world=world,
        started_s=np.array([state.started_s for state in states]),
        ended_s=np.array([state.ended_s for state in states]),
        promised_s=np.array([state.promised_s for state in states]),
        stops=np.array([state.stops for state in states], dtype=np.int64),
        spans=tuple(cluster.spans),
        at_s=np.array(at_s, dtype=np.float64),
        busy=np.array(busy, dtype=np.int64),
        shared=np.array(shared, dtype=np.int64),
        waiting=np.array(waiting, dtype=np.int64),
    )
