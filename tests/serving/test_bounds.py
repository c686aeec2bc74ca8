"""What one client may make the server hold: answers that it does not read, and connections."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.serving.calls import transfers
from interfere.serving.calls.callers import MAX_CONNECTIONS
from interfere.serving.server import RunningServer
from interfere.v1 import policy_pb2 as pb
from tests.models import WORKLOADS
from tests.serving.http2 import DATA, END_STREAM, HEADERS, RESET, connect, read_frame, send_call
from tests.serving.test_server import scrape
from tests.waiting import PATIENCE_S, wait_until

MATRIX = "/interfere.v1.PolicyService/PredictMatrix"
JOBS = 600
LARGE_ANSWER = pb.PredictMatrixRequest(
    victims=[pb.JobRef(workload=WORKLOADS[k % 4]) for k in range(JOBS)]
).SerializeToString()
ANSWER_BYTES = 2 * 4 * JOBS**2  # at least: two matrices of float32


def gauge(server: RunningServer, name: str) -> float:
    """Return a metric without labels."""
    (value,) = re.findall(rf"^{name} (\S+)", scrape(server), re.MULTILINE)
    return float(value)


def test_answers_that_nobody_reads_are_few_and_end(
    serve: Callable[..., RunningServer], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 requests on a connection whose window is 0: each answer that was computed stays in the server's memory."""
    monkeypatch.setattr(transfers, "LIMIT_S", 1e6)
    server = serve(replace(settings, metrics_port=0))
    with connect(server.port, window=0) as connection, PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        for _ in range(8):  # what computing them takes is no matter here
            client.predict_matrix([WORKLOADS[k % 4] for k in range(JOBS)])
        before = gauge(server, "process_resident_memory_bytes")
        for k in range(60):
            send_call(connection, 1 + 2 * k, MATRIX, LARGE_ANSWER)
        wait_until(lambda: gauge(server, "interfere_unsent_answer_bytes") >= transfers.MAX_UNSENT_BYTES)
        with connect(server.port, source="127.0.0.2") as other:
            send_call(other, 1, MATRIX, LARGE_ANSWER)
            while read_frame(other)[0] != DATA:
                pass
        most = transfers.MAX_UNSENT_BYTES + (settings.threads + 1) * 2 * ANSWER_BYTES
        assert gauge(server, "interfere_unsent_answer_bytes") < most
        wait_until(lambda: gauge(server, "process_resident_memory_bytes") < before + 100e6)
        print(f"memory + {(gauge(server, 'process_resident_memory_bytes') - before) / 1e6:.0f} MB")
        monkeypatch.setattr(transfers, "LIMIT_S", 0.5)
        ended = set[int]()
        while len(ended) < 60:
            kind, flags, stream = read_frame(connection)
            if kind == RESET or (kind == HEADERS and flags & END_STREAM):
                ended.add(stream)
        wait_until(lambda: gauge(server, "interfere_unsent_answer_bytes") == 0)
        assert client.predict(["gemm", "infer"]).prediction.median.size == 2


def test_an_address_has_few_connections_with_calls(serve: Callable[..., RunningServer], settings: Settings) -> None:
    """Calls whose requests do not come, on one connection more than an address may have."""
    server = serve(replace(settings, metrics_port=0))
    refused = re.compile(
        r'grpc_server_handled_total\{grpc_code="RESOURCE_EXHAUSTED",grpc_method="PredictMatrix"\S* 1\.0'
    )
    with ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS):
            connection = stack.enter_context(connect(server.port, source="127.0.0.2", window=0))
            send_call(connection, 1, "/grpc.health.v1.Health/Watch", b"")
        wait_until(lambda: gauge(server, "interfere_receiving_requests") == 0)
        last = stack.enter_context(connect(server.port, source="127.0.0.2"))
        send_call(last, 1, MATRIX, LARGE_ANSWER)
        wait_until(lambda: refused.search(scrape(server)))
        with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
            assert client.predict(["gemm", "infer"]).prediction.median.size == 2
