"""The parts of HTTP/2 that a client of gRPC's library cannot be made to send: halves of messages, and no window."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS = 0, 1, 3, 4
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(content))[1:] + struct.pack(">BBI", kind, flags, stream) + content


def read_frame(connection: socket.socket) -> tuple[int, int, int]:
    """Kind, flags and stream of the next frame."""
    header = connection.recv(9, socket.MSG_WAITALL)
    assert len(header) == 9, "the connection was closed"
    connection.recv(int.from_bytes(header[:3], "big"), socket.MSG_WAITALL)
    return header[3], header[4], int.from_bytes(header[5:], "big")


def request_headers(method: str, token: str = "") -> bytes:
    """Headers of a call, each a literal that is not indexed (RFC 7541, section 6.2.2)."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    } | ({"authorization": f"Bearer {token}"} if token else {})
    texts = (text.encode() for header in headers.items() for text in header)
    parts = [bytes([len(text)]) + text for text in texts]
    return b"".join(b"\x00" + name + value for name, value in zip(parts[::2], parts[1::2], strict=True))


def connect(port: int, *, source: str = "127.0.0.1", window: int = 65_535) -> socket.socket:
    """Return a connection from an address of the loopback, whose streams may get `window` bytes before they ask for
    more."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=120.0, source_address=(source, 0))
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window)))
    return connection


def send_call(connection: socket.socket, stream: int, method: str, message: bytes, token: str = "") -> None:
    """Send a whole call with one message."""
    connection.sendall(
        frame(HEADERS, END_HEADERS, stream, request_headers(method, token))
        + frame(DATA, END_STREAM, stream, struct.pack(">BI", 0, len(message)) + message)
    )
