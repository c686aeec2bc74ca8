"""Laws of pools: a job starts only on a device of a pool that it allows, and the reason names both."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import LimitError
from interfere.policy.answer.ranking import rank
from interfere.policy.ledger.promises import reconcile_promises
from interfere.policy.solve import planner
from interfere.policy.solve.planner import plan_pending_jobs
from interfere.policy.subproblems import independent_parts
from interfere.policy.validate import validate_snapshot
from interfere.records import (
    Action,
    ActionKind,
    Device,
    Job,
    Limits,
    ObjectiveKind,
    Promise,
    Snapshot,
    SolveStatus,
)
from interfere.serving.decisions import check_size
from tests.tables import DEVICE, TablePredictor, catalogue, context, profile, resolver

TABLE = TablePredictor({("w", "w"): 1.2})
KNOWN = resolver(profile("w"))
POOLS = ("", "a", "b", "c")


def job(name: str, *pools: str, gpus: int = 1) -> Job:
    return Job(id=name, workload="w", pools=pools, gpus=gpus)


def device(name: str, pool: str, *residents: Job) -> Device:
    return Device(id=name, type=DEVICE, pool=pool, residents=residents)


def two_pools(n: int) -> Snapshot:
    """Jobs that all differ, each of one of two pools with devices and residents of its own."""
    rng = np.random.default_rng(n)

    def weighed(name: str, *pools: str) -> Job:
        return Job(id=name, workload="w", pools=pools, weight=float(rng.uniform(0.5, 4.0)), max_slowdown=2.0)

    devices = tuple(
        Device(id=f"d{k}", type=DEVICE, pool="ab"[k % 2], residents=(weighed(f"r{k}"),) if k % 3 else ())
        for k in range(n)
    )
    return Snapshot(pending=tuple(weighed(f"p{k}", "ba"[k % 2]) for k in range(n)), devices=devices)


def test_pools_that_no_job_joins_are_planned_one_by_one_at_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = two_pools(120)
    parts = independent_parts(snapshot)
    assert [{device.pool for device in part.devices} for part in parts] == [{"a"}, {"b"}]
    assert sum(len(part.pending) for part in parts) == 120
    together = plan_pending_jobs(context(snapshot, TABLE, KNOWN))
    monkeypatch.setattr(planner, "CELLS_OF_ONE_PROBLEM", 0)
    apart = plan_pending_jobs(context(snapshot, TABLE, KNOWN))
    assert (apart.status, together.status) == (SolveStatus.OPTIMAL, SolveStatus.OPTIMAL)
    assert apart.cost == pytest.approx(together.cost, rel=1e-9)
    for one, other in zip(apart.levels, together.levels, strict=True):
        assert (one.kind, one.priority) == (other.kind, other.priority)
        assert one.value == pytest.approx(other.value, rel=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {"pending": (job("x", "a", "b"), *two_pools(8).pending)},
        {"pending": (job("x"), *two_pools(8).pending)},
        {"limits": Limits(max_devices=3)},
        {"objective": ObjectiveKind.MAKESPAN},
    ],
    ids=["joined", "any pool", "device limit", "largest cost"],
)
def test_what_concerns_all_pools_keeps_them_together(change: dict[str, object]) -> None:
    snapshot = replace(two_pools(8), **change)
    assert independent_parts(snapshot) == (snapshot,)


def test_many_different_jobs_are_admitted_where_their_pools_have_nothing_to_do_with_one_another() -> None:
    snapshot = two_pools(1200)
    check_size(snapshot)
    with pytest.raises(LimitError, match="too many jobs that differ"):
        check_size(replace(snapshot, pending=tuple(replace(each, pools=()) for each in snapshot.pending)))


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    pools = st.lists(st.sampled_from(POOLS), max_size=2, unique=True)
    sizes = draw(st.lists(st.sampled_from((1, 1, 2)), min_size=1, max_size=5))
    pending = [job(f"p{k}", *draw(pools), gpus=size) for k, size in enumerate(sizes)]
    busy = draw(st.lists(st.integers(0, 1), min_size=1, max_size=6))
    devices = [
        device(f"d{k}", draw(st.sampled_from(POOLS)), *(job(f"r{k}", *draw(pools)) for _ in range(count)))
        for k, count in enumerate(busy)
    ]
    return Snapshot(pending=tuple(pending), devices=tuple(devices))


@given(clusters())
@settings(max_examples=150, deadline=None)
def test_a_job_starts_only_in_its_pools_and_waits_only_when_these_are_full(seen: Snapshot) -> None:
    found = plan_pending_jobs(context(seen, TABLE, KNOWN, "d"))
    pool = {one.id: one.pool for one in seen.devices}
    wants = {one.id: one.pools for one in seen.pending}
    touched = {name for action in found.actions for name in action.places}
    for action in found.actions:
        assert all(not wants[action.job_id] or pool[name] in wants[action.job_id] for name in action.places)
    for one, action in zip(seen.pending, found.actions, strict=True):
        if action.kind is ActionKind.WAIT and one.gpus == 1:
            free = [d.id for d in seen.devices if d.id not in touched and len(d.residents) < 2]
            assert not [name for name in free if not one.pools or pool[name] in one.pools]


def test_the_reasons_name_the_pool() -> None:
    seen = Snapshot(pending=(job("x", "a", "b"),), devices=(device("d", "c", job("r")), device("e", "")))
    found = plan_pending_jobs(context(seen, TABLE, KNOWN, "d"))
    assert found.actions[0].reason == "pool: no device with a free seat is in [a, b]"
    assert found.refused[0].reason == "pool: x allows [a, b], the device is in c"
    devices = (*seen.devices, device("f", "b"), device("g", "a"))
    ranked = {one.device_id: one.reason for one in rank(seen.pending[0], devices, TABLE, catalogue(KNOWN), Limits())}
    assert ranked["d"] == "pool: x allows [a, b], the device is in c"
    assert ranked["e"] == "pool: x allows [a, b], the device is in none"
    assert ranked["f"] == "allowed"


def test_two_pending_jobs_share_only_in_a_pool_that_both_allow() -> None:
    jobs = (job("x", "a"), job("y", "b"))
    one = Snapshot(pending=jobs, devices=(device("d", "a"),))
    assert [a.kind for a in plan_pending_jobs(context(one, TABLE, KNOWN, "d")).actions] == [
        ActionKind.START_ALONE,
        ActionKind.WAIT,
    ]
    assert "pool: y allows [b], the device is in a" in [
        r.reason for r in plan_pending_jobs(context(one, TABLE, KNOWN, "d")).refused
    ]


def test_a_job_may_join_a_resident_outside_of_its_pools() -> None:
    seen = Snapshot(pending=(job("x"),), devices=(device("d", "c", job("r", "a")),))
    assert plan_pending_jobs(context(seen, TABLE, KNOWN, "d")).actions[0].kind is ActionKind.START_SHARED


def test_a_gang_is_in_one_pool() -> None:
    seen = Snapshot(pending=(job("x", gpus=2),), devices=(device("d", "a"), device("e", "b"), device("f", "b")))
    assert plan_pending_jobs(context(seen, TABLE, KNOWN, "d")).actions[0].places == ("e", "f")


@pytest.mark.parametrize(("partial", "fields"), [(False, ["pending[0].pools[1]"]), (True, [])])
def test_a_pool_that_no_device_is_in_is_unknown(partial: bool, fields: list[str]) -> None:
    seen = Snapshot(pending=(job("x", "a", "z"),), devices=(device("d", "a"),), partial=partial)
    assert [violation.field for violation in validate_snapshot(seen)] == fields


def test_a_job_that_left_a_pool_is_promised_nothing_there() -> None:
    action = Action(kind=ActionKind.START_ALONE, job_id="x", device_id="d", promised_by_s=9.0)
    seen = Snapshot(pending=(job("x", "b"),), devices=(device("d", "a"), device("e", "b")), now_s=1.0)
    (release,) = reconcile_promises(
        [Promise(action=action, decision_ids=("one",))], context(seen, TABLE, KNOWN)
    ).released
    assert release.reason == "pool: x allows [b], the device is in a"
