"""Accepted deadlines: no job of equal or lower priority breaks one; each is met, broken or withdrawn, once."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.decide import ScopeDecision, decide
from interfere.records import Action, ActionKind, Device, Job, Limits, ObjectiveKind, ScopeLedger, Snapshot, Window
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

ALONE = frozenset({ActionKind.START_ALONE, ActionKind.WAIT, ActionKind.DECLINE})
PREDICTOR = TablePredictor({("a", "a"): 1.5})
KNOWN = resolver(profile("a"))


def job(name: str, remaining_s: float, deadline_s: float = math.nan, gpus: int = 1, **fields: object) -> Job:
    return Job(id=name, workload="a", remaining_s=remaining_s, deadline_s=deadline_s, gpus=gpus, **fields)


class Cluster:
    """Devices that do what they are told, and time that passes."""

    def __init__(self, count: int, *, allowed: frozenset[ActionKind] = ALONE, windows: tuple[Window, ...] = ()) -> None:
        self.running: dict[str, tuple[Job, ...]] = {f"d{k}": () for k in range(count)}
        self.queue: list[Job] = []
        self.ledger = ScopeLedger(scope="default")
        self.limits, self.windows = Limits(allowed=allowed), windows
        self.now_s, self.done_s = 0.0, dict[str, float]()

    def decide(self, *jobs: Job) -> dict[str, Action]:
        """Submit, decide, start."""
        self.queue += jobs
        found = self.decided()
        self.ledger = replace(found.ledger, revision=self.ledger.revision + 1)
        actions = {action.job_id: action for action in found.plan.actions}
        for one in list(self.queue):
            action = actions[one.id]
            if action.places or action.kind is ActionKind.DECLINE:
                self.queue.remove(one)
            for name in action.places:
                self.running[name] += (one,)
        return actions

    def decided(self) -> ScopeDecision:
        devices = tuple(
            Device(id=name, type=DEVICE, residents=jobs, windows=self.windows) for name, jobs in self.running.items()
        )
        snapshot = Snapshot(
            pending=tuple(self.queue),
            devices=devices,
            now_s=self.now_s,
            limits=self.limits,
            objective=ObjectiveKind.WEIGHTED_EXCESS,
        )
        self.found = decide(context(snapshot, PREDICTOR, KNOWN, f"at{self.now_s:g}"), self.ledger)
        return self.found

    def run(self, seconds: float) -> None:
        """Everybody alone, at full speed."""
        self.now_s += seconds
        left = {}
        for name, jobs in self.running.items():
            after = tuple(replace(one, remaining_s=one.remaining_s - seconds) for one in jobs)
            self.done_s |= {one.id: self.now_s + one.remaining_s for one in after if one.remaining_s <= 0}
            left[name] = tuple(one for one in after if one.remaining_s > 0)
        self.running = left


def names(cluster: Cluster) -> list[str]:
    return [accepted.job_id for accepted in cluster.ledger.accepted_deadlines]


def test_a_later_job_of_equal_priority_does_not_take_reserved_capacity() -> None:
    """One device, busy until 10; x needs it from 10 to 110. y, more urgent, would make x late."""
    cluster = Cluster(1)
    cluster.decide(job("r", 10.0))
    assert cluster.decide(job("x", 100.0, 115.0))["x"].accepted
    cluster.run(10.0)
    actions = cluster.decide(job("y", 20.0, 30.5), job("z", 5.0))
    assert {name: bool(a.places) for name, a in actions.items()} == {"x": True, "y": False, "z": False}
    assert (actions["x"].accepted, actions["y"].accepted) == (True, False)


def test_a_start_that_leaves_time_for_the_accepted_deadline_is_made() -> None:
    """A gang of two is promised 100-150; one device is free now, another at 90."""
    cluster = Cluster(2)
    cluster.decide(job("r", 90.0))
    assert cluster.decide(job("gang", 50.0, 150.0, gpus=2))["gang"].accepted
    actions = cluster.decide(job("long", 120.0), job("short", 80.0))
    assert actions["short"].places
    assert not actions["long"].places
    assert actions["long"].reason == "accepted deadline: gang would miss the one it was promised"


def test_only_a_higher_priority_may_break_an_accepted_deadline_and_that_is_counted() -> None:
    cluster = Cluster(1)
    cluster.decide(job("r", 10.0))
    cluster.decide(job("x", 100.0, 115.0))
    cluster.run(10.0)
    actions = cluster.decide(job("urgent", 50.0, priority=1))
    assert actions["urgent"].places
    cluster.run(50.0)
    cluster.decide()
    assert [accepted.job_id for accepted in cluster.found.deadlines.broken] == ["x"]
    assert names(cluster) == []
    cluster.decide()
    assert cluster.found.deadlines.broken == ()


def test_a_deadline_that_cannot_be_scheduled_is_not_accepted_but_its_job_waits() -> None:
    cluster = Cluster(1)
    cluster.decide(job("r", 10.0))
    actions = cluster.decide(job("x", 100.0, 115.0), job("y", 100.0, 150.0))
    assert [actions[name].accepted for name in "xy"] == [True, False]
    assert actions["y"].kind is ActionKind.WAIT
    assert names(cluster) == ["x"]


def test_a_deadline_stays_accepted_until_its_job_is_over_or_moves_it_to_an_earlier_time() -> None:
    cluster = Cluster(1)
    assert cluster.decide(job("x", 10.0, 20.0))["x"].accepted  # it starts at once
    assert names(cluster) == ["x"]
    cluster.run(10.0)
    cluster.decide()
    assert [accepted.job_id for accepted in cluster.found.deadlines.met] == ["x"]
    assert names(cluster) == []
    cluster = Cluster(1)
    cluster.decide(job("r", 10.0))
    cluster.decide(job("y", 10.0, 40.0))
    assert names(cluster) == ["y"]
    cluster.queue = [replace(one, deadline_s=15.0) for one in cluster.queue]
    assert not cluster.decide()["y"].accepted
    assert names(cluster) == []


def test_a_job_that_is_gone_only_after_its_deadline_counts_as_unknown() -> None:
    cluster = Cluster(1)
    cluster.decide(job("x", 10.0, 20.0))
    cluster.run(10.0)
    cluster.now_s += 15.0
    cluster.decide()
    review = cluster.found.deadlines
    assert (review.met, review.broken, [accepted.job_id for accepted in review.unknown]) == ((), (), ["x"])
    assert names(cluster) == []


def test_a_job_left_out_of_a_partial_snapshot_stays_accepted_until_its_deadline() -> None:
    cluster = Cluster(1)
    cluster.decide(job("r", 50.0))
    cluster.decide(job("x", 10.0, 70.0))
    devices = (Device(id="d0", type=DEVICE),)
    for now_s, still in ((60.0, True), (71.0, False)):
        snapshot = Snapshot(pending=(), devices=devices, now_s=now_s, limits=cluster.limits, partial=True)
        after = decide(context(snapshot, PREDICTOR, KNOWN, "p"), cluster.ledger).ledger
        assert bool(after.accepted_deadlines) is still


def test_device_time_outside_of_windows_is_not_reserved() -> None:
    """Open from 0 to 40 and from 100: after r is done at 10, x (50 s) fits only after 100."""
    windows = (Window(from_s=0.0, until_s=40.0), Window(from_s=100.0))
    for deadline_s, accepted in ((149.0, False), (150.0, True)):
        cluster = Cluster(1, windows=windows)
        cluster.decide(job("r", 10.0))
        assert cluster.decide(job("x", 50.0, deadline_s))["x"].accepted is accepted


def test_co_located_residents_occupy_their_device_for_longer() -> None:
    cluster = Cluster(1, allowed=ALONE | {ActionKind.START_SHARED})
    cluster.decide(job("r", 20.0), job("s", 20.0))  # together, 1.5 × slower: until 30
    for deadline_s, accepted in ((39.0, False), (40.0, True)):
        trial = Cluster(1, allowed=cluster.limits.allowed)
        trial.running = cluster.running
        assert trial.decide(job("x", 10.0, deadline_s))["x"].accepted is accepted


@pytest.mark.parametrize("seed", range(4))
def test_at_equal_priority_every_accepted_deadline_is_met(seed: int) -> None:
    """Exact times, jobs that come at any time with and without deadlines, gangs: no promise is ever broken."""
    rng = np.random.default_rng(seed)
    cluster = Cluster(3)
    promised: dict[str, float] = {}
    for step in range(300):
        new = []
        for k in range(int(rng.integers(0, 3)) if step < 20 else 0):
            remaining_s = float(rng.integers(1, 12))
            deadline_s = cluster.now_s + remaining_s * float(rng.uniform(1.0, 3.0)) if rng.random() < 0.7 else math.nan
            new.append(job(f"{step}.{k}", remaining_s, deadline_s, gpus=int(rng.integers(1, 4))))
        due = {one.id: one.deadline_s for one in (*cluster.queue, *new)}
        actions = cluster.decide(*new)
        promised |= {name: due[name] for name, a in actions.items() if a.accepted and name in due}
        assert cluster.found.deadlines.broken == ()
        cluster.run(1.0)
        if step > 20 and not cluster.queue and not any(cluster.running.values()):
            break
    assert len(promised) > 2
    late = {name for name, deadline_s in promised.items() if cluster.done_s[name] > deadline_s + 1e-6}
    assert not late


def test_without_promise_deadlines_none_is_accepted_and_none_holds_a_start_back() -> None:
    cluster = Cluster(1)
    cluster.limits = replace(cluster.limits, promise_deadlines=False)
    cluster.decide(job("r", 10.0))
    assert not cluster.decide(job("x", 100.0, 115.0))["x"].accepted
    cluster.run(10.0)
    actions = cluster.decide(job("y", 20.0, 30.5))
    assert actions["y"].places  # x, which can wait for 5 s only, would have been late
    assert names(cluster) == []
