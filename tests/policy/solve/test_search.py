"""Placements: classes of devices where they bind, and what is answered when the time does not do."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from interfere.config import SHIPPED_MODEL
from interfere.records import ActionKind, Device, Job, Limits, ObjectiveKind, Plan, Snapshot, SolveStatus, Window
from interfere.serving.state import load_served_model
from tests.tables import TablePredictor, context, plan, profile, resolver

TYPES = ("fast", "slow", "slowest")
GIB = 2.0**30


def crowd(jobs: int, empty: int, residents: int, types: int, seed: int = 0) -> tuple[Snapshot, dict, list]:
    """Many jobs of few workloads, and their world."""
    rng = np.random.default_rng(seed)
    names = [f"w{k}" for k in range(30)]
    pressure, sensitivity = rng.random((2, 30, 4))
    table = {
        (v, n): float(np.float32(1 + (sensitivity[i] * pressure[j]).sum() / 2))
        for (i, v), (j, n) in itertools.product(enumerate(names), repeat=2)
    }
    profiles = [
        replace(profile(name, device_type=kind), step_time_s=float(rng.integers(1, 6)))
        for name in names
        for kind in TYPES
    ]

    def job(name: str) -> Job:
        return Job(
            id=name,
            workload=str(rng.choice(names)),
            weight=float(rng.choice([1.0, 2.0, 4.0])),
            remaining_s=float(rng.gamma(1.0, 1000.0)),
            attained_s=float(rng.gamma(1.0, 1000.0)),
            elapsed_s=float(rng.gamma(1.0, 3000.0)),
        )

    devices = tuple(
        Device(id=f"d{k}", type=TYPES[int(rng.integers(types))], residents=(job(f"r{k}"),) if k < residents else ())
        for k in range(empty + residents)
    )
    return Snapshot(pending=tuple(job(f"j{k}") for k in range(jobs)), devices=devices), table, profiles


def decided(made: tuple[Snapshot, dict, list], **changes: object) -> Plan:
    snapshot, table, profiles = made
    return plan(context(replace(snapshot, **changes), TablePredictor(table, devices=TYPES), resolver(*profiles), "d"))


def waiting(found: Plan) -> int:
    return sum(action.kind is ActionKind.WAIT for action in found.actions)


@pytest.mark.parametrize("types", [1, 3])
def test_too_short_a_budget_is_bounded_never_worse_than_greedy_and_never_silent(types: int) -> None:
    made = crowd(120, 40, 60, types)
    for objective in (ObjectiveKind.WEIGHTED_EXCESS, ObjectiveKind.TOTAL_SLOWDOWN, ObjectiveKind.MAKESPAN):
        whole = decided(made, objective=objective)
        hurried = decided(made, objective=objective, limits=Limits.of(time_budget_s=0.001))
        assert hurried.gap >= 0
        assert hurried.status in (SolveStatus.BOUNDED, SolveStatus.OPTIMAL)
        assert hurried.lower_bound <= whole.objective_value * (1 + 1e-9)
        assert (waiting(hurried), hurried.objective_value) <= (hurried.greedy_waiting, hurried.greedy_cost * (1 + 1e-9))
        assert waiting(hurried) >= waiting(whole)
        places = [(a.device_id, a.partner_id) for a in hurried.actions if a.device_id]
        assert len(set(places)) == len(places)
        if hurried.status is SolveStatus.OPTIMAL:
            assert hurried.objective_value == pytest.approx(whole.objective_value)
    assert decided(made, limits=Limits.of(time_budget_s=0.001)).status is SolveStatus.BOUNDED


def test_many_jobs_on_classes_that_bind_stay_near_their_bound() -> None:
    found = decided(crowd(60, 20, 40, 2))
    assert found.gap <= 0.05  # 0.02-0.03 in worlds like this
    assert found.objective_value < found.greedy_cost


def test_jobs_that_fit_only_large_devices_share_them_rather_than_wait() -> None:
    """Two large jobs, one large device, three small ones that only the small jobs fit."""
    large = Device(id="large", type="fast", memory_bytes=80 * GIB)
    small = tuple(Device(id=f"small{k}", type="fast", memory_bytes=16 * GIB) for k in range(3))
    jobs = tuple(
        Job(id=f"j{k}", workload="w0", memory_peak_bytes=size * GIB) for k, size in enumerate((40, 30, 8, 8, 8))
    )
    found = plan(
        context(
            Snapshot(pending=jobs, devices=(*small, large)),
            TablePredictor({("w0", "w0"): 1.5}, devices=TYPES),
            resolver(profile("w0", device_type="fast")),
            "d",
        )
    )
    assert waiting(found) == 0
    assert found.status is SolveStatus.OPTIMAL
    assert [a.device_id for a in found.actions[:2]] == ["large", "large"]


def test_many_jobs_that_all_differ_are_decided_and_proved() -> None:
    snapshot = crowd(220, 60, 120, 1)[0]
    names = [f"u{k}" for k in range(340)]
    rng = np.random.default_rng(5)
    table = {(v, n): float(np.float32(1 + rng.gamma(2.0, 0.2))) for v in names for n in names}
    fresh = iter(names)
    pending = tuple(replace(job, workload=next(fresh)) for job in snapshot.pending)
    devices = tuple(
        replace(d, residents=tuple(replace(r, workload=next(fresh)) for r in d.residents)) for d in snapshot.devices
    )
    made = (
        replace(snapshot, pending=pending, devices=devices),
        table,
        [replace(profile(name, device_type=TYPES[0])) for name in names],
    )
    found = decided(made)
    assert (found.status, waiting(found)) == (SolveStatus.OPTIMAL, 0)
    assert found.objective_value < 0.9 * found.greedy_cost


def test_nobody_to_place_beside_many_residents() -> None:
    snapshot, table, profiles = crowd(1, 2, 400, 1)
    found = decided((replace(snapshot, pending=()), table, profiles))
    assert (found.status, found.actions, found.cost) == (SolveStatus.OPTIMAL, (), 0.0)


@pytest.mark.parametrize("objective", [ObjectiveKind.MAKESPAN, ObjectiveKind.FINISH_TIME_FAIRNESS])
def test_the_largest_cost_is_bounded_where_no_job_can_start(objective: ObjectiveKind) -> None:
    pending = (Job(id="j", workload="w", remaining_s=9.0, attained_s=1.0, elapsed_s=1.0),)
    closed = Device(id="d", type=TYPES[0], windows=(Window(from_s=100.0, until_s=200.0),))
    snapshot = Snapshot(pending=pending, devices=(closed,), now_s=0.0, objective=objective)
    found = plan(context(snapshot, TablePredictor({("w", "w"): 1.1}, devices=TYPES), resolver(profile("w"))))
    assert found.status is SolveStatus.OPTIMAL
    assert all(level.lower_bound == level.value for level in found.levels)


def test_a_start_that_costs_nothing_is_searched_on_where_seats_cost_less() -> None:
    served = load_served_model(SHIPPED_MODEL)
    names = sorted({workload for workload, _ in served.shipped})
    pending = tuple(Job(id=f"p{k}", workload=names[k % len(names)]) for k in range(30))
    residents = [(Job(id=f"r{k}", workload=names[k % len(names)]),) for k in range(40)] + [()] * 30
    devices = tuple(Device(id=f"d{k}", type="cpu-core", residents=jobs) for k, jobs in enumerate(residents))
    snapshot = Snapshot(pending=pending, devices=devices)
    found = plan(context(snapshot, served.predictor, resolver(*served.shipped.values())))
    assert found.status is SolveStatus.OPTIMAL
    assert found.cost < 0.0, "some measured pairs are faster than alone"


@pytest.mark.parametrize("timed", [False, True])
def test_the_greedy_baseline_does_not_depend_on_the_order_of_the_queue(timed: bool) -> None:
    """All jobs differ in weight and remaining time, so that no tie is broken by the queue."""
    snapshot, table, profiles = crowd(20, 8, 6, 2)
    jobs = tuple(
        replace(job, weight=1.0 + 0.1 * k, remaining_s=100.0 * (k % 7) + k + 1 if timed else float("nan"))
        for k, job in enumerate(snapshot.pending)
    )
    forwards, backwards = (
        decided((replace(snapshot, pending=pending), table, profiles)) for pending in (jobs, jobs[::-1])
    )
    assert forwards.greedy_cost == pytest.approx(backwards.greedy_cost, rel=1e-12)
    assert forwards.greedy_waiting == backwards.greedy_waiting
