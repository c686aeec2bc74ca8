"""Random clusters whose residents may move, and their state after a plan."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interfere.policy.decide import decide
from interfere.records import (
    Action,
    ActionKind,
    Device,
    Job,
    Limits,
    Plan,
    ScopeLedger,
    Snapshot,
)
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

NAMES = tuple("abcd")
MOVES = frozenset({ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT, ActionKind.KEEP, ActionKind.MOVE})
NOW_S = 10_000.0


class World:
    """Residents of long standing, some of whom may move, and a queue."""

    def __init__(self, seed: int, **limits: object) -> None:
        rng = np.random.default_rng(seed)
        self.table = {(v, n): float(1 + rng.gamma(1.0, 0.6)) for v in NAMES for n in NAMES}
        self.predictor, self.resolve = TablePredictor(self.table), resolver(*map(profile, NAMES))

        def job(name: str, *, runs: bool) -> Job:
            return Job(
                id=name,
                workload=str(rng.choice(list(NAMES))),
                weight=float(rng.choice([1.0, 2.0])),
                priority=int(rng.choice([0, 0, 1])) if runs else int(rng.choice([0, 1, 2])),
                remaining_s=math.nan if rng.random() < 0.2 else float(rng.integers(1, 2000)),
                preemptible=bool(rng.random() < 0.8),
                checkpoint_s=math.nan if rng.random() < 0.1 else float(rng.integers(0, 100)),
                since_s=math.nan if not runs or rng.random() < 0.1 else float(NOW_S - rng.choice([5.0, 500.0, 5000.0])),
            )

        devices = [
            Device(
                id=f"d{k}",
                type=DEVICE,
                pool=str(rng.choice(["", "", "", "p"])),
                residents=tuple(job(f"r{k}.{n}", runs=True) for n in range(int(rng.choice([0, 1, 1, 2, 2, 3])))),
            )
            for k in range(int(rng.integers(1, 7)))
        ]
        pending = [job(f"p{k}", runs=False) for k in range(int(rng.integers(0, 3)))]
        most = None if rng.random() < 0.7 else int(rng.integers(0, 3))
        self.snapshot = Snapshot(
            pending=tuple(pending),
            devices=tuple(devices),
            now_s=NOW_S,
            limits=Limits.of(**({"allowed": MOVES, "max_devices": most} | limits)),
        )
        self.jobs = {job.id: job for job in (*pending, *(r for d in devices for r in d.residents))}

    def plan(self, **changes: object) -> Plan:
        seen = replace(self.snapshot, **changes)
        return decide(context(seen, self.predictor, self.resolve, "x"), ScopeLedger(scope="default")).plan

    def before(self) -> dict[str, list[str]]:
        return {device.id: [job.id for job in device.residents] for device in self.snapshot.devices}

    def after(self, actions: Sequence[Action]) -> dict[str, list[str]]:
        runs = self.before()
        for action in actions:
            if action.kind in (ActionKind.MOVE, ActionKind.PREEMPT):
                (old,) = (name for name, jobs in runs.items() if action.job_id in jobs)
                runs[old].remove(action.job_id)
        for action in actions:
            if action.kind in (ActionKind.MOVE, ActionKind.START_ALONE, ActionKind.START_SHARED):
                runs[action.device_id].append(action.job_id)
        return runs

    def loss_s(self, name: str, company: Sequence[str]) -> float:
        """Weighted seconds that a job loses there over its time left; of unknown length, per second."""
        job = self.jobs[name]
        slowdown = math.prod(self.table[job.workload, self.jobs[one].workload] for one in company if one != name)
        return self.weight(name) * (slowdown - 1) * (1.0 if math.isnan(job.remaining_s) else job.remaining_s)

    def weight(self, name: str) -> float:
        return self.jobs[name].weight * 10.0 ** self.jobs[name].priority

    def touched(self, actions: Sequence[Action]) -> list[set[str]]:
        """Devices between which somebody moves, in connected parts."""
        place = {job: name for name, jobs in self.before().items() for job in jobs}
        parts: list[set[str]] = []
        for action in actions:
            if action.kind is ActionKind.MOVE:
                joined = {action.device_id, place[action.job_id]}
                for part in [one for one in parts if one & joined]:
                    parts.remove(part)
                    joined |= part
                parts.append(joined)
        return parts
