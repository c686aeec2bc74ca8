"""What runs where now, and how far every job has come.

A job runs on `gpus` devices, alone or beside one other job that holds exactly the same devices. Its rate is the speed
of its slowest device over its slowdown in that company; it changes only when company does.
Law 1: ∫ rate dt over a job's spans is its duration, and a checkpoint for every stop. Law 2: nobody is on a device with
two others. Law 3: what a scheduler may not do raises ValueError and changes nothing of that job.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from interfere.records import Device
from interfere.sim.world import SimDevice, SimJob, World


class Truth(Protocol):
    """How fast jobs really run together."""

    def slowdown(self, victim: str, neighbour: str, device_type: str) -> float:
        """Of a workload beside another, ≥ 1; NaN where the two must not share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a waiting job on empty devices, or on exactly those of a job that is alone on them."""

    job_id: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Stops come first, so that a job stopped and started in one decision moves."""

    starts: Sequence[Start] = ()
    stops: Sequence[str] = ()
    drops: Sequence[str] = ()  # waiting jobs that will never run
    wake_s: float = math.inf  # ask again then, if nothing happens before


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time in which a job ran in constant company."""

    job_id: str
    start_s: float
    end_s: float
    partner_id: str  # empty: alone
    device_ids: tuple[str, ...]
    slowdown: float  # that company caused
    rate: float  # of work, in seconds alone at speed 1 a second


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far one job has come. Schedulers read it."""

    job: SimJob
    order: int  # of arrival
    left_s: float  # of work; what the truth knows and no scheduler without an oracle
    served_s: float = 0.0  # work done
    since_s: float = math.nan  # waiting or running since
    started_s: float = math.nan  # first start
    ended_s: float = math.nan
    stops: int = 0
    devices: tuple[SimDevice, ...] = ()
    partner: "Progress | None" = None
    slowdown: float = 1.0
    rate: float = 0.0
    settled_s: float = 0.0
    version: int = 0  # of its rate: an end foreseen at another is void

    @property
    def device_ids(self) -> tuple[str, ...]:
        """Where it runs; empty while it waits."""
        return tuple(one.device.id for one in self.devices)

    def end_s(self) -> float:
        """When it ends at the rate of now."""
        return self.settled_s + self.left_s / self.rate


