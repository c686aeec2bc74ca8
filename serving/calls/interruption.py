"""Whether a running call is still waited for: asked by every search while it computes."""

import threading
import time

import grpc

from interfere.errors import CancelledError, UnavailableError

POLL_S = 0.005  # asking gRPC takes a microsecond, and searches ask in their innermost loops


class CallInterruption:
    """Raises when the caller gave up, when its deadline passed, or when the server has to end now."""

    def __init__(self, context: grpc.ServicerContext, stopping: threading.Event) -> None:
        self._context, self._stopping, self._next_s = context, stopping, 0.0

    def __call__(self) -> None:
        """Raise CancelledError or UnavailableError where nobody waits for the answer."""
        now_s = time.perf_counter()
        if now_s < self._next_s:
            return
        self._next_s = now_s + POLL_S
        if not self._context.is_active():
            raise CancelledError("nobody waits for this answer any longer", remedy="give it more time (timeout_s)")
        if self._stopping.is_set():
            raise UnavailableError("the server is stopping", remedy="ask again when it is back")
