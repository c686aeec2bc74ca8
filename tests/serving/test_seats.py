"""Seats over the wire: a decision about groups is answered, repeated, explained and ranked; a wrong one is refused."""

from dataclasses import replace

import pytest

from interfere.client import PolicyClient
from interfere.errors import InvalidInputError
from interfere.records import ActionKind, Device, Job, Limits, Snapshot
from interfere.records.documents import from_document
from interfere.wire.documents import decision_document
from tests.models import DEVICE_TYPE

GIB = 2.0**30
RESIDENTS = (Job(id="r1", workload="train"), Job(id="r2", workload="infer"))


def snapshot(seats: int | None = 4, **more: object) -> Snapshot:
    values: dict[str, object] = {
        "pending": (Job(id="j1", workload="stream"), Job(id="j2", workload="train")),
        "devices": (Device(id="d", type=DEVICE_TYPE, seats=seats, residents=RESIDENTS),),
        "now_s": 0.0,
    }
    return Snapshot(**(values | more))  # type: ignore[arg-type]


def test_jobs_join_two_residents_and_that_is_explained(client: PolicyClient) -> None:
    plan = client.match(snapshot())
    first, second = plan.actions
    assert (first.partner_ids, second.partner_ids) == (("r1", "r2", "j2"), ("r1", "r2", "j1"))
    assert all(slowdown > 1 for slowdown in first.partner_slowdowns)
    assert first.slowdown_lower < first.slowdown < first.slowdown_upper
    assert decision_document(plan)["actions"][0]["partner_ids"] == ["r1", "r2", "j2"]
    said = client.explain(plan.decision_id, "j1")
    victims = [(pair.victim_id, pair.neighbour_id) for pair in said.pairs]
    assert victims == [pair for other in first.partner_ids for pair in (("j1", other), (other, "j1"))]
    assert said.alternatives == ()


def test_two_seats_and_none_named_are_the_same(client: PolicyClient) -> None:
    for seats in (None, 2):
        plan = client.match(snapshot(seats, now_s=float("nan")))
        assert [action.places for action in plan.actions] == [(), ()]


def test_a_snapshot_with_seats_comes_from_json() -> None:
    document = {"pending": [{"id": "j", "workload": "train"}], "devices": [{"id": "d", "type": "t", "seats": 3}]}
    assert from_document(Snapshot, document).devices[0].seats == 3
    document["devices"] = [{"id": "d", "type": "t", "seats": "three"}]
    with pytest.raises(InvalidInputError, match="seats"):
        from_document(Snapshot, document)


def test_a_device_with_seats_is_ranked(client: PolicyClient) -> None:
    others = tuple(replace(job, id=f"{job.id}x") for job in RESIDENTS)
    devices = (*snapshot().devices, Device(id="e", type=DEVICE_TYPE, residents=others))
    ranked = client.rank(Job(id="j", workload="stream"), devices).rankings
    assert [(each.device_id, each.feasible) for each in ranked] == [("d", True), ("e", False)]


def test_guests_that_end_first_are_asked_for_with_any_number_of_seats(client: PolicyClient) -> None:
    residents = tuple(replace(job, remaining_s=100.0) for job in RESIDENTS)
    devices = (Device(id="d", type=DEVICE_TYPE, seats=4, residents=residents),)
    jobs = (Job(id="long", workload="stream", remaining_s=1e6), Job(id="short", workload="train", remaining_s=10.0))
    plan = client.match(snapshot(pending=jobs, devices=devices, limits=Limits.of(guest_ends_first=True)))
    assert [action.kind for action in plan.actions] == [ActionKind.WAIT, ActionKind.START_SHARED]


def test_too_many_seats_are_refused_and_the_server_goes_on(client: PolicyClient) -> None:
    with pytest.raises(InvalidInputError, match="seats"):
        client.match(snapshot(seats=49))
    assert client.match(snapshot()).actions


def test_a_decision_about_slots_of_grants_is_explained_as_one_about_groups(client: PolicyClient) -> None:
    memory = {"memory_peak_bytes": 4 * GIB}
    slots = Device(
        id="d",
        type=DEVICE_TYPE,
        memory_bytes=48 * GIB,
        granule_bytes=4 * GIB,
        residents=tuple(replace(job, **memory) for job in RESIDENTS),
    )
    pending = tuple(Job(id=f"j{k}", workload="stream", **memory) for k in range(2))
    plan = client.match(Snapshot(pending=pending, devices=(slots,), now_s=0.0))
    assert all(len(action.partner_ids) == 3 for action in plan.actions)
    assert {action.grant_bytes for action in plan.actions} == {4 * GIB}
    said = client.explain(plan.decision_id, "j1")
    assert len(said.pairs) == 6
    assert said.alternatives == ()
    (ranking,) = client.rank(Job(id="j9", workload="stream", **memory), (slots,)).rankings
    assert ranking.feasible
