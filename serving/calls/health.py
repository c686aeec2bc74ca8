"""grpc.health.v1: whether the server lives (the empty name) and whether it is ready (the policy service's name)."""

import threading
from collections.abc import Iterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


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
