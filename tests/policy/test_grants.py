"""Grants: whole granules, never more than there are, kept while their job runs, and back when it is gone."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.policy.grants import account_of, held_by, holdings
from interfere.policy.memory import Demand, Known, Room, slots_of
from interfere.policy.overuse import in_order
from interfere.policy.part import part_of
from interfere.policy.planner import plan
from interfere.policy.rank import rank
from interfere.policy.scope import ScopeDecision, plan_scope
from interfere.records import (
    Action,
    ActionKind,
    Device,
    Grant,
    Job,
    JobProfile,
    Limits,
    MemoryUsage,
    Promise,
    ScopeLedger,
    Snapshot,
)
from tests.tables import DEVICE, TablePredictor, profile, resolver

GIB = 2.0**30
NAMES = tuple("abcd")
PREDICTOR = TablePredictor({(v, n): 1.1 for v in NAMES for n in NAMES})
PLAIN = resolver(*map(profile, NAMES))
EVERYTHING = Limits(allowed=frozenset(ActionKind))
ALONE, SHARED, WAIT, KEEP, END = (
    ActionKind.START_ALONE, ActionKind.START_SHARED, ActionKind.WAIT, ActionKind.KEEP, ActionKind.END,
)  # fmt: skip


def job(name: str, gib: float = math.nan, **given_: object) -> Job:
    return Job(id=name, workload=name[0], grant_bytes=gib * GIB, **given_)  # type: ignore[arg-type]


def device(name: str, *residents: Job, ratio: float = 1.0, granule_gib: float = 2.0) -> Device:
    return Device(
        id=name, type=DEVICE, memory_bytes=80 * GIB, residents=residents, oversubscription_ratio=ratio,
        granule_bytes=granule_gib * GIB,
    )  # fmt: skip


def decided(seen: Snapshot, ledger: ScopeLedger | None = None, resolve=PLAIN, usages=lambda _: ()) -> ScopeDecision:
    return plan_scope(seen, ledger or ScopeLedger(scope="default"), PREDICTOR, resolve, "x", usages)


def snapshot(pending: tuple[Job, ...], *devices: Device, now_s: float = 10.0, **given_: object) -> Snapshot:
    return Snapshot(pending=pending, devices=devices, now_s=now_s, **given_)  # type: ignore[arg-type]


def refused(one: Job, *devices: Device, resolve=PLAIN, **limits: float) -> str:
    """Why it may not start; the same of a plan and of a ranking."""
    (action,) = plan(
        Snapshot(pending=(one,), devices=devices, limits=Limits(**limits)), PREDICTOR, resolve, "d"
    ).actions
    (ranking,) = rank(one, devices, PREDICTOR, resolve, Limits(**limits))
    assert ranking.feasible == (action.kind is not WAIT)
    return "" if ranking.feasible else ranking.reason


def free(found: ScopeDecision) -> dict[str, int]:
    account = account_of(found.ledger)
    return {name: one.granules - account.taken.get(name, 0) for name, one in account.slots.items()}


# --- what fits --------------------------------------------------------------------------------------------------------


def test_two_share_only_if_their_granules_fit() -> None:
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


def test_the_headroom_is_left_free_of_peaks_where_nothing_is_oversubscribed() -> None:
    assert refused(job("a", 40), device("d", job("b", 40))) == ""
    assert refused(job("a", 40), device("d", job("b", 40)), memory_headroom=0.1).startswith("memory: 40 GiB (grant) + ")


def test_a_ratio_alone_has_the_drivers_granules() -> None:
    bare = replace(device("d"), granule_bytes=math.nan, oversubscription_ratio=1.5)
    (slots,) = decided(snapshot((), bare)).ledger.slots
    assert (slots.granules, slots.granule_bytes) == (60 * 1024, 2.0**21)


def test_who_is_known_to_need_nothing_holds_one_granule() -> None:
    idle = Job(id="a", workload="a", memory_peak_bytes=0.0)
    first = decided(snapshot((idle,), device("d")))
    assert first.plan.actions[0].grant_bytes == 2 * GIB
    assert free(decided(snapshot((), device("d", idle, job("b", 1)), now_s=20.0), first.ledger)) == {"d": 38}


@given(st.integers(1, 10**6), st.floats(1.0, 4.0), st.floats(1.0, 1e12))
@settings(max_examples=200, deadline=None)
def test_a_grant_is_the_fewest_whole_granules(count: int, ratio: float, granule_bytes: float) -> None:
    room = Room(memory_bytes=count * granule_bytes, oversubscription_ratio=ratio, granule_bytes=granule_bytes)
    assert room.granules >= count
    assert room.granules * granule_bytes <= ratio * room.memory_bytes * (1 + 1e-6)
    assert room.needs(Demand(bytes=room.memory_bytes)) == count  # no rounding adds one
    assert room.needs(Demand(bytes=room.memory_bytes + granule_bytes / 2)) == count + 1


def test_devices_that_state_neither_grant_nothing() -> None:
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
            Limits(**{name: -1.0})


# --- who holds --------------------------------------------------------------------------------------------------------


def test_starts_hold_their_grant_and_keep_it_while_they_run() -> None:
    first = decided(snapshot((job("a", 7),), device("d", job("b", 3))))
    (start,) = first.plan.actions
    assert (start.kind, start.grant_bytes, start.partner_id) == (SHARED, 8 * GIB, "b")
    assert start.reason.endswith("; granted 8 GiB (4 granules) for 7 GiB (grant)")
    assert [(one.job_id, one.bytes, one.planned, one.since_s) for one in holdings(first.ledger)] == [
        ("b", 4 * GIB, False, 10.0), ("a", 8 * GIB, True, 10.0),
    ]  # fmt: skip
    assert free(first) == {"d": 34}
    runs = snapshot((), device("d", job("b"), job("a")), now_s=20.0, limits=EVERYTHING)
    second = decided(runs, first.ledger)
    assert [(one.job_id, one.bytes, one.planned, one.since_s) for one in holdings(second.ledger)] == [
        ("a", 8 * GIB, False, 10.0), ("b", 4 * GIB, False, 10.0),
    ]  # fmt: skip
    assert {action.job_id: action.grant_bytes for action in second.plan.actions} == {"a": 8 * GIB, "b": 4 * GIB}
    over = decided(snapshot((), device("d", job("b")), now_s=30.0), second.ledger)
    assert free(over) == {"d": 38}
    assert free(decided(snapshot((), device("d"), now_s=40.0), over.ledger)) == {"d": 40}


def test_a_resident_may_ask_for_another_grant_and_gets_it_where_it_fits() -> None:
    ledger = decided(snapshot((), device("d", job("a", 30), job("b", 30)))).ledger

    def asks(gib: float) -> dict[str, tuple[float, float]]:
        found = decided(snapshot((), device("d", job("a", gib), job("b", 30)), now_s=20.0), ledger)
        return {one.job_id: (one.bytes / GIB, one.since_s) for one in found.ledger.grants}

    assert asks(29.5) == {"a": (30, 10), "b": (30, 10)}  # the same granules
    assert asks(20) == {"a": (20, 20), "b": (30, 10)}
    assert asks(50) == {"a": (50, 20), "b": (30, 10)}
    assert asks(52) == {"a": (30, 10), "b": (30, 10)}


def test_what_is_planned_is_not_granted_to_who_asks_for_more() -> None:
    ledger = decided(snapshot((job("b", 30),), device("d", job("a", 30)))).ledger
    asks = snapshot((job("b", 30),), device("d", job("a", 52)), now_s=20.0)
    assert {one.job_id: one.bytes / GIB for one in holdings(decided(asks, ledger).ledger)} == {"a": 30, "b": 30}


def test_who_moves_holds_its_grant_where_it_goes_and_again_where_it_was_should_it_stay() -> None:
    old = {"remaining_s": 1e5, "preemptible": True, "checkpoint_s": 1.0, "since_s": 0.0, "grant_bytes": 30 * GIB}
    pair = tuple(Job(id=name, workload=name, **old) for name in "ab")  # type: ignore[arg-type]
    slow = TablePredictor({(v, n): 2.0 for v in NAMES for n in NAMES})

    late: list[MemoryUsage] = []

    def at(now_s: float, ledger: ScopeLedger, allowed: frozenset[ActionKind]) -> ScopeDecision:
        seen = snapshot((), device("d", *pair), device("e"), now_s=now_s, limits=Limits(allowed=allowed))
        return plan_scope(seen, ledger, slow, PLAIN, "x", lambda _: in_order(late))

    stay = EVERYTHING.allowed - {ActionKind.MOVE, ActionKind.PREEMPT}
    first = at(500.0, ScopeLedger(scope="default"), stay)
    moving = at(510.0, first.ledger, EVERYTHING.allowed)
    (move,) = (action for action in moving.plan.actions if action.kind is ActionKind.MOVE)
    late += [window(500, 570, 31, move.job_id), window(570, 640, 31, move.job_id)]
    assert (move.device_id, move.grant_bytes) == ("e", 30 * GIB)
    assert (free(first), free(moving)) == ({"d": 10, "e": 40}, {"d": 25, "e": 25})
    assert [one.kind for one in at(620.0, moving.ledger, EVERYTHING.allowed).plan.actions if one.kind is END] == []
    stayed = at(640.0, moving.ledger, stay)
    assert free(stayed) == {"d": 10, "e": 40}
    assert {(one.job_id, one.since_s) for one in holdings(stayed.ledger)} == {("a", 500.0), ("b", 500.0)}
    assert [one.job_id for one in stayed.plan.actions if one.kind is END] == [move.job_id]


def test_who_leaves_makes_room_and_is_not_forgotten() -> None:
    def told(kind: ActionKind, name: str, place: str) -> Action:
        return Action(kind=kind, job_id=name, device_id=place, promised_by_s=120.0, grant_bytes=60 * GIB)

    promises = (
        Promise(action=told(ActionKind.MOVE, "a", "e"), decision_ids=("x",), from_device_id="d", since_s=9.0),
        Promise(action=told(ALONE, "c", "d"), decision_ids=("x",), since_s=9.0),
    )
    grant = Grant(job_id="a", workload="a", device_ids=("d",), bytes=60 * GIB, since_s=5.0)
    slots = tuple(slots_of(device(name)) for name in "de")
    ledger = ScopeLedger(scope="default", now_s=9.0, promises=promises, grants=(grant,), slots=slots)
    still = decided(snapshot((job("c", 60),), device("d", job("a")), device("e")), ledger)
    assert (still.ledger.grants, free(still)) == ((grant,), {"d": 10, "e": 10})
    stays = decided(snapshot((job("c", 60),), device("d", job("a")), now_s=130.0), still.ledger)
    assert (stays.ledger.grants, free(stays)) == ((grant,), {"d": 10})


def test_who_was_started_beyond_the_slots_holds_none() -> None:
    found = decided(snapshot((), device("d", job("a", 50), job("b", 50)), limits=EVERYTHING))
    assert [grant.job_id for grant in found.ledger.grants] == ["a"]
    older = job("b", 50, since_s=5.0)
    found = decided(snapshot((), device("d", job("a", 50, since_s=6.0), older), limits=EVERYTHING))
    assert [grant.job_id for grant in found.ledger.grants] == ["b"]
    nobody_knows = decided(snapshot((), device("d", job("a"))))
    assert (holdings(nobody_knows.ledger), free(nobody_knows)) == ((), {"d": 40})


def test_who_came_unknown_is_never_held_to_what_it_used_so_far() -> None:
    used = Known(profiles=PLAIN, used_bytes={("a", DEVICE): 2 * GIB})
    late = (window(20, 90, 9), window(90, 190, 9))
    unknown = decided(snapshot((job("a"),), device("d")))
    for ledger in (unknown.ledger, decided(snapshot((), device("d", job("a")))).ledger):
        runs = snapshot((), device("d", job("a")), now_s=20.0, limits=EVERYTHING)
        found = decided(runs, ledger, resolve=used)
        assert holdings(found.ledger) == ()
        later = decided(replace(runs, now_s=200.0), found.ledger, resolve=used, usages=lambda _: in_order(late))
        assert [action.kind for action in later.plan.actions] == [KEEP]
        asks = decided(replace(runs, now_s=210.0, devices=(device("d", job("a", 8)),)), later.ledger, resolve=used)
        assert [one.bytes for one in holdings(asks.ledger)] == [8 * GIB]
    fresh = decided(snapshot((), device("d", job("a"))), resolve=used)
    assert [one.bytes for one in holdings(fresh.ledger)] == [2 * GIB]  # a later one of its workload


def test_a_device_that_hands_out_less_takes_back_what_was_only_planned() -> None:
    ledger = decided(snapshot((job("a", 30),), device("d", job("b", 30)))).ledger
    found = decided(snapshot((job("a", 30),), device("d", job("b", 30), granule_gib=25), now_s=20.0), ledger)
    assert [(one.promise.action.job_id, one.reason) for one in found.reconciled.released] == [
        ("a", "its device hands out less memory now")
    ]
    assert found.plan.actions[0].kind is WAIT
    assert free(found) == {"d": 1}


def test_a_partial_snapshot_keeps_the_grants_of_devices_that_it_leaves_out() -> None:
    ledger = decided(snapshot((), device("d", job("a", 30)), device("e", job("b", 30)))).ledger
    found = decided(snapshot((), device("d"), now_s=20.0, partial=True), ledger)
    assert [grant.job_id for grant in found.ledger.grants] == ["b"]
    assert free(found) == {"d": 40, "e": 25}
    assert free(decided(snapshot((), device("d"), now_s=30.0), found.ledger)) == {"d": 40}


def test_another_workload_under_an_old_id_gets_a_grant_of_its_own() -> None:
    ledger = decided(snapshot((), device("d", job("a", 30)))).ledger
    other = replace(job("a", 30), workload="b")
    assert decided(snapshot((), device("d", other), now_s=20.0), ledger).ledger.grants == (
        Grant(job_id="a", workload="b", device_ids=("d",), bytes=30 * GIB, since_s=20.0),
    )


def test_a_gang_holds_its_grant_on_each_of_its_devices() -> None:
    gang = job("a", 30, gpus=2)
    first = decided(snapshot((gang,), device("d"), device("e"), device("f")))
    assert sorted(free(first).values()) == [25, 25, 40]
    places = first.plan.actions[0].places
    runs = tuple(device(name, *((gang,) if name in places else ())) for name in "def")
    second = decided(snapshot((), *runs, now_s=20.0), first.ledger)
    assert (second.ledger.grants[0].device_ids, second.ledger.grants[0].since_s) == (places, 10.0)


def test_without_a_clock_nothing_is_granted_to_be_remembered() -> None:
    seen = (window(0, 60, 9), window(60, 200, 9))
    found = decided(
        Snapshot(pending=(), devices=(device("d", job("a", 8)),), limits=EVERYTHING), usages=lambda _: in_order(seen)
    )
    assert [action.kind for action in found.plan.actions] == [KEEP]


# --- what was measured ------------------------------------------------------------------------------------------------


def test_measured_use_is_the_demand_where_nobody_knows_one_or_knew_less() -> None:
    known = resolver(profile("a", peak_bytes=6 * GIB), profile("b"))

    def granted(one: Job, used_gib: float) -> Action:
        uses = {(one.workload, DEVICE): used_gib * GIB, (one.workload, "other"): 99 * GIB}
        return decided(snapshot((one,), device("d")), resolve=Known(profiles=known, used_bytes=uses)).plan.actions[0]

    assert granted(job("b"), 9.1).reason.endswith("granted 10 GiB (5 granules) for 9.1 GiB (measured use)")
    assert granted(job("a"), 5).grant_bytes == 6 * GIB
    more = granted(job("a"), 9.1)
    assert more.reason.endswith("for 9.1 GiB (measured use, more than the 6 GiB known)")
    assert granted(job("a", 4), 9.1).grant_bytes == 4 * GIB  # who asks gets what it asks for
    nobody = decided(snapshot((job("b"),), device("d"))).plan.actions[0]
    assert nobody.reason.endswith("no grant: nobody knows its memory")


def test_what_was_measured_changes_nothing_where_no_memory_is_handed_out() -> None:
    knows = Known(profiles=PLAIN, used_bytes={("a", DEVICE): 50 * GIB})
    plain = Device(id="d", type=DEVICE, memory_bytes=80 * GIB, residents=(job("a"),))
    assert refused(job("a2"), plain, resolve=knows) == ""
    assert "grants:" in refused(job("a2"), replace(plain, granule_bytes=GIB), resolve=knows)


def window(start_s: float, end_s: float, gib: float, name: str = "a") -> MemoryUsage:
    return MemoryUsage(
        observation_id="o", job_id=name, workload=name[0], device_type=DEVICE, bytes=gib * GIB, start_s=start_s,
        end_s=end_s, device_id="",
    )  # fmt: skip


def kinds(
    allowed: set[ActionKind], *seen: MemoryUsage, residents: tuple[Job, ...] = (), **given_: object
) -> list[Action]:
    """What is told of residents, granted at 10 s, at 200 s."""
    residents = residents or (job("a", 8), job("b", 8))
    ledger = decided(snapshot((), device("d", *residents))).ledger
    limits = Limits(allowed=frozenset({WAIT, *allowed}))
    now = snapshot((), device("d", *residents), now_s=200.0, limits=limits, **given_)
    found = decided(now, ledger, usages=lambda grant: in_order(one for one in seen if one.job_id == grant.job_id))
    return list(found.plan.actions)


PAST = (window(10, 70, 9), window(70, 140, 9.1))


def test_who_is_past_its_grant_ends_where_that_is_allowed_and_is_warned_of_where_it_is_not() -> None:
    (end,) = kinds({END}, *PAST)
    assert (end.kind, end.job_id, end.device_id, end.grant_bytes) == (END, "a", "d", 8 * GIB)
    assert end.reason == "held 9.1 GiB of 8 GiB granted for 130 s"
    end, keep = kinds({END, KEEP}, *PAST)
    assert [(one.kind, one.job_id) for one in (end, keep)] == [(END, "a"), (KEEP, "b")]
    assert (keep.partner_id, keep.slowdown) == ("", 1.0)  # as the plan leaves it
    warned, calm = kinds({KEEP}, *PAST)
    assert warned.reason == "it stays where it is; warning: it held 9.1 GiB of 8 GiB granted for 130 s"
    assert calm.reason == "it stays where it is"
    assert kinds(set(), *PAST) == []


def test_of_two_past_their_grants_the_less_important_ends_and_the_other_is_warned_of() -> None:
    seen = (*PAST, window(10, 70, 20, "b"), window(70, 140, 20, "b"))
    assert [(one.kind, one.job_id) for one in kinds({END, KEEP}, *seen)] == [(END, "b"), (KEEP, "a")]
    protected = (job("a", 8), job("b", 8, priority=1))
    end, keep = kinds({END, KEEP}, *seen, residents=protected)
    assert (end.job_id, keep.job_id, "warning" in keep.reason) == ("a", "b", True)


measured = st.lists(
    st.builds(
        lambda at, size, gib, name: window(10.0 * at, 10.0 * (at + size), gib, name), st.integers(0, 15),
        st.integers(1, 9), st.sampled_from([7.0, 9.0, 12.0]), st.sampled_from("ab"),
    ),
    max_size=10,
)  # fmt: skip


@given(measured, st.integers(1, 6), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_a_larger_grant_never_ends_more_and_order_changes_nothing(
    seen: list[MemoryUsage], more_gib: int, rng: random.Random
) -> None:
    def ends(gib: float) -> list[str]:
        told = kinds({END}, *seen, residents=(job("a", 8), job("b", gib)))
        assert {one.kind for one in told} <= {END}
        return [one.job_id for one in told]

    before = ends(8)
    assert len(ends(8 + more_gib)) <= len(before) <= 1
    rng.shuffle(seen)
    assert ends(8) == before


def test_nobody_starts_beside_a_job_that_is_to_end() -> None:
    ledger = decided(snapshot((), device("d", job("a", 8)))).ledger
    limits = Limits(allowed=EVERYTHING.allowed - {KEEP})
    now = snapshot((job("b", 8),), device("d", job("a", 8)), now_s=200.0, limits=limits)
    calm = decided(now, ledger)
    assert [(one.kind, one.partner_id) for one in calm.plan.actions] == [(SHARED, "a")]
    plan_ = decided(now, ledger, usages=lambda _: in_order(PAST)).plan
    waits, end = plan_.actions
    assert (waits.kind, end.kind) == (WAIT, END)
    assert part_of(now, plan_, "b") is None  # nor is it explained as if it might have
    assert waits.reason == "every device is promised to others, or has a job that is to end"


# --- over time --------------------------------------------------------------------------------------------------------


class Cluster:
    """Three devices that hand out memory, jobs that use what they like, a scheduler that does some of what it hears."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        table = {(v, n): float(1 + self.rng.gamma(1.0, 0.6)) for v in NAMES for n in NAMES}
        facts: list[JobProfile] = [profile("a", peak_bytes=12 * GIB), profile("b"), profile("c", peak_bytes=31 * GIB)]
        self.predictor = TablePredictor(table)
        self.resolve = Known(profiles=resolver(*facts, profile("d")), used_bytes={("d", DEVICE): 17 * GIB})
        self.pending: list[Job] = []
        self.runs: dict[str, list[Job]] = {name: [] for name in "xyz"}
        self.ratio = {name: float(self.rng.choice([1.0, 1.25, 1.5])) for name in "xyz"}
        self.granule = {name: float(self.rng.choice([0.7, 2.0, 5.0])) for name in "xyz"}
        self.count, self.now_s = 0, 1000.0
        self.used: dict[str, list[MemoryUsage]] = {}

    def new(self) -> Job:
        rng = self.rng
        self.count += 1
        return Job(
            id=f"j{self.count}", workload=str(rng.choice(NAMES)), gpus=int(rng.choice([1, 1, 1, 2])),
            priority=int(rng.integers(0, 3)), remaining_s=float(rng.integers(1, 3000)), preemptible=True,
            checkpoint_s=float(rng.integers(0, 20)), since_s=math.nan,
            grant_bytes=float(rng.integers(1, 90)) * GIB if rng.random() < 0.5 else math.nan,
        )  # fmt: skip

    def step(self) -> None:
        """Jobs come, some started by others; jobs end; memory is measured; now and then a device is cut anew."""
        rng = self.rng
        self.pending += [self.new() for _ in range(int(rng.integers(0, 3)))]
        over = {one.id for jobs in self.runs.values() for one in jobs if rng.random() < 0.15}
        for jobs in self.runs.values():
            jobs[:] = [one for one in jobs if one.id not in over]
            if rng.random() < 0.1 and len(jobs) < 2:
                jobs.append(replace(self.new(), gpus=1, since_s=self.now_s))
            for one in jobs:
                most = one.grant_bytes if one.grant_bytes > 0 else 20 * GIB
                held = MemoryUsage(
                    observation_id="o", job_id=one.id, workload=one.workload, device_type=DEVICE,
                    bytes=most * rng.uniform(0.5, 1.5), start_s=self.now_s, end_s=self.now_s + 100,
                )  # fmt: skip
                self.used.setdefault(one.id, []).append(held)
        if rng.random() < 0.1:
            self.ratio[str(rng.choice(list("xyz")))] = float(rng.choice([1.0, 1.25, 1.5]))
        if rng.random() < 0.1:
            self.granule[str(rng.choice(list("xyz")))] = float(rng.choice([0.7, 2.0, 5.0]))
        self.now_s += 100.0

    def seen(self, limits: Limits) -> Snapshot:
        partial = bool(self.rng.random() < 0.2)
        names = [name for name in "xyz" if not partial or self.rng.random() < 0.7] or ["x"]
        return Snapshot(
            pending=tuple(self.pending), limits=limits, now_s=self.now_s, partial=partial,
            devices=tuple(
                device(name, *self.runs[name], ratio=self.ratio[name], granule_gib=self.granule[name]) for name in names
            ),
        )  # fmt: skip

    def apply(self, actions: tuple[Action, ...]) -> None:
        """Some of it."""
        jobs = {one.id: one for some in (self.pending, *self.runs.values()) for one in some}
        for action in sorted(actions, key=lambda one: one.kind in (ALONE, SHARED)):
            if self.rng.random() < 0.4 or action.kind in (WAIT, KEEP):
                continue
            if any(len(self.runs[name]) > 1 for name in action.places) and action.kind in (
                ALONE,
                SHARED,
                ActionKind.MOVE,
            ):
                continue
            for some in (self.pending, *self.runs.values()):
                some[:] = [one for one in some if one.id != action.job_id]
            if action.kind in (ALONE, SHARED, ActionKind.MOVE):
                for name in action.places:
                    self.runs[name].append(replace(jobs[action.job_id], since_s=self.now_s))


