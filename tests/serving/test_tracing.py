"""Traces: one id from a scheduler's own work to the decision's event in the server's log, and spans at a collector."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_rpc

from interfere.config import Settings
from interfere.serving.server import RunningServer
from interfere.tracing import ENDPOINTS, start_tracing
from interfere.v1 import policy_pb2 as pb
from tests.models import DEVICE_TYPE
from tests.waiting import wait_until

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
COMMAND = [sys.executable, "-m", "interfere"]
SCHEDULER = """
import sys
from interfere.client import PolicyClient
from interfere.records import Device, Job, Snapshot
from interfere.tracing import span, start_tracing
start_tracing()
with span("a round of a scheduler"), PolicyClient(sys.argv[1], timeout_s=60) as client:
    jobs = (Job(id="a", workload="gemm"), Job(id="b", workload="nobody"))
    plan = client.match(Snapshot(pending=jobs, devices=(Device(id="d", type=sys.argv[2]),), scope="lab"))
    client.model()
print(plan.decision_id)
print("opentelemetry" in sys.modules)
"""
ADAPTER = """
import sys, threading
from pathlib import Path
from interfere.client import PolicyClient
from interfere.serving.adapters.round import run_rounds
from tests.serving.adapters.test_round_conformance import ToyWorld
stop = threading.Event()
with PolicyClient(sys.argv[1], timeout_s=60) as client:
    run_rounds(ToyWorld(Path(sys.argv[2])).advisor(client), 0.1, stop, lambda done: stop.set())
print("done")
"""


@dataclass
class Collector(otlp_rpc.TraceServiceServicer):  # type: ignore[misc]  # no types of its services
    """Takes spans as any collector of OpenTelemetry does."""

    spans: list[tuple[str, Any]] = field(default_factory=list)  # name of the service, span

    def Export(self, request: Any, context: object) -> Any:  # noqa: N802 - the protocol's name
        for each in request.resource_spans:
            named = {entry.key: entry.value.string_value for entry in each.resource.attributes}
            self.spans.extend((named["service.name"], span) for scope in each.scope_spans for span in scope.spans)
        return otlp.ExportTraceServiceResponse()

    def of(self, service: str, name: str) -> Any:
        """The one span of a service with this name."""
        (found,) = (span for of, span in self.spans if (of, span.name) == (service, name))
        return found


@pytest.fixture
def collector() -> Iterator[tuple[Collector, str]]:
    servicer = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    otlp_rpc.add_TraceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"http://127.0.0.1:{port}"
    server.stop(0).wait()


@dataclass
class Serving:
    """`interfere serve` in a process of its own, and what it logs."""

    process: "subprocess.Popen[str]"
    address: str
    lines: list[str]


@pytest.fixture
def serve_traced(model_folder: Path, tmp_path: Path) -> Iterator[Callable[[str], Serving]]:
    """Start a server that sends its spans to an endpoint."""
    running: list[Serving] = []

    def start(endpoint: str) -> Serving:
        arguments = ["--json", "--port", "0", "--model", str(model_folder), "--work", str(tmp_path / "work")]
        process = subprocess.Popen(
            [*COMMAND, "serve", *arguments, "--log-format", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {ENDPOINTS[0]: endpoint, "INTERFERE_SLOW_CALL_S": "0"},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        line, lines, errors = process.stdout.readline(), [], process.stderr
        threading.Thread(target=lambda: lines.extend(errors), daemon=True).start()
        assert line, lines
        running.append(Serving(process, json.loads(line)["address"], lines))
        return running[-1]

    yield start
    for each in running:
        each.process.kill()
        each.process.wait()


def scheduler(address: str, **environ: str) -> list[str]:
    """A scheduler in a process of its own: the id of its decision, and whether it loaded OpenTelemetry."""
    return program(SCHEDULER, address, DEVICE_TYPE, **environ)


def program(text: str, *arguments: str, **environ: str) -> list[str]:
    """What a program in a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def values(span: Any) -> dict[str, Any]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in span.attributes}


