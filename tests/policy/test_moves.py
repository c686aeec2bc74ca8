"""Laws of moves: each pays back, nobody moves who may not, and asking again at once moves nobody."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.rank import rank
from interfere.policy.scope import plan_scope
from interfere.records import (
    Action,
    ActionKind,
    Device,
    Job,
    Limits,
    ObjectiveKind,
    Plan,
    ScopeLedger,
    Snapshot,
    SolveStatus,
)
from tests.tables import DEVICE, TablePredictor, profile, resolver

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
                id=f"d{k}", type=DEVICE, pool=str(rng.choice(["", "", "", "p"])),
                residents=tuple(job(f"r{k}.{n}", runs=True) for n in range(int(rng.choice([0, 1, 1, 2, 2, 3])))),
            )
            for k in range(int(rng.integers(1, 7)))
        ]  # fmt: skip
        pending = [job(f"p{k}", runs=False) for k in range(int(rng.integers(0, 3)))]
        most = None if rng.random() < 0.7 else int(rng.integers(0, 3))
        self.snapshot = Snapshot(
            pending=tuple(pending), devices=tuple(devices), now_s=NOW_S,
            limits=Limits(**({"allowed": MOVES, "max_devices": most} | limits)),
        )  # fmt: skip
        self.jobs = {job.id: job for job in (*pending, *(r for d in devices for r in d.residents))}

    def plan(self, **changes: object) -> Plan:
        seen = replace(self.snapshot, **changes)
        return plan_scope(seen, ScopeLedger(scope="default"), self.predictor, self.resolve, "x").plan

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


seeds = given(st.integers(0, 1_000_000))


@seeds
@settings(max_examples=300, deadline=None)
def test_every_part_that_moves_pays_back(seed: int) -> None:
    world = World(seed)
    found = world.plan()
    before, after = world.before(), world.after(found.actions)
    movers = {action.job_id for action in found.actions if action.kind is ActionKind.MOVE}
    residents = [job.remaining_s for device in world.snapshot.devices for job in device.residents]
    wait_s = np.nan_to_num(np.fmin.reduce(residents, initial=math.nan))
    for part in world.touched(found.actions):
        known, unknown, pays = 0.0, 0.0, 0.0
        for name in part:
            for job in before[name]:
                (there,) = (jobs for jobs in after.values() if job in jobs)
                saves = world.loss_s(job, before[name]) - world.loss_s(job, there)
                if math.isnan(world.jobs[job].remaining_s):
                    assert saves >= -1e-9  # who does not say how long it runs is not made worse
                    unknown += saves
                else:
                    known += saves
                pays += world.weight(job) * world.jobs[job].checkpoint_s if job in movers else 0.0
            for job in after[name]:
                if job.startswith("p"):
                    known += world.weight(job) * wait_s
        assert known > 2.0 * pays - 1e-6


@seeds
@settings(max_examples=200, deadline=None)
def test_nobody_moves_who_may_not_and_nothing_that_is_too_young_is_touched(seed: int) -> None:
    world = World(seed)
    found = world.plan()
    moved = [action.job_id for action in found.actions if action.kind is ActionKind.MOVE]
    stays = [action.job_id for action in found.actions if action.kind is ActionKind.KEEP]
    residents = [job.id for device in world.snapshot.devices for job in device.residents]
    assert sorted((*moved, *stays)) == sorted(residents)
    assert [action.job_id for action in found.actions][: len(world.snapshot.pending)] == [
        job.id for job in world.snapshot.pending
    ]
    for name in moved:
        job = world.jobs[name]
        assert job.preemptible
        assert not math.isnan(job.remaining_s + job.checkpoint_s)
    company = {device.id: device.residents for device in world.snapshot.devices}
    pools = {device.id: device.pool for device in world.snapshot.devices}
    for part in world.touched(found.actions):
        assert all(NOW_S - job.since_s >= 120.0 for name in part for job in company[name])
        assert len({pools[name] for name in part}) == 1
    after = world.after(found.actions)
    assert all(len(jobs) <= max(2, len(world.before()[name])) for name, jobs in after.items())
    most = world.snapshot.limits.max_devices
    taken = {name for name, jobs in after.items() if jobs and not world.before()[name]}
    assert most is None or len(taken) <= most
    for action in found.actions:
        if action.kind in (ActionKind.MOVE, ActionKind.KEEP):
            others = [one for one in after[action.device_id] if one != action.job_id]
            assert action.partner_id == (others[0] if len(others) == 1 else "")
            expected = math.prod(
                world.table[world.jobs[action.job_id].workload, world.jobs[one].workload] for one in others
            )
            assert action.slowdown == pytest.approx(expected, rel=1e-5)


@seeds
@settings(max_examples=200, deadline=None)
def test_when_done_and_asked_again_at_once_nobody_moves(seed: int) -> None:
    world = World(seed, max_devices=None)  # a limit is one of each plan: the next may take as many again
    found = world.plan()
    started = {action.job_id for action in found.actions if action.kind is not ActionKind.KEEP and action.places}
    after = world.after(found.actions)
    jobs = {name: replace(job, since_s=NOW_S) if name in started else job for name, job in world.jobs.items()}
    again = world.plan(
        pending=tuple(job for job in world.snapshot.pending if job.id not in started),
        devices=tuple(
            replace(device, residents=tuple(jobs[name] for name in after[device.id]))
            for device in world.snapshot.devices
        ),
    )
    assert not [action for action in again.actions if action.kind is ActionKind.MOVE]


@seeds
@settings(max_examples=100, deadline=None)
def test_what_is_not_allowed_is_not_done(seed: int) -> None:
    rng = np.random.default_rng(seed)
    some = {kind for kind in ActionKind if rng.random() < 0.5} | {ActionKind.WAIT}
    world = World(seed, allowed=frozenset(some))
    found = world.plan()
    assert {action.kind for action in found.actions} <= some
    default = {action.kind for action in world.plan(limits=Limits()).actions}
    assert default <= {ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT}
    timeless = world.plan(now_s=math.nan)
    assert ActionKind.MOVE not in {action.kind for action in timeless.actions}


@seeds
@settings(max_examples=60, deadline=None)
def test_promised_moves_are_told_again_until_they_are_done(seed: int) -> None:
    world = World(seed)
    first = plan_scope(world.snapshot, ScopeLedger(scope="default"), world.predictor, world.resolve, "one")
    moves = {action.job_id: action for action in first.plan.actions if action.kind is ActionKind.MOVE}
    again = plan_scope(replace(world.snapshot, now_s=NOW_S + 1), first.ledger, world.predictor, world.resolve, "two")
    told = {action.job_id: action for action in again.plan.actions if action.kind is ActionKind.MOVE}
    assert {name: (a.device_id, a.promised_by_s) for name, a in told.items() if name in moves} == {
        name: (a.device_id, a.promised_by_s) for name, a in moves.items()
    }
    late = plan_scope(
        replace(world.snapshot, now_s=NOW_S + 120.0), again.ledger, world.predictor, world.resolve, "three"
    )
    assert not set(moves) & {promise.action.job_id for promise in late.reconciled.kept}
    after = world.after(first.plan.actions)
    started = {action.job_id for action in first.plan.actions if action.kind is not ActionKind.KEEP and action.places}
    done = replace(
        world.snapshot,
        now_s=NOW_S + 2,
        pending=tuple(job for job in world.snapshot.pending if job.id not in started),
        devices=tuple(
            replace(device, residents=tuple(world.jobs[name] for name in after[device.id]))
            for device in world.snapshot.devices
        ),
    )
    last = plan_scope(done, first.ledger, world.predictor, world.resolve, "four")
    assert {promise.action.job_id for promise in last.reconciled.fulfilled} == started
    assert not last.reconciled.released


def pair(one: Job, other: Job, *empty: str, factor: float = 2.0, **given_: object) -> Snapshot:
    devices = (Device(id="d", type=DEVICE, residents=(one, other)), *(Device(id=name, type=DEVICE) for name in empty))
    limits = Limits(allowed=MOVES, move_factor=factor)
    return Snapshot(pending=(), devices=devices, now_s=NOW_S, limits=limits, **given_)


def old(name: str, **given_: object) -> Job:
    values: dict[str, object] = {"remaining_s": 100.0, "preemptible": True, "checkpoint_s": 20.0, "since_s": 0.0}
    return Job(id=name, workload=name[0], **(values | given_))  # type: ignore[arg-type]


TABLE = TablePredictor({("a", "b"): 1.5, ("b", "a"): 1.2, ("a", "a"): 1.0, ("b", "b"): 3.0})
KNOWN = resolver(profile("a"), profile("b"))


def moved(snapshot: Snapshot) -> dict[str, str]:
    found = plan_scope(snapshot, ScopeLedger(scope="default"), TABLE, KNOWN, "x").plan
    return {action.job_id: action.device_id for action in found.actions if action.kind is ActionKind.MOVE}


def test_a_pair_parts_only_where_that_pays() -> None:
    # it saves 100 · (0.5 + 0.2) = 70 s and pays 20 s
    assert moved(pair(old("a"), old("b", preemptible=False), "e")) == {"a": "e"}
    assert moved(pair(old("a"), old("b", preemptible=False), "e", factor=3.6)) == {}
    assert moved(pair(old("a", checkpoint_s=30.0), old("b"), "e")) == {"b": "e"}  # the cheaper of the two
    assert moved(pair(old("a", checkpoint_s=40.0), old("b", checkpoint_s=40.0), "e")) == {}
    assert moved(pair(old("a"), old("b"))) == {}
    assert moved(pair(old("a", since_s=NOW_S - 119), old("b"), "e")) == {}
    assert moved(pair(old("a", checkpoint_s=math.nan), old("b", remaining_s=math.nan), "e")) == {}


def test_where_every_job_counts_the_same_weights_do_not() -> None:
    seen = pair(old("a", checkpoint_s=40.0), old("b", weight=9.0, preemptible=False), "e")
    assert moved(seen) == {"a": "e"}  # 100 · (0.5 + 9 · 0.2) > 2 · 40
    assert moved(replace(seen, objective=ObjectiveKind.COMPLETION_TIME)) == {}  # 100 · (0.5 + 0.2) < 2 · 40


def test_two_bad_pairs_change_partners() -> None:
    devices = tuple(Device(id=f"d{k}", type=DEVICE, residents=(old(f"a{k}"), old(f"b{k}"))) for k in range(2))
    bad = TablePredictor({("a", "b"): 3.0, ("b", "a"): 3.0, ("a", "a"): 1.1, ("b", "b"): 1.1})
    seen = Snapshot(pending=(), devices=devices, now_s=NOW_S, limits=Limits(allowed=MOVES))
    found = plan_scope(seen, ScopeLedger(scope="default"), bad, KNOWN, "x").plan
    moves = {a.job_id: (a.device_id, a.partner_id) for a in found.actions if a.kind is ActionKind.MOVE}
    assert len(moves) == 2
    assert found.status is SolveStatus.BOUNDED
    for name, (_, partner) in moves.items():
        assert partner[0] == name[0]


def test_a_mover_makes_room_for_one_that_waits() -> None:
    shared = TablePredictor({("a", "a"): 1.1, ("a", "b"): 9.0, ("b", "a"): 9.0, ("b", "b"): 9.0})
    devices = tuple(Device(id=f"d{k}", type=DEVICE, residents=(old(f"a{k}"),)) for k in range(2))
    waits = Job(id="b", workload="b", max_slowdown=2.0)
    seen = Snapshot(pending=(waits,), devices=devices, now_s=NOW_S, limits=Limits(allowed=MOVES))
    found = plan_scope(seen, ScopeLedger(scope="default"), shared, KNOWN, "x").plan
    start, move, keep = found.actions
    assert (start.kind, move.kind, keep.kind) == (ActionKind.START_ALONE, ActionKind.MOVE, ActionKind.KEEP)
    assert (move.device_id, move.partner_id) == (keep.device_id, keep.job_id)
    assert start.device_id not in (move.device_id, "")
    assert start.reason == f"{move.job_id} moves and leaves its device"
    # 100 s · 1 saved, 100 · 0.2 lost, 20 paid: with a factor of 4 exactly not
    dear = replace(seen, limits=Limits(allowed=MOVES, move_factor=4.0))
    assert plan_scope(dear, ScopeLedger(scope="default"), shared, KNOWN, "x").plan.actions[0].kind is ActionKind.WAIT


@seeds
@settings(max_examples=200, deadline=None)
def test_only_for_a_job_of_higher_priority_that_else_waits_is_anybody_stopped(seed: int) -> None:
    world = World(seed, allowed=frozenset(ActionKind))
    found = world.plan()
    told = {action.job_id: action for action in found.actions}
    calm = {
        action.job_id: action for action in world.plan(limits=replace(world.snapshot.limits, allowed=MOVES)).actions
    }
    assert sorted(told) == sorted(world.jobs)
    for stop in (action for action in found.actions if action.kind is ActionKind.PREEMPT):
        job = world.jobs[stop.job_id]
        (starts,) = (a for a in found.actions if a.kind is ActionKind.START_ALONE and a.device_id == stop.device_id)
        assert world.jobs[starts.job_id].priority > job.priority
        assert calm[starts.job_id].kind is ActionKind.WAIT
        assert job.preemptible
        assert NOW_S - job.since_s >= 120.0
        assert world.weight(starts.job_id) * job.remaining_s > 2.0 * world.weight(job.id) * job.checkpoint_s
    after = world.after(found.actions)
    assert all(len(jobs) <= max(2, len(world.before()[name])) for name, jobs in after.items())


def test_the_cheapest_of_the_least_important_stops_and_is_told_again_until_it_has() -> None:
    apart = TablePredictor({(v, n): 9.0 for v in "ab" for n in "ab"})
    residents = (
        old("a0", priority=1, checkpoint_s=1.0), old("a1", checkpoint_s=9.0), old("a2", checkpoint_s=5.0),
        old("a3", checkpoint_s=1.0, preemptible=False),
    )  # fmt: skip
    devices = tuple(Device(id=f"d{k}", type=DEVICE, residents=(one,)) for k, one in enumerate(residents))
    limits = Limits(allowed=frozenset(ActionKind), max_slowdown=1.5)
    seen = Snapshot(pending=(Job(id="b", workload="b", priority=1),), devices=devices, now_s=NOW_S, limits=limits)

    def ask(snapshot: Snapshot, ledger: ScopeLedger) -> tuple[dict[str, tuple[str, str]], ScopeLedger]:
        found = plan_scope(snapshot, ledger, apart, KNOWN, "x")
        return {a.job_id: (a.kind, a.device_id) for a in found.plan.actions}, found.ledger

    told, ledger = ask(seen, ScopeLedger(scope="default"))
    assert told["b"] == ("start_alone", "d2")
    assert told["a2"] == ("preempt", "d2")
    assert {told[name][0] for name in ("a0", "a1", "a3")} == {"keep"}
    again, ledger = ask(replace(seen, now_s=NOW_S + 1), ledger)
    assert again == told
    half = replace(devices[2], residents=())
    queue = (*seen.pending, replace(residents[2], since_s=math.nan))
    stopped = replace(seen, pending=queue, devices=(*devices[:2], half, devices[3]), now_s=NOW_S + 2)
    then, ledger = ask(stopped, ledger)
    assert (then["b"], then["a2"]) == (("start_alone", "d2"), ("wait", ""))
    refused = replace(ledger, promises=tuple(p for p in ledger.promises if p.action.job_id == "b"))
    taken, _ = ask(replace(seen, now_s=NOW_S + 3), refused)  # a2 was not stopped after all: nothing holds its place
    assert taken == told


def test_nobody_is_stopped_for_an_equal_or_for_what_soon_ends() -> None:
    apart = TablePredictor({(v, n): 9.0 for v in "ab" for n in "ab"})
    limits = Limits(allowed=frozenset(ActionKind), max_slowdown=1.5)

    def kinds(one: Job, priority: int) -> set[ActionKind]:
        device = Device(id="d", type=DEVICE, residents=(one,))
        waits = Job(id="b", workload="b", priority=priority)
        seen = Snapshot(pending=(waits,), devices=(device,), now_s=NOW_S, limits=limits)
        actions = plan_scope(seen, ScopeLedger(scope="default"), apart, KNOWN, "x").plan.actions
        return {action.kind for action in actions if action.job_id == "a"}

    assert kinds(old("a"), 1) == {ActionKind.PREEMPT}
    assert kinds(old("a", priority=1), 1) == {ActionKind.KEEP}
    assert kinds(old("a", remaining_s=4.0), 1) == {ActionKind.KEEP}  # 10 · 4 s are not more than 2 · 20 s
    assert kinds(old("a", since_s=NOW_S - 1.0), 1) == {ActionKind.KEEP}


def test_the_place_of_a_mover_is_not_offered_to_others() -> None:
    seen = pair(old("a"), old("b", preemptible=False), "e")
    found = plan_scope(seen, ScopeLedger(scope="default"), TABLE, KNOWN, "x")
    ranked = rank(Job(id="new", workload="a"), seen.devices, TABLE, KNOWN, Limits(), promises=found.ledger.promises)
    assert {one.device_id: one.feasible for one in ranked} == {"d": False, "e": False}
    (reason,) = (one.reason for one in ranked if one.device_id == "e")
    assert reason == "promised to a by decision x"


def least_loss_s(table: dict[tuple[str, str], float], jobs: tuple[Job, ...], devices: int) -> float:
    """Of all ways to put the jobs on so many devices, at most two on one."""
    if not jobs or devices == 0:
        return math.inf if jobs else 0.0
    first, *others = jobs

    def with_(other: Job) -> float:
        ahead, back = table[first.workload, other.workload], table[other.workload, first.workload]
        rest = tuple(job for job in others if job is not other)
        lost_s = (ahead - 1) * first.remaining_s + (back - 1) * other.remaining_s
        return lost_s + least_loss_s(table, rest, devices - 1)

    return min([least_loss_s(table, tuple(others), devices - 1), *map(with_, others)])


def test_where_moving_is_free_the_steps_save_almost_all_that_any_arrangement_could() -> None:
    before, after, least = 0.0, 0.0, 0.0
    at_no_price = {"weight": 1.0, "priority": 0, "preemptible": True, "checkpoint_s": 0.0, "since_s": 0.0}
    for seed in range(100):
        world = World(seed)
        free = [
            replace(
                device,
                pool="",
                residents=tuple(
                    replace(job, **at_no_price, remaining_s=100.0 + k)
                    for k, job in enumerate(device.residents[:2])
                ),
            )
            for device in world.snapshot.devices[:4]
        ]  # fmt: skip
        world.snapshot = replace(
            world.snapshot, pending=(), devices=tuple(free), limits=Limits(allowed=MOVES, move_factor=1.0)
        )
        world.jobs = {job.id: job for device in free for job in device.residents}
        runs = world.after(world.plan().actions)
        before += sum(world.loss_s(job, jobs) for jobs in world.before().values() for job in jobs)
        after += sum(world.loss_s(job, jobs) for jobs in runs.values() for job in jobs)
        least += least_loss_s(world.table, tuple(world.jobs.values()), len(free))
    assert least < 0.7 * before
    assert before - after > 0.95 * (before - least)
