"""A server that answers one method with the same answer at once: what a call costs without what it asks for.

`python -m tests.bench.call_server WHAT [CALLERS]` prints its port and serves until its standard input ends. `plain`: a
server of gRPC's library with nothing around its method; `stream`: the same with the request read as a stream of one
message, which lets a slow sender be cancelled. `all`: the server of interfere with all protections and the callers of
the file CALLERS; any name of `PROTECTIONS`: the same without this protection.
"""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc

from interfere.config import Settings
from interfere.serving.calls import interceptor, listening
from interfere.serving.metrics import Metrics
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc

METHOD = "PredictSlowdowns"


class Servicer(rpc.PolicyServiceServicer):  # type: ignore[misc]  # protoc writes no types for services
    """Answers every request with no prediction."""

    def PredictSlowdowns(self, *_: Any) -> pb.PredictSlowdownsResponse:  # noqa: N802
        """Return an empty answer."""
        return pb.PredictSlowdownsResponse()


class _Uncounted:
    """Stands for something that counts calls or requests, and counts none."""

    bytes = 0

    def __init__(self, *_: Any) -> None: ...

    def count(self, *_: Any) -> AbstractContextManager[None]:
        return nullcontext()


class _NoQueue:
    """Lets every call begin at once."""

    def turn(self, _: str) -> AbstractContextManager[None]:
        return nullcontext()


class _NoQueues:
    short = _NoQueue()

    def __init__(self, *_: Any) -> None: ...

    def of_method(self, _: str) -> _NoQueue:
        return self.short


class _NoTransfers:
    """Waits for every request, and counts no answer."""

    arriving = unsent_bytes = 0

    def __init__(self, *_: Any) -> None: ...

    def receive(self, requests: Iterator[bytes], *_: Any) -> bytes:
        return next(requests)

    def send(self, *_: Any) -> None: ...

    def may_answer(self, _: str) -> bool:
        return True

    def on_sent(self, _: Any) -> None: ...


PROTECTIONS: dict[str, tuple[str, Any]] = {
    "fair_queue": ("CallQueues", _NoQueues),
    "calls_and_connections_of_a_caller": ("CallLimits", _Uncounted),
    "slow_senders_and_unread_answers": ("Transfers", _NoTransfers),
    "large_requests": ("LargeRequests", _Uncounted),
    "bounds_of_a_request": ("check_bounds", lambda _: None),
    "token": ("", None),
}
"""What each protection is in `interfere.serving.calls.interceptor`, and what stands in its place where it is left out.
The file of callers is left out for `token`."""


def serve(what: str, callers: Path | None, resources: ExitStack) -> int:
    """Start the server and return its port."""
    if what in ("plain", "stream"):
        server = grpc.server(ThreadPoolExecutor(listening.MAX_THREADS), options=[("grpc.so_reuseport", 0)])
        handler = (
            grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
            if what == "plain"
            else grpc.stream_unary_rpc_method_handler(lambda requests, context: next(requests)[:0])
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(interceptor.SERVICE, {METHOD: handler}),))
        port = int(server.add_insecure_port("127.0.0.1:0"))
        server.start()
        resources.callback(server.stop, None)
        return port
    name, instead = PROTECTIONS.get(what, ("", None))
    if name:
        resources.enter_context(patch.object(interceptor, name, instead))
    settings = Settings(port=0, callers=None if what == "token" else callers)
    started = listening.listen(settings, Servicer(), Metrics(), threading.Event(), resources)
    started.interceptor.open()
    return started.port


def main() -> None:
    """Serve until the standard input ends."""
    what, *file = sys.argv[1:]
    with ExitStack() as resources:
        print(serve(what, Path(file[0]) if file else None, resources), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