@dataclass(slots=True)
class Cluster:
    """The state. Schedulers read it; only `replay` writes it."""

    world: World
    truth: Truth
    now_s: float = 0.0
    jobs: dict[str, Progress] = field(default_factory=dict)  # arrived
    waiting: dict[str, Progress] = field(default_factory=dict)
    running: dict[str, Progress] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)  # over, in order of their ends
    devices: dict[str, SimDevice] = field(default_factory=dict)
    empty: dict[str, Device] = field(default_factory=dict)  # there now, with nobody on it
    node_gpus: int = 0  # devices of the largest node
    changed: list[Progress] = field(default_factory=list)  # whose rate is new since the clock looked last

    def __post_init__(self) -> None:
        self.devices = {one.device.id: one for one in self.world.devices}
        self.node_gpus = self.world.node_gpus

    def free(self) -> list[Device]:
        """Devices that are there now with nobody on them."""
        return list(self.empty.values())

    def served_s(self, one: Progress) -> float:
        """Work that a job has done by now."""
        return one.served_s + min(one.left_s, one.rate * (self.now_s - one.settled_s))

    def sharable(self) -> list[Progress]:
        """Jobs that run alone, and so may be joined on exactly their devices, in order of their start."""
        return [one for one in self.running.values() if one.partner is None]

    def carry_out(self, decision: Decision) -> None:
        """Stops, then starts, then drops."""
        for name in decision.stops:
            self.stop(name)
        for start in decision.starts:
            self.start(start)
        for name in decision.drops:
            self.drop(name)

    # --- what happens -------------------------------------------------------------------------------------------------

    def arrive(self, job: SimJob) -> None:
        """A job joins the queue."""
        one = Progress(job=job, order=len(self.jobs), left_s=job.duration_s, since_s=self.now_s)
        self.jobs[job.id] = self.waiting[job.id] = one

    def come_and_go(self) -> None:
        """Devices that are there from now on, or no longer; who is on one that goes is stopped."""
        gone = {name for name, one in self.devices.items() if not one.there(self.now_s)}
        for one in [job for job in self.running.values() if gone.intersection(job.device_ids)]:
            self._stop(one)
        held = {name for one in self.running.values() for name in one.device_ids}
        self.empty = {n: one.device for n, one in self.devices.items() if n not in gone and n not in held}

    def start(self, start: Start) -> None:
        """A waiting job gets its devices."""
        one = self.waiting.get(start.job_id)
        if one is None:
            raise ValueError(f"{start.job_id} does not wait")
        if len(set(start.device_ids)) != one.job.gpus or len(start.device_ids) != one.job.gpus:
            raise ValueError(f"{start.job_id} takes {one.job.gpus} devices, not {start.device_ids}")
        pools = {self.devices[name].device.pool for name in start.device_ids}
        if one.job.pools and not pools.issubset(one.job.pools):
            raise ValueError(f"{start.job_id} may not run in {pools}")
        partner = None
        if not all(name in self.empty for name in start.device_ids):
            partner = self._host(start)
        one.devices = tuple(self.devices[name] for name in start.device_ids)
        del self.waiting[start.job_id]
        self.running[start.job_id] = one
        for name in start.device_ids:
            self.empty.pop(name, None)
        one.since_s = self.now_s
        if math.isnan(one.started_s):
            one.started_s = self.now_s
        self._together(one, partner)

    def _host(self, start: Start) -> Progress:
        """Who is alone on exactly these devices and may be joined."""
        wanted = set(start.device_ids)
        workload = self.waiting[start.job_id].job.workload
        for other in self.running.values():
            if other.partner is None and wanted == set(other.device_ids):
                kind = other.devices[0].device.type
                both = self.truth.slowdown(workload, other.job.workload, kind)
                both += self.truth.slowdown(other.job.workload, workload, kind)
                if math.isnan(both):
                    raise ValueError(f"{start.job_id} must not share with {other.job.id}")
                return other
        raise ValueError(f"{start.device_ids} are neither empty nor those of one job alone")

    def stop(self, job_id: str) -> None:
        """A running job goes back to the queue, keeps its work and pays its checkpoint."""
        one = self.running.get(job_id)
        if one is None or not one.job.preemptible:
            raise ValueError(f"{job_id} does not run, or may not be stopped")
        self._stop(one)

    def _stop(self, one: Progress) -> None:
        self._leave(one)
        one.left_s += one.job.checkpoint_s
        one.stops += 1
        self.waiting[one.job.id] = one

    def drop(self, job_id: str) -> None:
        """A waiting job is given up: it never ends."""
        one = self.waiting.pop(job_id, None)
        if one is None:
            raise ValueError(f"{job_id} does not wait")
        one.ended_s = math.inf

    def end(self, job_id: str) -> None:
        """A running job has done its work."""
        one = self.running[job_id]
        self._leave(one)
        one.left_s, one.ended_s = 0.0, self.now_s

    def _leave(self, one: Progress) -> None:
        self._settle(one)
        partner = one.partner
        del self.running[one.job.id]
        if partner is None:
            self.empty |= {each.device.id: each.device for each in one.devices if each.there(self.now_s)}
        else:
            self._together(partner, None)
        one.devices, one.partner, one.rate, one.slowdown = (), None, 0.0, 1.0
        one.version += 1
        one.since_s = self.now_s

    def _together(self, one: Progress, partner: Progress | None) -> None:
        """Both at their rates in this company from now on."""
        for job, other in ((one, partner), (partner, one)):
            if job is None:
                continue
            self._settle(job)
            job.partner = other
            job.slowdown = 1.0
            if other is not None:
                kind = job.devices[0].device.type
                job.slowdown = self.truth.slowdown(job.job.workload, other.job.workload, kind)
            job.rate = min(each.speed for each in job.devices) / job.slowdown
            job.version += 1
            self.changed.append(job)

    def _settle(self, one: Progress) -> None:
        """Work done at the rate that held until now."""
        if one.rate > 0 and self.now_s > one.settled_s:
            done_s = min(one.left_s, one.rate * (self.now_s - one.settled_s))
            one.left_s -= done_s
            one.served_s += done_s
            self.spans.append(
                Span(
                    job_id=one.job.id,
                    start_s=one.settled_s,
                    end_s=self.now_s,
                    slowdown=one.slowdown,
                    rate=one.rate,
                    partner_id="" if one.partner is None else one.partner.job.id,
                    device_ids=one.device_ids,
                )
            )
        one.settled_s = self.now_s


class Scheduler(Protocol):
    """Decides at every event: an arrival, an end, a device that comes or goes, a time it asked for."""

    def decide(self, cluster: Cluster) -> Decision:
        """What starts and stops now. Called once per moment, after all that happens then."""
