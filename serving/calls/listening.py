"""The gRPC server that listens: on its own machine, or beyond it with known callers and TLS.

Health answers from the first moment on; other calls are refused until the interceptor is opened. grpc.health.v1 says
whether the server lives (the empty name) and whether it is ready (the policy service's name).
"""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from typing import NamedTuple

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection

from interfere.client.connections import expiry_of
from interfere.client.local_tokens import LOOPBACK
from interfere.config import Settings
from interfere.errors import InvalidInputError, UnfitError
from interfere.file_writing import file_signature
from interfere.serving.calls.access import Access
from interfere.serving.calls.callers import MAX_THREADS
from interfere.serving.calls.interceptor import SERVICE, CallInterceptor
from interfere.serving.calls.tokens import IssuedTokens, LocalTokens
from interfere.serving.metrics import Metrics
from interfere.v1 import policy_pb2_grpc as rpc

_log = logging.getLogger(__name__)
HEALTH_NAMES = ("", SERVICE)  # alive, ready
INTERRUPTION_S = 0.3  # after the grace, until what still runs is interrupted
MAX_STREAMS_OF_CONNECTION = 100
MAX_CONNECTIONS = 4_000  # a silent one takes 15 kB
MAX_ARRIVED = 5_000  # calls: all streams of 50 connections at once; gRPC itself refuses more
HANDSHAKE_S = 10  # until a client has sent the first frame of HTTP/2
IDLE_S = 60  # without a call; clients of gRPC connect again by themselves

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


