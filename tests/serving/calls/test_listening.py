"""What a server answers while it starts."""

import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import UnavailableError
from interfere.serving.calls.fair_queue import DecisionTurns
from interfere.serving.calls.interceptor import SERVICE
from interfere.serving.calls.listening import NOT_SERVING, SERVING, listen
from interfere.serving.metrics import Metrics
from interfere.serving.servicer import RoutedServicer
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from tests.waiting import PATIENCE_S, free_port


def test_until_calls_are_let_in_health_alone_answers(settings: Settings) -> None:
    with ExitStack() as resources:
        servicer = RoutedServicer(DecisionTurns(at_once=1, max_waiting=1))
        listening = listen(replace(settings, port=0), servicer, Metrics(), threading.Event(), resources)
        channel = resources.enter_context(grpc.insecure_channel(f"127.0.0.1:{listening.port}"))
        health = health_pb2_grpc.HealthStub(channel)
        alive, ready = (
            health.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_S).status
            for name in ("", SERVICE)
        )
        assert (alive, ready) == (SERVING, NOT_SERVING)
        with pytest.raises(grpc.RpcError) as refused:
            rpc.PolicyServiceStub(channel).GetModel(pb.GetModelRequest(), timeout=PATIENCE_S)
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert ("grpc-retry-pushback-ms", "1000") in error.trailing_metadata()
        with PolicyClient(f"127.0.0.1:{listening.port}") as client, pytest.raises(UnavailableError) as caught:
            client.model()
        assert caught.value.retry_after_s == 1.0


def test_a_server_that_starts_is_alive_and_not_ready(model_folder: Path, tmp_path: Path) -> None:
    """Health answers from the first moment on, while the model loads and the log is learned."""
    port = free_port()
    command = [sys.executable, "-m", "interfere", "serve", "--insecure", "--json", "--port", str(port)]
    command += ["--model", str(model_folder), "--work", str(tmp_path)]
    seen: set[tuple[str, str, str]] = set()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process,
        grpc.insecure_channel(
            f"127.0.0.1:{port}", [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 20)]
        ) as channel,
    ):
        stub, health = rpc.PolicyServiceStub(channel), health_pb2_grpc.HealthStub(channel)
        grpc.channel_ready_future(channel).result(timeout=PATIENCE_S)
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            alive, ready = (
                health_pb2.HealthCheckResponse.ServingStatus.Name(
                    health.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_S).status
                )
                for name in ("", SERVICE)
            )
            try:
                stub.GetModel(pb.GetModelRequest(), timeout=PATIENCE_S)
                answered = "OK"
            except grpc.RpcError as error:
                answered = str(error.code().name)  # type: ignore[attr-defined]
            seen.add((alive, ready, answered))
            if ready == "SERVING" and answered == "OK":
                break
        with PolicyClient(f"127.0.0.1:{port}") as client:
            client.wait_ready()
            assert client.predict(["gemm", "infer"]).prediction.median.size == 2
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert ("SERVING", "SERVING", "OK") in seen
    assert {alive for alive, _, _ in seen} == {"SERVING"}
    assert {answered for _, _, answered in seen} <= {"UNAVAILABLE", "OK"}
