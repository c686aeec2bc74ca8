"""Laws of the alternatives: none is better than what was decided, each costs what the best plan with it costs."""

import math
from dataclasses import replace

import pytest

from interfere.policy.explain import CLASSES, PARTNERS, REFUSALS_A_RULE, best_first, choices, refusals
from interfere.policy.options import survey
from interfere.policy.planner import plan
from interfere.records import Action, ActionKind, Alternative, Device, Job, Limits, Plan, Snapshot
from tests.policy.test_planner import World
from tests.tables import DEVICE, TablePredictor, profile, resolver

SEEDS = range(60)


def explained(world: World, decided: Plan, action: Action) -> tuple[Alternative, ...]:
    """As the server does."""
    options = survey(world.snapshot, world.predictor, world.resolve)
    found = []
    for choice in choices(options, action):
        rest = choice.rest(world.snapshot)
        solved = plan(rest, world.predictor, world.resolve, "rest") if rest.devices else None
        found.append(choice.with_rest(rest, solved))
    return best_first(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_decided_is_among_them_costs_what_the_plan_costs_and_none_is_better(seed: int) -> None:
    world = World(seed)
    decided = world.plan()
    weight = {job.id: job.weight for job in world.snapshot.pending}
    waiting = [a.job_id for a in decided.actions if a.kind is ActionKind.WAIT]
    for action in decided.actions:
        found = explained(world, decided, action)
        (chosen,) = [one for one in found if one.chosen]
        assert (chosen.kind, chosen.device_id, chosen.partner_id) == (action.kind, action.device_id, action.partner_id)
        assert chosen.cost == pytest.approx(decided.cost, rel=1e-6, abs=1e-9)
        assert chosen.waiting == len(waiting)
        assert chosen.waiting_weight == pytest.approx(sum(weight[name] for name in waiting))
        best = (found[0].waiting_weight, found[0].cost)
        assert best == pytest.approx((chosen.waiting_weight, decided.cost), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_none_needs_what_is_not_allowed(seed: int) -> None:
    world = World(seed)
    limits = world.snapshot.limits
    for action in world.plan().actions:
        for one in explained(world, world.plan(), action):
            assert one.kind in limits.allowed
            if one.partner_id and not math.isnan(limits.max_slowdown):
                assert max(one.slowdown, one.partner_slowdown) <= limits.max_slowdown


def crowd(n: int, devices: int, **given: object) -> tuple[Snapshot, TablePredictor, object]:
    """Jobs of ever worse workloads on devices of one kind."""
    names = [f"w{k}" for k in range(n)]
    table = {(v, o): 1.0 + 0.01 * (int(v[1:]) + int(o[1:])) for v in names for o in names}
    pending = tuple(Job(id=f"j{k}", workload=name) for k, name in enumerate(names))
    where = tuple(Device(id=f"d{k}", type=DEVICE) for k in range(devices))
    snapshot = Snapshot(pending=pending, devices=where, **given)  # type: ignore[arg-type]
    return snapshot, TablePredictor(table), resolver(*map(profile, names))


def test_a_few_partners_that_differ_are_solved_for_not_all() -> None:
    snapshot, predictor, resolve = crowd(20, 10)
    twins = tuple(Job(id=f"twin{k}", workload="w1") for k in range(30))
    options = survey(replace(snapshot, pending=snapshot.pending + twins), predictor, resolve)  # type: ignore[arg-type]
    found = choices(options, Action(kind=ActionKind.WAIT, job_id="j0"))
    partners = [one.partner.workload for one in found if one.partner]
    assert partners == [f"w{k}" for k in range(1, PARTNERS + 1)]  # the cheapest, the twins as one
    assert [one.kind for one in found if not one.partner] == [ActionKind.START_ALONE, ActionKind.WAIT]


def test_a_device_of_every_kind_up_to_a_few() -> None:
    devices = tuple(Device(id=f"d{k}", type=DEVICE, memory_bytes=1e9 + k) for k in range(8))
    options = survey(Snapshot(pending=(Job(id="j", workload="w"),), devices=devices), *_one_workload())  # type: ignore[arg-type]
    alone = [
        one
        for one in choices(options, Action(kind=ActionKind.START_ALONE, job_id="j", device_id="d6"))
        if one.kind is ActionKind.START_ALONE
    ]
    assert [one.device.id for one in alone if one.device and one.chosen] == ["d6"]
    assert len(alone) == 1 + CLASSES


def _one_workload() -> tuple[TablePredictor, object]:
    return TablePredictor({("w", "w"): 1.5}), resolver(profile("w"))


def test_taking_a_device_counts_against_the_most_that_may_be_taken() -> None:
    snapshot, predictor, resolve = crowd(4, 4, limits=Limits(max_devices=1))
    (alone,) = [
        choice
        for choice in choices(survey(snapshot, predictor, resolve), Action(kind=ActionKind.WAIT, job_id="j0"))  # type: ignore[arg-type]
        if choice.kind is ActionKind.START_ALONE
    ]
    assert alone.rest(snapshot).limits.max_devices == 0
    beside = Device(id="busy", type=DEVICE, residents=(Job(id="r", workload="w1"),))
    busy = replace(snapshot, devices=(beside,))
    (joined,) = [
        c for c in choices(survey(busy, predictor, resolve), Action(kind=ActionKind.WAIT, job_id="j0")) if c.partner
    ]  # type: ignore[arg-type]
    assert joined.rest(busy).limits.max_devices == 1
    assert joined.rest(busy).devices == ()
    assert joined.with_rest(joined.rest(busy), None).waiting == 3


def test_a_job_that_was_not_pending_has_no_alternatives() -> None:
    snapshot, predictor, resolve = crowd(2, 1)
    options = survey(snapshot, predictor, resolve)  # type: ignore[arg-type]
    assert choices(options, Action(kind=ActionKind.WAIT, job_id="resident")) == ()
    assert refusals(options, "resident") == ((), 0)


def test_refused_partners_are_counted_and_a_few_listed_for_each_rule() -> None:
    snapshot, predictor, resolve = crowd(20, 2, limits=Limits(max_slowdown=1.1))
    stranger = Job(id="new", workload="nobody")
    pending = replace(snapshot, pending=(*snapshot.pending, stranger))
    listed, total = refusals(survey(pending, predictor, resolve), "j5")  # type: ignore[arg-type]
    assert total == 15  # beside w6 to w19 past 1.1 ×, and beside nobody knows whom; w5 itself is no partner
    rules = [one.reason.partition(":")[0] for one in listed]
    assert rules.count("slowdown cap") == REFUSALS_A_RULE
    assert [one.partner_id for one in listed if one.reason.startswith("no profile")] == ["new"]
    assert {one.job_id for one in listed} == {"j5"}
