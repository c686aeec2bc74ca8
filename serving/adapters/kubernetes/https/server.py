"""A small HTTP server with routes, plain or over TLS. Handshakes and requests are answered in threads of their own.

Where no address is named it listens on all of them, IPv4 and IPv6.
"""

import errno
import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from interfere.errors import InterfereError
from interfere.serving.adapters.kubernetes.objects.values import plain_address

_log = logging.getLogger("interfere.kubernetes")
MAX_BODY = 8 * 2**20  # an AdmissionReview carries a pod (1.5 MiB at most), a filter request the names of all nodes
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(TIMEOUT_S)
        try:
            if self.tls is not None:  # in the thread of the request: a slow handshake holds up no other
                request = self.tls.wrap_socket(request, server_side=True)
            super().finish_request(request, client_address)
        except (OSError, ssl.SSLError) as error:
            _log.debug("a connection from %s ended: %s", client_address, error)
        finally:
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
        return Answer(text="an error of the adapter: see its log\n", status=500)
