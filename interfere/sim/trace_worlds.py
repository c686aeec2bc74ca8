"""Worlds made of a recorded trace: one per virtual cluster; jobs that cannot be replayed are left out and counted.

Law: every job of the trace is in exactly one world or counted in exactly one entry of `left_out`.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from interfere.data.traces import JobTrace, TraceJob, VirtualCluster
from interfere.errors import InvalidInputError
from interfere.records import Device
from interfere.sharing_modes import SharingMode
from interfere.sim.truth import TruthTable, relative_speed
from interfere.sim.world import DAY_S, SimDevice, SimJob, World

WEEK_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWorlds:
    """The worlds that a trace was turned into, and the jobs that were left out."""

    worlds: tuple[World, ...]
    left_out: tuple[tuple[str, int], ...]  # reason, number of jobs

    def note(self) -> str:
        """Return one line on the jobs that are replayed and the jobs that are left out."""
        jobs = sum(len(world.jobs) for world in self.worlds)
        left_out = "".join(f"; left out: {count} {reason}" for reason, count in self.left_out)
        loads = ", ".join(f"{world.name} {len(world.jobs)} jobs load {world.load:.2f}" for world in self.worlds)
        worlds = "1 world" if len(self.worlds) == 1 else f"{len(self.worlds)} worlds"
        return f"trace: {jobs} jobs in {worlds} ({loads}){left_out}"


def worlds_of(
    trace: JobTrace,
    *,
    device_type: str,
    mode: SharingMode,
    clusters: tuple[VirtualCluster, ...] = (),
    checkpoint_s: float = 0.0,
    speeds: Mapping[str, float] = MappingProxyType({}),
) -> TraceWorlds:
    """Return one world per virtual cluster. `clusters` are used for a trace that has no virtual clusters.

    `device_type`: of devices that name none. `speeds`: device type -> its speed, where it is not 1. Of several types in
    a virtual cluster the fastest come first, which schedulers take first; each is a pool of its own, and no job runs on
    two. Jobs submitted in the same second keep the trace's order. A trace without a start time begins at midnight.
    Raises InvalidInputError where no job is left.
    """
    places = trace.clusters or clusters
    if not places:
        raise InvalidInputError(
            "the trace does not say which devices there are", value=trace.name, remedy="give their number with --gpus"
        )
    places_of: dict[str, list[VirtualCluster]] = {}
    for place in sorted(places, key=lambda place: -speeds.get(place.device_type, 1.0)):
        places_of.setdefault(place.vc, []).append(place)
    one_cluster = len(places_of) == 1 and not trace.clusters  # then the trace's names of virtual clusters do not matter
    left_out: Counter[str] = Counter()
    jobs: dict[str, list[SimJob]] = {place.vc: [] for place in places}
    sizes = {vc: max(place.nodes * place.gpus_per_node for place in own) for vc, own in places_of.items()}
    for job in trace.jobs:
        vc = places[0].vc if one_cluster else job.vc
        if reason := _reason_to_leave_out(job, sizes.get(vc)):
            left_out[reason] += 1
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
        World(
            name=vc,
            jobs=tuple(own_jobs),
            devices=tuple(
                device
                for place in places_of[vc]
                for device in _devices(place, place.device_type or device_type, mode, speeds, len(places_of[vc]) > 1)
            ),
            clock_s=trace.start_s % DAY_S if math.isfinite(trace.start_s) else 0.0,
        )
        for vc, own_jobs in jobs.items()
        if own_jobs
    )
    if not worlds:
        raise InvalidInputError(
            f"no job of trace {trace.name} can be replayed",
            value="; ".join(f"{count} {reason}" for reason, count in left_out.items()) or "it is empty",
            remedy="import it with durations (of Gavel's traces: --throughputs) and devices",
        )
    return TraceWorlds(worlds=worlds, left_out=tuple(left_out.items()))


def speeds_of(
    trace: JobTrace, truths: Sequence[TruthTable], clusters: Sequence[VirtualCluster]
) -> tuple[dict[str, float], str]:
    """Return the speed of each device type relative to the first, and a note on them; empty where there is one type.

    Raises InvalidInputError where no workload of the trace was measured alone on both.
    """
    reference, *others = truths
    if not others:
        return {}, ""
    hours = dict.fromkeys((job.workload for job in trace.jobs), 0.0)
    for job in trace.jobs:
        hours[job.workload] += job.gpus * job.duration_s if math.isfinite(job.duration_s) else 0.0
    speeds = {each.device_type: relative_speed(each, reference, hours) for each in truths}
    for kind, speed in speeds.items():
        if math.isnan(speed):
            raise InvalidInputError(
                f"no workload of the trace was measured alone on both {reference.device_type} and {kind}",
                value=", ".join(hours),
                remedy="profile one of them on both: how fast one is beside the other follows from that",
            )
    counts: Counter[str] = Counter()
    for each in clusters:
        counts[each.device_type or reference.device_type] += each.nodes * each.gpus_per_node
    devices = ", ".join(f"{counts[kind]} {kind} of speed {speed:.2f}" for kind, speed in speeds.items())
    return speeds, (
        f"devices: {devices}; run times of the trace are taken as those on {reference.device_type}, speeds from the "
        "times alone of its workloads, and the fastest free device is taken first"
    )


def _reason_to_leave_out(job: TraceJob, devices: int | None) -> str:
    """Return the reason why a job cannot be replayed on so many devices; empty where it can."""
    if devices is None:
        return "in a virtual cluster without devices"
    if math.isnan(job.duration_s):
        return "without a duration"
    return "larger than their virtual cluster" if job.gpus > devices else ""


def _devices(
    place: VirtualCluster, device_type: str, mode: SharingMode, speeds: Mapping[str, float], is_one_of_several: bool
) -> tuple[SimDevice, ...]:
    pool = f"{place.vc}-{device_type}" if is_one_of_several else place.vc
    return tuple(
        SimDevice(
            device=Device(id=f"{pool}-{node}-{k}", type=device_type, node=f"{pool}-{node}", mode=mode, pool=pool),
            speed=speeds.get(device_type, 1.0),
        )
        for node in range(place.nodes)
        for k in range(place.gpus_per_node)
    )


# --- other traces of the same kind ------------------------------------------------------------------------------------


def _arriving(job: SimJob, arrival_s: float) -> SimJob:
    """Return the job with another arrival time, and with its deadline moved by the same time."""
    return replace(job, arrival_s=arrival_s, deadline_s=arrival_s + (job.deadline_s - job.arrival_s))


def scale_to_load(world: World, load: float) -> World:
    """Return the same jobs in the same order, with arrivals stretched to offer exactly this load.

    Raises InvalidInputError where all jobs arrive at once, or no job needs time.
    """
    if not 0 < world.load < math.inf:
        raise InvalidInputError(
            f"{world.name}: its arrivals cannot be stretched to a load",
            value=f"{len(world.jobs)} jobs",
            remedy="leave --load out, or give a longer trace",
        )
    factor = world.load / load
    return replace(world, jobs=tuple(_arriving(job, job.arrival_s * factor) for job in world.jobs))


def typical_week(world: World) -> World:
    """Return the jobs of the seven days whose offered load is nearest to that of the whole trace; a shorter trace
    whole."""
    asked_s = asked_by_day(world)
    if len(asked_s) <= WEEK_DAYS:
        return world
    first = int(world.jobs[0].arrival_s // DAY_S)
    weeks_s = np.convolve(asked_s, np.ones(WEEK_DAYS), mode="valid")
    start_s = (first + int(np.argmin(abs(weeks_s - WEEK_DAYS * asked_s.mean())))) * DAY_S
    jobs = tuple(job for job in world.jobs if start_s <= job.arrival_s < start_s + WEEK_DAYS * DAY_S)
    return replace(world, jobs=jobs)


def asked_by_day(world: World) -> NDArray[np.float64]:
    """Return the device seconds that the jobs of each day ask for, float64[d], from the first job's day to the
    last's."""
    first = int(world.jobs[0].arrival_s // DAY_S) if world.jobs else 0
    asked_s = np.zeros(days_spanned(world))
    for job in world.jobs:
        asked_s[int(job.arrival_s // DAY_S) - first] += job.gpus * job.duration_s
    return asked_s


def without_devices(world: World, count: int, device_type: str = "") -> World:
    """Return the same jobs on fewer devices: the last `count` are gone, so that whole nodes are left as long as
    possible. `device_type`: of which they are; empty: of any.

    Raises InvalidInputError where a job asks for more devices than are left.
    """
    of_type = [k for k, each in enumerate(world.devices) if device_type in ("", each.device.type)]
    gone = set(of_type[len(of_type) - count :])
    return replace(world, devices=tuple(each for k, each in enumerate(world.devices) if k not in gone))


def days_spanned(world: World) -> int:
    """Return the number of days from the first arrival to the last, both included."""
    if not world.jobs:
        return 0
    return int(world.jobs[-1].arrival_s // DAY_S - world.jobs[0].arrival_s // DAY_S) + 1


def redraw_days(world: World, seed: int) -> World:
    """Return another trace of the same kind: as many days, drawn with replacement, with the arrivals of each day
    unchanged.

    Bursts within a day stay. (Poisson arrivals of the same jobs would not be such a trace. At a load of 0.75 on 16
    devices, Poisson jobs hardly ever wait, but the jobs of Gavel's Philly traces do.)
    """
    rng = np.random.default_rng(seed)
    by_day: dict[int, list[SimJob]] = {}
    for job in world.jobs:
        by_day.setdefault(int(job.arrival_s // DAY_S), []).append(job)
    first, last = min(by_day), max(by_day)
    drawn: list[int] = []
    while not by_day.keys() & set(drawn):  # draw again where only days without jobs were drawn
        drawn = rng.integers(first, last + 1, last - first + 1).tolist()
    jobs = [
        replace(_arriving(job, job.arrival_s + (first + new - old) * DAY_S), id=f"{new}-{job.id}")
        for new, old in enumerate(drawn)
        for job in by_day.get(old, [])
    ]
    return replace(world, name=f"{world.name}#{seed}", jobs=tuple(jobs))