@given(st.integers(0, 1_000_000))
@settings(max_examples=40, deadline=None)
def test_whatever_happens_grants_fit_their_devices_and_only_who_is_past_its_grant_ends(seed: int) -> None:
    cluster, ledger = Cluster(seed), ScopeLedger(scope="default")
    for _ in range(10):
        cluster.step()
        allowed = frozenset(kind for kind in ActionKind if kind is WAIT or cluster.rng.random() < 0.8)
        limits = Limits(allowed=allowed, grant_patience_s=150.0, move_factor=1.0)
        seen = cluster.seen(limits)
        found = plan_scope(
            seen, ledger, cluster.predictor, cluster.resolve, "x",
            lambda grant: in_order(cluster.used.get(grant.job_id, ())),
        )  # fmt: skip
        # never more than there is
        assert all(left >= 0 for left in free(found).values())
        held = held_by(found.ledger)
        # whoever was promised a place on a device that hands out memory holds the grant it was told of
        told = {action.job_id: action for action in found.plan.actions}
        planned = {one.job_id: one.bytes for one in holdings(found.ledger) if one.planned}
        assert planned == {
            p.action.job_id: p.action.grant_bytes for p in found.ledger.promises if p.action.grant_bytes > 0
        }
        # each job holds in one place, at most once
        assert len({one.job_id for one in holdings(found.ledger)}) == len(holdings(found.ledger))
        # a grant is kept for as long as its job runs there
        kept = held_by(ledger)
        for name, grant in held.items():
            if name in kept and grant.since_s < seen.now_s and grant.device_ids == kept[name].device_ids:
                assert grant.bytes == kept[name].bytes
        # who ends has more than it was granted, and that is allowed
        ends = [action for action in found.plan.actions if action.kind is END]
        assert not ends or END in allowed
        for action in ends:
            assert max(one.bytes for one in cluster.used[action.job_id]) > held[action.job_id].bytes
        assert len({name for one in ends for name in one.places}) == sum(len(one.places) for one in ends)
        assert all(told[one.job_id] is one for one in ends)
        ledger = found.ledger
        cluster.apply(found.plan.actions)
    empty = tuple(device(name, ratio=cluster.ratio[name], granule_gib=cluster.granule[name]) for name in "xyz")
    after = decided(Snapshot(pending=(), devices=empty, now_s=cluster.now_s + 1), ledger)
    account = account_of(after.ledger)
    assert (after.ledger.grants, set(account.taken.values())) == ((), set())
