"""How many bytes of large requests may be in the server at once, waiting ones too.

Law: small requests are never refused here, so that a client with large ones stops nobody: their number is bounded by
the executors.
"""

import threading

from interfere.errors import LimitError

SMALL_BYTES = 2**20  # a snapshot of 1,000 devices is 130 KB
MESSAGES_AT_ONCE = 4  # of the largest size; each takes some times its bytes once it is parsed
RETRY_S = 1.0  # hint to those who are refused


class LargeRequests:
    """The large requests that are in the server. Thread-safe."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max_bytes = MESSAGES_AT_ONCE * max_message_bytes
        self._mutex = threading.Lock()
        self.bytes = 0

    def take(self, size: int) -> None:
        """Count a request until it is released. Raises LimitError where too many bytes are there already."""
        if size <= SMALL_BYTES:
            return
        with self._mutex:
            if self.bytes + size > self._max_bytes:
                raise LimitError(
                    "too many large requests at once",
                    value=f"{(self.bytes + size) / 2**20:.0f} MiB",
                    remedy=f"at most {self._max_bytes / 2**20:.0f} MiB wait together: send them one after another",
                    retry_after_s=RETRY_S,
                )
            self.bytes += size

    def release(self, size: int) -> None:
        """Count a request no longer that was taken."""
        if size > SMALL_BYTES:
            with self._mutex:
                self.bytes -= size
