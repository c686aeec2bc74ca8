"""Heuristics that decide streams of jobs: an order, greedy sharing, EASY backfilling, sizes by marginal gain."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from tests.bench.played_streams import Policy, Starts, State

SHARING_ABOVE = 1.3  # joint throughput of a pair


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
