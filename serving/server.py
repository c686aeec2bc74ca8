"""Composes the server from its settings: the only place where encoder, model, store and gRPC meet."""

import logging
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import start_http_server

import interfere.predict
from features.pair import FeatureEncoder
from interfere.config import Settings
from interfere.errors import ModelError, UnfitError
from interfere.predict.measured import MeasuredPredictor, read_measured_table
from interfere.predict.occlusion import Occlusion
from interfere.predict.online.prior import read_prior
from interfere.predict.onnx import load_model
from interfere.store.sqlite import SqliteStore
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from serving.interceptors import CallInterceptor
from serving.metrics import Metrics
from serving.service import PolicyCore
from serving.servicer import PolicyServicer

_log = logging.getLogger(__name__)
SERVICE = pb.DESCRIPTOR.services_by_name["PolicyService"].full_name
SHIPPED = Path(interfere.predict.__file__).parent / "default"
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A running server; `stop` ends it."""

    host: str
    port: int
    metrics_port: int | None
    model_path: Path
    model_version: str
    store_path: Path
    _grace_s: float
    _server: grpc.Server
    _health: health.HealthServicer
    _resources: ExitStack

    @property
    def address(self) -> str:
        """The target that a client connects to."""
        return f"{self.host}:{self.port}"

    def stop(self) -> None:
        """Report NOT_SERVING, let running requests end, close the store. May be called twice."""
        self._health.enter_graceful_shutdown()
        self._server.stop(self._grace_s).wait()
        self._resources.close()

    def run_until_signal(self) -> None:
        """Block until SIGTERM or SIGINT, then stop. Call it in the main thread."""
        stop_requested = threading.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, lambda *_: stop_requested.set())
        stop_requested.wait()
        self.stop()


def start_server(settings: Settings) -> RunningServer:
    """A server that listens. Raises ModelError, UnfitError or UnavailableError, and then leaves nothing open."""
    # 1. The model.
    folder = model_folder(settings)
    model = load_model(folder, FeatureEncoder())
    metrics = Metrics()
    with ExitStack() as resources:
        # 2. The store and the core over both.
        store = SqliteStore(settings.store_path)
        resources.callback(store.close)
        measured = read_measured_table(folder, model.manifest)
        step_times = {key: profile.step_time_s for key, profile in model.profiles.items()}
        core = PolicyCore(
            predictor=MeasuredPredictor(model, measured, step_times),
            manifest=model.manifest,
            shipped=model.profiles,
            store=store,
            metrics=metrics,
            occlusion=Occlusion(model, model.profiles.values()),
            time_budget_s=settings.time_budget_s,
            prior=read_prior(folder),
            measured=measured,
            step_times=step_times,
        )
        resources.callback(core.close)
        # 3. gRPC and metrics.
        server, health_service = _grpc_server(settings, core, metrics)
        resources.callback(lambda: server.stop(None).wait())
        port = _bind(server, settings.host, settings.port)
        metrics_port = _serve_metrics(settings, metrics, resources)
        server.start()
        for name in ("", SERVICE):
            health_service.set(name, health_pb2.HealthCheckResponse.SERVING)
        if settings.host not in _LOOPBACK:
            _log.warning(
                "no TLS and no authentication: anybody who reaches %s:%d may send requests", settings.host, port
            )
        return RunningServer(
            host=settings.host,
            port=port,
            metrics_port=metrics_port,
            model_path=folder,
            model_version=model.version,
            store_path=settings.store_path,
            _grace_s=settings.grace_s,
            _server=server,
            _health=health_service,
            _resources=resources.pop_all(),
        )


def model_folder(settings: Settings) -> Path:
    """The model folder of the settings, else the workspace's champion, else the shipped model."""
    if settings.model is not None:
        return settings.model
    for folder in (settings.champion_path, SHIPPED):
        if (folder / "manifest.json").is_file():
            return folder
    raise ModelError("there is no model yet", value=settings.champion_path, remedy="train one: interfere train")


def _grpc_server(settings: Settings, core: PolicyCore, metrics: Metrics) -> tuple[grpc.Server, health.HealthServicer]:
    max_message_bytes = settings.message_mib * 2**20
    server = grpc.server(
        ThreadPoolExecutor(max_workers=settings.threads, thread_name_prefix="rpc"),
        interceptors=[CallInterceptor(metrics)],
        maximum_concurrent_rpcs=settings.max_concurrent_rpcs,
        options=[
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
            ("grpc.so_reuseport", 0),  # a second server on the port must fail, not take half of the calls
        ],
    )
    health_service = health.HealthServicer()
    rpc.add_PolicyServiceServicer_to_server(PolicyServicer(core), server)
    health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return server, health_service


def _bind(server: grpc.Server, host: str, port: int) -> int:
    try:
        bound = int(server.add_insecure_port(f"{host}:{port}"))
    except RuntimeError:
        bound = 0
    if bound == 0:
        raise UnfitError(
            "cannot listen there: the port is in use, or the address is not one of this machine",
            value=f"{host}:{port}",
            remedy="stop the other server, or take another port (--port 0 takes a free one)",
        )
    return bound


def _serve_metrics(settings: Settings, metrics: Metrics, resources: ExitStack) -> int | None:
    if settings.metrics_port is None:
        return None
    try:
        httpd, thread = start_http_server(settings.metrics_port, settings.host, metrics.registry)
    except OSError as error:
        raise UnfitError(
            f"cannot serve metrics there ({error.strerror})",
            value=f"{settings.host}:{settings.metrics_port}",
            remedy="take another port: --metrics-port 0 takes a free one",
        ) from None
    resources.callback(thread.join)
    resources.callback(httpd.server_close)
    resources.callback(httpd.shutdown)
    return int(httpd.server_address[1])
