"""The gRPC server that listens: health from the first moment on, other calls once they are let in."""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection

from interfere.config import Settings
from interfere.errors import UnfitError
from interfere.serving.calls.executors import Executors
from interfere.serving.calls.interceptor import CallInterceptor
from interfere.serving.calls.receiving import SUPPORTED
from interfere.serving.metrics import Metrics
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc

_log = logging.getLogger(__name__)
SERVICE = pb.DESCRIPTOR.services_by_name["PolicyService"].full_name
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
HEALTH_NAMES = ("", SERVICE)  # alive, ready
INTERRUPTION_S = 0.3  # after the grace, until what still runs is interrupted

Send = Callable[[Any], None]
Context = grpc.ServicerContext
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # protoc writes no types for services
    """grpc.health.v1: whether the server lives (the empty name) and whether it is ready (the policy service's name).

    Law: no lock is held while a status is sent, and no thread between two changes of a status. (The servicer of
    grpcio-health-checking 1.81 sends under its lock, and the thread that completes sends takes the same lock.)
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._statuses: dict[str, int] = {}
        self._watchers: dict[Send, str] = {}

    def set(self, name: str, status: int) -> None:
        """Change the status of a name and notify the clients that watch it.

        A separate thread notifies them, because a watcher that does not read would block the caller.
        """
        with self._mutex:
            self._statuses[name] = status
            watchers = [send for send, watched in self._watchers.items() if watched == name]
        answer = HealthCheckResponse(status=status)
        for send in watchers:
            threading.Thread(target=send, args=(answer,), name="health-watch", daemon=True).start()

    def Check(self, request: HealthCheckRequest, context: Context) -> HealthCheckResponse:  # noqa: N802
        """Return the status of a name. Answers NOT_FOUND for an unknown name."""
        status = self._statuses.get(request.service)
        if status is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no service of this name: {request.service[:100]!r}")
        return HealthCheckResponse(status=status)

    def Watch(self, request: HealthCheckRequest, context: Context, send: Send) -> None:  # noqa: N802
        """Send the status now and at every change. Returns at once: `send` is called until the stream is closed."""
        with self._mutex:
            status = self._statuses.get(request.service, SERVICE_UNKNOWN)
            self._watchers[send] = request.service
        if not context.add_callback(lambda: self._forget(send)):
            self._forget(send)
            return
        send(HealthCheckResponse(status=status))

    def _forget(self, send: Send) -> None:
        with self._mutex:
            self._watchers.pop(send, None)


class Listening(NamedTuple):
    """A gRPC server that listens."""

    server: grpc.Server
    port: int
    health: HealthService
    interceptor: CallInterceptor

    def end(self) -> None:
        """Cancel all calls, and return once they have ended or a moment later.

        `stop(None)` would wait for ever for a call whose cancellation arrives while a message is being sent.
        """
        self.server.stop(0).wait(INTERRUPTION_S)


def listen(
    settings: Settings,
    servicer: rpc.PolicyServiceServicer,
    metrics: Metrics,
    stopping: threading.Event,
    resources: ExitStack,
) -> Listening:
    """Start a gRPC server that answers health checks, and that refuses all other calls until its interceptor is
    opened."""
    max_message_bytes = settings.message_mib * 2**20
    if not SUPPORTED:
        _log.warning(
            "this release of grpcio is not known: slow senders hold threads, and large requests are not counted"
        )
    resources.callback(stopping.set)
    executors = Executors(settings, stopping)
    interceptor = CallInterceptor(metrics, executors, stopping, slow_call_s=settings.slow_call_s)
    server = grpc.server(
        executors.control,
        interceptors=[interceptor],
        options=[
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
            ("grpc.so_reuseport", 0),  # a second server on the port must fail, not take half of the calls
            # A client that has gone without closing its connection is noticed; one that pings itself is let do so.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
        ],
    )
    health = HealthService()
    rpc.add_PolicyServiceServicer_to_server(servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflection.enable_server_reflection((SERVICE, HEALTH, reflection.SERVICE_NAME), server)
    health.set("", SERVING)
    health.set(SERVICE, NOT_SERVING)
    listening = Listening(server, _bind(server, settings.host, settings.port), health, interceptor)
    resources.callback(listening.end)
    server.start()
    return listening


def target(host: str, port: int) -> str:
    """Return HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _bind(server: grpc.Server, host: str, port: int) -> int:
    try:
        bound = int(server.add_insecure_port(target(host, port)))
    except RuntimeError:
        bound = 0
    if bound == 0:
        raise UnfitError(
            "cannot listen there: the port is in use, or the address is not one of this machine",
            value=f"{host}:{port}",
            remedy="stop the other server, or take another port (--port 0 takes a free one)",
        )
    return bound
