"""The server as a whole: health, reflection, metrics, limits, shutdown, and what keeps it from starting."""

import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from interfere import config
from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.errors import LimitError, ModelError, UnfitError
from interfere.features.pair import FeatureEncoder
from interfere.records import Device, Job, Snapshot
from interfere.serving.http_server import MAX_CONNECTIONS
from interfere.serving.server import RunningServer, start_server
from interfere.v1 import policy_pb2 as pb
from tests.models import DEVICE_TYPE, WORKLOADS, publish
from tests.serving.test_http_server import flood
from tests.waiting import PATIENCE_S, free_port, wait_until

NAN = float("nan")
INVALID = grpc.StatusCode.INVALID_ARGUMENT


def violations(error: grpc.RpcError) -> list[str]:
    """Fields of the google.rpc.BadRequest that any client can read."""
    raw = dict(error.trailing_metadata())["grpc-status-details-bin"]
    for packed in status_pb2.Status.FromString(raw).details:
        fields = error_details_pb2.BadRequest()
        if packed.Unpack(fields):
            return [violation.field for violation in fields.field_violations]
    return []


def scrape(server: RunningServer) -> str:
    """The page of metrics as Prometheus gets it."""
    assert server.metrics_port is not None
    return metrics_page(server.metrics_port)


def metrics_page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())


def in_flight(method: str, calls: float) -> str:
    """The line of that page that counts the running calls of a method."""
    labels = f'grpc_method="{method}",grpc_service="interfere.v1.PolicyService",grpc_type="unary"'
    return f"interfere_requests_in_flight{{{labels}}} {calls}"


