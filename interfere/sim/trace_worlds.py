"""From a recorded trace to worlds: one per virtual cluster, what cannot be replayed left out and counted.

Law: every job of the trace is in exactly one world or in exactly one line of `left_out`.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from interfere.data.traces import JobTrace, TraceJob, VirtualCluster
from interfere.errors import InvalidInputError
from interfere.records import Device
from interfere.sim.world import SimDevice, SimJob, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    """What will be replayed."""

    worlds: tuple[World, ...]
    left_out: tuple[tuple[str, int], ...]  # why, how many jobs

    def note(self) -> str:
        """In one line."""
        jobs = sum(len(world.jobs) for world in self.worlds)
        out = "".join(f"; left out: {count} {why}" for why, count in self.left_out)
        loads = ", ".join(f"{world.name} {len(world.jobs)} jobs load {world.load:.2f}" for world in self.worlds)
        return f"trace: {jobs} jobs in {len(self.worlds)} worlds ({loads}){out}"


def worlds_of(
    trace: JobTrace,
    *,
    device_type: str,
    mode: str,
    clusters: tuple[VirtualCluster, ...] = (),
    checkpoint_s: float = 0.0,
    tie_seed: int | None = None,
) -> Worlds:
    """One world a virtual cluster; `clusters` stand in for those of a trace that has none. Jobs of one second come in
    the trace's order, or shuffled by `tie_seed`. Raises InvalidInputError where no job is left."""
    places = trace.clusters or clusters
    if not places:
        raise InvalidInputError(
            "the trace does not say which devices there are", value=trace.name, remedy="give their number with --gpus"
        )
    single = len(places) == 1 and not trace.clusters  # whatever the trace calls its parts, there is one cluster
    left_out: Counter[str] = Counter()
    jobs: dict[str, list[SimJob]] = {place.vc: [] for place in places}
    size = {place.vc: place.nodes * place.gpus_per_node for place in places}
    for job in _tied(trace.jobs, tie_seed):
        vc = places[0].vc if single else job.vc
        if why := _why_not(job, size.get(vc)):
            left_out[why] += 1
        else:
            jobs[vc].append(
                SimJob(
                    id=job.job_id,
                    workload=job.workload,
                    arrival_s=job.arrival_s,
                    gpus=job.gpus,
                    duration_s=job.duration_s,
                    user=job.user,
                    checkpoint_s=checkpoint_s,
                )
            )
    worlds = tuple(
        World(name=place.vc, jobs=tuple(jobs[place.vc]), devices=_devices(place, device_type, mode))
        for place in places
        if jobs[place.vc]
    )
    if not worlds:
        raise InvalidInputError(
            f"no job of trace {trace.name} can be replayed",
            value="; ".join(f"{count} {why}" for why, count in left_out.items()) or "it is empty",
            remedy="give a trace with durations and devices",
        )
    return Worlds(worlds=worlds, left_out=tuple(left_out.items()))


def _why_not(job: TraceJob, devices: int | None) -> str:
    if devices is None:
        return "in a virtual cluster without devices"
    if math.isnan(job.duration_s):
        return "without a duration"
    return "larger than their virtual cluster" if job.gpus > devices else ""


def _tied(jobs: tuple[TraceJob, ...], seed: int | None) -> list[TraceJob]:
    if seed is None:
        return list(jobs)
    draw = np.random.default_rng(seed).random(len(jobs)).tolist()
    return [
        job for _, _, job in sorted(zip([job.arrival_s for job in jobs], draw, jobs, strict=True), key=lambda t: t[:2])
    ]


def _devices(place: VirtualCluster, device_type: str, mode: str) -> tuple[SimDevice, ...]:
    return tuple(
        SimDevice(
            device=Device(
                id=f"{place.vc}-{node}-{k}", type=device_type, node=f"{place.vc}-{node}", mode=mode, pool=place.vc
            )
        )
        for node in range(place.nodes)
        for k in range(place.gpus_per_node)
    )


def at_load(world: World, load: float) -> World:
    """The same jobs in the same order, arriving faster or slower, so that just this load is offered. Raises
    InvalidInputError where all arrive at once, or none asks for time."""
    if not 0 < world.load < math.inf:
        raise InvalidInputError(
            f"{world.name}: its arrivals cannot be stretched to a load",
            value=f"{len(world.jobs)} jobs",
            remedy="leave --load out, or give a longer trace",
        )
    factor = world.load / load
    return replace(world, jobs=tuple(replace(job, arrival_s=job.arrival_s * factor) for job in world.jobs))


def days_redrawn(world: World, seed: int, day_s: float = 86_400.0) -> World:
    """As many days, drawn with replacement, each with its arrivals as they came: bursts within a day stay.

    Another trace of the same kind. (Poisson arrivals of the same jobs would not be one: at a load of 0.75 on 16 devices
    they hardly ever wait, where the jobs of Gavel's Philly traces do.)
    """
    rng = np.random.default_rng(seed)
    by_day: dict[int, list[SimJob]] = {}
    for job in world.jobs:
        by_day.setdefault(int(job.arrival_s // day_s), []).append(job)
    first, last = min(by_day), max(by_day)
    drawn: list[int] = []
    while not by_day.keys() & set(drawn):  # a trace with idle days may draw these alone
        drawn = rng.integers(first, last + 1, last - first + 1).tolist()
    jobs = [
        replace(job, id=f"{new}-{job.id}", arrival_s=job.arrival_s + (first + new - old) * day_s)
        for new, old in enumerate(drawn)
        for job in by_day.get(old, [])
    ]
    return replace(world, name=f"{world.name}#{seed}", jobs=tuple(jobs))
