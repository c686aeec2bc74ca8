"""The interceptor of unary calls: counts and times them, and turns their errors into statuses with details.

Law: no exception reaches a client as a traceback; an unexpected one is INTERNAL with an id that the server's log
repeats.
"""

import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

import grpc

from interfere.errors import InterfereError
from interfere.wire.errors import status_of
from serving.metrics import Metrics

_log = logging.getLogger(__name__)


class CallInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Wraps unary calls; streams (reflection, health watches) pass untouched."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Wrap the handler of a unary method."""
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        _, service, method = handler_call_details.method.split("/")

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            self._metrics.call_started(service, method)
            start_s = time.perf_counter()
            code = "OK"
            try:
                answer = handler.unary_unary(request, context)
                code = "OK" if context.is_active() else "CANCELLED"  # the caller gave up
            except InterfereError as error:
                code = error.code
                self._abort_with(error, context)
            except Exception:
                code, error_id = "INTERNAL", secrets.token_hex(6)
                _log.exception("%s failed; error id %s", method, error_id)
                context.abort(grpc.StatusCode.INTERNAL, f"internal error {error_id}: the server's log has the cause")
            finally:
                self._metrics.call_ended(service, method, code, time.perf_counter() - start_s)
            return answer

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )

    def _abort_with(self, error: InterfereError, context: grpc.ServicerContext) -> None:
        status = status_of(error)
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode[error.code], status.message)
