"""The price of paging: what groups cost whose memory does not fit, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.costs import paging
from interfere.policy.costs.paging import MEASURED, paging_price, price_of_share, touched_bytes
from interfere.policy.rules.memory import DeviceMemory
from interfere.policy.schedule.from_context import scheduling_instance
from interfere.policy.solve.planner import plan_pending_jobs
from interfere.records import ActionKind, Job, MemoryDemand, Plan, Snapshot
from tests.policy.grant_cases import GIB, NAMES, PLAIN, device, job
from tests.policy.oracle.random_clusters import RandomCluster
from tests.policy.oracle.seats import SeatedCluster
from tests.tables import TablePredictor, context

SIZES = st.floats(0.0, 1e12)


@given(SIZES, SIZES, st.floats(1.0, 1e12), st.floats(1.0, 1e12), st.floats(1.0, 4.0))
@settings(max_examples=200, deadline=None)
def test_less_demand_and_more_memory_never_cost_more(
    touched: float, more: float, memory_bytes: float, further: float, ratio: float
) -> None:
    memory = DeviceMemory(memory_bytes=memory_bytes, oversubscription_ratio=ratio)
    larger = replace(memory, memory_bytes=memory_bytes + further)
    price = float(paging_price(touched, memory))
    assert 1.0 <= price <= float(paging_price(touched + more, memory))
    assert float(paging_price(touched, larger)) <= price
    if ratio == 1 or touched <= memory_bytes:
        assert price == 1.0


def test_the_price_is_what_was_measured_and_goes_on_along_the_last_line() -> None:
    assert [float(price_of_share(share)) for share, _ in MEASURED] == [price for _, price in MEASURED]
    (low, price), (high, last) = MEASURED[-2:]
    assert float(price_of_share(2 * high - low)) == pytest.approx(2 * last - price)
    assert [price for _, price in MEASURED] == sorted(price for _, price in MEASURED)


def test_a_job_touches_its_working_set_or_all_that_it_needs() -> None:
    known = MemoryDemand(needed_bytes=60.0, working_set_bytes=20.0)
    assert touched_bytes([known, MemoryDemand(needed_bytes=50.0), MemoryDemand()]).tolist() == [20.0, 50.0, 0.0]


def at_ratio_one(drawn: RandomCluster) -> Snapshot:
    devices = tuple(replace(each, oversubscription_ratio=1.0) for each in drawn.snapshot.devices)
    return replace(drawn.snapshot, devices=devices)


@pytest.mark.parametrize("cluster", [RandomCluster, SeatedCluster])
def test_without_oversubscription_the_price_changes_no_answer(
    cluster: type[RandomCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = range(40)

    def plans() -> list[Plan]:
        return [plan_pending_jobs(each.context().with_snapshot(at_ratio_one(each))) for each in map(cluster, seeds)]

    before = plans()
    monkeypatch.setattr(paging, "_PRICES", 1000.0 * np.array([price for _, price in MEASURED]))
    assert plans() == before


def start(pending: Job, *hosts: Job, ratio: float = 1.5):
    """What the plan does with one job, which is slowed down less beside earlier hosts."""
    slowdown = {(v, n): 1.1 + 0.1 * NAMES.index(n) for v in NAMES for n in NAMES}
    devices = tuple(device(f"d{k}", host, ratio=ratio) for k, host in enumerate(hosts))
    seen = Snapshot(pending=(pending,), devices=devices)
    (action,) = plan_pending_jobs(context(seen, TablePredictor(slowdown), PLAIN, "x")).actions
    return action


def test_of_two_places_the_plan_takes_the_one_whose_memory_fits_and_says_what_paging_counts() -> None:
    first, second = job("a", 60), job("c", 15)
    roomy = start(job("b", 20), first, second)
    assert (roomy.partner_id, roomy.rule.paging_slowdown > 1) == ("a", False)
    assert start(job("b", 60), first, second).partner_id == "c"
    only = start(job("b", 60), first)
    price = float(price_of_share(1 - 80 / 120))
    assert (only.kind, only.partner_id) == (ActionKind.START_SHARED, "a")  # the price refuses nobody
    assert only.rule.paging_slowdown == pytest.approx(price)
    assert f"; counted as {price:.3g} times as slow for paging" in only.reason
    assert only.cost == pytest.approx(1.2 * price - 1 + 1.1 * price - 1, rel=1e-6)
    assert (only.slowdown, only.partner_slowdown) == pytest.approx((1.1, 1.2))
    # Known working sets that fit cost nothing, however large the grants are.
    small = {"memory_working_set_bytes": 30 * GIB}
    fits = start(replace(job("b", 60), **small), replace(first, **small), second)
    assert (fits.partner_id, fits.rule.paging_slowdown > 1) == ("a", False)


def test_a_plan_over_time_counts_the_price_too() -> None:
    slowdown = {(v, n): 1.1 for v in NAMES for n in NAMES}
    pending = tuple(replace(job(name, gib), remaining_s=100.0) for name, gib in (("a", 60), ("b", 60), ("c", 10)))
    seen = Snapshot(pending=pending, devices=(device("d", ratio=1.5, granule_gib=60),), now_s=0.0)
    limits = replace(seen.limits, slowdown=replace(seen.limits.slowdown, min_joint_throughput=0.0))
    made = context(replace(seen, limits=limits), TablePredictor(slowdown), PLAIN, "x")
    instance = scheduling_instance(made, {}, shares=True)
    assert instance is not None
    (beside,) = instance.problem.guest_slowdown
    kind = {job.id: int(instance.problem.kind[k]) for k, job in enumerate(instance.pending)}
    price = float(price_of_share(1 - 80 / 120))
    assert beside[kind["a"], kind["b"]] == pytest.approx(1.1 * price)
    assert beside[kind["a"], kind["c"]] == pytest.approx(1.1)
