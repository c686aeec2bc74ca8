"""What happens around every call: it is admitted or refused, parsed, counted, timed and logged; errors become statuses.

Law 1: no exception reaches a client as a traceback; an unexpected one is INTERNAL with an id that the server's log
repeats. Law 2: every call is counted under the status that its client sees, refused and malformed ones too.
Law 3: an expired call is dropped before any work is done for it; a search asks while it computes whether its call is
still waited for. Law 4: what a client is told names no path of the server's machine; logs keep them.
"""

import copy
import hashlib
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from interfere.config import Settings
from interfere.errors import (
    CancelledError,
    InterfereError,
    InvalidInputError,
    LimitError,
    UnauthenticatedError,
    UnavailableError,
)
from interfere.serving.calls.access import CHANGING, Access, Caller
from interfere.serving.calls.callers import (
    MAX_WAITING_REFUSALS,
    CallLimits,
    RateLimit,
    StreamLimit,
    address_of,
)
from interfere.serving.calls.fair_queue import CallQueues, calling
from interfere.serving.calls.transfers import LargeRequests, Transfers
from interfere.serving.metrics import Metrics
from interfere.time_budget import check_interruption, interruptible
from interfere.tracing import annotate, received_call, span, trace_field
from interfere.v1 import policy_pb2 as pb
from interfere.wire.bounds import check_bounds
from interfere.wire.errors import status_of

_log = logging.getLogger(__name__)
_audit = logging.getLogger("interfere.audit")
SERVICE = pb.DESCRIPTOR.services_by_name["PolicyService"].full_name
POLL_S = 0.005  # asking gRPC takes a microsecond, and searches ask in their innermost loops
HEALTH_WATCH = "/grpc.health.v1.Health/Watch"
START_S = 1.0  # hint to callers while the server starts
LOG_EVERY_S = 60.0  # between two log lines about refused or malformed calls

# Each open stream holds a thread. A client that resolves names by reflection has one for some milliseconds.
MAX_STREAMS_OF_CALLER, MAX_STREAMS = 4, 64
MAX_WATCHES_OF_CALLER, MAX_WATCHES = 64, 256
CHANGES_OF_MODEL = frozenset({"LoadModel", "RollbackModel"})  # each copies, checks and teaches a model
MODEL_CHANGES, MODEL_CHANGE_EVERY_S = 10, 6.0  # of one caller at once; then one in this time

Handler = Any  # grpc.RpcMethodHandler, whose stubs lack its fields
E = TypeVar("E", bound=InterfereError)
# An absolute path of at least two names, at the start of a word. A workload named `team/job` is none.
_PATH = re.compile(r"(?<![\w./~-])/(?:[^\s/'\"<>:;,()]+/)+[^\s/'\"<>:;,()]*")


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


class CallInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Wraps every method of the server.

    A unary method is registered as one that reads a stream of requests, of which there is one: only then does gRPC for
    Python hand the call over before its request has arrived, so that a slow sender can be cancelled. On the wire there
    is no difference.
    """

    def __init__(
        self,
        metrics: Metrics,
        settings: Settings,
        stopping: threading.Event,
        *,
        access: Access,
    ) -> None:
        """Keep what the calls need. `access` identifies callers and checks what each may do."""
        self._metrics, self._stopping, self._access = metrics, stopping, access
        self._slow_call_s = settings.slow_call_s
        self._transfers = Transfers(stopping)
        self._large_requests = LargeRequests(settings.message_mib * 2**20)
        self._limits = CallLimits()
        self._queues = CallQueues(settings, self._transfers, metrics)
        self._model_changes = RateLimit(burst=MODEL_CHANGES, each_s=MODEL_CHANGE_EVERY_S)
        self._watches = StreamLimit(MAX_WATCHES_OF_CALLER, MAX_WATCHES)
        self._streams = StreamLimit(MAX_STREAMS_OF_CALLER, MAX_STREAMS)
        self._waiting_refusals = StreamLimit(MAX_WAITING_REFUSALS, MAX_WAITING_REFUSALS)
        metrics.watch("interfere_large_request_bytes", lambda: self._large_requests.bytes)
        metrics.watch("interfere_receiving_requests", lambda: self._transfers.arriving)
        metrics.watch("interfere_unsent_answer_bytes", lambda: self._transfers.unsent_bytes)
        self._is_open = False
        self._handlers: dict[str, Handler] = {}  # by full name, as they are first called
        self._refusals, self._malformed = _OccasionalLog("refused"), _OccasionalLog("not the bytes of a request")

    def open(self) -> None:
        """Let calls of the policy service in; until then they are refused, and health alone answers."""
        self._is_open = True

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the handler that admits, runs and answers calls of a method."""
        name = handler_call_details.method
        if name not in self._handlers:
            handler: Handler = continuation(handler_call_details)
            if handler is None:
                self._metrics.count_refused_call("unary", "unknown", "unknown", "UNIMPLEMENTED")
                return None
            _, service, method = name.split("/")
            wrap = self._unary_method if handler.unary_unary is not None else self._stream_method
            self._handlers[name] = wrap(handler, service, method)
        return self._handlers[name]

    # --- unary calls ------------------------------------------------------------------------------------------------

    def _unary_method(self, handler: Handler, service: str, method: str) -> Handler:
        policy = service == SERVICE
        queue = self._queues.of_method(method) if policy else self._queues.short
        run = self._unary(handler, service, method)

        def call(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            with (
                received_call(f"{service}/{method}", context.invocation_metadata()),
                self._refusing("unary", service, method, context),
            ):
                identity = self._access.caller(context) if policy else _anybody(context)
                if policy:
                    self._access.check_method(identity, method)
                caller = identity.name
                with calling(caller), self._limits.count(caller, context):
                    if policy and not self._is_open:
                        raise UnavailableError(
                            "the server is starting: its model loads, its log is learned",
                            remedy="retry in a second",
                            retry_after_s=START_S,
                        )
                    if method in CHANGES_OF_MODEL:
                        self._model_changes.take(caller)
                    content = self._transfers.receive(requests, context, caller)
                    with (
                        self._large_requests.count(len(content)),
                        interruptible(CallInterruption(context, self._stopping)),
                        queue.turn(caller),
                        span("run"),  # what is before it is the wait for a turn
                    ):
                        answer = run(content, context, identity)
                if answer is not None:
                    self._transfers.send(answer, context, caller)
                return answer
            return b""  # of a call that is over: nobody gets it

        return grpc.stream_unary_rpc_method_handler(call)

    def _unary(
        self, handler: Handler, service: str, method: str
    ) -> Callable[[bytes, grpc.ServicerContext, Caller], bytes | None]:
        """Return the function that runs a call once its turn has come: it takes the request's bytes and returns the
        answer's bytes."""
        metrics, serialize = self._metrics.unary_method(service, method), _serializer(handler)

        def run(content: bytes, context: grpc.ServicerContext, caller: Caller) -> bytes | None:
            metrics.call_started()
            start_s, code, answer, request = time.perf_counter(), "OK", None, None
            try:
                check_interruption()
                request = self._parse(content, handler.request_deserializer, method)
                if service == SERVICE:
                    self._access.check_request(caller, method, request)
                answer = serialize(handler.unary_unary(request, context))
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
                annotate(code=code, caller=caller.name)
                if caller.is_known and method in CHANGING:
                    _log_change(caller, method, code, request, content)
                if seconds > self._slow_call_s:
                    _log_slow_call(method, code, seconds, answer)
            return answer

        return run

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

    @contextmanager
    def _refusing(self, kind: str, service: str, method: str, context: grpc.ServicerContext) -> Iterator[None]:
        """Answer a call with the status of an error that is raised before it runs, and count and log the refusal."""
        try:
            yield
        except CancelledError:
            code = _ended_early(context)
            self._metrics.count_refused_call(kind, service, method, code)
            context.abort(grpc.StatusCode[code], "nobody waits for this answer any longer")
        except InterfereError as error:
            self._wait_for_refusal(context)
            self._refusals.note(method)
            self._metrics.count_refused_call(kind, service, method, error.code)
            _abort_with(error, context)
        except grpc.RpcError:  # the call ended before its request had arrived, or was cancelled for its slowness
            self._metrics.count_refused_call(kind, service, method, _ended_early(context))

    def _wait_for_refusal(self, context: grpc.ServicerContext) -> None:
        """Wait until it is the turn of the address of a refused call. Where the address has too many calls, which each
        hold a thread, its refusals do not wait."""
        address = address_of(context)
        with (
            suppress(LimitError),
            self._waiting_refusals.count(""),
            self._limits.count(address, context),
            self._queues.short.turn(address),
        ):
            pass

    # --- streams ----------------------------------------------------------------------------------------------------

    def _stream_method(self, handler: Handler, service: str, method: str) -> Handler:
        """Return the handler of a stream of answers: a health watch, or a reflection. Each holds a thread."""
        limit = self._watches if f"/{service}/{method}" == HEALTH_WATCH else self._streams

        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            with self._refusing("stream", service, method, context):
                caller = address_of(context)
                with self._limits.count(caller, context), limit.count(caller):
                    if handler.unary_stream is not None:
                        yield from handler.unary_stream(self._transfers.receive(requests, context, caller), context)
                    else:
                        yield from handler.stream_stream(requests, context)

        return grpc.stream_stream_rpc_method_handler(call, handler.request_deserializer, handler.response_serializer)


def _serializer(handler: Handler) -> Callable[[Any], bytes]:
    """Return the serializer of a method. An answer that is bytes already, as a worker process sends it, is left as
    it is."""
    serialize = handler.response_serializer

    def serialized(answer: Any) -> bytes:
        content: bytes = answer if isinstance(answer, bytes) or serialize is None else serialize(answer)
        return content

    return serialized


def _anybody(context: grpc.ServicerContext) -> Caller:
    """Return the caller of a health check, who needs no identity."""
    return Caller(name=address_of(context), is_known=False)


def _log_change(caller: Caller, method: str, code: str, request: Any, content: bytes) -> None:
    """Write a call that changes something into the audit log: who, what, where, and the digest of the request."""
    fields = {
        "caller": caller.name,
        "method": method,
        "scope": getattr(request, "scope", ""),
        "code": code,
        **trace_field(),
        "sha256": hashlib.sha256(content).hexdigest()[:12],
    }
    _audit.info("%s", ", ".join(f"{name} {value}" for name, value in fields.items()), extra={"fields": fields})


def _log_slow_call(method: str, code: str, seconds: float, answer: Any) -> None:
    fields = {"method": method, "code": code, "seconds": round(seconds, 3), **trace_field()}
    if method == "Match" and answer is not None:
        plan = pb.MatchResponse.FromString(answer) if isinstance(answer, bytes) else answer
        fields["decision_id"] = plan.decision_id
    text = ", ".join(f"{name} {value}" for name, value in fields.items())
    _log.info("slow call: %s", text, extra={"fields": fields})


def _ended_early(context: grpc.ServicerContext) -> str:
    """Return the status name of a call that its caller gave up, or whose deadline passed."""
    remaining_s = context.time_remaining()
    return "DEADLINE_EXCEEDED" if remaining_s is not None and remaining_s <= 0 else "CANCELLED"


def _abort_with(error: InterfereError, context: grpc.ServicerContext) -> None:
    # A caller without a token is told where those of its host are.
    status = status_of(error if isinstance(error, UnauthenticatedError) else error_without_paths(error))
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


def without_paths(text: str) -> str:
    """Return a text in which each absolute path is shortened to its last name: `…/manifest.json`."""
    return _PATH.sub(lambda found: f"…/{PurePath(found[0]).name}", text)


def error_without_paths(error: E) -> E:
    """Return an error of the same kind whose texts name no absolute path."""
    if not _PATH.search(str(error)):
        return error
    shortened = copy.copy(error)
    shortened.args = (without_paths(str(error)),)
    shortened.what, shortened.remedy = without_paths(error.what), without_paths(error.remedy)
    shortened.value = None if error.value is None else without_paths(str(error.value))
    return shortened
