"""Changes of snapshots, and times in columns: however a snapshot is sent, its records and its bytes are the same."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from interfere.errors import InvalidInputError
from interfere.records import NAN, Device, Job, Limits, Snapshot, Window
from interfere.v1 import policy_pb2 as pb
from interfere.wire.converter import from_proto, to_proto
from interfere.wire.job_times import NAMES, times_of
from interfere.wire.snapshots import ReceivedSnapshot, changes_since, read_snapshot
from tests.wire.test_converters import same


def of_base(base: ReceivedSnapshot) -> Callable[[str, str], ReceivedSnapshot]:
    return lambda scope, base_id: base


def no_base(scope: str, base_id: str) -> ReceivedSnapshot:
    raise AssertionError("a whole snapshot has no base")


def received(request: pb.MatchRequest) -> pb.MatchRequest:
    """The request as the server gets it."""
    return pb.MatchRequest.FromString(request.SerializeToString())


def whole(snapshot: Snapshot) -> ReceivedSnapshot:
    return read_snapshot(received(to_proto(snapshot, pb.MatchRequest)), no_base)


class Draw:
    """Random snapshots, each like the one before."""

    def __init__(self, seed: int) -> None:
        self._rng, self._names = random.Random(seed), 0

    def _time_s(self) -> float:
        return self._rng.choice((NAN, 0.0, self._rng.uniform(0.0, 1e6)))

    def job(self) -> Job:
        self._names += 1
        remaining_s = self._time_s()
        return Job(
            id=f"j{self._names}",
            workload=self._rng.choice(("gemm", "stream")),
            weight=self._rng.choice((1.0, 2.5)),
            remaining_s=remaining_s,
            attained_s=self._time_s(),
            elapsed_s=self._time_s(),
            remaining_p90_s=self._rng.choice((NAN, 2 * remaining_s)),
            pools=self._rng.choice(((), ("a", "b"))),
        )

    def device(self) -> Device:
        self._names += 1
        windows = self._rng.choice(((), (Window(from_s=1.0, until_s=2.0),)))
        residents = tuple(self.job() for _ in range(self._rng.randrange(3)))
        return Device(id=f"d{self._names}", type="v100", residents=residents, windows=windows)

    def aged(self, job: Job) -> Job:
        """The job with other times, and now and then with another fact."""
        rng = self._rng
        values: dict[str, Any] = {}
        if rng.random() < 0.5:
            values = {"elapsed_s": self._time_s(), "attained_s": self._time_s()}
            values["remaining_s"] = self._time_s()
            values["remaining_p90_s"] = rng.choice((NAN, 3 * values["remaining_s"]))
        if rng.random() < 0.1:
            values["weight"] = rng.uniform(0.5, 9.0)
        return replace(job, **values)

    def _edited(
        self, records: tuple[Any, ...], new: Callable[[], Any], change: Callable[[Any], Any]
    ) -> tuple[Any, ...]:
        rng = self._rng
        result = [change(each) if rng.random() < 0.7 else each for each in records if rng.random() < 0.9]
        for _ in range(rng.randrange(3)):
            result.insert(rng.randrange(len(result) + 1), new())
        if rng.random() < 0.3:
            rng.shuffle(result)
        return tuple(result)

    def next(self, before: Snapshot) -> Snapshot:
        """The snapshot of the next round."""

        def changed(device: Device) -> Device:
            return replace(device, residents=self._edited(device.residents, self.job, self.aged))

        return replace(
            before,
            pending=self._edited(before.pending, self.job, self.aged),
            devices=self._edited(before.devices, self.device, changed),
            now_s=before.now_s + 60.0,
            limits=self._rng.choice((before.limits, Limits.of(max_slowdown=self._rng.uniform(1.0, 3.0)))),
            snapshot_id=self._rng.choice(("", "s")),
        )


def test_changes_make_the_same_snapshot_and_the_same_bytes_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interfere.wire.snapshots.MAX_CHANGED_SHARE", 2.0)
    deltas = 0
    for seed in range(60):
        draw = Draw(seed)
        snapshot = Snapshot(pending=(), devices=(), scope=f"scope {seed}", now_s=0.0)
        known = whole(snapshot)
        for _ in range(5):
            base, snapshot = snapshot, draw.next(snapshot)
            request = changes_since(base, "base", snapshot)
            assert request is not None
            deltas += 1
            read = read_snapshot(received(request), of_base(known))
            assert same(read.snapshot, snapshot)
            assert read.content == whole(snapshot).content
            assert same(from_proto(Snapshot, pb.MatchRequest.FromString(read.content)), snapshot)
            known = read
    assert deltas == 300


def test_only_what_changed_is_sent() -> None:
    draw = Draw(1)
    base = Snapshot(
        pending=tuple(draw.job() for _ in range(20)), devices=tuple(draw.device() for _ in range(200)), now_s=0.0
    )
    job, device = draw.job(), replace(base.devices[7], pool="x")
    snapshot = replace(
        base,
        pending=(*base.pending[1:], job),
        devices=(*base.devices[:7], device, *base.devices[8:-1]),
        now_s=5.0,
    )
    request = changes_since(base, "base", snapshot)
    assert request is not None
    assert [each.id for each in request.pending] == [job.id]
    assert [each.id for each in request.devices] == [device.id]
    assert list(request.delta.removed_pending) == [base.pending[0].id]
    assert list(request.delta.removed_devices) == [base.devices[-1].id]
    assert not request.delta.pending_order
    assert not request.delta.device_order
    assert not request.HasField("times")
    assert request.ByteSize() < to_proto(snapshot, pb.MatchRequest).ByteSize() / 20


def test_where_ids_repeat_or_most_changed_the_whole_is_sent() -> None:
    draw = Draw(2)
    base = Snapshot(pending=(), devices=tuple(draw.device() for _ in range(20)), now_s=0.0)
    assert changes_since(base, "base", replace(base, devices=(*base.devices, base.devices[0]))) is None
    assert changes_since(base, "base", replace(base, pending=(draw.job(),) * 2)) is None
    assert changes_since(base, "base", replace(base, devices=tuple(draw.device() for _ in range(20)))) is None


def test_a_whole_request_may_have_its_times_in_columns() -> None:
    draw = Draw(3)
    snapshot = Snapshot(pending=(draw.job(),), devices=tuple(draw.device() for _ in range(9)), now_s=0.0)
    jobs = [*snapshot.pending, *(job for device in snapshot.devices for job in device.residents)]
    other = [replace(job, **dict.fromkeys(NAMES, 7.0)) for job in jobs]
    request = to_proto(snapshot, pb.MatchRequest)
    request.times.CopyFrom(times_of(other))
    read = read_snapshot(received(request), no_base)
    assert {getattr(job, name) for job in read.snapshot.devices[0].residents for name in NAMES} <= {7.0}
    assert read.content == whole(read.snapshot).content


BASE = Snapshot(
    pending=(Job(id="j", workload="gemm"),),
    devices=(Device(id="d", type="t"), Device(id="e", type="t", residents=(Job(id="r", workload="gemm"),))),
)
DEVICE = pb.Device(id="d", type="t")
REFUSED: dict[str, tuple[pb.MatchRequest, str]] = {
    "a removed job that is not there": (pb.MatchRequest(delta=pb.MatchDelta(removed_pending=["x"])), "removed_pending"),
    "a removed device that is not there": (
        pb.MatchRequest(delta=pb.MatchDelta(removed_devices=["j"])),
        "delta.removed_devices",
    ),
    "a device sent twice": (pb.MatchRequest(delta=pb.MatchDelta(), devices=[DEVICE, DEVICE]), "devices"),
    "an order that lacks one": (pb.MatchRequest(delta=pb.MatchDelta(device_order=[0])), "delta.device_order"),
    "an order with one twice": (pb.MatchRequest(delta=pb.MatchDelta(device_order=[0, 0])), "delta.device_order"),
    "an order beyond the end": (pb.MatchRequest(delta=pb.MatchDelta(pending_order=[1])), "delta.pending_order"),
    "a column that is too short": (
        pb.MatchRequest(delta=pb.MatchDelta(), times=pb.JobTimes(elapsed_s=b"1")),
        "times.elapsed_s",
    ),
    "a negative time": (
        pb.MatchRequest(delta=pb.MatchDelta(), times=pb.JobTimes(elapsed_s=np.array([1.0, -1.0]).tobytes())),
        "devices[1].residents[0].elapsed_s",
    ),
    "an endless time": (
        pb.MatchRequest(delta=pb.MatchDelta(), times=pb.JobTimes(attained_s=np.array([np.inf, 0.0]).tobytes())),
        "pending[0].attained_s",
    ),
    "a quantile below its median": (
        pb.MatchRequest(
            delta=pb.MatchDelta(),
            times=pb.JobTimes(
                remaining_s=np.array([2.0, 2.0]).tobytes(), remaining_p90_s=np.array([3.0, 1.0]).tobytes()
            ),
        ),
        "devices[1].residents[0].remaining_p90_s",
    ),
    "a quantile without a median": (
        pb.MatchRequest(delta=pb.MatchDelta(), times=pb.JobTimes(remaining_p90_s=np.array([3.0, np.nan]).tobytes())),
        "pending[0].remaining_p90_s",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_broken_changes_are_refused_with_their_path(case: str) -> None:
    request, field = REFUSED[case]
    with pytest.raises(InvalidInputError) as refused:
        read_snapshot(received(request), of_base(whole(BASE)))
    assert field in refused.value.violations[0].field


def test_a_removed_job_that_is_sent_again_comes_last() -> None:
    base = replace(BASE, pending=(*BASE.pending, Job(id="k", workload="gemm")))
    request = pb.MatchRequest(pending=[pb.Job(id="j", workload="stream")], delta=pb.MatchDelta(removed_pending=["j"]))
    read = read_snapshot(request, of_base(whole(base)))
    assert [(job.id, job.workload) for job in read.snapshot.pending] == [("k", "gemm"), ("j", "stream")]


def test_a_delta_alone_is_no_snapshot() -> None:
    with pytest.raises(InvalidInputError, match="base"):
        from_proto(Snapshot, pb.MatchRequest(delta=pb.MatchDelta(base_id="x")))
