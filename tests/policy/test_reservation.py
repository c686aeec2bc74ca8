"""Jobs that wait too long: a job that may share with none, and a gang, beside jobs that fill every seat."""

from dataclasses import replace

import pytest

from interfere.policy.decide import decide
from interfere.policy.rules.runtime import AGEING_BEGINS
from interfere.records import ActionKind, Device, Job, Limits, ObjectiveKind, Plan, RuleKind, ScopeLedger, Snapshot
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

TABLE = TablePredictor({("a", "a"): 1.1, ("a", "loner"): 9.0, ("loner", "a"): 9.0, ("loner", "loner"): 9.0})
KNOWN = resolver(profile("a"), profile("loner"))
LONG_S = AGEING_BEGINS * Limits().timing.ageing_s
FRESH = tuple(Job(id=f"f{k}", workload="a", elapsed_s=1.0) for k in range(4))


def device(k: int, residents: int) -> Device:
    jobs = tuple(Job(id=f"r{k}.{r}", workload="a") for r in range(residents))
    return Device(id=f"d{k}", type=DEVICE, residents=jobs)


def decided(pending: tuple[Job, ...], devices: tuple[Device, ...], **more: object) -> Plan:
    snapshot = Snapshot(pending=pending, devices=devices, **more)
    return decide(context(snapshot, TABLE, KNOWN), ScopeLedger(scope=snapshot.scope)).plan


def started(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {action.job_id: action.places for action in plan.actions if action.places}


@pytest.mark.parametrize(("elapsed_s", "is_reserved"), [(LONG_S - 1, False), (LONG_S, True)])
def test_a_device_drains_for_a_job_that_shares_with_none(elapsed_s: float, is_reserved: bool) -> None:
    loner = Job(id="loner", workload="loner", elapsed_s=elapsed_s)
    plan = decided((*FRESH, loner), (device(0, 1), device(1, 1), device(2, 2)))
    assert sorted(places[0] for places in started(plan).values()) == (["d1"] if is_reserved else ["d0", "d1"])


def test_it_starts_once_the_device_is_empty_and_nobody_before_it() -> None:
    loner = Job(id="loner", workload="loner", elapsed_s=LONG_S)
    plan = decided((*FRESH, loner), (device(0, 0), device(1, 2), device(2, 2)))
    assert started(plan) == {"loner": ("d0",)}


def test_a_gang_gets_devices_of_its_own() -> None:
    gang = Job(id="gang", workload="a", gpus=2, elapsed_s=LONG_S)
    plan = decided((*FRESH, gang), (device(0, 2), device(1, 1), device(2, 0), device(3, 1)))
    assert {name for places in started(plan).values() for name in places} == {"d3"}


def test_one_job_at_a_time_and_none_before_a_higher_priority() -> None:
    loners = tuple(Job(id=f"l{k}", workload="loner", elapsed_s=LONG_S + k) for k in range(3))
    assert len(started(decided((*FRESH, *loners), (device(0, 1), device(1, 1), device(2, 1))))) == 2
    urgent = replace(FRESH[0], id="urgent", priority=1)
    later = replace(loners[0], id="later", elapsed_s=1.0, priority=1)
    assert set(started(decided((urgent, later, *loners), (device(0, 1),)))) == {"urgent"}


def test_the_last_device_is_kept_free_and_the_reason_says_for_whom() -> None:
    loner = Job(id="loner", workload="loner", elapsed_s=LONG_S)
    plan = decided((FRESH[0], loner), (device(0, 1),))
    assert {action.kind for action in plan.actions} == {ActionKind.WAIT}
    assert plan.actions[0].rule is not None
    assert plan.actions[0].rule.kind is RuleKind.DEVICES_RESERVED
    assert plan.actions[0].reason == "devices are kept free for loner, which has waited longest"


@pytest.mark.parametrize(
    "more", [{"limits": Limits.of(ageing_s=0.0)}, {"objective": ObjectiveKind.COMPLETION_TIME}], ids=["off", "time"]
)
def test_nothing_is_reserved_where_waiting_does_not_count_or_has_a_price(more: dict[str, object]) -> None:
    jobs = tuple(replace(job, remaining_s=100.0) for job in FRESH)
    loner = Job(id="loner", workload="loner", elapsed_s=LONG_S, remaining_s=100.0)
    devices = tuple(
        replace(each, residents=tuple(replace(job, remaining_s=100.0) for job in each.residents))
        for each in (device(0, 1), device(1, 1))
    )
    assert {places[0] for places in started(decided((*jobs, loner), devices, **more)).values()} == {"d0", "d1"}
