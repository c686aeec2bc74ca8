"""A row of the store loses nothing of the record that it holds."""

from hypothesis import given, settings

from interfere.records import DeviceSlots, Grant, JobProfile, Observation, Promise
from interfere.records.documents import from_json, to_json
from interfere.store.rows import promise_to_json
from tests.wire import strategies as some


@given(some.profiles())
@settings(max_examples=50)
def test_a_profile_row_loses_nothing(profile: JobProfile) -> None:
    assert repr(from_json(JobProfile, to_json(profile))) == repr(profile)


@given(some.observations())
@settings(max_examples=100)
def test_an_observation_row_loses_nothing(one: Observation) -> None:
    assert repr(from_json(type(one), to_json(one))) == repr(one)


@given(some.promises)
@settings(max_examples=50)
def test_a_promise_row_loses_nothing(one: Promise) -> None:
    assert repr(from_json(Promise, promise_to_json(one))) == repr(one)


@given(some.grants, some.slots)
@settings(max_examples=50)
def test_grant_rows_lose_nothing(grant: Grant, slots: DeviceSlots) -> None:
    assert repr(from_json(Grant, to_json(grant))) == repr(grant)
    assert repr(from_json(DeviceSlots, to_json(slots))) == repr(slots)
