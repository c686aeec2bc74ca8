"""The gRPC server that listens: health from the first moment on, other calls once its interceptor lets them in.

The interceptor admits or refuses calls, parses, counts, times and logs them, and turns errors into statuses.
Law 1: no exception reaches a client as a traceback; an unexpected one is INTERNAL with an id that the server's log
repeats. Law 2: every call is counted under the status that its client sees, refused and malformed ones too.
Law 3: an expired call is dropped before any work is done for it; a search asks while it computes whether its call is
still waited for.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection

from interfere.config import Settings
from interfere.errors import (
    CancelledError,
    InterfereError,
    InvalidInputError,
    LimitError,
    UnavailableError,
    UnfitError,
)
from interfere.serving.calls.executors import MAX_WATCHES, BoundedExecutor, Executors, busy
from interfere.serving.calls.receiving import SUPPORTED
from interfere.serving.metrics import Metrics
from interfere.time_budget import interruptible
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from interfere.wire.bounds import check_bounds
from interfere.wire.errors import status_of

_log = logging.getLogger(__name__)
SERVICE = pb.DESCRIPTOR.services_by_name["PolicyService"].full_name
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
HEALTH_NAMES = ("", SERVICE)  # alive, ready
INTERRUPTION_S = 0.3  # after the grace, until what still runs is interrupted
POLL_S = 0.005  # asking gRPC takes a microsecond, and searches ask in their innermost loops
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
START_S = 1.0  # hint to callers while the server starts
LOG_EVERY_S = 60.0  # between two log lines about refused or malformed calls

Handler = Any  # grpc.RpcMethodHandler, whose stubs lack its fields

Send = Callable[[Any], None]
Context = grpc.ServicerContext
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


class CallInterruption:
    """A check that raises when the caller gave up, when the deadline of the call passed, or when the server has to
    end."""

    def __init__(self, context: grpc.ServicerContext, stopping: threading.Event) -> None:
        self._context, self._stopping, self._next_s = context, stopping, 0.0

    def __call__(self) -> None:
        """Raise CancelledError where the caller no longer waits for the answer, and UnavailableError where the server
        is stopping."""
        now_s = time.perf_counter()
        if now_s < self._next_s:
            return
        self._next_s = now_s + POLL_S
        if not self._context.is_active():
            raise CancelledError("nobody waits for this answer any longer", remedy="give it more time (timeout_s)")
        if self._stopping.is_set():
            raise UnavailableError("the server is stopping", remedy="ask again when it is back")


class _UnaryMethod(NamedTuple):
    """The gRPC handlers of one unary method: a handler that runs calls, and handlers that refuse calls."""

    executor: BoundedExecutor
    admitted: Handler
    refused: Handler  # where the executor is full
    before: Handler  # the interceptor is open

    def admit(self, *, is_open: bool) -> Handler:
        """Return the handler that runs a call, or a handler that refuses it."""
        if not is_open:
            return self.before
        return self.refused if self.executor.full else self.admitted


class CallInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Wraps every method of the server. It runs in the thread that takes calls from the network, and therefore never
    waits."""

    def __init__(
        self,
        metrics: Metrics,
        executors: Executors,
        stopping: threading.Event,
        *,
        slow_call_s: float,
    ) -> None:
        self._metrics, self._executors, self._stopping = metrics, executors, stopping
        self._slow_call_s = slow_call_s
        admission = executors.admission
        metrics.watch("interfere_large_request_bytes", lambda: admission.large_bytes)
        metrics.watch("interfere_receiving_requests", lambda: len(admission.receiver))
        self._is_open = False
        self._watches, self._mutex = 0, threading.Lock()
        self._unary_methods: dict[str, _UnaryMethod] = {}  # by full name, as they are first called
        self._refusals, self._malformed = _OccasionalLog("refused"), _OccasionalLog("not the bytes of a request")

    def open(self) -> None:
        """Let calls of the policy service in; until then they are refused, and health alone answers."""
        self._is_open = True

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return a handler on the executor for this kind of work, or a refusing handler where the executor is full."""
        name = handler_call_details.method
        if name in self._unary_methods:
            return self._unary_methods[name].admit(is_open=self._is_open)
        handler: Handler = continuation(handler_call_details)
        if handler is None:
            self._metrics.count_refused_call("unary", "unknown", "unknown", "UNIMPLEMENTED")
            return None
        _, service, method = name.split("/")
        if handler.unary_unary is not None:
            self._unary_methods[name] = self._unary_method(handler, service, method)
            return self._unary_methods[name].admit(is_open=self._is_open)
        if name == HEALTH_WATCH:
            return self._watch(handler, service, method)
        return self._stream(handler, service, method)

    # --- unary calls ------------------------------------------------------------------------------------------------

    def _unary_method(self, handler: Handler, service: str, method: str) -> "_UnaryMethod":
        policy = service == SERVICE
        executor = self._executors.of_method(method) if policy else self._executors.control
        call = self._unary(handler, service, method, deserialize=handler.request_deserializer)
        refuse_with = partial(self._refusing, "unary", service, method)
        call.refuse_with = refuse_with  # type: ignore[attr-defined]
        admitted = grpc.unary_unary_rpc_method_handler(
            _on(executor, call), request_deserializer=None, response_serializer=_serializer(handler)
        )
        refused = self._refusal(refuse_with(busy()))
        before = self._refusal(refuse_with(_is_starting())) if policy else admitted
        return _UnaryMethod(executor=executor, admitted=admitted, refused=refused, before=before)

    def _unary(
        self, handler: Handler, service: str, method: str, *, deserialize: Callable[[bytes], Any] | None
    ) -> Callable[[bytes, grpc.ServicerContext], Any]:
        metrics = self._metrics.unary_method(service, method)

        def call(content: bytes, context: grpc.ServicerContext) -> Any:
            metrics.call_started()
            start_s, code, answer = time.perf_counter(), "OK", None
            try:
                interruption = CallInterruption(context, self._stopping)
                interruption()
                request = self._parse(content, deserialize, method)
                with interruptible(interruption):
                    answer = handler.unary_unary(request, context)
                code = "OK" if context.is_active() else _ended_early(context)
            except CancelledError:
                code = _ended_early(context)
                context.abort(grpc.StatusCode[code], "nobody waits for this answer any longer")
            except InterfereError as error:
                code = error.code
                _abort_with(error, context)
            except Exception:
                code, error_id = "INTERNAL", secrets.token_hex(6)
                _log.exception("%s failed; error id %s", method, error_id)
                context.abort(grpc.StatusCode.INTERNAL, f"internal error {error_id}: the server's log has the cause")
            finally:
                seconds = time.perf_counter() - start_s
                metrics.call_ended(code, seconds)
                if seconds > self._slow_call_s:
                    _log_slow_call(method, code, seconds, answer)
            return answer

        return call

    def _parse(self, content: bytes, deserialize: Callable[[bytes], Any] | None, method: str) -> Any:
        """Return the parsed request. Raises InvalidInputError for bytes that are not such a message, or that exceed its
        bounds."""
        if deserialize is None:
            return content
        try:
            request = deserialize(content)
        except DecodeError:
            self._malformed.note(method)
            raise InvalidInputError(
                f"not the bytes of a request of {method}",
                value=f"{len(content)} bytes",
                remedy="send the message of policy.proto",
            ) from None
        check_bounds(request)
        return request

    def _refusal(self, refuse: Callable[[Any, grpc.ServicerContext], Any]) -> Any:
        """Return a handler that answers each call with `refuse`, without reading its request."""
        return grpc.unary_unary_rpc_method_handler(_on(self._executors.admission.refusals, refuse))

    def _refusing(
        self, kind: str, service: str, method: str, error: InterfereError
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        """Return a behaviour that answers a call with the status of an error, and counts and logs the refusal."""

        def refuse(_: Any, context: grpc.ServicerContext) -> Any:
            self._refusals.note(method)
            self._metrics.count_refused_call(kind, service, method, error.code)
            _abort_with(error, context)

        return refuse

    # --- streams ----------------------------------------------------------------------------------------------------

    def _watch(self, handler: Handler, service: str, method: str) -> Any:
        """Return the handler of health watches, which hold no thread between two changes of the status."""

        def ended() -> None:
            with self._mutex:
                self._watches -= 1

        def watch(request: Any, context: Any, send: Callable[[Any], None]) -> Any:
            with self._mutex:
                refused = self._watches >= MAX_WATCHES
                self._watches += not refused
            if refused:
                self._metrics.count_refused_call("stream", service, method, "RESOURCE_EXHAUSTED")
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many open health watches: use Check")
            context.add_callback(ended)
            return handler.unary_stream(request, context, send)

        behaviour: Any = _on(self._executors.watches, watch)
        behaviour.experimental_non_blocking = True
        behaviour.refuse_with = partial(self._refusing, "stream", service, method)
        return _stream_handler(handler, behaviour)

    def _stream(self, handler: Handler, service: str, method: str) -> Any:
        if self._executors.streams.full:
            refuse = self._refusing("stream", service, method, busy())
            return _stream_handler(handler, _on(self._executors.admission.refusals, refuse))
        behaviour = partial(handler.unary_stream or handler.stream_stream)  # a method takes no attributes
        return _stream_handler(handler, _on(self._executors.streams, behaviour))


def _stream_handler(handler: Handler, behaviour: Callable[..., Any]) -> Any:
    """Return a copy of a streaming handler that runs another behaviour."""
    is_unary = handler.unary_stream is not None
    make = grpc.unary_stream_rpc_method_handler if is_unary else grpc.stream_stream_rpc_method_handler
    return make(
        behaviour,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _serializer(handler: Handler) -> Callable[[Any], Any]:
    """Return the serializer of a method. An answer that is bytes already, as a worker process sends it, is left as
    it is."""
    serialize = handler.response_serializer

    def serialized(answer: Any) -> Any:
        return answer if isinstance(answer, bytes) or serialize is None else serialize(answer)

    return serialized


def _on(executor: BoundedExecutor, behaviour: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a behaviour to be run by an executor, and return it. grpcio reads the attribute that is set here."""
    behaviour.experimental_thread_pool = executor  # type: ignore[attr-defined]
    return behaviour


