"""Money and energy for devices, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.rules.runtime import pair_ends_s
from interfere.policy.solve.planner import plan_pending_jobs
from interfere.records import Device, Job, Limits, ObjectiveKind, ObjectiveTerm, Plan, Snapshot
from tests.tables import TablePredictor, context, profile, resolver

TYPES = {"cheap": (1.0, 700.0, 0.02), "fast": (3.0, 300.0, 0.01)}  # price an hour, watts, seconds a step
HOUR_S = 3600.0


def planned(objective: ObjectiveKind, *, devices: tuple[Device, ...] = (), gpus: int = 1, jobs: int = 1) -> Plan:
    devices = devices or tuple(device(f"{kind}{k}", kind) for kind in TYPES for k in range(2))
    pending = tuple(Job(id=f"j{k}", workload="a", remaining_s=HOUR_S, gpus=gpus) for k in range(jobs))
    profiles = (replace(profile("a", device_type=kind), step_time_s=step_s) for kind, (_, _, step_s) in TYPES.items())
    snapshot = Snapshot(pending=pending, devices=devices, objective=objective, limits=Limits())
    predictor = TablePredictor({("a", "a"): 1.5}, devices=tuple(TYPES))
    return plan_pending_jobs(context(snapshot, predictor, resolver(*profiles)))


def device(name: str, kind: str, residents: tuple[Job, ...] = ()) -> Device:
    price, power_w, _ = TYPES[kind]
    return Device(id=name, type=kind, price_per_hour=price, power_w=power_w, residents=residents)


def test_two_jobs_occupy_a_device_until_the_later_ends() -> None:
    """10 s at 2 x beside 10 s at 1.25 x: the second ends at 12.5 s, when the first has 3.75 s left."""
    alone_s, first, second = np.array([10.0]), np.array([2.0]), np.array([1.25])
    assert np.concatenate(pair_ends_s(alone_s, alone_s, first, second)).tolist() == [12.5 + 3.75, 12.5]


@pytest.mark.parametrize(
    ("objective", "device_id", "cost"),
    [(ObjectiveKind.COST, "cheap0", 2.0), (ObjectiveKind.ENERGY, "fast0", 300.0 * HOUR_S)],
)
def test_a_slow_device_costs_less_money_and_a_frugal_one_less_energy(
    objective: ObjectiveKind, device_id: str, cost: float
) -> None:
    """An hour on the fast one is two on the cheap one: 3 or 2 of money, .3 or 1.4 kWh."""
    plan = planned(objective)
    assert plan.actions[0].device_id == device_id
    assert plan.cost == pytest.approx(cost)


def test_a_gang_pays_for_each_device_and_a_pair_pays_once() -> None:
    assert planned(ObjectiveKind.COST, gpus=2).cost == pytest.approx(4.0)
    one = (device("fast", "fast"),)
    assert planned(ObjectiveKind.COST, devices=one, jobs=2).cost == pytest.approx(3.0 * 1.5)


def test_beside_a_resident_only_the_longer_time_counts() -> None:
    """Both an hour at 1.5 x: they end after an hour and a half, the resident alone after one."""
    running = (device("fast", "fast", (Job(id="r", workload="a", remaining_s=HOUR_S),)),)
    assert planned(ObjectiveKind.COST, devices=running).cost == pytest.approx(3.0 * 0.5)


def test_money_and_energy_are_terms_beside_others() -> None:
    shares = {ObjectiveKind.COST: 2.0, ObjectiveKind.ENERGY: 1e-6}
    snapshot = Snapshot(
        pending=(Job(id="j", workload="a", remaining_s=HOUR_S),),
        devices=(device("fast", "fast"),),
        objective_terms=tuple(ObjectiveTerm(kind=kind, weight=share) for kind, share in shares.items()),
    )
    known = resolver(profile("a", device_type="fast"))
    found = plan_pending_jobs(context(snapshot, TablePredictor({("a", "a"): 1.5}, devices=("fast",)), known))
    assert found.cost == pytest.approx(2.0 * 3.0 + 1e-6 * 300.0 * HOUR_S)
