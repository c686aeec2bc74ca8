"""Further traces of the same mix of jobs: resampled with Poisson arrivals at a target load, or cut into stretches.

Unlike `trace_worlds.redraw_days`, the bursts of the trace are lost: such a trace says what a mix of jobs brings
where users submit independently of one another.
Laws: the same generator state gives the same trace; the offered load is the target exactly; every job is a copy of a
job of the given world; devices stay as they are.
"""

import math
from dataclasses import replace
from itertools import groupby, islice

import numpy as np

from interfere.errors import InvalidInputError
from interfere.sim.trace_worlds import scale_to_load
from interfere.sim.world import DAY_S, SimJob, World

MAX_STRETCH_JOBS = 300  # a server's decision at every event takes 5-20 s for so many
MIN_JOBS = 2  # the offered load of a world is undefined where nothing arrives after the first job


def resample_with_poisson_arrivals(
    world: World, *, load: float, rng: np.random.Generator, jobs: int | None = None, name: str = ""
) -> World:
    """A world of `jobs` jobs (default: as many as the given world has), drawn with replacement, at an offered load.

    Gaps between arrivals are exponential; arrivals are then stretched so that the offered load of the jobs that were
    drawn is exactly `load`: with heavy-tailed durations, two draws of the same jobs ask for very different times. The
    first job arrives at 0. A deadline keeps its distance from the arrival. Raises InvalidInputError for a load that is
    not positive, fewer than two jobs, and jobs that ask for no time.
    """
    count = len(world.jobs) if jobs is None else jobs
    if count < MIN_JOBS or not world.jobs:
        raise InvalidInputError(
            f"{world.name}: too few jobs for a trace", value=f"{count} of {len(world.jobs)}", remedy="give two or more"
        )
    if not 0 < load < math.inf:
        raise InvalidInputError("an offered load must be positive", value=load, remedy="0.75 is a busy cluster")
    chosen = rng.integers(0, len(world.jobs), count).tolist()
    gaps = rng.exponential(size=count)
    gaps[0] = 0.0
    drawn = [
        _copy(world.jobs[source], k, arrival_s)
        for k, (source, arrival_s) in enumerate(zip(chosen, np.cumsum(gaps).tolist(), strict=True))
    ]
    return scale_to_load(replace(world, name=name or f"{world.name}-resampled", jobs=tuple(drawn)), load)


def _copy(job: SimJob, number: int, arrival_s: float) -> SimJob:
    """A job of its own id at another time."""
    distance_s = job.deadline_s - job.arrival_s
    return replace(job, id=f"{number}-{job.id}", arrival_s=arrival_s, deadline_s=arrival_s + distance_s)


def stretches(world: World, count: int = 3, max_jobs: int = MAX_STRETCH_JOBS) -> list[World]:
    """Return the first jobs of each of `count` stretches of equal length, as worlds that begin with their stretch."""
    length_s = (world.jobs[-1].arrival_s if world.jobs else 0.0) / count + 1e-6
    by_stretch = groupby(world.jobs, key=lambda job: int(job.arrival_s // length_s))
    return [
        replace(
            world,
            name=f"{world.name}/{k + 1}",
            jobs=tuple(
                replace(job, arrival_s=job.arrival_s - k * length_s, deadline_s=job.deadline_s - k * length_s)
                for job in islice(jobs, max_jobs)
            ),
            clock_s=(world.clock_s + k * length_s) % DAY_S,
        )
        for k, jobs in by_stretch
    ]
