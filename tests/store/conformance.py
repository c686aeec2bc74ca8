"""The laws of `interfere.store.protocol.Store`: subclass, give `open`, and every implementation is held to them."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from interfere.errors import ConflictError
from interfere.records import JobProfile, KernelStat, Progress
from interfere.store.protocol import Store, StoredDecision
from interfere.store.rows import profile_text, read_profile, read_window, window_text
from tests.client import strategies as some

PROFILE = JobProfile(
    workload="w", device_type="t", step_time_s=0.1, busy_s=(0.1, 0.2), idle_s=(0.0, 0.3),
    kernels=(KernelStat(name="k", mean_s=0.1, grid=(1, 2)),),
)  # fmt: skip
OTHER = replace(PROFILE, step_time_s=0.2)
DECISION = StoredDecision(scope="s", snapshot_id="1", digest="d", content=b"\x00plan")


def window(observation_id: str, **given_: object) -> Progress:
    """A valid window."""
    values: dict[str, object] = {"steps": 5.0, "company": ("x",)} | given_
    return Progress(
        observation_id=observation_id, job_id="j", workload="w", device_type="t", start_s=0.0, end_s=9.0, **values
    )  # type: ignore[arg-type]  # fmt: skip


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
        store.observations.append([window("b"), window("a")])
        store.observations.append([window("0")])
        store.close()
        again = open_store().observations
        assert [w.observation_id for w in again.all()] == ["b", "a", "0"]
        assert again.count() == 3

    def test_an_id_is_stored_once_and_a_refused_batch_leaves_nothing(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.observations.append([window("a", steps=1.0)])
        with pytest.raises(ConflictError):
            store.observations.append([window("new"), window("a", steps=2.0)])
        assert [(w.observation_id, w.steps) for w in store.observations.all()] == [("a", 1.0)]

    def test_find_gives_the_stored_ones_of_many(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.observations.append([window(str(k)) for k in range(1200)])
        found = store.observations.find(str(k) for k in range(600, 1800))
        assert sorted(map(int, found)) == list(range(600, 1200))
        assert window_text(found["700"]) == window_text(window("700"))
        assert store.observations.find([]) == {}

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

    def test_closing_twice_is_no_error(self, open_store: Callable[[], Store]) -> None:
        store = open_store()
        store.close()
        store.close()


@given(some.profiles())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_profile_row_loses_nothing(profile: JobProfile) -> None:
    assert repr(read_profile(profile_text(profile))) == repr(profile)


@given(some.windows())
@settings(max_examples=50, deadline=None)
def test_a_window_row_loses_nothing(one: Progress) -> None:
    assert repr(read_window(window_text(one))) == repr(one)
