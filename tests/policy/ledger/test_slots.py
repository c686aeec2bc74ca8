"""Slots: numbers that no two grants share, kept while a job runs, and taken again once they are free."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from interfere.policy.ledger.grants import all_grants, with_grants
from interfere.policy.ledger.slots import SlotAccount
from interfere.records import ActionKind, DeviceSlots, Grant, ScopeLedger, SlotRange
from tests.policy.grant_cases import ALONE, GIB, KEEP, PREDICTOR, SHARED, decided, device, job, snapshot
from tests.tables import context, profile, resolver

SIZES = {"d": 40, "e": 25, "f": 1}
RESOLVE = resolver(*(profile(name) for name in "abcd"))


def account(sizes: dict[str, int] = SIZES) -> SlotAccount:
    made = (
        DeviceSlots(device_id=name, device_type="t", granules=size, granule_bytes=GIB, oversubscription_ratio=1.0)
        for name, size in sizes.items()
    )
    return SlotAccount(slots={one.device_id: one for one in made})


def grant(name: str, gib: float, *places: str, slots: tuple[SlotRange, ...] | None = None) -> Grant:
    return Grant(job_id=name, workload="w", device_ids=places or ("d",), bytes=gib * GIB, slots=slots)


def numbers(slots: tuple[SlotRange, ...] | None, device_id: str = "d") -> list[int]:
    """The slots of a device, one by one."""
    return [k for each in slots or () if each.device_id == device_id for k in range(each.first, each.last + 1)]


def text(slots: tuple[SlotRange, ...] | None) -> str:
    return " ".join(f"{each.device_id}:{each.text}" for each in slots or ())


@given(st.integers(0, 1_000_000))
@settings(max_examples=100, deadline=None)
def test_no_slot_has_two_holders_and_grants_fit_wherever_enough_slots_are_free(seed: int) -> None:
    rng, held, free = Random(seed), dict[str, Grant](), account()
    for k in range(40):
        if held and rng.random() < 0.4:
            free.give_back(held.pop(rng.choice(sorted(held))))
        places = tuple(rng.sample(sorted(SIZES), rng.randint(1, 2)))
        asked = grant(f"j{k}", rng.randint(1, 20), *places)
        room = {name: size - free.taken.get(name, 0) for name, size in SIZES.items()}
        taken = free.take(asked)
        # 1. It fits exactly where every device has as many free slots.
        assert (taken is not None) == all(room[name] >= asked.bytes / GIB for name in places)
        if taken is None:
            assert free.overcommitted
            continue
        held[taken.job_id] = taken
        for name, size in SIZES.items():
            used = [n for one in held.values() for n in numbers(one.slots, name)]
            # 2. No slot twice, none that the device has not, and as many as all grants come to.
            assert len(used) == len(set(used)) == free.taken.get(name, 0)
            assert not used or (min(used) >= 0 and max(used) < size)
            assert len(numbers(taken.slots, name)) == (asked.bytes / GIB if name in places else 0)
    # 3. Another account that is told of the same grants, in any order, gives each the same numbers.
    again = account()
    told = sorted(held.values(), key=lambda _: rng.random())
    assert {one.job_id: one for one in again.take_all(told)} == held


def test_freed_slots_are_the_next_to_be_taken_and_one_range_goes_before_several() -> None:
    free = account()
    first, second, third = (free.take(grant(name, 10)) for name in "abc")
    assert [text(one.slots) for one in (first, second, third) if one] == ["d:0-9", "d:10-19", "d:20-29"]
    assert second is not None
    free.give_back(second)
    assert text(free.take(grant("d", 4)).slots) == "d:10-13"  # type: ignore[union-attr]
    assert text(free.take(grant("e", 8)).slots) == "d:30-37"  # type: ignore[union-attr]
    assert text(free.take(grant("f", 7)).slots) == "d:14-19 d:38"  # type: ignore[union-attr]
    assert free.take(grant("g", 2)) is None
    assert free.overcommitted == {"d"}
    assert text(free.take(grant("h", 1)).slots) == "d:39"  # type: ignore[union-attr]


def test_a_grant_keeps_its_numbers_before_others_take_new_ones() -> None:
    old = (SlotRange(device_id="d", first=4, last=7),)
    new, kept = account().take_all([grant("a", 6), grant("b", 4, slots=old)])
    assert (text(new.slots), text(kept.slots)) == ("d:8-13", "d:4-7")
    more, less = (account().take(grant("b", gib, slots=old)) for gib in (6, 2))
    assert more is not None
    assert less is not None
    assert (text(more.slots), text(less.slots)) == ("d:0-1 d:4-7", "d:4-5")
    smaller = account({"d": 6}).take(grant("b", 4, slots=old))  # the device lost slots: numbers that it has not go
    assert smaller is not None
    assert text(smaller.slots) == "d:0-1 d:4-5"


def test_starts_and_residents_are_told_their_slots_and_keep_them_while_they_run() -> None:
    first = decided(snapshot((job("a", 7),), device("d", job("b", 3))))
    assert [(one.kind, text(one.slots)) for one in first.plan.actions] == [(SHARED, "d:2-5")]
    assert {one.job_id: text(one.slots) for one in all_grants(first.ledger)} == {"b": "d:0-1", "a": "d:2-5"}
    limits = replace(snapshot(()).limits, allowed=frozenset(ActionKind))
    runs = decided(snapshot((), device("d", job("b"), job("a")), now_s=20.0, limits=limits), first.ledger)
    assert {one.job_id: (one.kind, text(one.slots)) for one in runs.plan.actions} == {
        "b": (KEEP, "d:0-1"),
        "a": (KEEP, "d:2-5"),
    }
    # b is gone: its slots are the next that a new job takes, and a keeps its own.
    after = decided(snapshot((job("c", 4),), device("d", job("a")), now_s=30.0), runs.ledger)
    assert {one.job_id: text(one.slots) for one in all_grants(after.ledger)} == {"a": "d:2-5", "c": "d:0-1"}
    # The promise is repeated with the same slots.
    again = decided(snapshot((job("c", 4),), device("d", job("a")), now_s=31.0), after.ledger)
    assert [text(one.slots) for one in again.plan.actions] == ["d:0-1"]


def test_a_gang_has_slots_on_each_of_its_devices() -> None:
    found = decided(snapshot((job("a", 30, gpus=2),), device("d", job("b", 3)), device("e"), device("f")))
    (start,) = found.plan.actions
    assert (start.kind, text(start.slots)) == (ALONE, "e:0-14 f:0-14")


def test_grants_of_an_older_version_get_numbers_at_the_next_decision() -> None:
    ledger = decided(snapshot((job("a", 7),), device("d", job("b", 3)))).ledger
    (promise,) = ledger.promises
    bare = replace(
        ledger,
        grants=tuple(replace(one, slots=None) for one in ledger.grants),
        promises=(replace(promise, action=replace(promise.action, slots=None)),),
    )
    found = decided(snapshot((job("a", 7),), device("d", job("b")), now_s=20.0), bare)
    assert {one.job_id: text(one.slots) for one in all_grants(found.ledger)} == {"a": "d:0-3", "b": "d:4-5"}
    assert [text(one.slots) for one in found.plan.actions] == ["d:0-3"]


def test_a_start_for_which_too_few_slots_are_free_holds_no_grant() -> None:
    seen = snapshot((job("a", 70),), device("d"))
    full = ScopeLedger(
        scope="default",
        grants=(grant("b", 20),),
        slots=decided(snapshot((), device("d"))).ledger.slots,
    )
    (start,) = decided(seen).plan.actions
    (told,) = with_grants(
        [replace(start, slots=None, grant_bytes=float("nan"))], context(seen, PREDICTOR, RESOLVE, "x"), full
    )
    assert told.reason.endswith("no grant: too few slots are free")
    assert told.slots is None
