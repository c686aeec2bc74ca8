"""What one client may make the server hold: answers that it does not read, and connections."""

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.client.connections import Credentials
from interfere.config import Settings
from interfere.serving.calls import listening, transfers
from interfere.serving.calls.callers import MAX_CONNECTIONS
from interfere.serving.commands.callers import app
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from tests.models import WORKLOADS
from tests.serving.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RESET,
    SETTINGS,
    connect,
    frame,
    read_frame,
    request_headers,
    send_call,
)
from tests.serving.test_server import metrics_page, scrape
from tests.soak.processes import serve_command, serving_with
from tests.waiting import PATIENCE_S, free_port, wait_until

MATRIX = "/interfere.v1.PolicyService/PredictMatrix"
JOBS = 600
LARGE_ANSWER = pb.PredictMatrixRequest(
    victims=[pb.JobRef(workload=WORKLOADS[k % 4]) for k in range(JOBS)]
).SerializeToString()
ANSWER_BYTES = 2 * 4 * JOBS**2  # at least: two matrices of float32


def gauge(page: str, name: str) -> float:
    """Return a metric without labels."""
    (value,) = re.findall(rf"^{name} (\S+)", page, re.MULTILINE)
    return float(value)


def test_answers_that_nobody_reads_are_few_and_end(
    serve: Callable[..., RunningServer], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 requests on a connection whose window is 0: each answer that was computed stays in the server's memory."""
    monkeypatch.setattr(transfers, "LIMIT_S", 1e6)
    server = serve(replace(settings, metrics_port=0))
    with connect(server.port, window=0) as connection, PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        for k in range(60):
            send_call(connection, 1 + 2 * k, MATRIX, LARGE_ANSWER)
        wait_until(lambda: gauge(scrape(server), "interfere_unsent_answer_bytes") >= transfers.MAX_UNSENT_BYTES)
        with connect(server.port, source="127.0.0.2") as other:
            send_call(other, 1, MATRIX, LARGE_ANSWER)
            while read_frame(other)[0] != DATA:
                pass
        most = transfers.MAX_UNSENT_BYTES + (settings.threads + 1) * 2 * ANSWER_BYTES
        assert gauge(scrape(server), "interfere_unsent_answer_bytes") < most
        monkeypatch.setattr(transfers, "LIMIT_S", 0.0)
        monkeypatch.setattr(transfers, "CHECK_EVERY_S", 0.02)
        ended = set[int]()
        while len(ended) < 60:
            kind, flags, stream = read_frame(connection)
            if kind == RESET or (kind == HEADERS and flags & END_STREAM):
                ended.add(stream)
        wait_until(lambda: gauge(scrape(server), "interfere_unsent_answer_bytes") == 0)
        assert client.predict(["gemm", "infer"]).prediction.median.size == 2


@pytest.mark.journey
def test_unread_answers_take_less_than_100_mb(model_folder: Path, tmp_path: Path) -> None:
    """The same in a server of its own, whose memory is nobody else's."""
    port = free_port()
    options = ("--model", str(model_folder), "--work", str(tmp_path), "--metrics-port", str(port))
    with subprocess.Popen(
        serve_command(*options), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            before = gauge(metrics_page(port), "process_resident_memory_bytes")
            with connect(int(address.rpartition(":")[2]), window=0) as connection:
                for k in range(60):
                    send_call(connection, 1 + 2 * k, MATRIX, LARGE_ANSWER)
                reached = transfers.MAX_UNSENT_BYTES
                wait_until(lambda: gauge(metrics_page(port), "interfere_unsent_answer_bytes") >= reached)
                limit = before + 100e6
                wait_until(lambda: gauge(metrics_page(port), "process_resident_memory_bytes") < limit)
                print(f"memory + {(gauge(metrics_page(port), 'process_resident_memory_bytes') - before) / 1e6:.0f} MB")
        finally:
            process.kill()


def test_an_address_has_few_connections_with_calls(serve: Callable[..., RunningServer], settings: Settings) -> None:
    """A health watch on each of the connections that an address may have, and a call on one more."""
    server = serve(replace(settings, metrics_port=0))
    refused = re.compile(
        r'grpc_server_handled_total\{grpc_code="RESOURCE_EXHAUSTED",grpc_method="PredictMatrix"\S* 1\.0'
    )
    with ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            connection = stack.enter_context(connect(server.port, source="127.0.0.2"))
            send_call(connection, 1, "/grpc.health.v1.Health/Watch", b"")
            while read_frame(connection)[0] != DATA:
                pass
        last = stack.enter_context(connect(server.port, source="127.0.0.2"))
        send_call(last, 1, MATRIX, LARGE_ANSWER)
        wait_until(lambda: refused.search(scrape(server)))
        with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
            assert client.predict(["gemm", "infer"]).prediction.median.size == 2


@pytest.mark.journey
def test_3000_open_streams_of_one_caller_refuse_no_call_of_another(model_folder: Path, tmp_path: Path) -> None:
    """100 calls whose requests never come from each of 30 addresses, again and again."""
    caller_added(tmp_path, "polite")
    headers = request_headers(MATRIX, caller_added(tmp_path, "greedy"))
    with (
        serving_with(tmp_path, model=model_folder, callers=tmp_path / "callers.toml") as served,
        PolicyClient(
            served.address, timeout_s=PATIENCE_S, credentials=Credentials(token_file=tmp_path / "polite.token")
        ) as client,
    ):
        for _ in range(3):
            with ExitStack() as held:
                for k in range(30):
                    port = int(served.address.rpartition(":")[2])
                    connection = held.enter_context(connect(port, source=f"127.0.1.{1 + k}"))
                    for stream in range(100):
                        connection.sendall(frame(HEADERS, END_HEADERS, 1 + 2 * stream, headers))
                for _ in range(20):
                    assert client.predict(["gemm", "infer"]).prediction.median.size == 2
                    time.sleep(transfers.SLOW_S / 10)  # until slow requests are cancelled
    assert "Traceback" not in (tmp_path / "server.log").read_text()


def caller_added(folder: Path, name: str) -> str:
    """The token of a new caller that may predict."""
    file = folder / f"{name}.token"
    arguments = ["add", name, "--file", str(folder / "callers.toml"), "--token-file", str(file), "--role=predict"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    return file.read_text().strip()


@pytest.mark.parametrize("greeting", [b"", PREFACE, PREFACE + frame(SETTINGS, 0, 0, b"")])
def test_silent_connections_are_closed_and_hold_no_thread(
    serve: Callable[..., RunningServer], settings: Settings, monkeypatch: pytest.MonkeyPatch, greeting: bytes
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKE_S", 1)
    monkeypatch.setattr(listening, "IDLE_S", 1)
    server = serve(settings)
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client, ExitStack() as stack:
        client.model()
        threads = threading.active_count()
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
            for _ in range(300)
        ]
        for connection in silent:
            connection.sendall(greeting)
        assert client.predict(["gemm", "infer"]).prediction.median.size == 2
        assert threading.active_count() <= threads + 1
        for connection in silent:
            wait_until_closed(connection)
        assert client.predict(["gemm", "infer"]).prediction.median.size == 2


def wait_until_closed(connection: socket.socket) -> None:
    """Read until the other side closes or resets the connection."""
    with suppress(ConnectionError):
        while connection.recv(4_096):
            pass
