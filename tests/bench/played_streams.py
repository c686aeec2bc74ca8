"""Streams of jobs on a cluster of devices, played event by event to their end under one policy.

Measured pairs (Gavel's V100, P100 and K80) happen; a policy sees the state at every arrival and end.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from interfere.client import PolicyClient
from interfere.records import Device
from tests.data.importers.public_files import public

DONE_S = 1e-6
MODE = "mps"
# Speed on several V100s over that on one, as NVIDIA's DeepLearningExamples publish it of a DGX-1 (weak scaling) for
# Transformer (PyTorch, FP32), which scales well, and for BERT on SQuAD (TensorFlow, mixed precision), which does not.
# Two GPUs are not published; they are interpolated.
SCALING = ({1: 1.0, 2: 1.87, 4: 3.49, 8: 7.03}, {1: 1.0, 2: 1.68, 4: 2.81, 8: 5.19})
CHECKPOINT_S = 60.0  # that stopping an elastic job costs


@dataclass(frozen=True, kw_only=True)
class World:
    """What happens: seconds a step alone by type, and the slowdown of each ordered pair, as they were measured."""

    workloads: tuple[str, ...]
    types: tuple[str, ...]
    step_s: dict[tuple[str, str], float]  # (workload, type)
    slowdown: dict[tuple[str, str, str], float]  # (type, victim, neighbour); absent: the two must not share

    def relative_time(self, workload: str, device_type: str) -> float:
        """Time on a type over that on the fastest type of this world."""
        return self.step_s[workload, device_type] / min(self.step_s[workload, other] for other in self.types)

    def pair(self, device_type: str, victim: str, neighbour: str) -> float:
        """The slowdown that happens; 4 for a pair that was never measured."""
        return self.slowdown.get((device_type, victim, neighbour), 4.0)


def predicted_world(world: World, client: PolicyClient) -> World:
    """The world as the server predicts it."""
    slowdown = {}
    for kind in world.types:
        matrix = client.predict_matrix(world.workloads, device_type=kind, mode=MODE).matrix
        for i, victim in enumerate(world.workloads):
            for j, neighbour in enumerate(world.workloads):
                if matrix.feasible[i, j]:
                    slowdown[kind, victim, neighbour] = max(1.0, float(matrix.victim_slowdown[i, j]))
    return replace(world, slowdown=slowdown)


def gavel_world(types: Sequence[str]) -> World:
    """The workloads that were measured on all of these types."""
    rates = json.loads(Path(public("gavel/oracle_throughputs.json")).read_text(encoding="utf-8"))
    names = set.intersection(*(set(rates[kind]) for kind in types))
    names = sorted(name for name in names if all(rates[kind][name].get("null", 0) > 0 for kind in types))
    step_s = {(name, kind): 1.0 / rates[kind][name]["null"] for name in names for kind in types}
    slowdown = {}
    for kind in types:
        for victim in names:
            for neighbour in names:
                speeds = rates[kind][victim].get(neighbour)
                if speeds and min(speeds) > 0:
                    slowdown[kind, victim, neighbour] = max(1.0, rates[kind][victim]["null"] / speeds[0])
    return World(workloads=tuple(names), types=tuple(types), step_s=step_s, slowdown=slowdown)


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Jobs in the order of their arrival, and the devices they run on."""

    world: World
    devices: tuple[Device, ...]
    arrival_s: np.ndarray
    length_s: np.ndarray  # alone on the fastest type
    gpus: np.ndarray
    workload: tuple[str, ...]
    speed: tuple[dict[int, float], ...] = ()  # of each job by its number of devices; empty dict: it has one size
    believed: World | None = None  # by the heuristics; None: they know what will happen

    @classmethod
    def drawn(
        cls, seed: int, world: World, devices: Sequence[Device], *, jobs: int, load: float, gangs: bool, elastic: bool
    ) -> "Stream":
        """Poisson arrivals at a load, log-normal lengths of mean 1,000 s; half of the gangs take one device."""
        rng = np.random.default_rng(seed)
        length_s = rng.lognormal(math.log(1000.0) - 0.72, 1.2, jobs)
        gpus = rng.choice([1, 2, 4, 8], jobs, p=[0.5, 0.2, 0.2, 0.1]) if gangs else np.ones(jobs, dtype=int)
        workload = tuple(rng.choice(world.workloads, jobs).tolist())
        capacity = 0.0
        for device in devices:
            capacity += float(np.mean([1 / world.relative_time(name, device.type) for name in world.workloads]))
        work_s = float(np.mean(length_s * gpus))
        arrival_s = np.cumsum(rng.exponential(work_s / (load * capacity), jobs))
        curve, is_elastic = rng.integers(len(SCALING), size=jobs), rng.random(jobs) < (0.5 if elastic else 0.0)
        speed = tuple(
            {count: SCALING[c][count] / SCALING[c][own] for count in (own, *(n for n in SCALING[c] if n != own))}
            if chosen
            else {}
            for c, own, chosen in zip(curve.tolist(), gpus.tolist(), is_elastic.tolist(), strict=True)
        )
        return cls(
            world=world,
            devices=tuple(devices),
            arrival_s=arrival_s,
            length_s=length_s,
            gpus=gpus,
            workload=workload,
            speed=speed,
        )


@dataclass(kw_only=True)
class Running:
    """One job that runs."""

    devices: tuple[int, ...]
    since_s: float


