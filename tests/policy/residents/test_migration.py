"""Laws of migration: each saves more than it costs, only movable jobs move, and asking again at once moves none."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.decide import decide
from interfere.predict.groups import composed_slowdown
from interfere.records import (
    ActionKind,
    Job,
    Limits,
    ScopeLedger,
)
from tests.policy.migration_clusters import MOVES, NOW_S, World
from tests.tables import context

seeds = given(st.integers(0, 1_000_000))


@seeds
@settings(max_examples=300, deadline=None)
def test_every_connected_set_of_moves_saves_more_than_it_costs(seed: int) -> None:
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
def test_only_movable_jobs_move_and_devices_with_young_residents_are_left_alone(seed: int) -> None:
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
            beside = [world.table[world.jobs[action.job_id].workload, world.jobs[one].workload] for one in others]
            expected = composed_slowdown(beside) if beside else 1.0
            assert action.slowdown == pytest.approx(expected, rel=1e-5)


@seeds
@settings(max_examples=200, deadline=None)
def test_once_carried_out_the_next_decision_moves_no_job(seed: int) -> None:
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
def test_a_plan_has_only_allowed_actions(seed: int) -> None:
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
def test_promised_moves_are_repeated_until_they_are_carried_out(seed: int) -> None:
    world = World(seed)
    first = decide(context(world.snapshot, world.predictor, world.resolve, "one"), ScopeLedger(scope="default"))
    moves = {action.job_id: action for action in first.plan.actions if action.kind is ActionKind.MOVE}
    again = decide(
        context(replace(world.snapshot, now_s=NOW_S + 1), world.predictor, world.resolve, "two"), first.ledger
    )
    told = {action.job_id: action for action in again.plan.actions if action.kind is ActionKind.MOVE}
    assert {name: (a.device_id, a.promised_by_s) for name, a in told.items() if name in moves} == {
        name: (a.device_id, a.promised_by_s) for name, a in moves.items()
    }
    late = decide(
        context(replace(world.snapshot, now_s=NOW_S + 120.0), world.predictor, world.resolve, "three"), again.ledger
    )
    assert not set(moves) & {promise.action.job_id for promise in late.promises.kept}
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
    last = decide(context(done, world.predictor, world.resolve, "four"), first.ledger)
    assert {promise.action.job_id for promise in last.promises.fulfilled} == started
    assert not last.promises.released


@seeds
@settings(max_examples=200, deadline=None)
def test_a_resident_is_preempted_only_for_a_job_of_higher_priority_that_else_waits(seed: int) -> None:
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


def test_where_moving_is_free_migrations_save_almost_all_that_any_arrangement_could() -> None:
    before, after, least = 0.0, 0.0, 0.0
    at_no_price = {"weight": 1.0, "priority": 0, "preemptible": True, "checkpoint_s": 0.0, "since_s": 0.0}
    for seed in range(100):
        world = World(seed)
        free = [
            replace(
                device,
                pool="",
                residents=tuple(
                    replace(job, **at_no_price, remaining_s=100.0 + k) for k, job in enumerate(device.residents[:2])
                ),
            )
            for device in world.snapshot.devices[:4]
        ]
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
