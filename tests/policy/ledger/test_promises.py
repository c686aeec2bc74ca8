"""Laws of promises: kept for the same devices while they hold, and never longer than their job waits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.policy.decide import ScopeDecision, decide
from interfere.policy.ledger.promises import ReconciledPromises, reconcile_promises
from interfere.records import Action, ActionKind, Device, Job, Limits, ObjectiveKind, Promise, ScopeLedger, Snapshot
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

NAMES = tuple("abcd")
ALONE, SHARED, WAIT = ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT


def job(name: str) -> Job:
    return Job(id=name, workload=name[0])


def device(name: str, *residents: str) -> Device:
    return Device(id=name, type=DEVICE, residents=tuple(map(job, residents)))


def promise(name: str, place: str, partner: str = "", until_s: float = 120.0) -> Promise:
    kind = SHARED if partner else ALONE
    action = Action(
        kind=kind, job_id=name, device_id=place, partner_id=partner, slowdown=1.5, cost=0.7, promised_by_s=until_s
    )
    return Promise(action=action, decision_ids=("first",))


def snapshot(pending: str, *devices: Device, now_s: float = 10.0, **given_: object) -> Snapshot:
    return Snapshot(pending=tuple(map(job, pending.split())), devices=devices, now_s=now_s, **given_)


def reconcile(promises: Sequence[Promise], seen: Snapshot) -> ReconciledPromises:
    return reconcile_promises(promises, context(seen, Cluster(0).predictor, Cluster(0).resolve))


@pytest.mark.parametrize(
    ("told", "seen", "verdict"),
    [
        (promise("a", "d"), snapshot("a", device("d")), "kept"),
        (promise("a", "d"), snapshot("", device("d", "a")), "fulfilled"),
        (promise("a", "d"), snapshot("", device("d"), device("e", "a")), "it was started on e instead"),
        (promise("a", "d"), snapshot("", device("d")), "the job is over"),
        (promise("a", "d"), snapshot("a", device("e")), "the device is gone"),
        (promise("a", "d"), snapshot("a", device("d"), now_s=120.0), "it was not started by 120 s"),
        (promise("a", "d"), snapshot("a", device("d"), now_s=119.9), "kept"),
        (promise("a", "d"), snapshot("a", device("d", "x")), "its place was taken by x"),
        (promise("a", "d", "r"), snapshot("a", device("d", "r")), "kept"),
        (promise("a", "d", "r"), snapshot("a", device("d", "r", "x")), "its place was taken by x"),
        (promise("a", "d", "r"), snapshot("a", device("d")), "kept"),
        (promise("a", "d"), snapshot("", device("e"), partial=True), "kept"),
        (promise("a", "d"), snapshot("a", device("d"), limits=Limits(max_devices=0)), "max_devices: 0 of 0 are kept"),
        (
            promise("a", "d"),
            snapshot("a", device("d"), limits=Limits(allowed=frozenset({SHARED, WAIT}))),
            "start_alone is not an allowed action",
        ),
        (
            promise("a", "d", "r"),
            snapshot("a", device("d"), limits=Limits(allowed=frozenset({SHARED, WAIT}))),
            "its partner r is gone",
        ),
    ],
)
def test_what_became_of_a_planned_start(told: Promise, seen: Snapshot, verdict: str) -> None:
    found = reconcile([told], seen)
    words = ["kept" for _ in found.kept] + ["fulfilled" for _ in found.fulfilled] + [r.reason for r in found.released]
    assert len(words) == 1
    assert words[0].startswith(verdict)


def test_a_start_whose_partner_is_gone_is_kept_alone() -> None:
    told = (promise("a", "d", "b"), promise("b", "d", "a"))
    both = reconcile(told, snapshot("a b", device("d")))
    assert both.kept == told
    (left,) = reconcile(told, snapshot("a", device("d"))).kept
    assert (left.action.kind, left.action.device_id, left.action.partner_id) == (ALONE, "d", "")
    assert (left.action.slowdown, left.action.promised_by_s) == (1.0, 120.0)
    ledger = ScopeLedger(scope="default", promises=told)
    found = decide(context(snapshot("a", device("d")), Cluster(0).predictor, Cluster(0).resolve, "x"), ledger).plan
    assert [(action.kind, action.device_id, action.cost) for action in found.actions] == [(ALONE, "d", 0.0)]
    assert (found.cost, found.pairs) == (0.0, ())


@pytest.mark.parametrize(
    ("objective", "cost"), [(ObjectiveKind.COST, 2.0 * 900.0 / 3600.0), (ObjectiveKind.ENERGY, 300.0 * 900.0)]
)
def test_a_start_whose_partner_is_gone_costs_what_its_device_does(objective: ObjectiveKind, cost: float) -> None:
    told = (promise("a", "d", "b"), promise("b", "d", "a"))
    place = replace(device("d"), price_per_hour=2.0, power_w=300.0)
    left = replace(job("a"), remaining_s=900.0)
    seen = Snapshot(pending=(left,), devices=(place,), now_s=10.0, objective=objective)
    ledger = ScopeLedger(scope="default", promises=told)
    found = decide(context(seen, Cluster(0).predictor, Cluster(0).resolve, "x"), ledger).plan
    assert found.actions[0].cost == pytest.approx(cost)
    assert found.cost == pytest.approx(cost)


class Cluster:
    """Random jobs on three devices; a scheduler that starts some of what it is told, in its own time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        table = {(v, n): float(1 + self.rng.gamma(1.0, 0.6)) for v in NAMES for n in NAMES}
        self.predictor, self.resolve = TablePredictor(table), resolver(*map(profile, NAMES))
        self.pending: list[str] = []
        self.runs: dict[str, list[str]] = {f"d{k}": [] for k in range(3)}
        self.count, self.now_s = 0, 0.0

    def step(self) -> None:
        """Jobs come, end, are cancelled; devices fail and come back; time passes."""
        for _ in range(int(self.rng.integers(0, 3))):
            self.pending.append(f"{self.rng.choice(NAMES)}{self.count}")
            self.count += 1
        for jobs in self.runs.values():
            jobs[:] = [name for name in jobs if self.rng.random() < 0.8]
        self.pending = [name for name in self.pending if self.rng.random() < 0.9]
        if self.rng.random() < 0.2 and len(self.runs) > 1:
            self.runs.pop(str(self.rng.choice(sorted(self.runs))))
        if self.rng.random() < 0.2:
            self.runs.setdefault(f"d{self.rng.integers(0, 4)}", [])
        self.now_s += float(self.rng.integers(0, 60))

    def seen(self) -> Snapshot:
        most = None if self.rng.random() < 0.7 else int(self.rng.integers(0, 3))
        return Snapshot(
            pending=tuple(map(job, self.pending)),
            devices=tuple(device(name, *jobs) for name, jobs in self.runs.items()),
            limits=Limits(max_devices=most),
            now_s=self.now_s,
        )

    def decide(self, ledger: ScopeLedger) -> tuple[Snapshot, ScopeDecision]:
        seen = self.seen()
        return seen, decide(context(seen, self.predictor, self.resolve, f"at {self.now_s}"), ledger)

    def apply(self, actions: tuple[Action, ...]) -> None:
        """Most starts happen; now and then one on another device than planned."""
        for action in actions:
            if action.kind is not WAIT and self.rng.random() < 0.6:
                place = action.device_id if self.rng.random() < 0.9 else str(self.rng.choice(sorted(self.runs)))
                if len(self.runs[place]) < 2:
                    self.pending.remove(action.job_id)
                    self.runs[place].append(action.job_id)


