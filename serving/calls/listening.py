"""The gRPC server that listens: health from the first moment on, other calls once they are let in."""

import logging
import threading
from contextlib import ExitStack
from typing import NamedTuple

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from interfere.config import Settings
from interfere.errors import UnfitError
from interfere.serving.calls.executors import Executors
from interfere.serving.calls.health import NOT_SERVING, SERVING, HealthService
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
    """Answer health checks, and refuse all other calls until they are let in."""
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
    """HOST:PORT, with an IPv6 address in brackets."""
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
