"""A stream of jobs onto a few devices, decided by the server's own decision at every arrival and end.

Sharing gains little (every job takes 1.6 to 1.95 times as long beside another) and one job in ten shares with none: the
hard case for those, since every seat that comes free is taken by a job that shares.
"""

import heapq
import math
from dataclasses import dataclass

import numpy as np

from interfere.policy.decide import decide
from interfere.records import Device, Job, Limits, ScopeLedger, Snapshot
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

NAMES, LONER = ("a", "b", "c", "d", "e"), "loner"
MEAN_S = 200.0  # of the length of a job alone, exponentially distributed
DONE_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Of all jobs of a stream: seconds from submission to start, at most, and to the end, on average."""

    longest_s: float
    mean_completion_s: float


class Stream:
    """Jobs that arrive at random, `load` times as much work as the devices do alone, drawn from one seed."""

    def __init__(self, seed: int, *, jobs: int, devices: int, load: float = 0.9, loners: float = 0.1) -> None:
        rng = np.random.default_rng(seed)
        names = (*NAMES, LONER)
        slowdown = {(v, n): float(np.float32(rng.uniform(1.6, 1.95))) for v in names for n in names}
        self.slowdown = {pair: 9.0 if LONER in pair else value for pair, value in slowdown.items()}
        self.length_s = rng.exponential(MEAN_S, jobs)
        self.arrival_s = np.cumsum(rng.exponential(MEAN_S / (load * devices), jobs))
        self.workload = np.where(rng.random(jobs) < loners, LONER, rng.choice(NAMES, jobs))
        self.devices = devices
        self._predictor, self._resolve = TablePredictor(self.slowdown), resolver(*map(profile, names))

    def in_order(self) -> Waits:
        """One job after the other in order of submission, one a device."""
        free_s = [0.0] * self.devices
        starts_s = np.zeros(len(self.length_s))
        for i, arrival_s in enumerate(self.arrival_s):
            starts_s[i] = max(heapq.heappop(free_s), arrival_s)
            heapq.heappush(free_s, starts_s[i] + self.length_s[i])
        return self._waits(starts_s, starts_s + self.length_s)

    def decided(self, *, promises: bool) -> Waits:
        """By the server, whenever a job has arrived or ended; `promises`: whether earlier promises are remembered."""
        ledger = ScopeLedger(scope=Snapshot(pending=(), devices=()).scope)
        n, now_s, arrived = len(self.length_s), 0.0, 0
        left_s = self.length_s.copy()
        starts_s, ends_s = np.full(n, np.nan), np.full(n, np.nan)
        pending: list[int] = []
        running: list[list[int]] = [[] for _ in range(self.devices)]
        while arrived < n or pending or any(running):
            if pending and any(len(group) < 2 for group in running):
                starts, decided = self._starts(pending, running, now_s, ledger)
                ledger = decided if promises else ledger
                for i, device in starts:
                    running[device].append(i)
                    pending.remove(i)
                    starts_s[i] = now_s
            rate = {i: 1 / self._slowed(i, group) for group in running for i in group}
            end_s = now_s + min((left_s[i] / rate[i] for i in rate), default=math.inf)
            arrival_s = float(self.arrival_s[arrived]) if arrived < n else math.inf
            step_s, now_s = min(end_s, arrival_s) - now_s, min(end_s, arrival_s)
            for group in running:
                for i in list(group):
                    left_s[i] = max(0.0, left_s[i] - rate[i] * step_s)
                    if left_s[i] <= DONE_S:
                        ends_s[i] = now_s
                        group.remove(i)
            if arrival_s <= end_s:
                pending.append(arrived)
                arrived += 1
        return self._waits(starts_s, ends_s)

    def _waits(self, starts_s: np.ndarray, ends_s: np.ndarray) -> Waits:
        assert np.isfinite(ends_s).all()
        return Waits(
            longest_s=float((starts_s - self.arrival_s).max()),
            mean_completion_s=float((ends_s - self.arrival_s).mean()),
        )

    def _slowed(self, i: int, group: list[int]) -> float:
        return math.prod(self.slowdown[self.workload[i], self.workload[j]] for j in group if j != i)

    def _starts(
        self, pending: list[int], running: list[list[int]], now_s: float, ledger: ScopeLedger
    ) -> tuple[list[tuple[int, int]], ScopeLedger]:
        """(job, device) of each start, and the ledger; all jobs have one weight and say when they were submitted."""

        def job(i: int) -> Job:
            elapsed_s = max(0.0, now_s - float(self.arrival_s[i]))
            return Job(id=str(i), workload=str(self.workload[i]), elapsed_s=elapsed_s)

        devices = (Device(id=str(k), type=DEVICE, residents=tuple(map(job, group))) for k, group in enumerate(running))
        limits = Limits.of(ageing_s=0.0)
        snapshot = Snapshot(
            pending=tuple(map(job, pending)), devices=tuple(devices), limits=limits, now_s=now_s, scope=ledger.scope
        )
        found = decide(context(snapshot, self._predictor, self._resolve), ledger)
        starts = [(int(action.job_id), int(action.device_id)) for action in found.plan.actions if action.places]
        return starts, found.ledger
