"""Devices that name no sharing mode: the one that the model knows for their type is taken, and told."""

from dataclasses import replace

import pytest

from interfere.policy.context import assumed_mode
from interfere.policy.decide import decide
from interfere.records import Action, ActionKind, Device, Job, Plan, ScopeLedger, Snapshot
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, to_proto
from tests.tables import DEVICE, TablePredictor, context, profile, resolver

RESIDENT = Job(id="r", workload="a")


class ModePredictor(TablePredictor):
    """Knows pairs in some sharing modes of some device types only."""

    def __init__(self, *modes: str) -> None:
        super().__init__({("a", "a"): 1.2})
        self._modes = modes

    def knows(self, device_type: str, mode: str) -> str:
        return "" if device_type == DEVICE and mode in self._modes else f"never saw {device_type}/{mode}"


def decided(predictor: ModePredictor, **device: str) -> Action:
    return planned(predictor, **device).actions[0]


def planned(predictor: ModePredictor, **device: str) -> Plan:
    snapshot = Snapshot(
        pending=(Job(id="x", workload="a"),),
        devices=(Device(**{"id": "d", "type": DEVICE} | device, residents=(RESIDENT,)),),
    )
    known = resolver(profile("a"), profile("a", device_type="other"))
    return decide(context(snapshot, predictor, known), ScopeLedger(scope="default")).plan


def test_the_mode_that_the_model_knows_is_taken_and_told() -> None:
    action = decided(ModePredictor("mps"))
    assert action.kind is ActionKind.START_SHARED
    assert action.rule is not None
    assert action.rule.sharing_mode == "mps"
    assert action.reason.endswith("; sharing mode mps, for its device names none")


def test_a_mode_that_is_named_stands() -> None:
    assert decided(ModePredictor("mps"), mode="timeslice").kind is ActionKind.WAIT
    named = decided(ModePredictor("mps"), mode="mps")
    assert named.kind is ActionKind.START_SHARED
    assert "sharing mode" not in named.reason


@pytest.mark.parametrize(
    ("modes", "device_type", "mode"),
    [(("mps", "timeslice"), DEVICE, "timeslice"), (("mps",), "other", "timeslice"), ((), DEVICE, "timeslice")],
)
def test_time_slices_first_and_where_nothing_is_known(modes: tuple[str, ...], device_type: str, mode: str) -> None:
    assert assumed_mode(device_type, ModePredictor(*modes)) == mode


def test_a_refusal_names_the_mode_that_was_assumed() -> None:
    (refusal,) = planned(ModePredictor("mps"), type="other").refused
    assert "never saw other/timeslice" in refusal.reason


def test_a_mode_that_is_not_named_is_not_named_on_the_wire() -> None:
    device = Device(id="d", type="t")
    message = to_proto(device, pb.Device)
    assert message.mode == pb.SHARING_MODE_UNSPECIFIED
    assert from_proto(Device, message).mode == device.mode == ""
    assert from_proto(Device, to_proto(replace(device, mode="timeslice"), pb.Device)).mode == "timeslice"
