"""The laws of `interfere.store.protocol.Store`: subclass, give `open`, and every implementation is held to them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from interfere.errors import ConflictError
from interfere.records import (
    AcceptedDeadline,
    Action,
    ActionKind,
    DeviceSlots,
    Grant,
    JobProfile,
    KernelStat,
    MemoryUsage,
    Observation,
    ObservationResult,
    Outcome,
    OutcomeKind,
    Progress,
    Promise,
    Rollback,
    ScopeLedger,
)
from interfere.store.protocol import Account, Kept, Store, StoredDecision, StoredSnapshot
from interfere.store.rows import (
    grant_text,
    kind_of,
    observation_text,
    profile_text,
    promise_text,
    read_grant,
    read_observation,
    read_profile,
    read_promise,
    read_slots,
    slots_text,
)
from tests.wire import strategies as some

PROFILE = JobProfile(
    workload="w",
    device_type="t",
    step_time_s=0.1,
    busy_s=(0.1, 0.2),
    idle_s=(0.0, 0.3),
    kernels=(KernelStat(name="k", mean_s=0.1, grid=(1, 2)),),
)
ACCOUNT = Account(
    decision_id="d1", scope="s", request=b"\x00asked" * 99, answer=b"", model_version="m", learned_upto=7, facts="f"
)
OTHER = replace(PROFILE, step_time_s=0.2)
DECISION = StoredDecision(scope="s", snapshot_id="1", digest="d", content=b"\x00plan")


def window(observation_id: str, **given_: object) -> Progress:
    """A valid window."""
    values: dict[str, object] = {"steps": 5.0, "company": ("x",)} | given_
    return Progress(
        observation_id=observation_id, job_id="j", workload="w", device_type="t", start_s=0.0, end_s=9.0, **values
    )  # type: ignore[arg-type]


def append(store: Store, *observations: Observation) -> int:
    """Store them as applied."""
    return store.observations.append([Kept(observation=one) for one in observations], 1e9)


MEMORY = MemoryUsage(
    observation_id="m", job_id="j", workload="w", device_type="t", bytes=2.0**30, start_s=0.0, end_s=1.0
)
OUTCOME = Outcome(observation_id="o", job_id="j", kind=OutcomeKind.REFUSED, at_s=5.0, reason="no memory")
ROLLBACK = Rollback(observation_id="r", to_sequence=1, reason="a broken reporter")


def promise(job_id: str, *decision_ids: str) -> Promise:
    """A start beside another job."""
    action = Action(
        kind=ActionKind.START_SHARED,
        job_id=job_id,
        device_id="d",
        partner_id="r",
        slowdown=1.5,
        cost=0.5,
        reason="why",
        promised_by_s=120.0,
    )
    return Promise(action=action, decision_ids=decision_ids or ("d1",))


class StoreLaws:
    """Every test gets `open_store`: a new store the first time, the same one, reopened, after `close`."""

    @pytest.fixture
    def open_store(self) -> Iterator[Callable[[], Store]]:
        raise NotImplementedError

    def test_profiles_come_back_oldest_first_after_reopening(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        assert store.profiles.put([PROFILE, OTHER]) == (PROFILE.profile_id, OTHER.profile_id)
        store.close()
        assert list(map(repr, open_store().profiles.all())) == list(map(repr, (PROFILE, OTHER)))

    def test_a_profile_stored_again_is_the_newest(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.profiles.put([PROFILE, OTHER])
        store.profiles.put([PROFILE])
        assert [p.step_time_s for p in store.profiles.all()] == [0.2, 0.1]

    def test_observations_keep_their_order(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        append(store, window("b"), window("a"))
        append(store, window("0"))
        store.close()
        again = open_store().observations
        assert [e.observation.observation_id for e in again.entries()] == ["b", "a", "0"]
        assert again.counts() == {"progress": 3}

    def test_an_id_is_stored_once_and_a_refused_batch_leaves_nothing(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        append(store, window("a", steps=1.0))
        with pytest.raises(ConflictError):
            append(store, window("new"), window("a", steps=2.0))
        assert [(e.observation.observation_id, e.observation.steps) for e in store.observations.entries()] == [
            ("a", 1.0)
        ]

    def test_find_gives_the_stored_ones_of_many(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        append(store, *(window(str(k)) for k in range(1200)))
        found = store.observations.find(str(k) for k in range(600, 1800))
        assert sorted(map(int, found)) == list(range(600, 1200))
        assert observation_text(found["700"]) == observation_text(window("700"))
        assert store.observations.find([]) == {}

    def test_every_kind_comes_back_with_what_was_answered(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        kept = [
            Kept(observation=one, result=ObservationResult.QUARANTINED, reason="why")
            for one in (window("w"), MEMORY, OUTCOME, ROLLBACK)
        ]
        assert store.observations.append(kept, 7.0) == 4
        store.close()
        again = open_store().observations
        found = list(again.entries())
        assert [repr(e.observation) for e in found] == [repr(one.observation) for one in kept]
        assert {(e.result, e.reason, e.received_s) for e in found} == {(ObservationResult.QUARANTINED, "why", 7.0)}
        assert again.counts() == {"progress": 1, "memory_usage": 1, "outcome": 1, "rollback": 1}
        assert again.counts(upto=2) == {"progress": 1, "memory_usage": 1}
        assert (again.rollbacks(), again.rollbacks(upto=3)) == (((4, 1),), ())

    def test_parts_of_a_long_log(self, open_store: Callable[[], Store]) -> None:
        book = open_store().observations
        for start in range(0, 12_000, 4_000):
            book.append([Kept(observation=window(str(k))) for k in range(start, start + 4_000)], 0.0)
        part = [e.sequence for e in book.entries(after=3_000, upto=11_000)]
        assert part == list(range(3_001, 11_001))
        assert [e.sequence for e in book.newest(3, upto=100)] == [100, 99, 98]

    def test_what_a_decision_was_made_from_comes_back_by_its_id(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.accounts.put(ACCOUNT)
        store.accounts.put(replace(ACCOUNT, decision_id="d2", learned_upto=8))
        store.accounts.put(replace(ACCOUNT, learned_upto=9))  # told again: what it was made from stays
        store.close()
        again = open_store().accounts
        assert again.find("d1") == ACCOUNT
        assert again.find("d2") == replace(ACCOUNT, decision_id="d2", learned_upto=8)
        assert again.find("d3") is None

    def test_the_newest_snapshots_are_kept(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        for k in range(1, 6):
            store.snapshots.put(StoredSnapshot(sequence=k, key="k", content=bytes([k])))
        store.close()
        again = open_store().snapshots
        assert [(s.sequence, s.content) for s in again.find("k")] == [(5, b"\x05"), (4, b"\x04")]
        assert [s.sequence for s in again.find("k", upto=4)] == [4]
        assert list(again.find("other")) == []

    def test_decisions_come_back_by_scope_and_id(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.decisions.put(DECISION)
        store.decisions.put(replace(DECISION, scope="other", content=b"2"))
        store.close()
        again = open_store().decisions
        assert again.find("s", "1") == DECISION
        assert again.find("s", "2") is None
        with pytest.raises(ConflictError):
            again.put(replace(DECISION, content=b"3"))
        assert again.find("s", "1") == DECISION

    def test_what_is_promised_comes_back_in_its_order(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        assert store.promises.ledger("s") == ScopeLedger(scope="s")
        ledger = ScopeLedger(scope="s", now_s=5.0, promises=(promise("b"), promise("a")))
        assert store.promises.commit(ledger, DECISION)
        assert store.promises.commit(replace(ledger, scope="other", promises=()))
        store.close()
        again = open_store()
        assert repr(again.promises.ledger("s")) == repr(replace(ledger, revision=1))
        assert again.promises.ledger("other").promises == ()
        assert again.decisions.find("s", "1") == DECISION

    def test_a_ledger_is_written_only_by_who_read_the_newest(self, open_store: Callable[[], Store]) -> None:
        book = open_store().promises
        first = ScopeLedger(scope="s", promises=(promise("a"),))
        assert book.commit(first)
        assert not book.commit(replace(first, promises=(promise("b"),)))
        assert repr(book.ledger("s")) == repr(replace(first, revision=1))
        assert book.commit(replace(first, revision=1, promises=()))
        assert book.ledger("s").promises == ()

    def test_a_decision_that_cannot_be_stored_promises_nothing(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.decisions.put(DECISION)
        with pytest.raises(ConflictError):
            store.promises.commit(ScopeLedger(scope="s", promises=(promise("a"),)), DECISION)
        assert store.promises.ledger("s") == ScopeLedger(scope="s")

    def test_a_promise_is_released_by_any_decision_that_told_it(self, open_store: Callable[[], Store]) -> None:
        book = open_store().promises
        told = (promise("a", "d1", "d2"), promise("b", "d1", "d2"))
        book.commit(ScopeLedger(scope="s", promises=told))
        assert (book.release("a", "d3"), book.release("x", "d1"), book.ledger("s").revision) == (0, 0, 1)
        assert book.release("a", "d2") == 1
        assert [kept.action.job_id for kept in book.ledger("s").promises] == ["b"]
        assert not book.commit(ScopeLedger(scope="s", revision=1, promises=told))  # read before the release

    def test_accepted_deadlines_come_back_beside_promises_and_are_released_like_them(
        self, open_store: Callable[[], Store]
    ) -> None:
        store = open_store()
        accepted = tuple(AcceptedDeadline(job_id=name, deadline_s=9.0, decision_ids=("d1",)) for name in "ba")
        ledger = ScopeLedger(scope="s", promises=(promise("b"),), accepted_deadlines=accepted)
        assert store.promises.commit(ledger)
        store.close()
        book = open_store().promises
        assert repr(book.ledger("s")) == repr(replace(ledger, revision=1))
        assert (book.release("a", "d2"), book.release("a", "d1")) == (0, 1)
        assert book.ledger("s").accepted_deadlines == accepted[:1]
        assert book.release("b", "d1") == 2
        assert (book.ledger("s").promises, book.ledger("s").accepted_deadlines) == ((), ())

    def test_grants_come_back_with_the_ledger_and_go_with_it(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        grant = Grant(job_id="a", workload="w", device_ids=("d", "e"), bytes=4e9, since_s=5.0)
        slots = DeviceSlots(device_id="d", device_type="t", granules=40, granule_bytes=2e9, oversubscription_ratio=1.25)
        ledger = ScopeLedger(scope="s", now_s=5.0, promises=(promise("b"),), grants=(grant,), slots=(slots, slots))
        assert store.promises.commit(ledger)
        assert not store.promises.commit(replace(ledger, grants=()))
        store.close()
        book = open_store().promises
        assert repr(book.ledger("s")) == repr(replace(ledger, revision=1))
        assert book.ledger("other").grants == ()
        assert book.commit(replace(ledger, revision=1, grants=(), slots=()))
        assert (book.ledger("s").grants, book.ledger("s").slots) == ((), ())

    def test_usages_of_a_job_come_newest_first_whenever_they_were_told(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        ends = [5.0, 30.0, 1.0, *map(float, range(10, 30)), 5.0]
        append(store, window("w"), replace(MEMORY, observation_id="x", job_id="x", end_s=99.0))
        append(store, *(replace(MEMORY, observation_id=f"m{k}", end_s=end_s) for k, end_s in enumerate(ends)))
        store.close()
        book = open_store().observations
        assert [one.end_s for one in book.usages("j", after_s=0.0)] == sorted(ends, reverse=True)
        assert [one.end_s for one in book.usages("j", after_s=29.0)] == [30.0]
        assert list(book.usages("nobody", after_s=0.0)) == []

    def test_what_a_rollback_took_out_neither_counts_nor_teaches(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        assert store.observations.largest_uses() == {}
        append(store, replace(MEMORY, bytes=1.0))
        append(store, replace(MEMORY, observation_id="n", bytes=3.0), replace(MEMORY, observation_id="o", workload="v"))
        assert store.observations.largest_uses() == {("w", "t"): 3.0, ("v", "t"): MEMORY.bytes}
        append(store, ROLLBACK)
        append(store, replace(MEMORY, observation_id="p", bytes=2.0, device_type="u"))
        assert store.observations.largest_uses() == {("w", "t"): 1.0, ("w", "u"): 2.0}
        assert {one.observation_id for one in store.observations.usages("j", after_s=0.0)} == {"m", "p"}

    def test_closing_twice_is_no_error(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.close()
        store.close()


@given(some.profiles())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_profile_row_loses_nothing(profile: JobProfile) -> None:
    assert repr(read_profile(profile_text(profile))) == repr(profile)


@given(some.observations())
@settings(max_examples=100, deadline=None)
def test_an_observation_row_loses_nothing(one: Observation) -> None:
    assert repr(read_observation(kind_of(one), observation_text(one))) == repr(one)


@given(some.promises)
@settings(max_examples=50, deadline=None)
def test_a_promise_row_loses_nothing(one: Promise) -> None:
    assert repr(read_promise(promise_text(one))) == repr(one)


@given(some.grants, some.slots)
@settings(max_examples=50, deadline=None)
def test_grant_rows_lose_nothing(grant: Grant, slots: DeviceSlots) -> None:
    assert repr(read_grant(grant_text(grant))) == repr(grant)
    assert repr(read_slots(slots_text(slots))) == repr(slots)