# --- health -----------------------------------------------------------------------------------------------------------


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # protoc writes no types for services
    """The status of each name, for single checks and for watches.

    Law: no lock is held while a status is sent. (The servicer of grpcio-health-checking 1.81 sends under its lock, and
    the thread that completes sends takes the same lock.)
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._statuses: dict[str, int] = {}

    def set(self, name: str, status: int) -> None:
        """Change the status of a name, and wake the watches."""
        with self._changed:
            self._statuses[name] = status
            self._changed.notify_all()

    def Check(self, request: HealthCheckRequest, context: grpc.ServicerContext) -> HealthCheckResponse:  # noqa: N802
        """Return the status of a name. Answers NOT_FOUND for an unknown name."""
        status = self._statuses.get(request.service)
        if status is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no service of this name: {request.service[:100]!r}")
        return HealthCheckResponse(status=status)

    def Watch(  # noqa: N802
        self, request: HealthCheckRequest, context: grpc.ServicerContext
    ) -> Iterator[HealthCheckResponse]:
        """Return the status now and at every change, until the call ends."""
        status = None
        context.add_callback(self._wake)
        while context.is_active():
            with self._changed:
                while context.is_active() and self._status(request.service) == status:
                    self._changed.wait()
                status = self._status(request.service)
            yield HealthCheckResponse(status=status)

    def _status(self, name: str) -> int:
        return self._statuses.get(name, int(SERVICE_UNKNOWN))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


# --- what protects a server beyond its own machine --------------------------------------------------------------------


def is_local(settings: Settings) -> bool:
    """Return whether a server listens to the processes of its own host only."""
    return settings.host in LOOPBACK or settings.host.startswith("unix:")


def check_exposure(settings: Settings) -> None:
    """Raise InvalidInputError where a server beyond this machine would answer strangers, or in the clear."""
    missing = [name for name in ("callers", "tls_certificate") if getattr(settings, name) is None]
    if missing and not is_local(settings) and not settings.insecure:
        raise InvalidInputError(
            "beyond this machine a server needs known callers and TLS",
            value=f"host {settings.host} without {' and '.join(missing)}",
            remedy="see SECURITY.md; or --insecure, where the network lets nobody else reach it",
        )
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise InvalidInputError(
            "a certificate and its key go together",
            value=f"tls_certificate {settings.tls_certificate}, tls_key {settings.tls_key}",
            remedy="give both, or neither",
        )
    if settings.tls_client_ca is not None and settings.tls_certificate is None:
        raise InvalidInputError(
            "clients' certificates need TLS", value=settings.tls_client_ca, remedy="give tls_certificate and tls_key"
        )


def server_credentials(settings: Settings) -> grpc.ServerCredentials:
    """Return the credentials of the server. New connections get the certificates that the files hold then.

    A new certificate that has expired already is not taken. Raises InvalidInputError where a file cannot be read, or
    the certificate has expired.
    """
    files = [each for each in (settings.tls_key, settings.tls_certificate, settings.tls_client_ca) if each is not None]
    served = _configuration(files)
    seen = refused = [file_signature(each) for each in files]

    def changed() -> grpc.ServerCertificateConfiguration | None:
        """Return the new configuration where a file has changed; None goes on with the present one."""
        nonlocal seen, refused
        try:
            now = [file_signature(each) for each in files]
            if now == seen:
                return None
            configuration = _configuration(files)
        except OSError:  # a file is being replaced
            return None
        except InvalidInputError as error:  # told once for each state of the files
            if now != refused:
                _log.warning("the present certificate is kept: %s", error.one_line)
            refused = now
            return None
        seen = now
        return configuration

    return grpc.dynamic_ssl_server_credentials(
        served,
        changed,  # type: ignore[arg-type]  # None is what gRPC documents for no change
        require_client_authentication=settings.tls_client_ca is not None,
    )


def _configuration(files: list[Path]) -> grpc.ServerCertificateConfiguration:
    try:
        key, certificate, *authorities = [each.read_bytes() for each in files]
        if expired := expiry_of(files[1]):
            raise InvalidInputError(
                "the server's certificate has expired",
                value=expired,
                remedy="renew the file that tls_certificate names",
            )
    except OSError as error:
        raise InvalidInputError(
            f"a certificate or key cannot be read ({error.strerror})", value=error.filename, remedy="give PEM files"
        ) from None
    return grpc.ssl_server_certificate_configuration(
        [(key, certificate)], root_certificates=authorities[0] if authorities else None
    )


# --- the server -------------------------------------------------------------------------------------------------------


class Listening(NamedTuple):
    """A gRPC server that listens."""

    server: grpc.Server
    port: int
    health: HealthService
    interceptor: CallInterceptor
    access: Access

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
    tokens: LocalTokens | None = None,
) -> Listening:
    """Start a gRPC server that answers health checks, and that refuses all other calls until its interceptor is
    opened. `tokens`: of the host's processes, whose files are written before the first call is answered.

    Raises InvalidInputError for callers or certificates that cannot be used, and for an address beyond this machine
    without them.
    """
    check_exposure(settings)
    max_message_bytes = settings.message_mib * 2**20
    resources.callback(stopping.set)
    issued = IssuedTokens(settings.issuer, settings.audience, settings.issuer_keys) if settings.issuer_keys else None
    access = Access(settings.callers, tokens, issued)
    interceptor = CallInterceptor(metrics, settings, stopping, access=access)
    threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="call")
    resources.callback(threads.shutdown, wait=False)
    server = grpc.server(
        threads,
        interceptors=[interceptor],
        maximum_concurrent_rpcs=MAX_ARRIVED,
        options=[
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
            ("grpc.max_concurrent_streams", MAX_STREAMS_OF_CONNECTION),  # a client holds back what is beyond
            # Beyond so many calls that nobody has looked at yet, gRPC drops any caller's by lot.
            ("grpc.server.max_pending_requests", MAX_ARRIVED),
            ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_ARRIVED),
            ("grpc.so_reuseport", 0),  # a second server on the port must fail, not take half of the calls
            # At most half of the files that the process may have open.
            ("grpc.max_allowed_incoming_connections", min(MAX_CONNECTIONS, getrlimit(RLIMIT_NOFILE)[0] // 2)),
            ("grpc.server_handshake_timeout_ms", 1_000 * HANDSHAKE_S),
            ("grpc.max_connection_idle_ms", 1_000 * IDLE_S),
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
    listening = Listening(server, _bind(server, settings), health, interceptor, access)
    resources.callback(listening.end)
    if tokens is not None:
        resources.callback(tokens.remove)
        tokens.write(target(settings.host, listening.port))
    server.start()
    return listening


def target(host: str, port: int) -> str:
    """Return HOST:PORT, with an IPv6 address in brackets; the address of a unix socket as it is."""
    if host.startswith("unix:"):
        return host
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _bind(server: grpc.Server, settings: Settings) -> int:
    address = target(settings.host, settings.port)
    try:
        if settings.tls_certificate is None:
            bound = int(server.add_insecure_port(address))
        else:
            bound = int(server.add_secure_port(address, server_credentials(settings)))
    except RuntimeError:
        bound = 0
    if bound == 0:
        raise UnfitError(
            "cannot listen there: the port is in use, or the address is not one of this machine",
            value=f"{settings.host}:{settings.port}",
            remedy="stop the other server, or take another port (--port 0 takes a free one)",
        )
    return bound
