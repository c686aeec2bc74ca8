"""A DNS server of a test: what a headless Service is to its clients."""

import socket
import struct
import threading

A, IN = 1, 1


class NameServer:
    """A DNS server on the loopback that knows one name, and answers with its addresses of now (RFC 1035)."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                query, sender = self._socket.recvfrom(4096)
            except OSError:
                return
            end = query.index(b"\0", 12) + 5  # of the question: its name, type and class
            (kind,) = struct.unpack("!H", query[end - 4 : end - 2])
            addresses = self.addresses if kind == A else ()
            head = query[:2] + struct.pack("!HHHHH", 0x8580, 1, len(addresses), 0, 0)
            rows = [struct.pack("!HHHIH", 0xC00C, A, IN, 0, 4) + socket.inet_aton(each) for each in addresses]
            self._socket.sendto(head + query[12:end] + b"".join(rows), sender)

    def close(self) -> None:
        self._socket.close()
