"""A small HTTP server with routes, plain or over TLS. Each connection has a thread, and their number is bounded.

Where no address is named it listens on all of them, IPv4 and IPv6.

Law 1: there are never more connections than `MAX_CONNECTIONS`. A new one beyond takes the place of another: of the
address that has most connections, the one that has waited longest for a handshake, a request or the rest of a body.
Law 2: a connection whose request is being answered is never closed for that. Where all are, the new one is refused.
"""

import errno
import ipaddress
import json
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from interfere.errors import InterfereError

_log = logging.getLogger("interfere.http")
MAX_BODY = 8 * 2**20  # an AdmissionReview carries a pod (1.5 MiB at most), a filter request the names of all nodes
MAX_CONNECTIONS = 256  # the API server and the scheduler keep a handful open each
TIMEOUT_S = 10.0  # of a handshake, and of a body
# Between two requests of one connection: longer than Go's clients keep an idle one (net/http, 90 s). Else a connection
# may be closed at the moment at which the API server sends a review, which it sends once: the pod would not be gated.
IDLE_S = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An HTTP request as a route receives it."""

    body: bytes
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The HTTP answer of a route. A document is written as JSON."""

    document: Any = None
    text: str = ""
    status: int = 200


Route = Callable[[Request], Answer]


def plain_address(text: str) -> str:
    """Return an IP address in its usual form: IPv4 as such, IPv6 in lower case without a zone."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    return str(getattr(address, "ipv4_mapped", None) or address)


def healthy(_: Request) -> Answer:
    """Answer a health check: a process that answers is alive."""
    return Answer(text="ok\n")


class HttpServer:
    """Serves routes until it is stopped."""

    def __init__(
        self, routes: Mapping[tuple[str, str], Route], port: int, *, host: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        """Prepare the server. `routes`: by method and path. `port` 0 takes any free port."""
        self._server = _listening(host, port, _handler(routes))
        self._server.tls = tls
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start to answer requests."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering requests."""
        self._server.shutdown()
        self._server.server_close()


def _listening(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> "_Server":
    if ":" not in host and (host or not socket.has_ipv6):
        return _Server((host, port), handler)
    try:
        return _DualStackServer((host, port), handler)
    except OSError as error:
        if host or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        return _Server((host, port), handler)  # a machine without IPv6


class _Connection:
    """An open connection."""

    __slots__ = ("address", "is_answered", "since_s")

    def __init__(self, address: str) -> None:
        self.address, self.is_answered, self.since_s = address, False, time.monotonic()


class Connections:
    """The open connections of a server. Thread-safe."""

    def __init__(self, most: int = MAX_CONNECTIONS) -> None:
        """`most`: number of connections that may be open at once."""
        self._most, self._mutex = most, threading.Lock()
        self._by_socket: dict[socket.socket, _Connection] = {}

    def __len__(self) -> int:
        return len(self._by_socket)

    def admit(self, accepted: socket.socket, address: str) -> bool:
        """Add a connection, and close another one where there are too many. Returns False where it cannot be added."""
        with self._mutex:
            if len(self._by_socket) >= self._most and not self._close_one():
                return False
            self._by_socket[accepted] = _Connection(address)
            return True

    def replace(self, accepted: socket.socket, over_tls: socket.socket) -> None:
        """Know a connection by its socket over TLS from now on. Raises OSError where it was closed meanwhile."""
        with self._mutex:
            if accepted not in self._by_socket:
                raise OSError("closed to make room for another connection")
            self._by_socket[over_tls] = self._by_socket.pop(accepted)

    @contextmanager
    def answering(self, current: socket.socket) -> Iterator[None]:
        """Keep a connection open while its request is answered."""
        with self._mutex:
            connection = self._by_socket.get(current)
            if connection:
                connection.is_answered = True
        try:
            yield
        finally:
            with self._mutex:
                if connection:
                    connection.is_answered, connection.since_s = False, time.monotonic()

    def remove(self, current: socket.socket) -> None:
        """Remove a connection that has ended."""
        with self._mutex:
            self._by_socket.pop(current, None)

    def _close_one(self) -> bool:
        """Close the connection that has waited longest, of the address with most connections. Its thread then ends.

        Returns False where every connection has a request that is being answered. The lock must be held.
        """
        waiting = [(key, each) for key, each in self._by_socket.items() if not each.is_answered]
        if not waiting:
            return False
        of_address = Counter(each.address for each in self._by_socket.values())
        oldest, _ = min(waiting, key=lambda entry: (-of_address[entry[1].address], entry[1].since_s))
        del self._by_socket[oldest]
        with suppress(OSError):
            socket.socket.shutdown(oldest, socket.SHUT_RDWR)  # below TLS, whose state belongs to the other thread
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4_096  # beyond it a new connection is tried again after a second
    tls: ssl.SSLContext | None = None
    connections: Connections

    def server_activate(self) -> None:
        self.connections = Connections()
        super().server_activate()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.connections.admit(request, str(client_address[0])):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(TIMEOUT_S)
        try:
            if self.tls is not None:  # in the thread of the request: a slow handshake holds up no other
                accepted = request
                request = self.tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
                self.connections.replace(accepted, request)
                request.do_handshake()
            super().finish_request(request, client_address)
        except (OSError, ssl.SSLError) as error:
            _log.debug("a connection from %s ended: %s", client_address, error)
        finally:
            self.connections.remove(request)
            if isinstance(request, ssl.SSLSocket):
                request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - named by the library
        _log.exception("a request of %s failed", client_address)


class _DualStackServer(_Server):
    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _handler(routes: Mapping[tuple[str, str], Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server: _Server
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def handle_one_request(self) -> None:
            self.connection.settimeout(IDLE_S)
            super().handle_one_request()

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            self.connection.settimeout(TIMEOUT_S)
            path = self.path.partition("?")[0]
            length = self.headers.get("Content-Length", "0")
            route = routes.get((method, path))
            if not length.isdecimal() or int(length) > MAX_BODY:
                self.close_connection = True
                answer = Answer(text="the body is too large\n", status=413)
            else:
                body = self.rfile.read(int(length))
                answer = Answer(text="no such path\n", status=404)
                if route is not None:
                    address = plain_address(str(self.client_address[0]))
                    with self.server.connections.answering(self.connection):
                        answer = _call(route, Request(body=body, address=address))
            content = json.dumps(answer.document).encode() if answer.document is not None else answer.text.encode()
            self.send_response(answer.status)
            kind = "application/json" if answer.document is not None else "text/plain; charset=utf-8"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            _log.debug(format, *args)

    return Handler


def _call(route: Route, request: Request) -> Answer:
    try:
        return route(request)
    except InterfereError as error:
        return Answer(text=f"{error}\n", status=400)
    except Exception:  # a bug of one route must not end the server
        _log.exception("a request failed")
        return Answer(text="an error of the server: see its log\n", status=500)