def _log_slow_call(method: str, code: str, seconds: float, answer: Any) -> None:
    fields = {"method": method, "code": code, "seconds": round(seconds, 3)}
    if method == "Match" and answer is not None:
        plan = pb.MatchResponse.FromString(answer) if isinstance(answer, bytes) else answer
        fields["decision_id"] = plan.decision_id
    text = ", ".join(f"{name} {value}" for name, value in fields.items())
    _log.info("slow call: %s", text, extra={"fields": fields})


def _is_starting() -> UnavailableError:
    return UnavailableError(
        "the server is starting: its model loads, its log is learned", remedy="retry in a second", retry_after_s=START_S
    )


def _ended_early(context: grpc.ServicerContext) -> str:
    """Return the status name of a call that its caller gave up, or whose deadline passed."""
    remaining_s = context.time_remaining()
    return "DEADLINE_EXCEEDED" if remaining_s is not None and remaining_s <= 0 else "CANCELLED"


def _abort_with(error: InterfereError, context: grpc.ServicerContext) -> None:
    status = status_of(error)
    metadata = [("grpc-status-details-bin", status.SerializeToString())]
    if isinstance(error, LimitError | UnavailableError) and error.retry_after_s is not None:
        metadata.append(("grpc-retry-pushback-ms", str(round(1e3 * error.retry_after_s))))
    context.set_trailing_metadata(tuple(metadata))
    context.abort(grpc.StatusCode[error.code], status.message)


class _OccasionalLog:
    """Logs one kind of failed call at most once a minute, with the number of failures since the last line."""

    def __init__(self, what: str) -> None:
        self._what, self._count, self._next_s, self._mutex = what, 0, 0.0, threading.Lock()

    def note(self, method: str) -> None:
        with self._mutex:
            self._count += 1
            now_s = time.monotonic()
            if now_s < self._next_s:
                return
            count, self._count, self._next_s = self._count, 0, now_s + LOG_EVERY_S
        _log.warning("calls %s: %d since the last line, the newest to %s", self._what, count, method)


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
