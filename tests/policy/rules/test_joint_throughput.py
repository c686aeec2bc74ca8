"""Pairs that do no more together than one after the other, worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interfere.errors import InvalidInputError
from interfere.policy.rules.group_rules import does_not_pay
from interfere.records import ActionKind, Device, Job, Limits, Plan, RuleKind, Snapshot
from tests.tables import DEVICE, TablePredictor, context, plan, profile, resolver

RESOLVE = resolver(profile("a"), profile("b"))
EMPTY, OCCUPIED = Device(id="d", type=DEVICE), Device(id="d", type=DEVICE, residents=(Job(id="r", workload="b"),))
WAITING = (Job(id="x", workload="a"), Job(id="y", workload="b"))
slowdowns = st.floats(0.5, 50.0)


def decided(ahead: float, back: float, device: Device, **limits: float) -> Plan:
    predictor = TablePredictor({("a", "b"): ahead, ("b", "a"): back, ("a", "a"): 9.0, ("b", "b"): 9.0})
    pending = WAITING if device is EMPTY else WAITING[:1]
    snapshot = Snapshot(pending=pending, devices=(device,), limits=Limits.of(**limits))
    return plan(context(snapshot, predictor, RESOLVE, "d"))


@pytest.mark.parametrize("device", [EMPTY, OCCUPIED], ids=["both wait", "one runs"])
@pytest.mark.parametrize(
    ("ahead", "back", "limits", "shares"),
    [
        (1.7, 1.7, {}, True),  # 1.18
        (1.9, 1.9, {}, False),  # 1.05
        (1.9, 1.9, {"min_joint_throughput": 1.0}, True),
        (2.0, 2.0, {"min_joint_throughput": 1.0}, False),  # taking turns does as much
        (1.25, 3.0, {}, False),  # 0.8 + 0.33
        (1.25, 2.8, {}, True),
        (3.0, 3.0, {"min_joint_throughput": 0.0}, True),
        (3.0, 3.0, {"min_joint_throughput": 0.6}, True),
        (1.5, 1.5, {"min_joint_throughput": 1.4}, False),
    ],
)
def test_a_pair_shares_only_where_it_does_more_than_one_after_the_other(
    device: Device, ahead: float, back: float, limits: dict[str, float], shares: bool
) -> None:
    actions = decided(ahead, back, device, **limits).actions
    assert (ActionKind.START_SHARED in {action.kind for action in actions}) is shares


def test_the_refusal_has_the_numbers() -> None:
    (refusal,) = decided(2.0, 4.0, OCCUPIED).refused
    assert refusal.rule is not None
    assert refusal.rule.kind is RuleKind.JOINT_THROUGHPUT
    assert refusal.reason == (
        "joint throughput: together they do 0.75 (2.00 × for x, 4.00 × for r), one after the other does 1, "
        "sharing has to do more than 1.15"
    )
    (refusal,) = decided(2.0, 4.0, OCCUPIED, min_joint_throughput=1.0).refused
    assert refusal.reason.endswith("one after the other does 1")


@given(slowdowns, slowdowns, st.floats(0.0, 3.0), st.floats(0.0, 3.0))
def test_a_larger_limit_forbids_no_less(ahead: float, back: float, one: float, other: float) -> None:
    pair = np.array([ahead]), np.array([back])
    low, high = sorted((one, other))
    assert does_not_pay(pair, low) <= does_not_pay(pair, high)
    assert does_not_pay(pair, low) == does_not_pay(pair[::-1], low)


def test_an_unknown_slowdown_is_not_judged_and_a_negative_limit_is_refused() -> None:
    assert not does_not_pay((np.array([np.nan]), np.array([9.0])), 1.0)[0]
    with pytest.raises(InvalidInputError, match="min_joint_throughput"):
        Limits.of(min_joint_throughput=-0.1)
