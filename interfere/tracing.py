"""Traces: which calls and decisions of the server belong to which work of its callers, in the form of OpenTelemetry.

A trace has an id, which callers send in the W3C header `traceparent`, and spans: pieces of work with their times. The
server notes the id of a call in its events whoever sent it. Spans are made in programs that use OpenTelemetry, and in
processes of interfere where the variable OTEL_EXPORTER_OTLP_ENDPOINT is set (extra `otel`); others pay nothing.
"""

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from interfere.installation import install_line

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
HEADER = "traceparent"
_HEADER_FORM = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_log = logging.getLogger(__name__)
_sent_id: ContextVar[str] = ContextVar("trace_id", default="")


def start_tracing() -> None:
    """Send spans of this process to where the standard variables say; their OTEL_SERVICE_NAME is `interfere` by
    default. Without the libraries a warning is logged, and the process goes on."""
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        _log.warning("no traces: %s; remedy: %s, or unset %s", error, install_line("otel"), ENDPOINTS[0])
        return
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: "interfere"}
    provider = TracerProvider(resource=Resource.create(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


@contextmanager
def received_call(method: str, metadata: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """Run the work inside in a new span of the trace that the caller of a method named."""
    header = next((str(value) for name, value in metadata if name == HEADER), "")
    form = _HEADER_FORM.fullmatch(header)
    token = _sent_id.set(form[1] if form else "")
    try:
        if tracer := _tracer():
            from opentelemetry.trace import SpanKind
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

            parent = TraceContextTextMapPropagator().extract({HEADER: header})
            with tracer.start_as_current_span(method, context=parent, kind=SpanKind.SERVER, record_exception=False):
                yield
        else:
            yield
    finally:
        _sent_id.reset(token)


@contextmanager
def sent_call(method: str) -> Iterator[list[tuple[str, str]]]:
    """Give the headers that let a call belong to the present trace, in a span of the call."""
    headers: dict[str, str] = {}
    if tracer := _tracer():
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        with tracer.start_as_current_span(method, kind=SpanKind.CLIENT):
            TraceContextTextMapPropagator().inject(headers)
            yield list(headers.items())
    else:
        yield []


@contextmanager
def span(name: str) -> Iterator[None]:
    """Time a piece of work as a span."""
    if tracer := _tracer():
        with tracer.start_as_current_span(name):
            yield
    else:
        yield


def annotate(**values: str | float) -> None:
    """Add values to the present span, below the prefix `interfere.`."""
    if _tracer():
        from opentelemetry import trace

        trace.get_current_span().set_attributes({f"interfere.{name}": value for name, value in values.items()})


def trace_field() -> dict[str, str]:
    """Return the field `trace_id` of an event, 32 hexadecimal digits; no field outside of any trace."""
    trace_id = _current_id()
    return {"trace_id": trace_id} if trace_id else {}


def _current_id() -> str:
    if _tracer():
        from opentelemetry import trace

        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            return f"{context.trace_id:032x}"
    return _sent_id.get()


def _tracer() -> Any:
    """Return what makes spans; None where nothing in this process uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    return trace.get_tracer("interfere") if trace is not None else None
