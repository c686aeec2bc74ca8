"""Closed clusters: no job arrives, predictions are true, and a decision is made whenever a job has ended."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from interfere.policy.answer.starts import all_waiting
from interfere.policy.context import PlanningContext
from interfere.policy.decide import decide
from interfere.policy.schedule.decision import start_actions
from interfere.policy.schedule.from_context import scheduling_instance
from interfere.policy.schedule.heuristics import ALONE, schedule_in_order
from interfere.records import Action, Device, Job, Limits, ObjectiveKind, ScopeLedger, Snapshot
from tests.policy.oracle.random_clusters import TypedTablePredictor
from tests.tables import context, profile, resolver

TYPES, NAMES = ("fast", "slow"), ("a", "b", "c", "d")
ALL_TYPES = ("fast", "slow", "third", "unknown")
DONE = 1e-9  # relative, of the work of a job: rounding of many small steps

Policy = Callable[[PlanningContext], Sequence[Action]]


class ClosedCluster:
    """Up to seven jobs, some of them gangs, on up to four devices with up to two residents, drawn from one seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        scale = float(rng.choice([0.2, 0.5, 1.5]))
        table = {(v, n): float(np.float32(1 + rng.gamma(1.0, scale))) for v in NAMES for n in NAMES}
        self.table = {
            kind: {pair: 1 + (s - 1) * float(rng.uniform(0.5, 1.5)) for pair, s in table.items()} for kind in ALL_TYPES
        }
        self.table = {kind: {p: float(np.float32(s)) for p, s in pairs.items()} for kind, pairs in self.table.items()}
        self.step_s = {(name, kind): float(rng.uniform(0.01, 0.03)) for name in NAMES for kind in TYPES}
        self.types = TYPES[: int(rng.integers(1, 3))]
        count = int(rng.integers(1, 5))
        self.type_of = {f"d{k}": str(rng.choice(self.types)) for k in range(count)}
        widest = max(list(self.type_of.values()).count(kind) for kind in self.types)
        sizes = [size for size in (1, 1, 1, 2) if size <= widest]
        self.work_s: dict[str, float] = {}  # what is left, alone on the fastest type
        self.jobs: dict[str, Job] = {}
        self.pending = [self._job(f"p{k}", int(rng.choice(sizes))) for k in range(int(rng.integers(1, 8)))]
        self.running: dict[str, list[str]] = {}  # devices of each job that runs
        for k, device in enumerate(self.type_of):
            for r in range(int(rng.choice([0, 0, 1, 2]))):
                self.running[self._job(f"r{k}.{r}", 1)] = [device]
        least = float(rng.choice([0.0, 1.0]))
        self.limits = Limits.of(min_joint_throughput=least)
        self.count = len(self.jobs)

    def _job(self, name: str, gpus: int) -> str:
        rng = self.rng
        self.work_s[name] = float(rng.uniform(1, 100) if rng.random() < 0.5 else rng.choice([10.0, 50.0]))
        self.jobs[name] = Job(id=name, workload=str(rng.choice(NAMES)), gpus=gpus)
        return name

    def context(self, now_s: float = 0.0) -> PlanningContext:
        """What a scheduler would send now."""
        jobs = {name: replace(job, remaining_s=self.work_s[name]) for name, job in self.jobs.items()}
        devices = [
            Device(id=device, type=kind, residents=tuple(jobs[n] for n, on in self.running.items() if device in on))
            for device, kind in self.type_of.items()
        ]
        snapshot = Snapshot(
            pending=tuple(jobs[name] for name in self.pending),
            devices=tuple(devices),
            objective=ObjectiveKind.COMPLETION_TIME,
            limits=self.limits,
            now_s=now_s,
        )
        profiles = (replace(profile(n, device_type=k), step_time_s=s) for (n, k), s in self.step_s.items())
        return context(snapshot, TypedTablePredictor(self.table, {}), resolver(*profiles))

    def run(self, policy: Policy) -> float:
        """Mean completion time when the policy decides at once, and again whenever a job has ended."""
        now_s, ends_s = 0.0, []
        while self.running or self.pending:
            if self.pending:
                for action in policy(self.context(now_s)):
                    if action.places:
                        self.running[action.job_id] = list(action.places)
                self.pending = [name for name in self.pending if name not in self.running]
            rate = {name: self._rate(name) for name in self.running}
            step_s = min(self.work_s[name] / rate[name] for name in self.running)
            now_s += step_s
            for name in list(self.running):
                left_s = max(0.0, self.work_s[name] - rate[name] * step_s)
                self.work_s[name] = left_s
                if left_s <= DONE * max(1.0, rate[name] * step_s):
                    ends_s.append(now_s)
                    del self.running[name]
        assert len(ends_s) == self.count
        return math.fsum(ends_s) / len(ends_s)

    def _rate(self, name: str) -> float:
        """Work that a running job does in a second."""
        workload, devices = self.jobs[name].workload, self.running[name]
        kind = self.type_of[devices[0]]
        others = [other for other, on in self.running.items() if other != name and set(on) & set(devices)]
        slowed = math.prod(self.table[kind][workload, self.jobs[other].workload] for other in others)
        # τ refers to the types of the snapshot
        fastest = min(self.step_s[workload, other] for other in self.type_of.values())
        return fastest / self.step_s[workload, kind] / slowed


def server_policy() -> Policy:
    """Decisions of the server, each with the ledger of the decision before."""
    ledger = ScopeLedger(scope=Snapshot(pending=(), devices=()).scope)

    def decided(asked: PlanningContext) -> Sequence[Action]:
        nonlocal ledger
        decision = decide(asked, ledger)
        ledger = decision.ledger
        return decision.plan.actions

    return decided


def submission_order(asked: PlanningContext) -> Sequence[Action]:
    """One job after the other in order of submission, none beside another."""
    instance = scheduling_instance(asked, {}, shares=False)
    assert instance is not None
    schedule = schedule_in_order(instance.problem, range(instance.problem.pending), ALONE)
    return start_actions(schedule, instance, all_waiting((), asked), asked)
