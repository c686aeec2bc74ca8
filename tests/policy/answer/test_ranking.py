"""Laws of `rank`: one job against every device says what `plan` would do with it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from interfere.policy.answer.ranking import rank
from interfere.records import ActionKind, Device, Job, Limits, ObjectiveKind, Ranking, Snapshot
from tests.policy.test_plan_laws import World
from tests.tables import DEVICE, TablePredictor, catalogue, profile, resolver


def ranked(world: World, job: Job, limits: Limits, objective: ObjectiveKind) -> tuple[Ranking, ...]:
    return rank(job, world.snapshot.devices, world.predictor, catalogue(world.resolve), limits, objective)


@pytest.mark.parametrize(
    "objective", [ObjectiveKind.COST, ObjectiveKind.ENERGY, ObjectiveKind.PAIRS_PAST_CAP, ObjectiveKind.MAKESPAN]
)
def test_beside_residents_of_devices_with_three_seats_a_job_costs_what_the_plan_says(objective: ObjectiveKind) -> None:
    """The cost of a device, or of a pair past the cap, is of the group: no job of it has it alone."""
    compared = 0
    for seed in range(40):
        world = World(seed, objective)
        devices = tuple(replace(device, seats=3) for device in world.snapshot.devices if device.residents)
        if not devices:
            continue
        limits, job = world.snapshot.limits, world.job("x")
        first = rank(job, devices, world.predictor, catalogue(world.resolve), limits, objective)[0]
        alone = Snapshot(pending=(job,), devices=devices, limits=limits, objective=objective)
        if first.feasible:
            compared += 1
            assert first.cost == pytest.approx(world.plan(alone).objective_value), seed
    assert compared > 5


@pytest.mark.parametrize("objective", ObjectiveKind)
@pytest.mark.parametrize("seed", range(40))
def test_the_planned_device_is_feasible_first_and_what_the_plan_chooses(seed: int, objective: ObjectiveKind) -> None:
    world = World(seed, objective)
    limits, job = world.snapshot.limits, world.job("x")
    found = ranked(world, job, limits, objective)
    alone = Snapshot(pending=(job,), devices=world.snapshot.devices, limits=limits, objective=objective)
    (action,) = world.plan(alone).actions
    feasible = [r for r in found if r.feasible]
    assert len(found) == len(world.snapshot.devices)
    assert found[: len(feasible)] == tuple(feasible)
    assert [r.cost for r in feasible] == sorted(r.cost for r in feasible)
    planned = [r.planned for r in found]
    assert planned == [action.kind is not ActionKind.WAIT, *[False] * (len(found) - 1)]
    assert planned[0] or not feasible
    assert all(math.isinf(r.cost) for r in found if not r.feasible)
    if planned[0]:
        same = {r.device_id for r in feasible if r.cost == pytest.approx(feasible[0].cost)}
        assert action.device_id in same  # devices of equal cost are one choice
        assert feasible[0].cost == pytest.approx(world.plan(alone).objective_value)


@pytest.mark.parametrize("seed", range(40))
def test_a_refusal_says_what_match_says(seed: int) -> None:
    world = World(seed, None)
    job = world.job("x")
    found = {r.device_id: r for r in ranked(world, job, world.snapshot.limits, ObjectiveKind.WEIGHTED_EXCESS)}
    for device in world.snapshot.devices:
        if len(device.residents) != 1:
            continue
        one = Snapshot(pending=(job,), devices=world.snapshot.devices, limits=world.snapshot.limits)
        reasons = {r.partner_id: r.reason for r in world.plan(one).refused}
        said = found[device.id]
        assert said.reason == reasons.get(device.residents[0].id, "allowed")


@pytest.mark.parametrize("objective", ObjectiveKind)
def test_costs_never_fall_as_slowdowns_rise(objective: ObjectiveKind) -> None:
    job = Job(id="x", workload="a", weight=3.0, remaining_s=20.0, attained_s=10.0, elapsed_s=40.0)
    resident = replace(job, id="r", workload="b", weight=1.0)
    devices = (Device(id="d", type=DEVICE, residents=(resident,), price_per_hour=2.0, power_w=300.0),)
    for which in (("a", "b"), ("b", "a")):
        costs = []
        for slowdown in np.linspace(1.0, 4.0, 13):
            table = {("a", "b"): 1.3, ("b", "a"): 1.3} | {which: float(slowdown)}
            known = resolver(profile("a"), profile("b"))
            costs.append(
                rank(job, devices, TablePredictor(table), catalogue(known), Limits.of(soft_cap=2.0), objective)[0].cost
            )
        assert costs == sorted(costs)
        assert costs[-1] > costs[0]


def test_full_and_forbidden_devices_say_why() -> None:
    jobs = tuple(Job(id=f"r{k}", workload="a") for k in range(2))
    devices = (Device(id="full", type=DEVICE, residents=jobs), Device(id="empty", type=DEVICE))
    known, table = resolver(profile("a")), TablePredictor({("a", "a"): 1.2})
    job = Job(id="x", workload="a")

    def why(**limits: object) -> dict[str, str]:
        return {r.device_id: r.reason for r in rank(job, devices, table, catalogue(known), Limits.of(**limits))}

    assert why() == {"full": "no free seat: 2 residents", "empty": "allowed"}
    assert why(max_devices=0)["empty"] == "max_devices: 0 empty devices may be taken"
    allowed = frozenset({ActionKind.START_SHARED, ActionKind.WAIT})
    assert why(allowed=allowed)["empty"] == "start_alone is not an allowed action"