@pytest.mark.parametrize(
    ("method", "request_", "code", "field"),
    [
        ("PredictSlowdowns", pb.PredictSlowdownsRequest(), INVALID, "jobs"),
        ("PredictSlowdowns", pb.PredictSlowdownsRequest(jobs=[pb.JobRef()]), INVALID, "jobs[0].workload"),
        (
            "PredictSlowdowns",
            pb.PredictSlowdownsRequest(
                jobs=[pb.JobRef(workload="gemm")], pairs=[pb.OrderedPair(victim=0, neighbour=7)]
            ),
            INVALID,
            "pairs[0].neighbour",
        ),
        (
            "PredictSlowdowns",
            pb.PredictSlowdownsRequest(
                jobs=[pb.JobRef(profile=pb.JobProfile(workload="w", device_type="t", step_time_s=NAN))]
            ),
            INVALID,
            "jobs[0].profile.step_time_s",
        ),
        (
            "PredictSlowdowns",
            pb.PredictSlowdownsRequest(
                jobs=[pb.JobRef(profile=pb.JobProfile(workload="w", device_type="t", step_time_s=1, busy_frac=-1))]
            ),
            INVALID,
            "jobs[0].profile.busy_frac",
        ),
        (
            "PredictSlowdowns",
            pb.PredictSlowdownsRequest(jobs=[pb.JobRef(workload="gemm")], device_memory_bytes=NAN),
            INVALID,
            "device_memory_bytes",
        ),
        ("PredictMatrix", pb.PredictMatrixRequest(), INVALID, "victims"),
        (
            "PredictMatrix",
            pb.PredictMatrixRequest(victims=[pb.JobRef(workload="gemm")], quantile=1.5),
            INVALID,
            "quantile",
        ),
        ("PredictMatrix", pb.PredictMatrixRequest(victims=[pb.JobRef(workload="x")]), INVALID, "victims[0]"),
        ("Match", pb.MatchRequest(), INVALID, "devices"),
        (
            "Match",
            pb.MatchRequest(pending=[pb.Job(id="a", workload="w", weight=-1)], devices=[pb.Device(id="d", type="t")]),
            INVALID,
            "pending[0].weight",
        ),
        (
            "Match",
            pb.MatchRequest(devices=[pb.Device(id="d", type="t")], limits=pb.Limits(allowed=[1])),
            INVALID,
            "limits.allowed",
        ),
        ("RankPlacements", pb.RankPlacementsRequest(), INVALID, "job.id"),
        ("AdviseMode", pb.AdviseModeRequest(jobs=[pb.ModeJob(job=pb.JobRef(workload="gemm"))]), INVALID, "jobs"),
        (
            "SuggestProbes",
            pb.SuggestProbesRequest(job=pb.JobRef(workload="gemm"), count=17),
            INVALID,
            "count",
        ),
        ("SuggestProbes", pb.SuggestProbesRequest(job=pb.JobRef(workload="nobody")), INVALID, "job"),
        (
            "RegisterProfiles",
            pb.RegisterProfilesRequest(
                profiles=[
                    pb.JobProfile(workload="w", device_type="t", step_time_s=1),
                    pb.JobProfile(workload="w", device_type="t", step_time_s=1, busy_s=[1.0]),
                ]
            ),
            INVALID,
            "profiles[1].idle_s",
        ),
        ("GetProfile", pb.GetProfileRequest(), grpc.StatusCode.NOT_FOUND, ""),
    ],
)
def test_bad_input_has_its_status_and_path_and_the_server_goes_on(
    stub: Any, client: PolicyClient, method: str, request_: Any, code: grpc.StatusCode, field: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        getattr(stub, method)(request_)
    error: Any = caught.value
    assert error.code() is code
    assert "remedy" in error.details()
    assert "Traceback" not in error.details()
    if field:
        assert field in violations(error)
    assert [p.workload for p in client.list_profiles()] == list(WORKLOADS)  # alive, and nothing half stored


def test_an_oversized_request_is_refused_and_the_server_lives(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    server = serve(replace(settings, message_mib=1))
    with PolicyClient(server.address) as client:
        big = Snapshot(pending=tuple(Job(id=f"{k:0200d}", workload="gemm") for k in range(8000)), devices=())
        with pytest.raises(LimitError, match="larger than max"):
            client.match(big)
        assert client.model().version


def test_bytes_that_are_no_message_do_not_stop_it(server: RunningServer, client: PolicyClient) -> None:
    with grpc.insecure_channel(server.address) as channel:
        garbage = channel.unary_unary("/interfere.v1.PolicyService/Match")
        with pytest.raises(grpc.RpcError):
            garbage(b"\xff\xff\xff\xff")
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/interfere.v1.PolicyService/Nothing")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]
    assert client.model().version


def test_health_and_reflection(server: RunningServer) -> None:
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "interfere.v1.PolicyService"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        services = list(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert "interfere.v1.PolicyService" in services


def test_metrics(serve: Callable[..., RunningServer], settings: Settings) -> None:
    server = serve(replace(settings, metrics_port=0))
    with PolicyClient(server.address) as client:
        client.predict(["gemm", "infer"])
        client.match(Snapshot(pending=(), devices=(Device(id="d", type=DEVICE_TYPE),)))
        with pytest.raises(LimitError):
            client.predict(["gemm"] * 200)
        from tests.serving.test_observations import window

        begun_s = time.time()
        client.observe([window("1", "infer", "gemm", slowdown=2.0), window("1", "infer", "gemm", slowdown=1.0)])
    text = scrape(server)
    call = 'grpc_method="PredictSlowdowns",grpc_service="interfere.v1.PolicyService",grpc_type="unary"'
    for line in (
        f"grpc_server_started_total{{{call}}} 2.0",
        f'grpc_server_handled_total{{grpc_code="OK",{call}}} 1.0',
        f'grpc_server_handled_total{{grpc_code="RESOURCE_EXHAUSTED",{call}}} 1.0',
        f"grpc_server_handling_seconds_count{{{call}}} 2.0",
        in_flight("PredictSlowdowns", 0.0),  # also after a refusal
        "interfere_match_solve_seconds_count 1.0",
        "interfere_match_gap_ratio_count 1.0",
        "interfere_prediction_error_ratio_count 1.0",
        'interfere_interval_observations_total{result="outside"} 1.0',
        "interfere_interval_width_ratio_count 1.0",
        'interfere_observations_total{result="applied"} 1.0',
        'interfere_observations_total{result="rejected"} 1.0',
        'interfere_model_info{version="0123456789ab"} 1.0',
    ):
        assert line in text, line
    newest = float(text.partition("\ninterfere_newest_observation_seconds ")[2].partition("\n")[0])
    assert begun_s <= newest <= time.time()


def test_intervals_hold_what_is_observed_as_often_as_they_say(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    """A pair is observed as predicted, then far outside, then again what was sent before."""
    from tests.serving.test_observations import window

    server = serve(replace(settings, metrics_port=0))
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        told = client.predict(["infer", "stream"], pairs=[(0, 1)]).prediction
        inside = [window(f"in{k}", "infer", "stream", slowdown=float(told.median[0])) for k in range(3)]
        client.observe(inside)
        client.observe([*inside, window("out", "train", "infer", slowdown=9.0), window("alone", "infer", steps=100.0)])
    text = scrape(server)
    assert 'interfere_interval_observations_total{result="inside"} 3.0' in text
    assert 'interfere_interval_observations_total{result="outside"} 1.0' in text


def test_stalled_connections_to_the_metrics_hold_few_threads(
    serve: Callable[..., RunningServer], settings: Settings
) -> None:
    server = serve(replace(settings, metrics_port=0))
    before = threading.active_count()
    with ExitStack() as stack:
        flood(server.metrics_port or 0, stack, b"GET /metr")
        assert "interfere_model_info" in scrape(server)
        wait_until(lambda: threading.active_count() <= before + MAX_CONNECTIONS + 1, "most are closed", within_s=10.0)


def test_two_servers_in_one_process_do_not_share_counters(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path
) -> None:
    servers = [serve(replace(settings, metrics_port=0, work=tmp_path / str(k))) for k in range(2)]
    with PolicyClient(servers[0].address) as client:
        client.model()
    assert "GetModel" in scrape(servers[0])
    assert "GetModel" not in scrape(servers[1])


def test_health_says_so_before_the_server_goes(server: RunningServer) -> None:
    with grpc.insecure_channel(server.address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        stopping.join()


def test_more_requests_than_allowed_are_refused(serve: Callable[..., RunningServer], settings: Settings) -> None:
    server = serve(replace(settings, threads=1, max_concurrent_rpcs=1))
    outcomes: list[str] = []

    def ask() -> None:
        with PolicyClient(server.address) as client:
            try:
                client.predict_matrix([*WORKLOADS] * 200)
                outcomes.append("answered")
            except LimitError:
                outcomes.append("refused")

    while "refused" not in outcomes:  # as fast as they are sent, they may be answered
        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "answered" in outcomes


def test_stop_lets_a_running_request_end(serve: Callable[..., RunningServer], settings: Settings) -> None:
    server = serve(replace(settings, metrics_port=0, grace_s=60))
    got: list[int] = []

    def ask() -> None:
        with PolicyClient(server.address, timeout_s=60) as client:
            got.append(client.predict_matrix([*WORKLOADS] * 600).matrix.victim_slowdown.size)  # about a second

    running = in_flight("PredictMatrix", 1.0)
    for _ in range(20):  # a request may end between two looks
        thread = threading.Thread(target=ask)
        thread.start()
        while thread.is_alive() and (seen := running in scrape(server)) is False:
            pass
        if seen:
            break
        thread.join(60)
        got.clear()
    server.stop()
    server.stop()
    thread.join(60)
    assert seen
    assert got == [2400 * 2400]


# --- what keeps it from starting -------------------------------------------------------------------------------------


def test_a_port_in_use_is_refused_and_leaves_the_store_free(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UnfitError, match=f"in use.*127.0.0.1:{port}(.|\n)*another port"):
            start_server(replace(settings, port=port))
        with pytest.raises(UnfitError, match=f"metrics.*{port}(.|\n)*--metrics-port 0"):
            start_server(replace(settings, metrics_port=port))
    start_server(settings).stop()


def test_metrics_are_served_to_this_host_by_default_and_a_taken_port_stops_no_server(
    serve: Callable[..., RunningServer],
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    default = free_port()
    monkeypatch.setattr("interfere.serving.server.DEFAULT_METRICS_PORT", default)
    assert serve(replace(settings, port=0, work=tmp_path / "free")).metrics_port is None
    assert serve(replace(settings, port=free_port(), metrics_port=-1, work=tmp_path / "off")).metrics_port is None
    first = serve(replace(settings, host="0.0.0.0", insecure=True, port=free_port()))
    assert first.metrics_port == default
    assert "interfere_model_info" in scrape(first)
    socket.create_server(("127.0.0.2", default)).close()  # on the other addresses of the host nobody listens
    assert "no metrics" not in caplog.text
    second = serve(replace(settings, port=free_port(), work=tmp_path / "second"))
    assert second.metrics_port is None
    assert f"no metrics: 127.0.0.1:{default} (Address already in use); set --metrics-port" in caplog.text


def test_a_second_server_takes_neither_port_nor_store(
    server: RunningServer, settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(UnfitError, match="in use"):
        start_server(replace(settings, port=server.port, work=tmp_path / "other"))
    with pytest.raises(UnfitError, match="another server"):
        start_server(settings)


def test_an_address_of_another_machine_is_refused(settings: Settings) -> None:
    with pytest.raises(UnfitError, match="address"):
        start_server(replace(settings, host="192.0.2.1", insecure=True))


@pytest.mark.parametrize("name", ["pair.onnx", "matrix.onnx", "arrays.npz", "profiles.json", "manifest.json"])
def test_a_truncated_file_of_the_model_is_refused(settings: Settings, tmp_path: Path, name: str) -> None:
    folder = publish(tmp_path / "model")
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ModelError, match="publish"):
        start_server(replace(settings, model=folder))
    assert not settings.store_path.exists()


def test_a_model_under_another_encoder_is_refused(settings: Settings, tmp_path: Path) -> None:
    folder = publish(tmp_path / "model")
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(FeatureEncoder().fingerprint, "0" * 16))
    with pytest.raises(ModelError, match=r"another feature encoder(.|\n)*interfere train"):
        start_server(replace(settings, model=folder))


def test_the_workspace_champion_comes_before_the_shipped_model(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(settings, model=None)
    monkeypatch.setattr(config, "SHIPPED_MODEL", tmp_path / "none")
    with pytest.raises(ModelError, match="interfere train"):
        start_server(asked)
    monkeypatch.setattr(config, "SHIPPED_MODEL", publish(tmp_path / "shipped", version="shipped"))
    assert asked.served_folder == tmp_path / "shipped"
    publish(asked.champion_path, version="champion")
    assert asked.served_folder == asked.champion_path
    assert settings.served_folder == settings.model
