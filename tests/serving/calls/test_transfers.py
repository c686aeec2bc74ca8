"""Clients that send their requests slowly, or never, or do not read their answers, take nothing from others."""

import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import Device, Job, Snapshot
from interfere.serving.calls import transfers
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from tests.models import DEVICE_TYPE
from tests.serving.http2 import DATA, END_HEADERS, HEADERS, PREFACE, SETTINGS, frame, read_frame, request_headers
from tests.serving.test_observations import window
from tests.serving.test_server import scrape
from tests.waiting import PATIENCE_S, wait_until

SERVICE = "/interfere.v1.PolicyService/"
METHODS = (
    f"{SERVICE}PredictSlowdowns",
    f"{SERVICE}Match",
    f"{SERVICE}ReportObservations",
    "/grpc.health.v1.Health/Check",
)


NEVER_S = 1e6
PREDICTION = pb.PredictSlowdownsRequest(jobs=[pb.JobRef(workload="gemm")] * 2).SerializeToString()


class Stalled:
    """Calls whose requests do not come until they are released."""

    def __init__(self, address: str) -> None:
        self._released = threading.Event()
        self._channel = grpc.insecure_channel(address)
        self.calls: list[Any] = []

    def open(self, method: str, count: int) -> None:
        """So many calls of a method on the one connection."""

        def requests() -> Iterator[bytes]:
            self._released.wait()
            yield PREDICTION

        call = self._channel.stream_unary(method)
        self.calls += [call.future(requests()) for _ in range(count)]

    def release(self) -> list[grpc.StatusCode]:
        """The status of each, once its request is sent."""
        self._released.set()
        return [call.code() for call in self.calls]

    def close(self) -> None:
        self._released.set()
        self._channel.close()


@pytest.fixture
def stalled(server: RunningServer) -> Iterator[Stalled]:
    stalled = Stalled(server.address)
    yield stalled
    stalled.close()


def ask_everything(client: PolicyClient, address: str) -> None:
    """One call of each kind of work."""
    assert client.predict(["gemm", "infer"]).prediction.median.size == 2
    devices = (Device(id="d", type=DEVICE_TYPE),)
    assert client.match(Snapshot(pending=(Job(id="a", workload="gemm"),), devices=devices)).actions
    assert client.observe([window(f"w{time.monotonic()}", "infer", "gemm", slowdown=1.5)])
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert (
            health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S).status
            == health_pb2.HealthCheckResponse.SERVING
        )
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


def test_requests_that_do_not_come_stop_nobody(
    serve: Callable[..., RunningServer], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "LIMIT_S", NEVER_S)
    monkeypatch.setattr(transfers, "SLOW_S", NEVER_S)
    server = serve(replace(settings, metrics_port=0))
    with closing(Stalled(server.address)) as stalled, PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        ask_everything(client, server.address)
        for method in (*METHODS, "/grpc.health.v1.Health/Watch"):
            stalled.open(method, 15)
        wait_until(lambda: "interfere_receiving_requests 75.0" in scrape(server), "all calls have arrived")
        ask_everything(client, server.address)
        check_answers(stalled)


def check_answers(stalled: Stalled) -> None:
    """The predictions among stalled calls are answered as soon as their requests are sent."""
    stalled.calls = stalled.calls[:15]  # predictions
    assert set(stalled.release()) == {grpc.StatusCode.OK}


def test_a_request_that_takes_too_long_is_cancelled(
    serve: Callable[..., RunningServer], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "LIMIT_S", NEVER_S)
    monkeypatch.setattr(transfers, "SLOW_S", NEVER_S)
    server = serve(replace(settings, metrics_port=0))
    stalled = Stalled(server.address)
    for method in METHODS:
        stalled.open(method, 2)
    wait_until(lambda: "interfere_receiving_requests 8.0" in scrape(server))
    monkeypatch.setattr(transfers, "LIMIT_S", 0.5)
    assert {call.code() for call in stalled.calls} == {grpc.StatusCode.CANCELLED}
    counted = r'grpc_code="CANCELLED",grpc_method="Match",\S* 2.0'
    wait_until(lambda: re.search(counted, scrape(server)))
    wait_until(lambda: "interfere_receiving_requests 0.0" in scrape(server))
    with PolicyClient(server.address) as client:
        ask_everything(client, server.address)
    stalled.close()


def test_of_slow_requests_the_oldest_are_cancelled(
    server: RunningServer, client: PolicyClient, stalled: Stalled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "LIMIT_S", NEVER_S)
    monkeypatch.setattr(transfers, "SLOW_S", 0.3)
    stalled.open(METHODS[0], transfers.MAX_SLOW + 3)
    wait_until(lambda: sum(call.done() for call in stalled.calls) >= 3)
    time.sleep(2 * transfers.CHECK_EVERY_S)  # and no more
    cancelled = [call for call in stalled.calls if call.done()]
    assert len(cancelled) == 3
    assert {call.code() for call in cancelled} == {grpc.StatusCode.CANCELLED}
    ask_everything(client, server.address)
    codes = stalled.release()
    assert codes.count(grpc.StatusCode.OK) == transfers.MAX_SLOW


def test_a_call_that_carries_no_request_is_told_so(server: RunningServer) -> None:
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.stream_unary(METHODS[0])(iter(()), timeout=PATIENCE_S)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "no request" in error.details()


def test_a_stalled_body_is_cancelled_and_its_connection_ends_nothing_else(
    server: RunningServer, client: PolicyClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw HTTP/2: the first bytes of a message that was announced as larger."""
    monkeypatch.setattr(transfers, "LIMIT_S", 0.5)
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        for stream in range(1, 41, 2):
            connection.sendall(frame(HEADERS, END_HEADERS, stream, request_headers(METHODS[0])))
            connection.sendall(frame(DATA, 0, stream, struct.pack(">BI", 0, 2**20) + b"x" * 1_000))
        ask_everything(client, server.address)
        ended = set[int]()
        while len(ended) < 20:  # a reset, or trailers that end the stream
            kind, flags, stream = read_frame(connection)
            if kind == 3 or (kind == 1 and flags & 1):
                ended.add(stream)
    ask_everything(client, server.address)


def test_calls_that_are_cancelled_at_any_moment_leave_nothing_behind(
    server: RunningServer, client: PolicyClient
) -> None:
    def call_and_cancel(seed: int) -> None:
        rng = random.Random(seed)
        with grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            predict, slowly = channel.unary_unary(METHODS[0]), channel.stream_unary(METHODS[0])
            for _ in range(60):
                sending = threading.Event()
                requests = (PREDICTION for _ in range(1) if sending.wait(0.01 * rng.random()))
                kind = rng.randrange(3)
                if kind == 0:
                    call = predict.future(PREDICTION, timeout=rng.choice((0.002, 0.02, 20.0)))
                else:
                    call = slowly.future(requests, timeout=PATIENCE_S)
                time.sleep(0.01 * rng.random())
                if kind == 1:
                    call.cancel()
                sending.set()
                ended.append(call.code())

    ended: list[grpc.StatusCode] = []
    callers = [threading.Thread(target=call_and_cancel, args=(seed,)) for seed in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(2 * PATIENCE_S)
    assert len(ended) == 6 * 60
    assert grpc.StatusCode.OK in ended
    ask_everything(client, server.address)