def events(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_one_trace_from_the_scheduler_to_the_decision_and_its_event(
    collector: tuple[Collector, str], serve_traced: Callable[[str], Serving]
) -> None:
    servicer, endpoint = collector
    server = serve_traced(endpoint)
    decision_id, _ = scheduler(server.address, **{ENDPOINTS[0]: endpoint, "OTEL_SERVICE_NAME": "scheduler"})
    server.process.terminate()
    assert server.process.wait() == 0  # what is left is sent at the end
    match = "interfere.v1.PolicyService/Match"
    above = servicer.of("scheduler", "a round of a scheduler")
    sent, received = servicer.of("scheduler", match), servicer.of("interfere", match)
    (run,) = (span for _, span in servicer.spans if span.parent_span_id == received.span_id)
    assert [sent.parent_span_id, received.parent_span_id] == [above.span_id, sent.span_id]
    assert {span.trace_id for _, span in servicer.spans} == {above.trace_id}
    told = values(run)
    assert (told["interfere.decision_id"], told["interfere.scope"], told["interfere.code"]) == (
        decision_id,
        "lab",
        "OK",
    )
    assert told["interfere.waiting"] == 1
    assert received.start_time_unix_nano <= run.start_time_unix_nano <= run.end_time_unix_nano
    (event,) = (each for each in events(server.lines) if each["logger"] == "interfere.decisions")
    assert (event["decision_id"], event["trace_id"]) == (decision_id, above.trace_id.hex())
    slow = [each for each in events(server.lines) if each["message"].startswith("slow call")]
    assert {each["trace_id"] for each in slow} == {above.trace_id.hex()}


def test_a_round_of_an_adapter_is_one_trace(
    server: RunningServer, collector: tuple[Collector, str], tmp_path: Path
) -> None:
    servicer, endpoint = collector
    assert program(ADAPTER, server.address, str(tmp_path), **{ENDPOINTS[0]: endpoint}) == ["done"]
    (rounds,) = (span for _, span in servicer.spans if span.name.startswith("round of "))
    (match,) = (span for _, span in servicer.spans if span.name == "interfere.v1.PolicyService/Match")
    assert (match.trace_id, match.parent_span_id) == (rounds.trace_id, rounds.span_id)


def test_a_collector_that_is_away_costs_no_answer_and_no_time_at_the_end(
    serve_traced: Callable[[str], Serving],
) -> None:
    server = serve_traced("http://127.0.0.1:9")
    scheduler(server.address, **{ENDPOINTS[0]: "http://127.0.0.1:9"})
    server.process.terminate()
    assert server.process.wait() == 0
    assert "Traceback" not in "".join(server.lines)


def test_a_client_loads_opentelemetry_only_where_it_is_asked_for(server: RunningServer) -> None:
    assert scheduler(server.address)[-1] == "False"


@pytest.mark.parametrize(
    ("header", "noted"),
    [
        (f"00-{TRACE_ID}-00f067aa0ba902b7-01", TRACE_ID),
        (f"cc-{TRACE_ID}-00f067aa0ba902b7-01", TRACE_ID),
        (f"00-{TRACE_ID}-00f067aa0ba902b7", None),
        ("00- - -", None),
        ("x" * 5_000, None),
        ("", None),
    ],
)
def test_the_id_that_a_caller_of_any_kind_sends_is_noted(
    stub: Any, settings: Settings, caplog: pytest.LogCaptureFixture, header: str, noted: str | None
) -> None:
    caplog.set_level(logging.INFO)
    request = pb.MatchRequest(
        pending=[pb.Job(id="a", workload="gemm")], devices=[pb.Device(id="d", type=DEVICE_TYPE)], scope="lab"
    )
    stub.Match(request, metadata=[("traceparent", header)])
    wait_until(lambda: [each for each in caplog.records if each.name == "interfere.decisions"])
    (event,) = (each for each in caplog.records if each.name == "interfere.decisions")
    assert event.fields.get("trace_id") == noted  # type: ignore[attr-defined]


def test_a_missing_library_is_a_warning_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    start_tracing()
    (line,) = caplog.messages
    assert "otel" in line
    assert ENDPOINTS[0] in line
