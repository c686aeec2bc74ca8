"""The clock: takes a world through its events under one scheduler, and says what became of every job.

Law 1: the same world, truth and scheduler give the same answer. Law 2: every job ends, or the replay says which never
could. Law 3: nothing starts before it arrives.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.errors import UnfitError
from interfere.sim.cluster import Cluster, Progress, Scheduler, Span, Truth
from interfere.sim.world import World

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """n jobs of a world in order of arrival, and m moments at which the number of busy devices may have changed."""

    world: World
    started_s: Floats  # float64[n], first start
    ended_s: Floats  # float64[n]; inf where the scheduler dropped it
    stops: NDArray[np.int64]  # int64[n]
    spans: tuple[Span, ...]
    at_s: Floats  # float64[m]
    busy: NDArray[np.int64]  # int64[m], devices from that moment on
    shared: NDArray[np.int64]  # int64[m], of those with two jobs
    waiting: NDArray[np.int64]  # int64[m], jobs

    @property
    def completion_s(self) -> Floats:
        """float64[n]: from arrival to the end."""
        return np.asarray(self.ended_s - np.array([job.arrival_s for job in self.world.jobs]))


def replay(
    world: World, truth: Truth, scheduler: Scheduler, *, report: Callable[[int, int], None] | None = None
) -> Replayed:
    """The whole trace, to the end of the last job. `report` is told jobs over and jobs in all, now and then.

    Raises UnfitError where jobs wait and nothing will ever happen; ValueError where the scheduler does what it may not.
    """
    cluster = Cluster(world, truth)
    arrivals = [job.arrival_s for job in world.jobs]
    changes = sorted({time for one in world.devices for window in one.windows for time in window if time < math.inf})
    ends: list[tuple[float, int, int, str]] = []
    usage: list[tuple[float, int, int, int]] = []
    arrived, changed, over, wake_s = 0, 0, 0, math.inf
    while over < len(world.jobs):
        while ends and _void(cluster.running.get(ends[0][3]), ends[0][2]):
            heapq.heappop(ends)
        now_s = min(
            arrivals[arrived] if arrived < len(arrivals) else math.inf,
            changes[changed] if changed < len(changes) else math.inf,
            ends[0][0] if ends else math.inf,
            wake_s,
        )
        if now_s == math.inf:
            raise UnfitError(
                f"{world.name}: jobs wait for ever under this scheduler",
                value=", ".join([*cluster.waiting][:5]),
                remedy="give them devices that they fit on, or another scheduler",
            )
        cluster.now_s = now_s
        while ends and ends[0][0] <= now_s:
            _, _, version, name = heapq.heappop(ends)
            if not _void(cluster.running.get(name), version):
                cluster.end(name)
                over += 1
        if changed < len(changes) and changes[changed] <= now_s:
            changed += 1
            cluster.come_and_go()
        while arrived < len(arrivals) and arrivals[arrived] <= now_s:
            cluster.arrive(world.jobs[arrived])
            arrived += 1
        decision = scheduler.decide(cluster)
        cluster.carry_out(decision)
        over += len(decision.drops)
        wake_s = decision.wake_s if decision.wake_s > now_s else math.inf
        for one in cluster.changed:
            if one.devices:
                heapq.heappush(ends, (one.end_s(), one.order, one.version, one.job.id))
        cluster.changed.clear()
        usage.append(_usage(cluster))
        if report is not None and len(usage) % 1000 == 0:
            report(over, len(world.jobs))
    return _replayed(world, cluster, usage)


def _void(one: Progress | None, version: int) -> bool:
    """Was this end foreseen at a rate that no longer holds?"""
    return one is None or one.version != version


def _usage(cluster: Cluster) -> tuple[float, int, int, int]:
    held = sum(len(one.devices) / (1 if one.partner is None else 2) for one in cluster.running.values())
    shared = sum(len(one.devices) for one in cluster.running.values() if one.partner is not None) // 2
    return cluster.now_s, round(held), shared, len(cluster.waiting)


def _replayed(world: World, cluster: Cluster, usage: list[tuple[float, int, int, int]]) -> Replayed:
    done = [cluster.jobs[job.id] for job in world.jobs]
    at_s, busy, shared, waiting = zip(*usage, strict=True) if usage else ((), (), (), ())
    return Replayed(
        world=world,
        started_s=np.array([one.started_s for one in done]),
        ended_s=np.array([one.ended_s for one in done]),
        stops=np.array([one.stops for one in done], dtype=np.int64),
        spans=tuple(cluster.spans),
        at_s=np.array(at_s, dtype=np.float64),
        busy=np.array(busy, dtype=np.int64),
        shared=np.array(shared, dtype=np.int64),
        waiting=np.array(waiting, dtype=np.int64),
    )
