"""Grants: whole granules, never more than there are, and the reason where there are too few."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.policy.rules.memory import DeviceMemory
from interfere.records import (
    Device,
    Job,
    Limits,
    MemoryDemand,
)
from interfere.serving.adapters.problem import host_reserves
from tests.policy.grant_cases import (
    GIB,
    NAMES,
    WAIT,
    decided,
    device,
    free,
    job,
    refused,
    snapshot,
)
from tests.tables import DEVICE, profile, resolver


def test_two_jobs_share_only_if_their_granules_fit() -> None:
    assert refused(job("a", 39), device("d", job("b", 40))) == ""
    assert refused(job("a", 40.5), device("d", job("b", 39))) == (
        "grants: 40.5 GiB (grant) + 39 GiB (grant) = 21 + 20 granules of 2 GiB > 40 (80 GiB × 1)"
    )  # 79.5 GiB would have fitted: granules are whole
    assert refused(job("a", 40.5), device("d", job("b", 39), granule_gib=0.5)) == ""
    known = resolver(profile("a", peak_bytes=41 * GIB), profile("b", peak_bytes=40 * GIB))
    assert refused(job("a"), device("d", job("b")), resolve=known) == (
        "grants: 41 GiB + 40 GiB = 21 + 20 granules of 2 GiB > 40 (80 GiB × 1)"
    )


def test_alone_a_job_needs_its_granules_and_waits_where_no_device_has_them() -> None:
    assert refused(job("a", 79), device("d")) == ""
    assert (
        refused(job("a", 79), device("d", granule_gib=3))
        == "grant: 79 GiB (grant) = 27 granules of 3 GiB > 26 (80 GiB × 1)"
    )
    (action,) = decided(snapshot((job("a", 90),), device("d"), device("e", ratio=1.1))).plan.actions
    assert action.kind is WAIT
    assert action.reason == "grant: 90 GiB (grant) = 45 granules of 2 GiB > 44 (80 GiB × 1.1) on the largest device"


def test_oversubscribed_memory_is_granted_beyond_what_there_is_but_working_sets_must_fit() -> None:
    both = job("a", 60), job("b", 60)
    assert "grants:" in refused(both[0], device("d", both[1]))
    assert refused(both[0], device("d", both[1], ratio=1.5)) == ""
    touched = tuple(replace(one, memory_working_set_bytes=42 * GIB) for one in both)
    assert refused(touched[0], device("d", touched[1], ratio=1.5)) == (
        "working sets: 42 GiB + 42 GiB > 80 GiB: they would be swapped"
    )
    assert refused(touched[0], device("d", both[1], ratio=1.5)) == ""  # where it is known
    less = tuple(replace(one, memory_working_set_bytes=39 * GIB) for one in both)
    assert refused(less[0], device("d", less[1], ratio=1.5)) == ""
    assert refused(less[0], device("d", less[1], ratio=1.5), memory_headroom=0.05) == (
        "working sets: 39 GiB + 39 GiB > 76 GiB (80 GiB less 0.05 of it as headroom): they would be swapped"
    )
    alone = replace(job("a", 60), memory_working_set_bytes=81 * GIB)
    assert refused(alone, device("d", ratio=1.5)) == "working set: 81 GiB > 80 GiB: it would be swapped"
    facts = resolver(*(replace(profile(name), memory_working_set_bytes=42 * GIB) for name in NAMES))
    assert "working sets:" in refused(*(both[0], device("d", both[1], ratio=1.5)), resolve=facts)


def test_without_oversubscription_peaks_leave_the_headroom_free() -> None:
    assert refused(job("a", 40), device("d", job("b", 40))) == ""
    assert refused(job("a", 40), device("d", job("b", 40)), memory_headroom=0.1).startswith("memory: 40 GiB (grant) + ")


def test_a_device_with_a_ratio_alone_has_granules_of_the_drivers_pages() -> None:
    bare = replace(device("d"), granule_bytes=math.nan, oversubscription_ratio=1.5)
    (slots,) = decided(snapshot((), bare)).ledger.slots
    assert (slots.granules, slots.granule_bytes) == (60 * 1024, 2.0**21)


def test_a_job_that_needs_no_memory_holds_one_granule() -> None:
    idle = Job(id="a", workload="a", memory_peak_bytes=0.0)
    first = decided(snapshot((idle,), device("d")))
    assert first.plan.actions[0].grant_bytes == 2 * GIB
    assert free(decided(snapshot((), device("d", idle, job("b", 1)), now_s=20.0), first.ledger)) == {"d": 38}


@given(st.integers(1, 10**6), st.floats(1.0, 4.0), st.floats(1.0, 1e12))
@settings(max_examples=200, deadline=None)
def test_a_grant_is_the_fewest_whole_granules(count: int, ratio: float, granule_bytes: float) -> None:
    memory = DeviceMemory(memory_bytes=count * granule_bytes, oversubscription_ratio=ratio, granule_bytes=granule_bytes)
    assert memory.granules >= count
    assert memory.granules * granule_bytes <= ratio * memory.memory_bytes * (1 + 1e-6)
    assert memory.granules_for(MemoryDemand(needed_bytes=memory.memory_bytes)) == count  # no rounding adds one
    assert memory.granules_for(MemoryDemand(needed_bytes=memory.memory_bytes + granule_bytes / 2)) == count + 1


def test_devices_without_ratio_and_granule_grant_nothing() -> None:
    plain = Device(id="d", type=DEVICE, memory_bytes=80 * GIB)
    unknown = Device(id="e", type=DEVICE, granule_bytes=GIB)
    found = decided(snapshot((job("a", 9), job("b", 9)), plain, unknown))
    assert found.ledger.slots == found.ledger.grants == ()
    assert all(math.isnan(action.grant_bytes) and "grant" not in action.reason for action in found.plan.actions)
    assert (
        refused(job("a", 50), replace(plain, residents=(job("b", 50),)))
        == "memory: 50 GiB (grant) + 50 GiB (grant) > 80 GiB"
    )


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"oversubscription_ratio": 0.99}, "oversubscription_ratio"),
        ({"oversubscription_ratio": math.inf}, "oversubscription_ratio"),
        ({"granule_bytes": 81 * GIB}, "granule_bytes"),
        ({"granule_bytes": 0.0}, "granule_bytes"),
    ],
)
def test_a_device_that_contradicts_itself_is_refused(values: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        replace(device("d"), **values)
    assert [violation.field for violation in caught.value.violations] == [field]


def test_a_grant_of_nothing_and_limits_below_nothing_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="grant_bytes"):
        job("a", 0)
    for name in ("grant_patience_s", "grant_tolerance"):
        with pytest.raises(InvalidInputError, match=name):
            Limits.of(**{name: -1.0})


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(1.0, 96.0), st.floats(1.0, 3.0)), min_size=1, max_size=8), st.floats(0.0, 400.0))
def test_a_node_grants_no_more_than_its_devices_and_its_host_hold(
    devices: list[tuple[float, float]], host_gib: float
) -> None:
    made = [
        Device(id=str(k), type="t", memory_bytes=gib * GIB, oversubscription_ratio=ratio, granule_bytes=GIB / 4)
        for k, (gib, ratio) in enumerate(devices)
    ]
    memories = [DeviceMemory.of(one) for one in host_reserves(made, host_gib * GIB)]
    beyond = sum(max(0.0, one.allocatable_bytes - one.memory_bytes) for one in memories)
    assert beyond <= host_gib * GIB + len(made) * 1e-6 * GIB  # a millionth of a granule is rounding
    needed = sum((ratio - 1.0) * gib * GIB for gib, ratio in devices)
    assert sum(one.host_reserve_bytes for one in memories) == pytest.approx(min(needed, host_gib * GIB), abs=1.0)
    if needed <= host_gib * GIB * (1 - 1e-9):  # nothing is lost where the host backs all
        assert [one.granules for one in memories] == [DeviceMemory.of(one).granules for one in made]


def test_what_the_host_cannot_back_is_refused() -> None:
    both = job("a", 60), job("b", 50)
    assert refused(both[1], device("d", both[0], ratio=1.5)) == ""
    why = refused(both[1], device("d", both[0], ratio=1.5, host_reserve_bytes=20 * GIB))
    assert why == "grants: 50 GiB (grant) + 60 GiB (grant) = 25 + 30 granules of 2 GiB > 50 (80 GiB × 1.25)"
    assert "> 40 (80 GiB × 1)" in refused(both[1], device("d", both[0], ratio=1.5, host_reserve_bytes=0.0))
