"""Laws of re-pairing in a decision: moves gain, places suffice, nothing is asked twice, and joint moves are found."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.decide import decide
from interfere.records import Action, ActionKind, Device, Job, Limits, RuleKind, ScopeLedger, Snapshot
from tests.policy.migration_clusters import MOVES, NOW_S, World
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

seeds = given(st.integers(0, 1_000_000))
STARTS = (ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.MOVE)


@seeds
@settings(max_examples=60, deadline=None)
def test_moves_are_allowed_and_every_device_is_vacated_before_it_is_filled(seed: int) -> None:
    world = World(seed, rematch_running=True)
    found = world.plan()
    moved = [action.job_id for action in found.actions if action.kind is ActionKind.MOVE]
    assert len(set(moved)) == len(moved)
    company = {job.id: device for device in world.snapshot.devices for job in device.residents}
    for name in moved:
        job = world.jobs[name]
        assert job.preemptible
        assert not math.isnan(job.checkpoint_s)
        assert all(NOW_S - other.since_s >= 120.0 for other in company[name].residents)
    # All departures first, then the starts in any order: no device ever has more than two jobs, or those it had.
    before = world.before()
    runs = {device: [job for job in jobs if job not in moved] for device, jobs in before.items()}
    for action in found.actions:
        if action.kind in STARTS:
            runs[action.device_id].append(action.job_id)
            assert len(runs[action.device_id]) <= max(2, len(before[action.device_id]))
    for action in found.actions:
        if action.kind in STARTS:
            assert sorted(action.partners) == sorted({*runs[action.device_id]} - {action.job_id})
    most = world.snapshot.limits.max_devices
    newly_used = {device for device, jobs in runs.items() if jobs and not before[device]}
    assert most is None or len(newly_used) <= most


@seeds
@settings(max_examples=40, deadline=None)
def test_asking_again_at_once_repeats_the_moves_and_adds_none(seed: int) -> None:
    world = World(seed, rematch_running=True)
    first = decide(context(world.snapshot, world.predictor, world.resolve, "x"), ScopeLedger(scope="default"))
    again = decide(context(world.snapshot, world.predictor, world.resolve, "y"), first.ledger)

    def moves(actions: tuple[Action, ...]) -> set[tuple[str, str]]:
        return {(action.job_id, action.device_id) for action in actions if action.kind is ActionKind.MOVE}

    assert moves(again.plan.actions) == moves(first.plan.actions)


def resident(name: str, workload: str, **facts: object) -> Job:
    """A job that has run for long, and may move."""
    known: dict[str, object] = {"attained_s": 5000.0, "checkpoint_s": 20.0, "since_s": 0.0, "preemptible": True}
    return Job(id=name, workload=workload, **(known | facts))  # type: ignore[arg-type]


def cluster(*devices: list[Job], pending: tuple[Job, ...] = (), **limits: object) -> Snapshot:
    """Devices with these residents."""
    return Snapshot(
        pending=pending,
        devices=tuple(Device(id=f"d{k}", type=DEVICE, residents=tuple(jobs)) for k, jobs in enumerate(devices)),
        now_s=NOW_S,
        limits=Limits.of(allowed=MOVES, rematch_running=True, **limits),
    )


def actions_of(snapshot: Snapshot, table: dict[tuple[str, str], float]) -> list[Action]:
    """What is decided."""
    names = sorted({name for pair in table for name in pair})
    resolve = resolver(*map(profile, names))
    decided = decide(context(snapshot, TablePredictor(table), resolve, "x"), ScopeLedger(scope="default"))
    return [action for action in decided.plan.actions if action.kind is not ActionKind.KEEP]


def ring() -> tuple[list[list[Job]], dict[tuple[str, str], float]]:
    """Three pairs; only if every second job goes one device further does anybody run faster."""
    names = "abcdef"
    good = {frozenset("bc"), frozenset("de"), frozenset("fa")}
    pairs = [names[0:2], names[2:4], names[4:6]]
    table = {
        (victim, other): 1.0 if frozenset((victim, other)) in good else 1.8 if victim + other in pairs else 3.0
        for victim in names
        for other in names
    }
    table |= {(other, victim): 1.8 for victim, other in pairs}
    return [[resident(f"j-{name}", name) for name in pair] for pair in pairs], table


def test_moves_that_pay_only_together_are_found() -> None:
    devices, table = ring()
    known = cluster(*[[replace(job, remaining_s=5000.0) for job in jobs] for jobs in devices])
    in_seconds = replace(known, limits=replace(known.limits, rematch_running=False))
    for seen in (cluster(*devices), in_seconds):
        joint = actions_of(seen, table)
        assert [action.kind for action in joint] == [ActionKind.MOVE] * 3
        assert {action.slowdown for action in joint} == {1.0}
    assert joint[0].rule is not None
    assert joint[0].rule.saved_s == pytest.approx(6 * 0.8 * 5000.0)


def test_of_many_residents_moves_are_found_within_the_budget_and_pay_together() -> None:
    """Residents of 20 workloads on 300 devices: too many pairs to look at all of them."""
    rng = np.random.default_rng(3)
    names = [f"w{k}" for k in range(20)]
    table = {(victim, other): float(1 + rng.gamma(1.0, 0.6)) for victim in names for other in names}
    devices = [
        [
            resident(f"r{k}.{n}", str(rng.choice(names)), remaining_s=float(rng.uniform(100, 9000)))
            for n in range(int(rng.choice([0, 1, 2, 2])))
        ]
        for k in range(300)
    ]
    seen = cluster(*devices, time_budget_s=10.0)
    found = actions_of(replace(seen, limits=replace(seen.limits, rematch_running=False)), table)
    assert {action.kind for action in found} == {ActionKind.MOVE}
    sets = {(action.rule.saved_s, action.rule.paid_s) for action in found if action.rule is not None}
    assert all(saved_s > 2 * paid_s for saved_s, paid_s in sets)
    assert sum(saved_s - 2 * paid_s for saved_s, paid_s in sets) > 832_829  # what single changes one by one save


def test_a_move_says_what_it_saves_and_what_it_costs() -> None:
    devices, table = ring()
    for action in actions_of(cluster(*devices), table):
        assert action.rule is not None
        assert action.rule.kind is RuleKind.MIGRATION_GAIN
        # Six jobs gain 1 - 1/1.8 of speed for the 5,000 s that they are expected to run on; three pay 20 s.
        assert action.rule.saved_s == pytest.approx(6 * (1 - 1 / 1.8) * 5000.0)
        assert action.rule.paid_s == pytest.approx(3 * 20.0)
        assert "saves" in action.reason


@pytest.mark.parametrize(
    "facts",
    [
        {"preemptible": False},
        {"checkpoint_s": math.nan},
        {"attained_s": math.nan},
        {"since_s": NOW_S - 60.0},
        {"checkpoint_s": 4000.0},
    ],
)
def test_nobody_moves_who_must_not_or_for_whom_it_costs_too_much(facts: dict[str, object]) -> None:
    devices, table = ring()
    fixed = [[resident(job.id, job.workload, **facts) for job in jobs] for jobs in devices]
    assert actions_of(cluster(*fixed), table) == []


def test_two_residents_share_so_that_a_pending_job_gets_a_device() -> None:
    table = {(v, n): 1.05 if v == n == "a" else 3.0 for v in "ab" for n in "ab"}
    pending = (Job(id="p", workload="b"),)
    found = actions_of(cluster([resident("x", "a")], [resident("y", "a")], pending=pending), table)
    start, move = found
    assert (start.kind, start.job_id) == (ActionKind.START_ALONE, "p")
    assert move.kind is ActionKind.MOVE
    assert start.rule is not None
    assert (start.rule.kind, start.rule.partner_id) == (RuleKind.DEVICE_VACATED, move.job_id)
    assert move.rule is not None
    assert move.rule.partner_id == "p"
    assert move.device_id != start.device_id


def test_preemption_by_priority_goes_on_beside_the_assignment() -> None:
    table = {(v, n): 3.0 for v in "ab" for n in "ab"}
    snapshot = cluster(
        [resident("x", "a", remaining_s=5000.0)], pending=(Job(id="p", workload="b", priority=1),), move_factor=2.0
    )
    allowed = snapshot.limits.allowed | {ActionKind.PREEMPT}
    found = actions_of(replace(snapshot, limits=replace(snapshot.limits, allowed=allowed)), table)
    assert [(action.kind, action.job_id) for action in found] == [
        (ActionKind.START_ALONE, "p"),
        (ActionKind.PREEMPT, "x"),
    ]