@dataclass(kw_only=True)
class State:
    """The cluster at one moment."""

    stream: Stream
    now_s: float = 0.0
    left_s: np.ndarray = field(default_factory=lambda: np.zeros(0))
    pending: list[int] = field(default_factory=list)
    running: dict[int, Running] = field(default_factory=dict)
    on_device: list[list[int]] = field(default_factory=list)
    noise: np.ndarray | None = None  # factor on the remaining times that are told; NaN: none is told

    def rate(self, job: int) -> float:
        """Seconds of the job's own time that pass in one second."""
        stream = self.stream
        devices = self.running[job].devices
        kind = stream.devices[devices[0]].type
        others = {other for device in devices for other in self.on_device[device] if other != job}
        slowed = math.prod(stream.world.pair(kind, stream.workload[job], stream.workload[other]) for other in others)
        return self.speed(job, len(devices)) / (slowed * stream.world.relative_time(stream.workload[job], kind))

    def speed(self, job: int, gpus: int) -> float:
        """Speed of a job on some devices, relative to its first size."""
        return self.stream.speed[job].get(gpus, 1.0)

    def told_s(self, job: int) -> float:
        """The remaining time that schedulers are told."""
        factor = 1.0 if self.noise is None else float(self.noise[job])
        return float(self.left_s[job]) * factor


Starts = list[tuple[int, tuple[int, ...]]]  # a job that runs and has no devices is stopped, at its checkpoint cost
Policy = Callable[[State], Starts]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of all jobs of a stream."""

    completion_s: np.ndarray
    wait_s: np.ndarray
    ratio: np.ndarray  # time from arrival to end over own time
    makespan_s: float
    decision_s: float  # mean, on the wall
    stops: int  # of running jobs


def run(stream: Stream, policy: Policy, noise: np.ndarray | None = None) -> Outcome:
    """Play a stream to its end under one policy."""
    n = len(stream.length_s)
    state = State(stream=stream, left_s=stream.length_s.copy(), on_device=[[] for _ in stream.devices], noise=noise)
    start_s, end_s = np.full(n, np.nan), np.full(n, np.nan)
    arrived, spent_s, decisions, stops = 0, 0.0, 0, 0
    may_resize = any(stream.speed)
    while arrived < n or state.pending or state.running:
        while state.pending or may_resize:
            began = time.perf_counter()
            starts = policy(state)
            spent_s += time.perf_counter() - began
            decisions += 1
            stopped = [job for job, devices in starts if not devices]
            stops += len(stopped)
            for job in stopped:
                state.left_s[job] += CHECKPOINT_S
                state.pending.append(job)
                for device in state.running.pop(job).devices:
                    state.on_device[device].remove(job)
            for job, devices in starts:
                if not devices:
                    continue
                assert len(devices) == stream.gpus[job] or len(devices) in stream.speed[job]
                assert all(len(state.on_device[device]) < 2 for device in devices)
                state.pending.remove(job)
                state.running[job] = Running(devices=devices, since_s=state.now_s)
                start_s[job] = np.fmin(start_s[job], state.now_s)
                for device in devices:
                    state.on_device[device].append(job)
            if not stopped:
                break
        rates = {job: state.rate(job) for job in state.running}
        end = min((state.left_s[job] / rates[job] for job in rates), default=math.inf)
        arrival = float(stream.arrival_s[arrived]) - state.now_s if arrived < n else math.inf
        step = min(end, arrival)
        assert math.isfinite(step), "no job runs and none will arrive"
        state.now_s += step
        for job, rate in rates.items():
            state.left_s[job] -= rate * step
            if state.left_s[job] <= DONE_S:
                end_s[job] = state.now_s
                for device in state.running.pop(job).devices:
                    state.on_device[device].remove(job)
        if arrival <= end:
            state.pending.append(arrived)
            arrived += 1
    assert np.isfinite(end_s).all()
    return Outcome(
        completion_s=end_s - stream.arrival_s,
        wait_s=start_s - stream.arrival_s,
        ratio=(end_s - stream.arrival_s) / stream.length_s,
        makespan_s=float(end_s.max()),
        decision_s=spent_s / max(1, decisions),
        stops=stops,
    )


# --- the streams of a case --------------------------------------------------------------------------------------------


def gang_devices() -> tuple[Device, ...]:
    """Sixteen V100s on two nodes."""
    return tuple(Device(id=f"v{k}", type="v100", node=f"n{k // 8}", mode=MODE) for k in range(16))


def typed_devices() -> tuple[Device, ...]:
    """Four devices of each of three types."""
    return tuple(Device(id=f"{kind}-{k}", type=kind, mode=MODE) for kind in ("v100", "p100", "k80") for k in range(4))


def streams(case: str, seeds: Sequence[int], load: float, jobs: int) -> list[Stream]:
    """The streams of a case."""
    devices = typed_devices() if case == "types" else gang_devices()
    world = gavel_world(tuple(dict.fromkeys(device.type for device in devices)))
    gangs, elastic = case != "types", case == "elastic"
    return [Stream.drawn(seed, world, devices, jobs=jobs, load=load, gangs=gangs, elastic=elastic) for seed in seeds]


def told_factors(seed: int, jobs: int, error: float, off: float) -> np.ndarray | None:
    """Factors on the remaining times that are told, the same for every policy: a tenth of them is `off` times as long
    or as short; None where all are told as they are."""
    if not error and off == 1.0:
        return None
    rng = np.random.default_rng(seed + 1000)
    factors = rng.lognormal(0.0, error, jobs)
    return factors * np.where(rng.random(jobs) < 0.1, rng.choice([off, 1 / off], jobs), 1.0)
