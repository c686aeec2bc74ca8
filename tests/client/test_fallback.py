"""With nobody at the other end: an error, or with a fallback the same records saying so."""

from dataclasses import replace

import pytest

from interfere.client import AloneFallback, PolicyClient
from interfere.errors import UnavailableError
from interfere.records import ActionKind, Device, Job, Limits, ObservationResult, Progress, Snapshot, Source
from tests.waiting import free_port

SNAPSHOT = Snapshot(
    pending=tuple(Job(id=f"j{k}", workload="w", memory_peak_bytes=bytes_) for k, bytes_ in enumerate((8e9, 1e9, 1e9))),
    devices=(
        Device(id="busy", type="t", residents=(Job(id="r", workload="w"),)),
        Device(id="small", type="t", memory_bytes=4e9),
        Device(id="big", type="t", memory_bytes=16e9),
    ),
)


@pytest.fixture
def nobody() -> str:
    """An address at which nobody listens."""
    return f"127.0.0.1:{free_port()}"


def test_without_a_fallback_it_raises(nobody: str) -> None:
    with PolicyClient(nobody, timeout_s=2) as client:
        for ask in (lambda: client.predict(["a", "b"]), client.model, lambda: client.match(SNAPSHOT)):
            with pytest.raises(UnavailableError, match="interfere serve"):
                ask()
        with pytest.raises(UnavailableError, match=r"no server within 0\.2 s"):
            client.wait_ready(0.2)


def test_jobs_start_alone_where_they_fit(nobody: str) -> None:
    with PolicyClient(nobody, timeout_s=2, fallback=AloneFallback()) as client:
        plan = client.match(SNAPSHOT)
        assert [(a.kind, a.device_id) for a in plan.actions] == [
            (ActionKind.START_ALONE, "big"),
            (ActionKind.START_ALONE, "small"),
            (ActionKind.WAIT, ""),
        ]
        said = "policy server unavailable: the policy server does not answer"
        assert [action.reason for action in plan.actions] == [f"{said}; a device is free"] * 2 + [said]
        assert plan.greedy_waiting == 1


@pytest.mark.parametrize(
    "limits", [Limits(max_devices=0), Limits(allowed=frozenset({ActionKind.WAIT, ActionKind.START_SHARED}))]
)
def test_limits_hold_for_the_fallback_too(nobody: str, limits: Limits) -> None:
    with PolicyClient(nobody, timeout_s=2, fallback=AloneFallback()) as client:
        plan = client.match(Snapshot(pending=SNAPSHOT.pending, devices=SNAPSHOT.devices, limits=limits))
        assert {action.kind for action in plan.actions} == {ActionKind.WAIT}


def test_predictions_abstain_ranks_are_empty_devices_and_windows_stay_undelivered(nobody: str) -> None:
    with PolicyClient(nobody, timeout_s=2, fallback=AloneFallback()) as client:
        answer = client.predict(["a", "b", "c"])
        assert len(answer.victim) == 6
        assert set(answer.prediction.source) == {Source.ABSTAINED}
        ranked = client.rank(SNAPSHOT.pending[0], SNAPSHOT.devices).rankings
        assert [(r.device_id, r.feasible) for r in ranked] == [("big", True), ("busy", False), ("small", False)]
        window = Progress(
            observation_id="o", job_id="j", workload="w", device_type="t", start_s=0, end_s=1, steps=3, company=()
        )
        (told,) = client.observe([window])
        assert told.result is ObservationResult.REJECTED
        assert "send it again" in told.reason


def test_what_a_job_asks_for_must_fit_what_a_device_may_hand_out() -> None:
    asks = Job(id="a", workload="w", grant_bytes=20e9)
    device = Device(id="d", type="t", memory_bytes=16e9, granule_bytes=1e9)
    error = UnavailableError("away")
    for ratio, kind in ((1.0, ActionKind.WAIT), (1.25, ActionKind.START_ALONE)):
        seen = Snapshot(pending=(asks,), devices=(replace(device, oversubscription_ratio=ratio),))
        assert [action.kind for action in AloneFallback().match(seen, error).actions] == [kind]
