"""Migrations worked by hand: a leave, a join, a swap and a preemption, and the seconds that they save."""

import math
from dataclasses import replace

from interfere.policy.answer.ranking import rank
from interfere.policy.decide import decide
from interfere.records import (
    ActionKind,
    Device,
    Job,
    Limits,
    ObjectiveKind,
    ScopeLedger,
    Snapshot,
    SolveStatus,
)
from tests.policy.migration_clusters import MOVES, NOW_S
from tests.tables import DEVICE, TablePredictor, catalogue, context, profile, resolver


def pair(one: Job, other: Job, *empty: str, factor: float = 2.0, **given_: object) -> Snapshot:
    devices = (Device(id="d", type=DEVICE, residents=(one, other)), *(Device(id=name, type=DEVICE) for name in empty))
    limits = Limits(allowed=MOVES, move_factor=factor)
    return Snapshot(pending=(), devices=devices, now_s=NOW_S, limits=limits, **given_)


def old(name: str, **given_: object) -> Job:
    values: dict[str, object] = {"remaining_s": 100.0, "preemptible": True, "checkpoint_s": 20.0, "since_s": 0.0}
    return Job(id=name, workload=name[0], **(values | given_))  # type: ignore[arg-type]


TABLE = TablePredictor({("a", "b"): 1.5, ("b", "a"): 1.2, ("a", "a"): 1.0, ("b", "b"): 3.0})
KNOWN = resolver(profile("a"), profile("b"))


def moved(snapshot: Snapshot) -> dict[str, str]:
    found = decide(context(snapshot, TABLE, KNOWN, "x"), ScopeLedger(scope="default")).plan
    return {action.job_id: action.device_id for action in found.actions if action.kind is ActionKind.MOVE}


def test_a_pair_is_separated_only_where_that_gains() -> None:
    # it saves 100 · (0.5 + 0.2) = 70 s and pays 20 s
    assert moved(pair(old("a"), old("b", preemptible=False), "e")) == {"a": "e"}
    assert moved(pair(old("a"), old("b", preemptible=False), "e", factor=3.6)) == {}
    assert moved(pair(old("a", checkpoint_s=30.0), old("b"), "e")) == {"b": "e"}  # the cheaper of the two
    assert moved(pair(old("a", checkpoint_s=40.0), old("b", checkpoint_s=40.0), "e")) == {}
    assert moved(pair(old("a"), old("b"))) == {}
    assert moved(pair(old("a", since_s=NOW_S - 119), old("b"), "e")) == {}
    assert moved(pair(old("a", checkpoint_s=math.nan), old("b", remaining_s=math.nan), "e")) == {}


def test_weights_do_not_count_where_the_objective_ignores_them() -> None:
    seen = pair(old("a", checkpoint_s=40.0), old("b", weight=9.0, preemptible=False), "e")
    assert moved(seen) == {"a": "e"}  # 100 · (0.5 + 9 · 0.2) > 2 · 40
    assert moved(replace(seen, objective=ObjectiveKind.COMPLETION_TIME)) == {}  # 100 · (0.5 + 0.2) < 2 · 40


def test_two_bad_pairs_swap_partners() -> None:
    devices = tuple(Device(id=f"d{k}", type=DEVICE, residents=(old(f"a{k}"), old(f"b{k}"))) for k in range(2))
    bad = TablePredictor({("a", "b"): 3.0, ("b", "a"): 3.0, ("a", "a"): 1.1, ("b", "b"): 1.1})
    seen = Snapshot(pending=(), devices=devices, now_s=NOW_S, limits=Limits(allowed=MOVES))
    found = decide(context(seen, bad, KNOWN, "x"), ScopeLedger(scope="default")).plan
    moves = {a.job_id: (a.device_id, a.partner_id) for a in found.actions if a.kind is ActionKind.MOVE}
    assert len(moves) == 2
    assert found.status is SolveStatus.BOUNDED
    for name, (_, partner) in moves.items():
        assert partner[0] == name[0]


