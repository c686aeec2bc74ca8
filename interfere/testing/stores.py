"""The laws of every store: what it returns was on disk, in its order, once; reopened, it reads as it was left."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from interfere.errors import ConflictError
from interfere.records import (
    AcceptedDeadline,
    Action,
    ActionKind,
    DeviceSlots,
    EndPromise,
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
from interfere.records.documents import to_json
from interfere.store.rows import DecisionAudit, NewObservation, StateCheckpoint, StoredDecision
from interfere.store.store import Store

PROFILE = JobProfile(
    workload="w",
    device_type="t",
    step_time_s=0.1,
    busy_s=(0.1, 0.2),
    idle_s=(0.0, 0.3),
    kernels=(KernelStat(name="k", mean_s=0.1, grid=(1, 2)),),
)
AUDIT = DecisionAudit(
    decision_id="d1",
    scope="s",
    request=b"\x00asked" * 99,
    answer=b"",
    model_version="m",
    learned_up_to=7,
    facts_digest="f",
)
OTHER = replace(PROFILE, step_time_s=0.2)
DECISION = StoredDecision(scope="s", snapshot_id="1", digest="d", content=b"\x00plan")


def window(observation_id: str, **given_: Any) -> Progress:
    """A valid progress window."""
    values: dict[str, Any] = {"steps": 5.0, "company": ("x",)} | given_
    return Progress(
        observation_id=observation_id, job_id="j", workload="w", device_type="t", start_s=0.0, end_s=9.0, **values
    )


def append(store: Store, *observations: Observation) -> int:
    """Append the observations with the answer `applied`."""
    return store.observations.append([NewObservation(observation=one) for one in observations], 1e9)


MEMORY = MemoryUsage(
    observation_id="m", job_id="j", workload="w", device_type="t", bytes=2.0**30, start_s=0.0, end_s=1.0
)
OUTCOME = Outcome(observation_id="o", job_id="j", kind=OutcomeKind.REFUSED, at_s=5.0, reason="no memory")
ROLLBACK = Rollback(observation_id="r", to_sequence=1, reason="a broken reporter")


def promise(job_id: str, *decision_ids: str) -> Promise:
    """The promise of a shared start."""
    action = Action(
        kind=ActionKind.START_SHARED,
        job_id=job_id,
        device_id="d",
        partner_id="r",
        slowdown=1.5,
        cost=0.5,
        reason="why",
        promised_by_s=120.0,
        partner_ids=("r", "s") if job_id == "group" else (),
        partner_slowdowns=(1.5, 1.25) if job_id == "group" else (),
    )
    return Promise(action=action, decision_ids=decision_ids or ("d1",))


class StoreLaws:
    """`open_store()` gives a new store at the first call, and later the same one, reopened after `close`."""

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

    def test_the_content_of_a_known_profile_is_not_read_again(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.profiles.put([PROFILE, OTHER])
        (known, nothing), (unknown, profile) = store.profiles.read({PROFILE.profile_id})
        assert (known, nothing, unknown) == (PROFILE.profile_id, None, OTHER.profile_id)
        assert repr(profile) == repr(OTHER)

    def test_observations_keep_their_order(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        append(store, window("b"), window("a"))
        append(store, window("0"))
        store.close()
        log = open_store().observations
        assert [e.observation.observation_id for e in log.entries()] == ["b", "a", "0"]
        assert log.counts() == {"progress": 3}

    def test_an_id_is_stored_once_and_a_refused_batch_leaves_nothing(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        append(store, window("a", steps=1.0))
        with pytest.raises(ConflictError):
            append(store, window("new"), window("a", steps=2.0))
        assert [to_json(entry.observation) for entry in store.observations.entries()] == [
            to_json(window("a", steps=1.0))
        ]

    def test_find_returns_the_stored_observations_among_many_ids(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        append(store, *(window(str(k)) for k in range(1200)))
        found = store.observations.find(str(k) for k in range(600, 1800))
        assert sorted(map(int, found)) == list(range(600, 1200))
        assert to_json(found["700"]) == to_json(window("700"))
        assert store.observations.find([]) == {}

    def test_every_kind_of_observation_comes_back_with_the_servers_answer(
        self, open_store: Callable[[], Store]
    ) -> None:
        store = open_store()
        kept = [
            NewObservation(observation=one, result=ObservationResult.QUARANTINED, reason="why")
            for one in (window("w"), MEMORY, OUTCOME, ROLLBACK)
        ]
        assert store.observations.append(kept, 7.0) == 4
        store.close()
        log = open_store().observations
        found = list(log.entries())
        assert [repr(e.observation) for e in found] == [repr(one.observation) for one in kept]
        assert {(e.result, e.reason, e.received_s) for e in found} == {(ObservationResult.QUARANTINED, "why", 7.0)}
        assert log.counts() == {"progress": 1, "memory_usage": 1, "outcome": 1, "rollback": 1}
        assert log.counts(up_to=2) == {"progress": 1, "memory_usage": 1}
        assert (log.rollbacks(), log.rollbacks(up_to=3)) == (((4, 1, ""),), ())
        assert log.rewrites() == ((4, 1),)

    def test_a_long_log_is_read_in_parts(self, open_store: Callable[[], Store]) -> None:
        log = open_store().observations
        for start in range(0, 12_000, 4_000):
            log.append([NewObservation(observation=window(str(k))) for k in range(start, start + 4_000)], 0.0)
        part = [e.sequence for e in log.entries(after=3_000, up_to=11_000)]
        assert part == list(range(3_001, 11_001))
        assert [e.sequence for e in log.newest(3, up_to=100)] == [100, 99, 98]

    def test_the_audit_of_a_decision_comes_back_by_its_id(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.audits.put(AUDIT)
        store.audits.put(replace(AUDIT, decision_id="d2", learned_up_to=8))
        store.audits.put(replace(AUDIT, learned_up_to=9))  # stored again: the first one stays
        store.close()
        audits = open_store().audits
        assert audits.find("d1") == AUDIT
        assert audits.find("d2") == replace(AUDIT, decision_id="d2", learned_up_to=8)
        assert audits.find("d3") is None

    def test_only_the_newest_checkpoints_are_kept(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        for k in range(1, 8):
            store.checkpoints.put(StateCheckpoint(sequence=k, key="k", content=bytes([k])))
        store.close()
        checkpoints = open_store().checkpoints
        assert [(s.sequence, s.content) for s in checkpoints.find("k")] == [(k, bytes([k])) for k in (7, 6, 5, 4)]
        assert [s.sequence for s in checkpoints.find("k", up_to=5)] == [5, 4]
        assert list(checkpoints.find("other")) == []

    def test_decisions_come_back_by_scope_and_id(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.decisions.put(DECISION)
        store.decisions.put(replace(DECISION, scope="other", content=b"2"))
        store.close()
        decisions = open_store().decisions
        assert decisions.find("s", "1") == DECISION
        assert decisions.find("s", "2") is None
        with pytest.raises(ConflictError):
            decisions.put(replace(DECISION, content=b"3"))
        assert decisions.find("s", "1") == DECISION

    def test_promises_come_back_in_their_order(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        assert store.ledgers.read("s") == ScopeLedger(scope="s")
        ledger = ScopeLedger(
            scope="s",
            now_s=5.0,
            promises=(promise("b"), promise("group"), promise("a")),
            end_promises=(EndPromise(job_id="z", latest_end_s=7.5), EndPromise(job_id="b", latest_end_s=9.0)),
            planned_order=("b", "z", "a"),
        )
        assert store.ledgers.commit(ledger, DECISION)
        assert store.ledgers.commit(replace(ledger, scope="other", promises=()))
        store.close()
        reopened = open_store()
        assert repr(reopened.ledgers.read("s")) == repr(replace(ledger, revision=1))
        assert reopened.ledgers.read("other").promises == ()
        assert reopened.decisions.find("s", "1") == DECISION

    def test_a_ledger_based_on_an_old_revision_is_not_written(self, open_store: Callable[[], Store]) -> None:
        ledgers = open_store().ledgers
        first = ScopeLedger(scope="s", promises=(promise("a"),))
        assert ledgers.commit(first)
        assert not ledgers.commit(replace(first, promises=(promise("b"),)))
        assert repr(ledgers.read("s")) == repr(replace(first, revision=1))
        assert ledgers.commit(replace(first, revision=1, promises=()))
        assert ledgers.read("s").promises == ()

    def test_a_decision_that_cannot_be_stored_leaves_the_ledger_unchanged(
        self, open_store: Callable[[], Store]
    ) -> None:
        store = open_store()
        store.decisions.put(DECISION)
        with pytest.raises(ConflictError):
            store.ledgers.commit(ScopeLedger(scope="s", promises=(promise("a"),)), DECISION)
        assert store.ledgers.read("s") == ScopeLedger(scope="s")

    def test_a_promise_is_released_by_every_decision_that_made_or_repeated_it(
        self, open_store: Callable[[], Store]
    ) -> None:
        ledgers = open_store().ledgers
        promises = (promise("a", "d1", "d2"), promise("b", "d1", "d2"))
        ledgers.commit(ScopeLedger(scope="s", promises=promises))
        assert (
            ledgers.release_promises("a", "d3", deadlines=True),
            ledgers.release_promises("x", "d1", deadlines=True),
            ledgers.read("s").revision,
        ) == ((), (), 1)
        assert ledgers.release_promises("a", "d2", deadlines=False) == promises[:1]
        assert [kept.action.job_id for kept in ledgers.read("s").promises] == ["b"]
        assert not ledgers.commit(ScopeLedger(scope="s", revision=1, promises=promises))  # read before the release

    def test_accepted_deadlines_are_read_beside_promises_and_released_like_them(
        self, open_store: Callable[[], Store]
    ) -> None:
        store = open_store()
        accepted = tuple(AcceptedDeadline(job_id=name, deadline_s=9.0, decision_ids=("d1",)) for name in "ba")
        ledger = ScopeLedger(scope="s", promises=(promise("b"),), accepted_deadlines=accepted)
        assert store.ledgers.commit(ledger)
        store.close()
        ledgers = open_store().ledgers
        assert repr(ledgers.read("s")) == repr(replace(ledger, revision=1))
        released = [ledgers.release_promises("a", decision, deadlines=True) for decision in ("d2", "d1")]
        assert released == [(), accepted[1:]]
        assert ledgers.read("s").accepted_deadlines == accepted[:1]
        assert len(ledgers.release_promises("b", "d1", deadlines=False)) == 1
        assert (ledgers.read("s").promises, ledgers.read("s").accepted_deadlines) == ((), accepted[:1])
        assert ledgers.release_promises("b", "d1", deadlines=True) == accepted[:1]
        assert ledgers.read("s").accepted_deadlines == ()

    def test_a_scope_that_is_reset_begins_anew_and_others_stay(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        for scope in ("s", "t"):
            assert store.ledgers.commit(ScopeLedger(scope=scope, now_s=9.0, promises=(promise("a"),)))
        store.decisions.put(DECISION)
        forgotten = store.ledgers.reset("s")
        assert forgotten is not None
        assert (forgotten.now_s, len(forgotten.promises)) == (9.0, 1)
        assert store.ledgers.read("s") == ScopeLedger(scope="s")
        assert store.ledgers.read("t").revision == 1
        assert store.decisions.find(DECISION.scope, DECISION.snapshot_id) is None
        assert store.ledgers.reset("s") is None

    def test_grants_are_read_and_replaced_with_the_ledger(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        grant = Grant(job_id="a", workload="w", device_ids=("d", "e"), bytes=4e9, since_s=5.0)
        slots = DeviceSlots(device_id="d", device_type="t", granules=40, granule_bytes=2e9, oversubscription_ratio=1.25)
        ledger = ScopeLedger(scope="s", now_s=5.0, promises=(promise("b"),), grants=(grant,), slots=(slots, slots))
        assert store.ledgers.commit(ledger)
        assert not store.ledgers.commit(replace(ledger, grants=()))
        store.close()
        ledgers = open_store().ledgers
        assert repr(ledgers.read("s")) == repr(replace(ledger, revision=1))
        assert ledgers.read("other").grants == ()
        assert ledgers.commit(replace(ledger, revision=1, grants=(), slots=()))
        assert (ledgers.read("s").grants, ledgers.read("s").slots) == ((), ())

    def test_memory_usages_of_a_job_come_latest_end_first_in_whatever_order_they_were_reported(
        self, open_store: Callable[[], Store]
    ) -> None:
        store = open_store()
        ends = [5.0, 30.0, 1.0, *map(float, range(10, 30)), 5.0]
        append(store, window("w"), replace(MEMORY, observation_id="x", job_id="x", end_s=99.0))
        append(store, *(replace(MEMORY, observation_id=f"m{k}", end_s=end_s) for k, end_s in enumerate(ends)))
        store.close()
        log = open_store().observations
        assert [one.end_s for one in log.memory_usages("j", after_s=0.0)] == sorted(ends, reverse=True)
        assert [one.end_s for one in log.memory_usages("j", after_s=29.0)] == [30.0]
        assert list(log.memory_usages("nobody", after_s=0.0)) == []

    def test_memory_usages_that_were_rolled_back_do_not_count(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        assert store.observations.largest_memory_usages() == {}
        append(store, replace(MEMORY, bytes=1.0))
        append(store, replace(MEMORY, observation_id="n", bytes=3.0), replace(MEMORY, observation_id="o", workload="v"))
        assert store.observations.largest_memory_usages() == {("w", "t"): 3.0, ("v", "t"): MEMORY.bytes}
        append(store, ROLLBACK)
        append(store, replace(MEMORY, observation_id="p", bytes=2.0, device_type="u"))
        assert store.observations.largest_memory_usages() == {("w", "t"): 1.0, ("w", "u"): 2.0}
        assert {one.observation_id for one in store.observations.memory_usages("j", after_s=0.0)} == {"m", "p"}

    def test_closing_twice_is_no_error(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.close()
        store.close()
