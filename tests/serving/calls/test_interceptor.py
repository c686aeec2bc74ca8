"""What nobody foresaw: INTERNAL with an id that the log repeats, and nothing of the cause on the wire."""

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from prometheus_client import generate_latest

from interfere.config import Settings
from interfere.serving.calls.access import Access
from interfere.serving.calls.interceptor import CallInterceptor
from interfere.serving.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def channel(metrics: Metrics) -> Iterator[grpc.Channel]:
    """A server whose only unary method divides by its input, and whose stream counts."""

    def divide(request: bytes, context: Any) -> bytes:
        return str(1 // int(request)).encode()

    def count(request: bytes, context: Any) -> Iterator[bytes]:
        return (str(k).encode() for k in range(int(request)))

    handlers = {
        "Divide": grpc.unary_unary_rpc_method_handler(divide),
        "Count": grpc.unary_stream_rpc_method_handler(count),
    }
    stopping = threading.Event()
    interceptor = CallInterceptor(metrics, Settings(), stopping, access=Access())
    server = grpc.server(ThreadPoolExecutor(2), interceptors=[interceptor])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.S", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None).wait()
    stopping.set()


def test_the_cause_stays_in_the_log(channel: grpc.Channel, metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    divide = channel.unary_unary("/t.S/Divide")
    with pytest.raises(grpc.RpcError) as caught:
        divide(b"0")
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.INTERNAL
    named = re.fullmatch(r"internal error ([0-9a-f]{12}): the server's log has the cause", error.details())
    assert named
    assert f"error id {named[1]}" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert divide(b"1") == b"1"
    text = generate_latest(metrics.registry).decode()
    assert 'grpc_server_handled_total{grpc_code="INTERNAL",grpc_method="Divide"' in text
    assert 'grpc_server_handled_total{grpc_code="OK",grpc_method="Divide"' in text


def test_streams_pass_untouched(channel: grpc.Channel, metrics: Metrics) -> None:
    assert list(channel.unary_stream("/t.S/Count")(b"3")) == [b"0", b"1", b"2"]
    assert "Count" not in generate_latest(metrics.registry).decode()
