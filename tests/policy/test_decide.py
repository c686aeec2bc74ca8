"""Decisions over time: gangs, moves and preemptions among starts, and a scheduler that carries out some of them."""

import importlib
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.decide import ScopeDecision, decide
from interfere.records import Action, ActionKind, Device, Job, Limits, ObjectiveKind, ScopeLedger, Snapshot
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

NAMES = tuple("abcd")
STARTS = (ActionKind.START_ALONE, ActionKind.START_SHARED)
LEAVE = (ActionKind.MOVE, ActionKind.PREEMPT)


class Cluster:
    """Six devices on two nodes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        table = {(v, n): float(1 + self.rng.gamma(1.0, 0.6)) for v in NAMES for n in NAMES}
        self.predictor, self.resolve = TablePredictor(table), resolver(*map(profile, NAMES))
        self.pending: list[Job] = []
        self.runs: dict[str, list[Job]] = {f"d{k}": [] for k in range(6)}
        self.count, self.now_s = 0, 1000.0
        self.limits = Limits.of(allowed=frozenset(ActionKind), move_factor=1.0, max_slowdown=1.8)

    def step(self) -> None:
        """Jobs come and end, time passes."""
        rng = self.rng
        for _ in range(int(rng.integers(0, 3))):
            self.count += 1
            self.pending.append(
                Job(
                    id=f"j{self.count}",
                    workload=str(rng.choice(NAMES)),
                    gpus=int(rng.choice([1, 1, 1, 2, 3])),
                    priority=int(rng.integers(0, 3)),
                    remaining_s=float(rng.integers(1, 3000)),
                    preemptible=True,
                    checkpoint_s=float(rng.integers(0, 20)),
                )
            )
        over = {job.id for jobs in self.runs.values() for job in jobs if rng.random() < 0.1}
        for jobs in self.runs.values():
            jobs[:] = [job for job in jobs if job.id not in over]
        self.pending = [job for job in self.pending if rng.random() < 0.95]
        self.now_s += float(rng.choice([0.0, 10.0, 100.0, 500.0]))

    def seen(self, *, partial: bool) -> Snapshot:
        devices = [
            Device(id=name, type=DEVICE, node=f"n{k // 3}", residents=tuple(jobs))
            for k, (name, jobs) in enumerate(self.runs.items())
        ]
        pending = self.pending
        if partial:
            devices = [device for device in devices if self.rng.random() < 0.8] or devices[:1]
            pending = [job for job in pending if self.rng.random() < 0.8]
        return Snapshot(
            pending=tuple(pending), devices=tuple(devices), limits=self.limits, now_s=self.now_s, partial=partial
        )

    def decide(self, seen: Snapshot, ledger: ScopeLedger) -> ScopeDecision:
        return decide(context(seen, self.predictor, self.resolve, f"at {self.now_s}"), ledger)

    def apply(self, actions: tuple[Action, ...]) -> None:
        """Some of it; who leaves does so first, who comes needs a seat."""
        done = [action for action in actions if self.rng.random() < 0.6]
        jobs = {job.id: job for jobs in (self.pending, *self.runs.values()) for job in jobs}
        for action in done:
            if action.kind in LEAVE:
                to = self.runs.get(action.device_id, [])
                if action.kind is ActionKind.MOVE and len(to) > 1:
                    continue
                for here in self.runs.values():
                    here[:] = [job for job in here if job.id != action.job_id]
                if action.kind is ActionKind.MOVE:
                    to.append(replace(jobs[action.job_id], since_s=self.now_s))
                else:
                    self.pending.append(jobs[action.job_id])
        for action in done:
            if action.kind in STARTS and all(len(self.runs[name]) < 2 for name in action.places):
                self.pending = [job for job in self.pending if job.id != action.job_id]
                for name in action.places:
                    self.runs[name].append(replace(jobs[action.job_id], since_s=self.now_s))


@given(st.integers(0, 1_000_000))
@settings(max_examples=60, deadline=None)
def test_over_time_no_seat_is_given_twice_and_no_promise_is_broken_or_leaks(seed: int) -> None:
    cluster, ledger = Cluster(seed), ScopeLedger(scope="default")
    for _ in range(12):
        cluster.step()
        partial = bool(cluster.rng.random() < 0.3)
        seen = cluster.seen(partial=partial)
        found = cluster.decide(seen, ledger)
        actions = found.plan.actions
        residents = {job.id for device in seen.devices for job in device.residents}
        told = {action.job_id: action for action in actions}
        # each job once: pending ones in their order, then every resident
        assert len(told) == len(actions)
        assert [action.job_id for action in actions[: len(seen.pending)]] == [job.id for job in seen.pending]
        assert {action.job_id for action in actions[len(seen.pending) :]} == residents
        # a whole place for everybody, at most two on a device, gangs beside gangs on the same set
        before = {device.id: [job.id for job in device.residents] for device in seen.devices}
        after = {name: [job for job in jobs if told[job].kind not in LEAVE] for name, jobs in before.items()}
        sets = {name: set() for name in told}
        for action in actions:
            for name in action.places if action.kind in (*STARTS, ActionKind.MOVE) else ():
                after.setdefault(name, []).append(action.job_id)
            sets[action.job_id] = set(action.places)
        for name, runs in cluster.runs.items():  # a partial snapshot may show a gang on some of its devices only
            for job in runs:
                if job.id in told and told[job.id].kind is ActionKind.KEEP:
                    sets[job.id].add(name)
        for name, jobs in after.items():
            assert len(jobs) <= max(2, len(before.get(name, ()))), name
            if len(jobs) == 2 and jobs != before.get(name):
                assert sets[jobs[0]] == sets[jobs[1]]
        # promises: told again, and only to jobs that were seen
        for kept in found.promises.kept:
            if kept.action.job_id in told:
                again = told[kept.action.job_id]
                assert (again.places, again.promised_by_s) == (kept.action.places, kept.action.promised_by_s)
        waiting = {job.id for job in seen.pending}
        for promise in found.ledger.promises:
            assert promise.action.promised_by_s > seen.now_s
            assert partial or promise.action.job_id in (residents if promise.from_device_id else waiting)
        assert len({p.action.job_id for p in found.ledger.promises}) == len(found.ledger.promises)
        assert found.plan.lower_bound <= found.plan.objective_value + 1e-9
        ledger = found.ledger
        cluster.apply(actions)


def test_a_job_left_out_of_a_partial_snapshot_keeps_its_promise_and_its_device() -> None:
    cluster = Cluster(0)
    cluster.pending = [Job(id="a", workload="a"), Job(id="b", workload="b")]
    first = cluster.decide(cluster.seen(partial=False), ScopeLedger(scope="default"))
    place = {action.job_id: action.device_id for action in first.plan.actions}
    devices = tuple(Device(id=name, type=DEVICE) for name in place.values())
    rest = Snapshot(pending=(Job(id="c", workload="a"),), devices=devices, now_s=1001.0, partial=True)
    found = cluster.decide(rest, first.ledger)
    assert found.plan.actions[0].kind is ActionKind.WAIT
    assert found.plan.actions[0].reason == "every device is promised to others"
    assert {promise.action.job_id for promise in found.ledger.promises} == {"a", "b"}
    over = cluster.decide(replace(rest, partial=False, now_s=1002.0), found.ledger)
    assert {release.reason for release in over.promises.released} == {"the job is over"}
    assert over.plan.actions[0].kind is ActionKind.START_ALONE


def test_a_promised_gang_that_takes_another_number_of_devices_is_planned_anew() -> None:
    cluster = Cluster(0)
    cluster.pending = [Job(id="g", workload="a", gpus=2)]
    first = cluster.decide(cluster.seen(partial=False), ScopeLedger(scope="default"))
    cluster.pending = [Job(id="g", workload="a", gpus=3)]
    found = cluster.decide(cluster.seen(partial=False), first.ledger)
    assert [release.reason for release in found.promises.released] == ["it takes 3 devices now"]
    assert len(found.plan.actions[0].places) == 3


def test_with_an_unlimited_budget_a_decision_reads_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large enough for every search of the matching: the plan is a pure function of snapshot and ledger."""

    def refuse_to_read() -> float:
        raise AssertionError("a decision read the clock")

    importlib.import_module("scipy.optimize")  # the solver imports it late, and importing it reads the clock
    for name in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, name, refuse_to_read)
    rng = np.random.default_rng(0)
    predictor = TablePredictor({(v, n): float(1 + rng.gamma(1.0, 0.6)) for v in NAMES for n in NAMES})
    known = resolver(*map(profile, NAMES), *(profile(name, device_type="other") for name in NAMES))

    def job(name: str, **fields: object) -> Job:
        values = {"id": name, "workload": str(rng.choice(NAMES)), "remaining_s": float(rng.integers(1, 3000))}
        return Job(**(values | fields))

    pending = tuple(
        job(f"j{k}", weight=float(rng.uniform(1, 9)), deadline_s=2500.0 + 100 * k, gpus=2 if k % 20 == 0 else 1)
        for k in range(60)
    )
    movable = {"preemptible": True, "checkpoint_s": 1.0, "since_s": 0.0}
    devices = tuple(
        Device(
            id=f"d{k}",
            type=DEVICE if k % 3 else "other",
            memory_bytes=80e9,
            granule_bytes=2e9,
            residents=tuple(job(f"r{k}.{r}", **movable) for r in range(k % 4 if k % 4 < 3 else 0)),
        )
        for k in range(40)
    )
    for objective in (ObjectiveKind.WEIGHTED_EXCESS, ObjectiveKind.MAKESPAN):
        limits = Limits.of(allowed=frozenset(ActionKind), max_slowdown=1.8, move_factor=1.0)
        seen = Snapshot(pending=pending, devices=devices, limits=limits, now_s=1000.0, objective=objective)
        first, second = (decide(context(seen, predictor, known, "d"), ScopeLedger(scope="default")) for _ in range(2))
        assert first.plan.actions
        assert repr((first.plan, first.ledger)) == repr((second.plan, second.ledger))
