"""One client cannot stop another: streams, abandoned decisions, refusals and a server that has to end."""

import ctypes
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import LimitError
from interfere.policy.context import PlanningContext
from interfere.policy.decide import ScopeDecision, decide
from interfere.records import Device, Job, ObjectiveKind, Snapshot
from interfere.serving import decisions
from interfere.serving.calls.interceptor import MAX_STREAMS_OF_CALLER
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from interfere.wire.converter import to_proto
from tests.models import DEVICE_TYPE, WORKLOADS
from tests.serving.test_server import in_flight, metrics_page, scrape
from tests.soak.processes import serve_command
from tests.waiting import PATIENCE_S, free_port, wait_until

HEALTH = health_pb2.HealthCheckRequest()
HARDEST = 1_400  # jobs: the most that a snapshot may hold of jobs that all differ


def hard_snapshot(scope: str = "hard", jobs: int = 800, budget_s: float = 10.0) -> Snapshot:
    """A makespan over distinct jobs on distinct devices: 7 CPU seconds for 800 jobs, where the budget lets them."""
    return Snapshot(
        scope=scope,
        pending=tuple(
            Job(id=f"j{k}", workload=WORKLOADS[k % 4], remaining_s=10.0 + 7.3 * k, weight=1.0 + k / 7)
            for k in range(jobs)
        ),
        devices=tuple(Device(id=f"d{k}", type=DEVICE_TYPE) for k in range(jobs // 3)),
        objective=ObjectiveKind.MAKESPAN,
        limits=Snapshot(pending=(), devices=()).limits.within(time_budget_s=budget_s),
    )


@contextmanager
def open_reflections(address: str, count: int) -> Iterator[list[Any]]:
    """So many reflection streams that were answered once and stay open."""
    over = threading.Event()

    def requests() -> Iterator[Any]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        over.wait()

    with ExitStack() as stack:
        streams = []
        for _ in range(count):
            channel = stack.enter_context(
                grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
            )
            stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(requests())
            streams.append(stream)
        try:
            yield streams
        finally:
            over.set()


def _first(stream: Any) -> str:
    try:
        next(stream)
    except grpc.RpcError as error:
        return str(error.code().name)  # type: ignore[attr-defined]
    return "answered"


def test_open_streams_hold_no_thread_of_calls_or_health(server: RunningServer, client: PolicyClient) -> None:
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(server.address))
        health = health_pb2_grpc.HealthStub(channel)
        watches = [health.Watch(HEALTH) for _ in range(64)]
        for watch in watches:
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        streams = stack.enter_context(open_reflections(server.address, 8))
        firsts = [_first(stream) for stream in streams]
        assert firsts.count("answered") == MAX_STREAMS_OF_CALLER
        assert firsts.count("RESOURCE_EXHAUSTED") == len(streams) - MAX_STREAMS_OF_CALLER
        assert health.Check(HEALTH, timeout=PATIENCE_S).status == health_pb2.HealthCheckResponse.SERVING
        assert client.predict(["gemm", "infer"]).prediction.median.size == 2
        client.match(Snapshot(pending=(Job(id="a", workload="gemm"),), devices=(Device(id="d", type=DEVICE_TYPE),)))
        for watch in watches:
            watch.cancel()


def test_abandoned_decisions_are_dropped(
    server: RunningServer, settings: Settings, client: PolicyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 calls with deadlines of 300 ms and seconds of work each: health goes on, and the queue is empty soon.

    None is computed to its end, and none begins once its deadline has passed.
    """
    begun, ended = [], []

    def counting(context: PlanningContext, *given: Any) -> ScopeDecision:
        begun.append(context.snapshot.scope)
        decision = decide(context, *given)
        ended.append(context.snapshot.scope)
        return decision

    monkeypatch.setattr(decisions, "decide", counting)
    request = to_proto(hard_snapshot(), pb.MatchRequest)
    with grpc.insecure_channel(server.address) as channel:
        stub, health = rpc.PolicyServiceStub(channel), health_pb2_grpc.HealthStub(channel)
        health.Check(HEALTH, timeout=PATIENCE_S)
        calls = []
        for k in range(60):
            request.scope = f"s{k % 5}"
            calls.append(stub.Match.future(request, timeout=0.3))
        slowest_s = 0.0
        for _ in range(10):
            start_s = time.perf_counter()
            health.Check(HEALTH, timeout=PATIENCE_S)
            slowest_s = max(slowest_s, time.perf_counter() - start_s)
        for call in calls:
            assert call.exception() is not None
        start_s, begun_before = time.perf_counter(), len(begun)
        client.match(Snapshot(pending=(Job(id="a", workload="gemm"),), devices=(Device(id="d", type=DEVICE_TYPE),)))
        print(f"health {slowest_s * 1e3:.0f} ms, next decision {(time.perf_counter() - start_s) * 1e3:.0f} ms")
        late = len(begun) - begun_before - 1  # without the decision that was asked for
        assert late <= settings.decisions_at_once, "those that had their turn as their deadline passed"
        assert ended == ["default"], "the scope of the decision that was asked for"


def test_one_scope_cannot_take_the_queue_of_another(serve: Callable[..., RunningServer], settings: Settings) -> None:
    server = serve(replace(settings, max_concurrent_rpcs=8, metrics_port=0))
    with grpc.insecure_channel(server.address) as channel:
        stub = rpc.PolicyServiceStub(channel)
        request = to_proto(hard_snapshot(scope="greedy", jobs=HARDEST, budget_s=60.0), pb.MatchRequest)
        calls = [stub.Match.future(request, timeout=PATIENCE_S) for _ in range(7)]
        with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
            plan = client.match(
                Snapshot(
                    pending=(Job(id="a", workload="gemm"),), devices=(Device(id="d", type=DEVICE_TYPE),), scope="other"
                )
            )
        assert plan.actions
        assert not all(call.done() for call in calls)  # the greedy scope still computes
        for call in calls:
            call.cancel()


def test_an_overloaded_server_sheds_with_hints_and_counts(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    server = serve(replace(settings, threads=1, max_concurrent_rpcs=2, metrics_port=0))
    with grpc.insecure_channel(server.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        stub, health = rpc.PolicyServiceStub(channel), health_pb2_grpc.HealthStub(channel)
        request = pb.PredictMatrixRequest(victims=[pb.JobRef(workload=WORKLOADS[k % 4]) for k in range(800)])
        shed, answered = [], 0
        while not (shed and answered):  # as fast as they are sent, they may be answered
            calls = [stub.PredictMatrix.future(request) for _ in range(20)]
            assert health.Check(HEALTH, timeout=PATIENCE_S).status == health_pb2.HealthCheckResponse.SERVING
            errors = [call.exception() for call in calls]
            shed += [error for error in errors if error is not None]
            answered += errors.count(None)
    for error in shed:
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert int(dict(error.trailing_metadata())["grpc-retry-pushback-ms"]) > 0
    call = 'grpc_method="PredictMatrix",grpc_service="interfere.v1.PolicyService",grpc_type="unary"'
    assert f'grpc_server_handled_total{{grpc_code="RESOURCE_EXHAUSTED",{call}}} {float(len(shed))}' in scrape(server)


def test_the_client_gets_the_hint(serve: Callable[..., RunningServer], settings: Settings) -> None:
    server = serve(replace(settings, threads=1, max_concurrent_rpcs=1))
    hints: list[float | None] = []

    def ask() -> None:
        with PolicyClient(server.address) as client:
            try:
                client.predict_matrix([*WORKLOADS] * 200)
            except LimitError as error:
                hints.append(error.retry_after_s)

    while not hints:  # as fast as they are sent, they may be answered
        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(hint is not None and 0 < hint < 10 for hint in hints)


def test_malformed_bytes_are_one_counted_status_and_one_log_line(
    serve: Callable[..., RunningServer], settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(replace(settings, metrics_port=0))
    with grpc.insecure_channel(server.address) as channel:
        garbage = channel.unary_unary("/interfere.v1.PolicyService/Match")
        for _ in range(30):
            with pytest.raises(grpc.RpcError) as caught:
                garbage(b"\xff\xff\xff\xff")
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
    call = 'grpc_method="Match",grpc_service="interfere.v1.PolicyService",grpc_type="unary"'
    assert f'grpc_server_handled_total{{grpc_code="INVALID_ARGUMENT",{call}}} 30.0' in scrape(server)
    assert caplog.text.count("not the bytes of a request") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("thread", ["main", "other"])
def test_a_signal_ends_the_process_soon_after_its_grace(
    model_folder: Path, tmp_path: Path, thread: str, number: int
) -> None:
    """The grace is a second, the decisions would take minutes; how soon after the grace is printed. The kernel may
    deliver the signal to any thread of the process."""
    metrics_port = free_port()
    options = ("--model", str(model_folder), "--work", str(tmp_path), "--metrics-port", str(metrics_port))
    process = subprocess.Popen(
        serve_command(*options),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "INTERFERE_GRACE_S": "1"},
    )
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        with grpc.insecure_channel(address) as channel:
            stub = rpc.PolicyServiceStub(channel)
            request = to_proto(hard_snapshot(jobs=HARDEST, budget_s=1_000.0), pb.MatchRequest)
            calls = [stub.Match.future(request, timeout=600.0) for _ in range(3)]
            wait_until(lambda: in_flight("Match", 3.0) in metrics_page(metrics_port), "the server has the requests")
            start_s = time.perf_counter()
            others = {int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir()} - {process.pid}
            receiver = process.pid if thread == "main" else min(others)
            assert ctypes.CDLL(None).tgkill(process.pid, receiver, number) == 0
            process.wait(PATIENCE_S)
            taken_s = time.perf_counter() - start_s
            assert all(call.exception() is not None for call in calls)
        print(f"ended {taken_s:.2f} s after the signal")
        assert taken_s < 1.0 + 10.0
    finally:
        process.kill()
        process.communicate()


def test_large_requests_are_few_at_once_and_stop_no_small_one(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    """64 requests of 64 MiB that wait for their turn were 4 GiB before anything was computed."""
    server = serve(replace(settings, message_mib=4, metrics_port=0, decisions_at_once=1))
    padded = to_proto(hard_snapshot(scope="other"), pb.MatchRequest).SerializeToString()
    padded += b"\xfa\xff\x03" + b"\x80\x80\xe0\x01" + bytes(3_670_016)  # an unknown field of 3.5 MiB
    with grpc.insecure_channel(server.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        match = channel.unary_unary("/interfere.v1.PolicyService/Match")
        hard = hard_snapshot(jobs=HARDEST, budget_s=60.0)
        running = match.future(to_proto(hard, pb.MatchRequest).SerializeToString(), timeout=PATIENCE_S)
        calls = [match.future(padded, timeout=PATIENCE_S) for _ in range(12)]
        wait_until(lambda: sum(call.done() for call in calls) >= 8, "eight of the twelve are refused")
        refused = [call.exception() for call in calls if call.done()]
        waiting = scrape(server)
        with PolicyClient(server.address) as client:
            assert client.predict(["gemm", "infer"]).prediction.median.size == 2
        for call in (running, *calls):
            call.cancel()
    assert {error.code() for error in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert {dict(error.trailing_metadata())["grpc-retry-pushback-ms"] for error in refused} == {"1000"}
    assert len(refused) == 8
    (in_flight,) = re.findall(r"^interfere_large_request_bytes (\S+)", waiting, re.MULTILINE)
    assert float(in_flight) == 4 * len(padded)
