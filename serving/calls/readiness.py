"""The policy service before it is ready: every method refuses until the server has learned its log."""

from functools import partial
from typing import Any

from interfere.errors import UnavailableError
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc

METHODS = tuple(method.name for method in pb.DESCRIPTOR.services_by_name["PolicyService"].methods)


class StartingServicer(rpc.PolicyServiceServicer):  # type: ignore[misc]  # protoc writes no types for services
    """Hands every call to the servicer that `be_ready` names; refuses before."""

    def __init__(self) -> None:
        self._servicer: rpc.PolicyServiceServicer | None = None
        for name in METHODS:
            setattr(self, name, partial(self._call, name))

    def be_ready(self, servicer: rpc.PolicyServiceServicer) -> None:
        """Answer from now on."""
        self._servicer = servicer

    def _call(self, method: str, request: Any, context: Any) -> Any:
        if self._servicer is None:
            raise UnavailableError(
                "the server is starting: it learns its log",
                value=method,
                remedy="call again soon; grpc.health.v1 tells when interfere.v1.PolicyService is SERVING",
            )
        return getattr(self._servicer, method)(request, context)
