"""Grants of running jobs: kept while the job runs, and free again when it is gone."""

from dataclasses import replace

from interfere.policy.context import ProfileLookup
from interfere.policy.decide import ScopeDecision, decide
from interfere.policy.ledger.grants import all_grants
from interfere.policy.rules.memory import device_slots
from interfere.records import (
    Action,
    ActionKind,
    Grant,
    Job,
    Limits,
    MemoryUsage,
    Promise,
    ScopeLedger,
    SlotRange,
    Snapshot,
)
from tests.policy.grant_cases import (
    ALONE,
    END,
    EVERYTHING,
    GIB,
    KEEP,
    NAMES,
    PLAIN,
    SHARED,
    WAIT,
    decided,
    device,
    free,
    job,
    latest_first,
    snapshot,
    window,
)
from tests.tables import DEVICE, TablePredictor, context


def test_starts_hold_their_grant_and_keep_it_while_they_run() -> None:
    first = decided(snapshot((job("a", 7),), device("d", job("b", 3))))
    (start,) = first.plan.actions
    assert (start.kind, start.grant_bytes, start.partner_id) == (SHARED, 8 * GIB, "b")
    assert start.reason.endswith("; granted 8 GiB (4 granules) for 7 GiB (grant)")
    assert [(one.job_id, one.bytes, one.planned, one.since_s) for one in all_grants(first.ledger)] == [
        ("b", 4 * GIB, False, 10.0),
        ("a", 8 * GIB, True, 10.0),
    ]
    assert free(first) == {"d": 34}
    runs = snapshot((), device("d", job("b"), job("a")), now_s=20.0, limits=EVERYTHING)
    second = decided(runs, first.ledger)
    assert [(one.job_id, one.bytes, one.planned, one.since_s) for one in all_grants(second.ledger)] == [
        ("a", 8 * GIB, False, 10.0),
        ("b", 4 * GIB, False, 10.0),
    ]
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


def test_granules_of_a_planned_start_are_not_granted_to_a_resident_that_asks_for_more() -> None:
    ledger = decided(snapshot((job("b", 30),), device("d", job("a", 30)))).ledger
    asks = snapshot((job("b", 30),), device("d", job("a", 52)), now_s=20.0)
    assert {one.job_id: one.bytes / GIB for one in all_grants(decided(asks, ledger).ledger)} == {"a": 30, "b": 30}


def test_a_mover_holds_its_grant_at_its_destination_or_where_it_was_should_it_stay() -> None:
    old = {"remaining_s": 1e5, "preemptible": True, "checkpoint_s": 1.0, "since_s": 0.0, "grant_bytes": 30 * GIB}
    pair = tuple(Job(id=name, workload=name, **old) for name in "ab")  # type: ignore[arg-type]
    slow = TablePredictor({(v, n): 2.0 for v in NAMES for n in NAMES})

    late: list[MemoryUsage] = []

    def at(now_s: float, ledger: ScopeLedger, allowed: frozenset[ActionKind]) -> ScopeDecision:
        seen = snapshot((), device("d", *pair), device("e"), now_s=now_s, limits=Limits(allowed=allowed))
        return decide(context(seen, slow, PLAIN, "x"), ledger, lambda _: latest_first(late))

    stay = EVERYTHING.allowed - {ActionKind.MOVE, ActionKind.PREEMPT}
    first = at(500.0, ScopeLedger(scope="default"), stay)
    moving = at(510.0, first.ledger, EVERYTHING.allowed)
    (move,) = (action for action in moving.plan.actions if action.kind is ActionKind.MOVE)
    late += [window(500, 570, 33, move.job_id), window(570, 640, 33, move.job_id)]
    assert (move.device_id, move.grant_bytes) == ("e", 30 * GIB)
    assert (free(first), free(moving)) == ({"d": 10, "e": 40}, {"d": 25, "e": 25})
    assert [one.kind for one in at(620.0, moving.ledger, EVERYTHING.allowed).plan.actions if one.kind is END] == []
    stayed = at(640.0, moving.ledger, stay)
    assert free(stayed) == {"d": 10, "e": 40}
    assert {(one.job_id, one.since_s) for one in all_grants(stayed.ledger)} == {("a", 500.0), ("b", 500.0)}
    assert [one.job_id for one in stayed.plan.actions if one.kind is END] == [move.job_id]


