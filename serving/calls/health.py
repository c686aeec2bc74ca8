"""grpc.health.v1: whether the server lives (the empty name) and whether it is ready (the name of the policy service).

Law: no lock is held while a status is sent, and no thread between two changes of a status. (The servicer of
grpcio-health-checking 1.81 sends under its lock, and the thread that completes sends takes the same lock.)
"""

import threading
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

Send = Callable[[Any], None]
SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # protoc writes no types for services
    """Health statuses by service name. `set` notifies the clients that watch a name."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._statuses: dict[str, int] = {}
        self._watchers: dict[Send, str] = {}

    def set(self, name: str, status: int) -> None:
        """Change a status and notify the watchers of the name.

        A separate thread notifies them, because a watcher that does not read would block the caller.
        """
        with self._mutex:
            self._statuses[name] = status
            watchers = [send for send, watched in self._watchers.items() if watched == name]
        answer = pb.HealthCheckResponse(status=status)
        for send in watchers:
            threading.Thread(target=send, args=(answer,), name="health-watch", daemon=True).start()

    def Check(self, request: pb.HealthCheckRequest, context: grpc.ServicerContext) -> pb.HealthCheckResponse:  # noqa: N802
        """The status of a name; NOT_FOUND for an unknown one."""
        status = self._statuses.get(request.service)
        if status is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no service of this name: {request.service[:100]!r}")
        return pb.HealthCheckResponse(status=status)

    def Watch(self, request: pb.HealthCheckRequest, context: grpc.ServicerContext, send: Send) -> None:  # noqa: N802
        """Send the status now and at every change. Returns at once: `send` is called until the stream is closed."""
        with self._mutex:
            status = self._statuses.get(request.service, SERVICE_UNKNOWN)
            self._watchers[send] = request.service
        if not context.add_callback(lambda: self._forget(send)):
            self._forget(send)
            return
        send(pb.HealthCheckResponse(status=status))

    def _forget(self, send: Send) -> None:
        with self._mutex:
            self._watchers.pop(send, None)