def test_a_mover_makes_room_for_one_that_waits() -> None:
    shared = TablePredictor({("a", "a"): 1.1, ("a", "b"): 9.0, ("b", "a"): 9.0, ("b", "b"): 9.0})
    devices = tuple(Device(id=f"d{k}", type=DEVICE, residents=(old(f"a{k}"),)) for k in range(2))
    waits = Job(id="b", workload="b", max_slowdown=2.0)
    seen = Snapshot(pending=(waits,), devices=devices, now_s=NOW_S, limits=Limits(allowed=MOVES))
    found = decide(context(seen, shared, KNOWN, "x"), ScopeLedger(scope="default")).plan
    start, move, keep = found.actions
    assert (start.kind, move.kind, keep.kind) == (ActionKind.START_ALONE, ActionKind.MOVE, ActionKind.KEEP)
    assert (move.device_id, move.partner_id) == (keep.device_id, keep.job_id)
    assert start.device_id not in (move.device_id, "")
    assert start.reason == f"{move.job_id} moves and leaves its device"
    # 100 s · 1 saved, 100 · 0.2 lost, 20 paid: with a factor of 4 exactly not
    dear = replace(seen, limits=Limits(allowed=MOVES, move_factor=4.0))
    assert (
        decide(context(dear, shared, KNOWN, "x"), ScopeLedger(scope="default")).plan.actions[0].kind is ActionKind.WAIT
    )


def test_the_cheapest_resident_of_lowest_priority_is_preempted_and_that_is_repeated_until_it_stops() -> None:
    apart = TablePredictor({(v, n): 9.0 for v in "ab" for n in "ab"})
    residents = (
        old("a0", priority=1, checkpoint_s=1.0),
        old("a1", checkpoint_s=9.0),
        old("a2", checkpoint_s=5.0),
        old("a3", checkpoint_s=1.0, preemptible=False),
    )
    devices = tuple(Device(id=f"d{k}", type=DEVICE, residents=(one,)) for k, one in enumerate(residents))
    limits = Limits.of(allowed=frozenset(ActionKind), max_slowdown=1.5)
    seen = Snapshot(pending=(Job(id="b", workload="b", priority=1),), devices=devices, now_s=NOW_S, limits=limits)

    def ask(snapshot: Snapshot, ledger: ScopeLedger) -> tuple[dict[str, tuple[str, str]], ScopeLedger]:
        found = decide(context(snapshot, apart, KNOWN, "x"), ledger)
        return {a.job_id: (a.kind, a.device_id) for a in found.plan.actions}, found.ledger

    told, ledger = ask(seen, ScopeLedger(scope="default"))
    assert told["b"] == ("start_alone", "d2")
    assert told["a2"] == ("preempt", "d2")
    assert {told[name][0] for name in ("a0", "a1", "a3")} == {"keep"}
    again, ledger = ask(replace(seen, now_s=NOW_S + 1), ledger)
    assert again == told
    half = replace(devices[2], residents=())
    queue = (*seen.pending, replace(residents[2], since_s=math.nan))
    stopped = replace(seen, pending=queue, devices=(*devices[:2], half, devices[3]), now_s=NOW_S + 2)
    then, ledger = ask(stopped, ledger)
    assert (then["b"], then["a2"]) == (("start_alone", "d2"), ("wait", ""))
    refused = replace(ledger, promises=tuple(p for p in ledger.promises if p.action.job_id == "b"))
    taken, _ = ask(replace(seen, now_s=NOW_S + 3), refused)  # a2 was not stopped after all: nothing holds its place
    assert taken == told


def test_no_resident_is_preempted_for_an_equal_priority_or_if_it_soon_ends() -> None:
    apart = TablePredictor({(v, n): 9.0 for v in "ab" for n in "ab"})
    limits = Limits.of(allowed=frozenset(ActionKind), max_slowdown=1.5)

    def kinds(one: Job, priority: int) -> set[ActionKind]:
        device = Device(id="d", type=DEVICE, residents=(one,))
        waits = Job(id="b", workload="b", priority=priority)
        seen = Snapshot(pending=(waits,), devices=(device,), now_s=NOW_S, limits=limits)
        actions = decide(context(seen, apart, KNOWN, "x"), ScopeLedger(scope="default")).plan.actions
        return {action.kind for action in actions if action.job_id == "a"}

    assert kinds(old("a"), 1) == {ActionKind.PREEMPT}
    assert kinds(old("a", priority=1), 1) == {ActionKind.KEEP}
    assert kinds(old("a", remaining_s=4.0), 1) == {ActionKind.KEEP}  # 10 · 4 s are not more than 2 · 20 s
    assert kinds(old("a", since_s=NOW_S - 1.0), 1) == {ActionKind.KEEP}


def test_the_device_of_a_mover_is_not_offered_to_other_jobs() -> None:
    seen = pair(old("a"), old("b", preemptible=False), "e")
    found = decide(context(seen, TABLE, KNOWN, "x"), ScopeLedger(scope="default"))
    ranked = rank(
        Job(id="new", workload="a"), seen.devices, TABLE, catalogue(KNOWN), Limits(), promises=found.ledger.promises
    )
    assert {one.device_id: one.feasible for one in ranked} == {"d": False, "e": False}
    (reason,) = (one.reason for one in ranked if one.device_id == "e")
    assert reason == "promised to a by decision x"
