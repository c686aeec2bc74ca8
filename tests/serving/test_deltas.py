"""Changes of snapshots over gRPC: what is kept, what is stored, and what happens where the base is not there."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import ConflictError, NotFoundError
from interfere.records import Device, Job, Snapshot
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from interfere.wire import snapshots
from interfere.wire.converter import to_proto
from interfere.wire.snapshots import KnownSnapshots
from tests.models import DEVICE_TYPE, WORKLOADS
from tests.waiting import PATIENCE_S, wait_until

SIZE = 120  # devices: more than a server keeps no snapshot of


def snapshot(now_s: float, **given: Any) -> Snapshot:
    """Some jobs wait, and on every second device one runs."""
    values: dict[str, Any] = {
        "pending": tuple(Job(id=f"j-{name}", workload=name, elapsed_s=now_s) for name in WORKLOADS),
        "devices": tuple(
            Device(
                id=f"d{k}",
                type=DEVICE_TYPE,
                residents=(Job(id=f"r{k}", workload=WORKLOADS[k % 4], elapsed_s=now_s + k),) if k % 2 else (),
            )
            for k in range(SIZE)
        ),
        "now_s": now_s,
    }
    return Snapshot(**(values | given))


def watched(client: PolicyClient) -> list[pb.MatchRequest]:
    """The requests that a client sends from now on."""
    sent: list[pb.MatchRequest] = []
    ask = client._call

    def call(method: str, request: Any, **more: Any) -> Any:
        sent.extend([request] if method == "Match" else [])
        return ask(method, request, **more)

    client._call = call  # type: ignore[method-assign]
    return sent


def kinds(sent: list[pb.MatchRequest]) -> list[str]:
    """What each request was."""
    return ["delta" if request.HasField("delta") else "whole" for request in sent]


@pytest.fixture
def workers_server(serve: Callable[..., RunningServer], settings: Settings) -> RunningServer:
    """A server whose decisions are made by two worker processes."""
    return serve(replace(settings, decision_workers=2))


def test_the_second_snapshot_is_sent_as_changes(client: PolicyClient) -> None:
    sent = watched(client)
    client.match(snapshot(1.0))
    plan = client.match(snapshot(2.0))
    assert kinds(sent) == ["whole", "delta"]
    assert len(sent[1].devices) + len(sent[1].pending) == 0
    assert sent[1].times.elapsed_s
    assert len([action for action in plan.actions if action.places]) == len(WORKLOADS)
    (summary, _) = client.decisions().decisions
    assert (summary.pending, summary.devices) == (len(WORKLOADS), SIZE)


def test_a_small_snapshot_is_always_sent_whole(client: PolicyClient) -> None:
    sent = watched(client)
    for now_s in (1.0, 2.0):
        client.match(replace(snapshot(now_s), devices=snapshot(now_s).devices[:9]))
    assert kinds(sent) == ["whole", "whole"]


def test_one_worker_is_asked_about_a_scope_as_long_as_it_is_free(workers_server: RunningServer) -> None:
    workers = workers_server.workers
    assert workers is not None
    with PolicyClient(workers_server.address, timeout_s=PATIENCE_S) as client:
        sent = watched(client)
        for now_s in range(1, 5):
            for scope in ("a", "b", "c"):
                wait_until(lambda: workers.idle >= 2, "both workers are free")
                client.match(snapshot(float(now_s), scope=scope))
    assert kinds(sent) == ["whole"] * 3 + ["delta"] * 9


def test_a_snapshot_is_the_same_however_it_is_sent(client: PolicyClient, server: RunningServer) -> None:
    client.match(snapshot(1.0))
    sent = watched(client)
    told = client.match(snapshot(2.0, snapshot_id="s2"))
    assert kinds(sent) == ["delta"]
    with PolicyClient(server.address) as other:
        assert other.match(snapshot(2.0, snapshot_id="s2")) == told
        with pytest.raises(ConflictError, match="'s2'"):
            other.match(snapshot(2.5, snapshot_id="s2"))
    client.match(snapshot(3.0, snapshot_id="s3"))
    with pytest.raises(ConflictError, match="'s2'"):
        client.match(snapshot(4.0, snapshot_id="s2"))
    assert kinds(sent)[-1] == "delta"


def test_what_is_stored_of_a_delta_is_the_whole_snapshot(client: PolicyClient) -> None:
    client.match(snapshot(1.0))
    ended = tuple(replace(device, residents=()) if device.id == "d1" else device for device in snapshot(2.0).devices)
    plan = client.match(snapshot(2.0, devices=ended))
    state = client.scope()
    assert (len(state.devices), state.now_s) == (SIZE, 2.0)
    assert [job.job_id for job in state.devices[1].jobs if not job.planned] == []
    assert [job.job_id for job in state.devices[3].jobs if not job.planned] == ["r3"]
    explained = client.explain(plan.decision_id, plan.actions[0].job_id)
    assert (explained.action, explained.changed) == (plan.actions[0], ())


def test_after_a_restart_the_whole_is_sent_within_the_call(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    first = serve()
    with PolicyClient(first.address, timeout_s=PATIENCE_S) as client:
        sent = watched(client)
        client.match(snapshot(1.0))
        first.stop()
        serve(replace(settings, port=first.port))
        client.wait_ready()
        client.match(snapshot(2.0))
        client.match(snapshot(3.0))
    assert kinds(sent) == ["whole", "delta", "whole", "delta"]


def test_a_request_that_changes_an_unknown_snapshot_is_not_found(stub: Any, client: PolicyClient) -> None:
    request = to_proto(snapshot(1.0), pb.MatchRequest)
    request.delta.base_id = "unknown"
    with pytest.raises(NotFoundError, match="whole snapshot"):
        client._call("Match", request)


def test_contradictions_are_told_about_the_whole_snapshot(client: PolicyClient) -> None:
    client.match(snapshot(1.0))
    sent = watched(client)
    bad = snapshot(2.0)
    bad = replace(
        bad, devices=(*bad.devices[:60], replace(bad.devices[60], residents=bad.pending[:1]), *bad.devices[61:])
    )
    with pytest.raises(Exception, match=r"pending\[0\].id: repeats devices\[60\].residents\[0\].id"):
        client.match(bad)
    assert kinds(sent) == ["delta", "whole"]


def test_snapshots_are_kept_within_a_bound_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownSnapshots()
    received = known.read(to_proto(snapshot(1.0), pb.MatchRequest))
    monkeypatch.setattr(snapshots, "MAX_BYTES", 3 * len(received.content))
    scopes = [f"s{k}" for k in range(9)]
    ids = {scope: known.keep(known.read(to_proto(snapshot(1.0, scope=scope), pb.MatchRequest))) for scope in scopes}
    assert all(ids.values())
    assert known._bytes <= snapshots.MAX_BYTES
    kept = [scope for scope in scopes if (scope, ids[scope]) in known._kept]
    assert kept == scopes[-len(kept) :]
    assert 1 < len(kept) <= 3
    monkeypatch.setattr(snapshots, "MAX_BYTES", 10)
    assert known.keep(received) == ""


def test_two_snapshots_of_a_scope_are_kept(client: PolicyClient, server: RunningServer) -> None:
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as other:
        sent, sent_by_other = watched(client), watched(other)
        for now_s in range(1, 8, 2):
            client.match(snapshot(float(now_s)))
            other.match(snapshot(float(now_s + 1)))
    assert kinds(sent) == kinds(sent_by_other) == ["whole", "delta", "delta", "delta"]