@given(st.integers(0, 100_000))
@settings(max_examples=60, deadline=None)
def test_after_any_snapshots_promises_are_only_to_jobs_that_wait(seed: int) -> None:
    cluster, ledger = Cluster(seed), ScopeLedger(scope="default")
    for _ in range(8):
        cluster.step()
        seen, found = cluster.decide(ledger)
        told = {action.job_id: action for action in found.plan.actions}
        assert list(told) == cluster.pending
        promised = {p.action.job_id: p.action for p in found.ledger.promises}
        assert set(promised) == {a.job_id for a in found.plan.actions if a.kind is not WAIT}
        assert all(a.promised_by_s > cluster.now_s for a in promised.values())
        # what an unexpired plan started is told again, to the same place and time
        for kept in found.promises.kept:
            again = told[kept.action.job_id]
            assert (again.device_id, again.promised_by_s) == (kept.action.device_id, kept.action.promised_by_s)
            assert again.reason == f"promised by decision {kept.decision_ids[0]}"
        # and nobody gets a seat twice
        for place, jobs in cluster.runs.items():
            new = [a for a in told.values() if a.device_id == place]
            assert not new or len(jobs) + len(new) <= 2
        most = seen.limits.max_devices
        taken = {a.device_id for a in told.values() if a.device_id and not cluster.runs[a.device_id]}
        assert most is None or len(taken) <= most
        assert found.plan.lower_bound <= found.plan.cost + 1e-9
        ledger = found.ledger
        cluster.apply(found.plan.actions)


@given(st.integers(0, 100_000))
@settings(max_examples=30, deadline=None)
def test_the_next_decision_repeats_the_plan(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.step()
    seen, first = cluster.decide(ScopeLedger(scope="default"))
    again = decide(
        context(replace(seen, now_s=seen.now_s + 1), cluster.predictor, cluster.resolve, "again"), first.ledger
    )
    assert [replace(a, reason="", rule=None) for a in again.plan.actions if a.kind is not WAIT] == [
        replace(a, reason="", rule=None) for a in first.plan.actions if a.kind is not WAIT
    ]
    assert again.plan.cost == pytest.approx(first.plan.cost)
    assert {frozenset((p.job_id, p.partner_id)) for p in again.plan.pairs} == {
        frozenset((p.job_id, p.partner_id)) for p in first.plan.pairs
    }


def test_the_clock_never_goes_back() -> None:
    cluster = Cluster(0)
    seen = snapshot("a", device("d"), now_s=9.0)
    ledger = ScopeLedger(scope="default", now_s=10.0)
    with pytest.raises(InvalidInputError) as caught:
        decide(context(seen, cluster.predictor, cluster.resolve, "x"), ledger)
    assert [v.field for v in caught.value.violations] == ["now_s"]
    assert (
        decide(context(replace(seen, now_s=10.0), cluster.predictor, cluster.resolve, "x"), ledger).ledger.now_s == 10.0
    )