def test_a_mover_frees_its_granules_and_keeps_its_grant_should_it_stay() -> None:
    def told(kind: ActionKind, name: str, place: str) -> Action:
        return Action(kind=kind, job_id=name, device_id=place, promised_by_s=120.0, grant_bytes=60 * GIB)

    promises = (
        Promise(action=told(ActionKind.MOVE, "a", "e"), decision_ids=("x",), from_device_id="d", since_s=9.0),
        Promise(action=told(ALONE, "c", "d"), decision_ids=("x",), since_s=9.0),
    )
    held = (SlotRange(device_id="d", first=10, last=39),)
    grant = Grant(job_id="a", workload="a", device_ids=("d",), bytes=60 * GIB, since_s=5.0, slots=held)
    slots = tuple(device_slots(device(name)) for name in "de")
    ledger = ScopeLedger(scope="default", now_s=9.0, promises=promises, grants=(grant,), slots=slots)
    still = decided(snapshot((job("c", 60),), device("d", job("a")), device("e")), ledger)
    assert (still.ledger.grants, free(still)) == ((grant,), {"d": 10, "e": 10})
    stays = decided(snapshot((job("c", 60),), device("d", job("a")), now_s=130.0), still.ledger)
    assert (stays.ledger.grants, free(stays)) == ((grant,), {"d": 10})


def test_a_job_started_beyond_the_granules_holds_no_grant() -> None:
    found = decided(snapshot((), device("d", job("a", 50), job("b", 50)), limits=EVERYTHING))
    assert [grant.job_id for grant in found.ledger.grants] == ["a"]
    older = job("b", 50, since_s=5.0)
    found = decided(snapshot((), device("d", job("a", 50, since_s=6.0), older), limits=EVERYTHING))
    assert [grant.job_id for grant in found.ledger.grants] == ["b"]
    nobody_knows = decided(snapshot((), device("d", job("a"))))
    assert (all_grants(nobody_knows.ledger), free(nobody_knows)) == ((), {"d": 40})


def test_a_job_that_came_with_unknown_memory_is_never_held_to_what_it_used_so_far() -> None:
    used = ProfileLookup(profiles=PLAIN, used_bytes={("a", DEVICE): 2 * GIB})
    late = (window(20, 90, 9), window(90, 190, 9))
    unknown = decided(snapshot((job("a"),), device("d")))
    for ledger in (unknown.ledger, decided(snapshot((), device("d", job("a")))).ledger):
        runs = snapshot((), device("d", job("a")), now_s=20.0, limits=EVERYTHING)
        found = decided(runs, ledger, resolve=used)
        assert all_grants(found.ledger) == ()
        later = decided(replace(runs, now_s=200.0), found.ledger, resolve=used, usages=lambda _: latest_first(late))
        assert [action.kind for action in later.plan.actions] == [KEEP]
        asks = decided(replace(runs, now_s=210.0, devices=(device("d", job("a", 8)),)), later.ledger, resolve=used)
        assert [one.bytes for one in all_grants(asks.ledger)] == [8 * GIB]
    fresh = decided(snapshot((), device("d", job("a"))), resolve=used)
    assert [one.bytes for one in all_grants(fresh.ledger)] == [2 * GIB]  # a later one of its workload


def test_a_device_with_fewer_granules_releases_planned_starts() -> None:
    ledger = decided(snapshot((job("a", 30),), device("d", job("b", 30)))).ledger
    found = decided(snapshot((job("a", 30),), device("d", job("b", 30), granule_gib=25), now_s=20.0), ledger)
    assert [(one.promise.action.job_id, one.reason) for one in found.promises.released] == [
        ("a", "its device grants less memory now")
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
        Grant(
            job_id="a",
            workload="b",
            device_ids=("d",),
            bytes=30 * GIB,
            since_s=20.0,
            slots=(SlotRange(device_id="d", first=0, last=14),),
        ),
    )


def test_a_gang_holds_its_grant_on_each_of_its_devices() -> None:
    gang = job("a", 30, gpus=2)
    first = decided(snapshot((gang,), device("d"), device("e"), device("f")))
    assert sorted(free(first).values()) == [25, 25, 40]
    places = first.plan.actions[0].places
    runs = tuple(device(name, *((gang,) if name in places else ())) for name in "def")
    second = decided(snapshot((), *runs, now_s=20.0), first.ledger)
    assert (second.ledger.grants[0].device_ids, second.ledger.grants[0].since_s) == (places, 10.0)


def test_without_a_clock_no_grant_is_kept() -> None:
    seen = (window(0, 60, 9), window(60, 200, 9))
    found = decided(
        Snapshot(pending=(), devices=(device("d", job("a", 8)),), limits=EVERYTHING),
        usages=lambda _: latest_first(seen),
    )
    assert [action.kind for action in found.plan.actions] == [KEEP]
