"""Guests that would outlast their host, worked out by hand: a beside b 2 ×, b beside a 1.5 ×."""

import math

import numpy as np
import pytest

from interfere.policy.answer.ranking import rank
from interfere.policy.answer.starts import MAX_REFUSALS
from interfere.policy.rules.group_rules import outlasts
from interfere.records import Action, ActionKind, Device, Job, Limits, Snapshot
from tests.tables import DEVICE, TablePredictor, catalogue, context, plan, profile, resolver

PREDICTOR = TablePredictor({("a", "b"): 2.0, ("b", "a"): 1.5, ("a", "a"): 3.0, ("b", "b"): 3.0})
RESOLVE = resolver(profile("a"), profile("b"))
RULE = Limits(guest_ends_first=True)


def decided(guest_s: float, host_s: float, limits: Limits = RULE) -> Action:
    host = Job(id="host", workload="b", remaining_s=host_s)
    snapshot = Snapshot(
        pending=(Job(id="guest", workload="a", remaining_s=guest_s),),
        devices=(Device(id="d", type=DEVICE, residents=(host,)),),
        limits=limits,
    )
    return plan(context(snapshot, PREDICTOR, RESOLVE, "d")).actions[0]


@pytest.mark.parametrize(
    ("guest_s", "host_s", "joins"),
    [(60, 80, True), (61, 80, False), (30, 80, True), (math.nan, 1, True), (1e6, math.nan, True)],
)
def test_a_guest_must_end_first(guest_s: float, host_s: float, joins: bool) -> None:
    """60 s at 2 × end with 80 s at 1.5 ×; who does not say is not judged; without the rule everybody joins."""
    kind = ActionKind.START_SHARED if joins else ActionKind.WAIT
    assert decided(guest_s, host_s).kind is kind
    assert decided(guest_s, host_s, Limits()).kind is ActionKind.START_SHARED


def test_the_reason_has_the_numbers() -> None:
    host = Job(id="host", workload="b", remaining_s=80.0)
    guest = Job(id="guest", workload="a", remaining_s=1800.0)
    device = Device(id="d", type=DEVICE, residents=(host,))
    found = plan(context(Snapshot(pending=(guest,), devices=(device,), limits=RULE), PREDICTOR, RESOLVE, "d"))
    assert found.refused[0].reason == "guest_ends_first: guest would run 1 h here, host ends after 2 min"
    assert "guest_ends_first (1 pair)" in found.actions[0].reason
    (ranked,) = rank(guest, [device], PREDICTOR, catalogue(RESOLVE), RULE)
    assert (ranked.feasible, ranked.reason) == (False, found.refused[0].reason)
    assert len(found.refused) <= MAX_REFUSALS


def test_two_that_start_together_are_no_guests() -> None:
    jobs = (Job(id="x", workload="a", remaining_s=1.0), Job(id="y", workload="b", remaining_s=1e6))
    snapshot = Snapshot(pending=jobs, devices=(Device(id="d", type=DEVICE),), limits=RULE)
    kinds = {action.kind for action in plan(context(snapshot, PREDICTOR, RESOLVE, "d")).actions}
    assert kinds == {ActionKind.START_SHARED}


def test_a_gang_counts_as_one() -> None:
    from interfere.policy.solve.planner import plan_pending_jobs

    host = Job(id="host", workload="b", gpus=2, remaining_s=80.0)
    devices = tuple(Device(id=name, type=DEVICE, residents=(host,)) for name in "de")
    for guest_s, kind in ((60.0, ActionKind.START_SHARED), (61.0, ActionKind.WAIT)):
        pending = (Job(id="guest", workload="a", gpus=2, remaining_s=guest_s),)
        found = plan_pending_jobs(
            context(Snapshot(pending=pending, devices=devices, limits=RULE), PREDICTOR, RESOLVE, "d")
        )
        assert found.actions[0].kind is kind


def test_an_unknown_end_outlasts_nothing() -> None:
    assert outlasts(np.array([1.0, 2.0, np.nan]), np.array([1.0, 1.0, 1.0])).tolist() == [False, True, False]
