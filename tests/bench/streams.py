"""Streams of jobs decided event by event by a real server over gRPC, beside heuristics with the same predictions.

Measured pairs (Gavel's V100, P100 and K80) happen; the shipped GPU model predicts them. At every arrival and end the
whole cluster is sent, and the starts of the answer are made at once. The heuristics ask the server for the slowdowns
too; with `--exact` they know those that will happen, and which pairs were never measured.

`python -m tests.bench.streams gangs|types|elastic [--seeds N] [--policies NAME,...]` prints one row a policy.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from interfere.client import PolicyClient
from interfere.config import SHIPPED_GPU_MODEL, Settings
from interfere.records import ActionKind, Device, Job, JobSize, Limits, ObjectiveKind, Snapshot
from interfere.serving.server import start_server
from tests.data.importers.public_files import public

DONE_S = 1e-6
MODE = "mps"
# Speed on several V100s over that on one, as NVIDIA's DeepLearningExamples publish it of a DGX-1 (weak scaling) for
# Transformer (PyTorch, FP32), which scales well, and for BERT on SQuAD (TensorFlow, mixed precision), which does not.
# Two GPUs are not published; they are interpolated.
SCALING = ({1: 1.0, 2: 1.87, 4: 3.49, 8: 7.03}, {1: 1.0, 2: 1.68, 4: 2.81, 8: 5.19})
CHECKPOINT_S = 60.0  # that stopping an elastic job costs
SHARING_ABOVE = 1.3  # joint throughput of a pair, for the greedy rivals


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


# --- rivals -----------------------------------------------------------------------------------------------------------


def _fifo(state: State, job: int) -> float:
    return float(state.stream.arrival_s[job])


def _shortest(state: State, job: int) -> float:
    return state.told_s(job)


def _smallest_area(state: State, job: int) -> float:
    return state.told_s(job) * float(state.stream.gpus[job])


def sizes_by_marginal_gain(state: State) -> dict[int, int]:
    """Sizes of the waiting elastic jobs: from the smallest, the next size to whom a GPU more saves most (Optimus)."""
    stream = state.stream
    free = sum(not jobs for jobs in state.on_device)
    size_of: dict[int, int] = {}
    for job in sorted(state.pending, key=state.told_s):
        gpus = min(stream.speed[job]) if stream.speed[job] else int(stream.gpus[job])
        if gpus <= free:
            free -= gpus
        if stream.speed[job]:
            size_of[job] = gpus

    def saved_s(job: int) -> tuple[float, int, int]:
        """Seconds saved by each GPU of the next size, the job, and the GPUs that it takes."""
        own = size_of[job]
        larger = min((n for n in stream.speed[job] if n > own), default=0)
        if not larger or larger - own > free:
            return -1.0, job, 0
        saved = state.told_s(job) * (1 / stream.speed[job][own] - 1 / stream.speed[job][larger])
        return saved / (larger - own), job, larger - own

    while size_of and (best := max(map(saved_s, size_of)))[0] > 0:
        size_of[best[1]] += best[2]
        free -= best[2]
    return size_of


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """In an order: alone on the fastest free devices, else beside the host with which most gets done."""

    order: Callable[[State, int], float]
    shares: bool = True
    easy: bool = False  # protects the first job that cannot start (EASY backfilling)
    by_marginal_gain: bool = False  # elastic jobs start at sizes by marginal gain, else at their first
    head_of_line: bool = False  # nobody passes a job that cannot start

    def __call__(self, state: State) -> Starts:
        stream, world = state.stream, state.stream.world
        starts: Starts = []
        on_device = [list(jobs) for jobs in state.on_device]
        placed = {job: running.devices for job, running in state.running.items()}
        shadow_s, reserved = math.inf, set[int]()
        size_of = sizes_by_marginal_gain(state) if self.by_marginal_gain else {}

        def ends_by(job: int, device: int, slowed: float) -> float:
            kind = stream.devices[device].type
            if job in state.running:
                speed = state.speed(job, len(state.running[job].devices))
            else:
                speed = state.speed(job, size_of.get(job, int(stream.gpus[job])))
            return state.told_s(job) * world.relative_time(stream.workload[job], kind) * slowed / speed

        for job in sorted(state.pending, key=lambda job: (self.order(state, job), job)):
            gpus = size_of.get(job, int(stream.gpus[job]))
            chosen = self._alone(state, job, gpus, on_device, ends_by, shadow_s, reserved)
            if not chosen and self.shares:
                chosen = self._beside(state, job, gpus, on_device, placed, ends_by, shadow_s, reserved)
            if chosen:
                starts.append((job, chosen))
                placed[job] = chosen
                for device in chosen:
                    on_device[device].append(job)
            elif self.head_of_line:
                break
            elif self.easy and shadow_s == math.inf:
                shadow_s, reserved = self._shadow(state, job, gpus, on_device, ends_by)
        return starts

    def _alone(self, state, job, gpus, on_device, ends_by, shadow_s, reserved):
        stream, world = state.stream, state.stream.world
        for kind in sorted(world.types, key=lambda kind: world.relative_time(stream.workload[job], kind)):
            free = [k for k, jobs in enumerate(on_device) if not jobs and stream.devices[k].type == kind]
            if ends_by(job, free[0] if free else 0, 1.0) > shadow_s and free:
                free = [k for k in free if k not in reserved]
            if len(free) >= gpus:
                return tuple(free[:gpus])
        return ()

    def _beside(self, state, job, gpus, on_device, placed, ends_by, shadow_s, reserved):
        stream, world = state.stream, state.stream.believed or state.stream.world
        best, most = (), SHARING_ABOVE
        for host, devices in placed.items():
            if len(devices) != gpus or any(len(on_device[device]) != 1 for device in devices):
                continue
            kind = stream.devices[devices[0]].type
            key = (kind, stream.workload[job], stream.workload[host])
            back = (kind, stream.workload[host], stream.workload[job])
            if key not in world.slowdown or back not in world.slowdown:
                continue
            slowed, host_slowed = world.slowdown[key], world.slowdown[back]
            if reserved.intersection(devices) and (
                max(ends_by(job, devices[0], slowed), ends_by(host, devices[0], host_slowed)) > shadow_s
            ):
                continue
            throughput = 1 / slowed + 1 / host_slowed
            if throughput > most:
                best, most = devices, throughput
        return best

    def _shadow(self, state, job, gpus, on_device, ends_by):
        stream, world = state.stream, state.stream.world
        best = (math.inf, set())
        for kind in world.types:
            free_s = []
            for k, jobs in enumerate(on_device):
                if stream.devices[k].type == kind:
                    slowed = 1.5 if len(jobs) > 1 else 1.0
                    free_s.append((max([ends_by(other, k, slowed) for other in jobs], default=0.0), k))
            free_s.sort()
            if len(free_s) >= gpus:
                at_s = free_s[gpus - 1][0]
                end_s = at_s + ends_by(job, free_s[0][1], 1.0)
                if end_s < best[0]:
                    best = (end_s, {k for _, k in free_s[:gpus]}, at_s)
        return (best[2], best[1]) if best[0] < math.inf else (math.inf, set())


RIVALS: dict[str, Policy] = {
    "fifo-alone": Greedy(order=_fifo, shares=False, head_of_line=True),
    "fifo-first-fit": Greedy(order=_fifo, shares=False),
    "fifo-easy": Greedy(order=_fifo, shares=False, easy=True),
    "fifo-greedy": Greedy(order=_fifo),
    "fifo-easy-greedy": Greedy(order=_fifo, easy=True),
    "shortest": Greedy(order=_shortest, shares=False),
    "shortest-greedy": Greedy(order=_shortest),
    "shortest-easy-greedy": Greedy(order=_shortest, easy=True),
    "area-greedy": Greedy(order=_smallest_area),
    "area-easy-greedy": Greedy(order=_smallest_area, easy=True),
}
ELASTIC_RIVALS: dict[str, Policy] = {
    "fifo-marginal": Greedy(order=_fifo, by_marginal_gain=True),
    "shortest-marginal": Greedy(order=_shortest, by_marginal_gain=True),
    "shortest-easy-marginal": Greedy(order=_shortest, easy=True, by_marginal_gain=True),
}


# --- the server -------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Served:
    """The server's decisions over gRPC."""

    client: PolicyClient
    scope: str
    objective: ObjectiveKind | None = None
    limits: Limits = field(default_factory=Limits)
    told: bool = True
    elastic: bool = False  # sizes are told, and running jobs may be stopped for another

    def __call__(self, state: State) -> Starts:
        stream = state.stream

        def job(k: int) -> Job:
            since_s = state.running[k].since_s if k in state.running else math.nan
            return Job(
                id=f"j{k}",
                workload=stream.workload[k],
                gpus=len(state.running[k].devices) if k in state.running else int(stream.gpus[k]),
                sizes=tuple(JobSize(gpus=n, speed=v) for n, v in stream.speed[k].items()) if self.elastic else (),
                preemptible=self.elastic and bool(stream.speed[k]),
                checkpoint_s=CHECKPOINT_S if self.elastic else math.nan,
                remaining_s=state.told_s(k) if self.told else math.nan,
                attained_s=max(0.0, float(stream.length_s[k] - state.left_s[k])),
                elapsed_s=max(0.0, state.now_s - float(stream.arrival_s[k])),
                since_s=since_s,
            )

        devices = tuple(
            replace(device, residents=tuple(map(job, jobs)))
            for device, jobs in zip(stream.devices, state.on_device, strict=True)
        )
        more = {} if self.objective is None else {"objective": self.objective}
        snapshot = Snapshot(
            pending=tuple(map(job, state.pending)),
            devices=devices,
            scope=self.scope,
            limits=self.limits,
            now_s=state.now_s,
            **more,
        )
        place = {device.id: k for k, device in enumerate(stream.devices)}
        plan = self.client.match(snapshot)
        stops: Starts = [(int(action.job_id[1:]), ()) for action in plan.actions if action.kind is ActionKind.PREEMPT]
        return stops + [
            (int(action.job_id[1:]), tuple(place[name] for name in action.places))
            for action in plan.actions
            if action.places and action.kind.value.startswith("start")
        ]


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


