"""The sidecar: sends what a job appends to its spool to every replica of the controller. It needs no rights.

Law: it never ends the pod, and lines that no replica took are sent again.
"""

import http.client
import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path

_log = logging.getLogger("interfere.kubernetes")
SEND_BYTES = 2**18  # in one request


def addresses(host: str, port: int) -> list[tuple[str, int]]:
    """All addresses behind a headless Service; none while its name cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys((str(each[4][0]), int(each[4][1])) for each in found))


class SpoolSender:
    """Remembers how far the spool was sent."""

    def __init__(self, spool: Path, resolve: Callable[[], list[tuple[str, int]]], timeout_s: float = 5.0) -> None:
        self._spool, self._resolve, self._timeout_s, self._offset = spool, resolve, timeout_s, 0

    def send(self) -> bool:
        """Send what is new; whether a replica took all of it."""
        try:
            with self._spool.open("rb") as file:
                file.seek(self._offset)
                content = file.read(SEND_BYTES)
        except OSError:
            return True  # the job marks nothing yet
        content = content[: content.rfind(b"\n") + 1]
        if not content:
            return True
        taken = [self._post(address, content) for address in self._resolve()]
        if any(taken):
            self._offset += len(content)
        return any(taken)

    def _post(self, address: tuple[str, int], content: bytes) -> bool:
        connection = http.client.HTTPConnection(*address, timeout=self._timeout_s)
        try:
            connection.request("POST", "/marks", body=content)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def run(sender: SpoolSender, every_s: float, stop: threading.Event) -> None:
    """Send until stopped, and once more at the end."""
    reachable = True
    while not stop.wait(every_s):
        sent = sender.send()
        if sent != reachable:
            reachable = sent
            _log.warning("the controller %s", "answers again" if sent else "does not answer: marks are sent later")
    sender.send()