SERVED = {
    "auto": (ObjectiveKind.AUTO, True),
    "completion_time": (ObjectiveKind.COMPLETION_TIME, True),
    "makespan": (ObjectiveKind.MAKESPAN, True),
    "fairness": (ObjectiveKind.FINISH_TIME_FAIRNESS, True),
    "weighted_excess": (ObjectiveKind.WEIGHTED_EXCESS, True),
    "auto-untold": (ObjectiveKind.AUTO, False),
    "auto-elastic": (ObjectiveKind.AUTO, True),
    "completion_time-elastic": (ObjectiveKind.COMPLETION_TIME, True),
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=("gangs", "types", "elastic"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--policies", default="")
    parser.add_argument("--noise", type=float, default=0.0, help="standard error of log remaining time")
    parser.add_argument("--off", type=float, default=1.0, help="factor by which a tenth of the remaining times is off")
    parser.add_argument("--exact", action="store_true", help="the heuristics know the slowdowns that will happen")
    options = parser.parse_args(arguments)
    drawn = streams(options.case, range(options.first, options.first + options.seeds), options.load, options.jobs)
    names = options.policies.split(",") if options.policies else [*RIVALS, "auto"]
    if options.case == "elastic" and not options.policies:
        names += [*ELASTIC_RIVALS, "auto-elastic"]
    rivals = RIVALS | ELASTIC_RIVALS
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(model=SHIPPED_GPU_MODEL, work=Path(folder), port=0, decision_workers=0)
        server = start_server(settings)
        try:
            with PolicyClient(server.address, timeout_s=120.0) as client:
                if not options.exact:
                    drawn = [replace(each, believed=predicted_world(each.world, client)) for each in drawn]
                for name in names:
                    outcomes = []
                    for k, stream in enumerate(drawn):
                        noise = told_factors(options.first + k, len(stream.length_s), options.noise, options.off)
                        policy: Policy
                        if name in rivals:
                            policy = rivals[name]
                        else:
                            objective, told = SERVED[name]
                            elastic = name.endswith("-elastic")
                            policy = Served(
                                client=client,
                                scope=f"{name}-{k}",
                                objective=objective,
                                told=told,
                                elastic=elastic,
                                limits=Limits.of(allowed=frozenset(ActionKind)) if elastic else Limits(),
                            )
                        outcomes.append(run(stream, policy, noise))
                    print_row(name, outcomes)
        finally:
            server.stop()


def print_row(name: str, outcomes: Sequence[Outcome]) -> None:
    """Means over the seeds, then the mean completion of each seed."""
    mean = [float(each.completion_s.mean()) for each in outcomes]
    p95 = np.mean([np.quantile(each.completion_s, 0.95) for each in outcomes])
    longest = [float(each.wait_s.max()) for each in outcomes]
    ratio = np.mean([each.ratio.max() for each in outcomes])
    makespan = np.mean([each.makespan_s for each in outcomes])
    decision_ms = 1e3 * np.mean([each.decision_s for each in outcomes])
    print(
        f"{name:22s} mean {np.mean(mean):7.0f}  p95 {p95:7.0f}  longest wait {np.mean(longest):7.0f}  "
        f"stops {np.mean([each.stops / len(each.wait_s) for each in outcomes]):.2f} a job  "
        f"max rho {ratio:6.1f}  makespan {makespan:7.0f}  {decision_ms:6.1f} ms  "
        f"per seed {' '.join(f'{value:.0f}' for value in mean)} | "
        f"waits {' '.join(f'{value:.0f}' for value in longest)}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
