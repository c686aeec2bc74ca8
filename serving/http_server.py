"""A small HTTP server with routes, plain or over TLS. One thread reads all connections; routes run in a few others.

Where no address is named it listens on all of them, IPv4 and IPv6.

Law 1: there are never more connections than `MAX_CONNECTIONS`. A new one beyond takes the place of another: of the
address that has most connections, the one that has waited longest for a handshake, a request or the rest of a body.
Law 2: a connection whose request is being answered is never closed for that. Where all are, the new one is refused.
Law 3: a connection costs no thread. A request gets one of `MAX_ANSWERED` once it was read as a whole.
"""

import asyncio
import errno
import http.client
import io
import ipaddress
import json
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from interfere.errors import InterfereError

_log = logging.getLogger("interfere.http")
MAX_BODY = 8 * 2**20  # an AdmissionReview carries a pod (1.5 MiB at most), a filter request the names of all nodes
MAX_HEAD = 2**16  # of the request line and the headers
MAX_CONNECTIONS = 256  # the API server and the scheduler keep a handful open each
MAX_ANSWERED = 32  # requests at once; a review of a pod takes a millisecond
BACKLOG = 4_096  # beyond it a new connection is tried again after a second
TIMEOUT_S = 10.0  # of a handshake, and of a body
GRACE_S = 5.0  # in which requests are answered that were read before the server stops
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
        self._routes, self._tls, self._listener = routes, tls, _listening(host, port)
        self.port = int(self._listener.getsockname()[1])  # that it listens on
        self._loop, self._stopped = asyncio.new_event_loop(), asyncio.Event()
        self._workers = ThreadPoolExecutor(MAX_ANSWERED, thread_name_prefix="http")
        self._connections = dict[asyncio.Task[None], _Connection]()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Start to answer requests."""
        self._thread.start()

    def stop(self) -> None:
        """Accept no more requests, and answer the requests already read within `GRACE_S`."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(2 * GRACE_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _serve(self) -> None:
        accepting = asyncio.create_task(self._accept())
        await self._stopped.wait()
        accepting.cancel()
        self._listener.close()
        end_s = time.monotonic() + GRACE_S
        while any(each.is_answered for each in self._connections.values()) and time.monotonic() < end_s:
            await asyncio.sleep(0.01)

    async def _accept(self) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(self._listener)
            except OSError as error:  # as where no file may be opened any more
                _log.warning("no connection can be accepted: %s", error)
                await asyncio.sleep(1.0)
                continue
            if len(self._connections) >= MAX_CONNECTIONS and not self._close_one():
                accepted.close()
                continue
            connection = _Connection(plain_address(str(address[0])))
            task = asyncio.create_task(self._converse(accepted, connection))
            self._connections[task] = connection
            task.add_done_callback(lambda done: self._connections.pop(done, None))

    def _close_one(self) -> bool:
        """Close the connection that has waited longest, of the address with most connections.

        Returns False where every connection has a request that is being answered.
        """
        of_address = Counter(each.address for each in self._connections.values())
        waiting = [(task, each) for task, each in self._connections.items() if not each.is_answered]
        if not waiting:
            return False
        oldest, _ = min(waiting, key=lambda entry: (-of_address[entry[1].address], entry[1].since_s))
        del self._connections[oldest]
        oldest.cancel()
        return True

    async def _converse(self, accepted: socket.socket, connection: "_Connection") -> None:
        """Answer the requests of one connection, one after the other, until it ends."""
        transport = None
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reader = asyncio.StreamReader(limit=MAX_HEAD)
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._tls, ssl_handshake_timeout=TIMEOUT_S if self._tls else None
            )
            writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
            while await self._answer_next(reader, writer, connection):
                connection.is_answered, connection.since_s = False, time.monotonic()
            writer.close()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, http.client.HTTPException) as error:
            _log.debug("a connection from %s ended: %s", connection.address, error)
        finally:
            if transport is not None:
                transport.abort() if not transport.is_closing() else None
            else:
                accepted.close()

    async def _answer_next(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: "_Connection"
    ) -> bool:
        """Read one request and write its answer. Returns whether the connection goes on. Raises OSError, EOFError or
        ValueError where it does not."""
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), IDLE_S)
        line, _, rest = head.partition(b"\r\n")
        method, target, version = line.decode("latin-1").split(" ")
        headers = http.client.parse_headers(io.BytesIO(rest))
        length = headers.get("Content-Length", "0")
        is_kept = version == "HTTP/1.1" and headers.get("Connection", "").lower() != "close"
        if not length.isdecimal() or int(length) > MAX_BODY:
            is_kept, answer = False, Answer(text="the body is too large\n", status=413)
        else:
            if headers.get("Expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await asyncio.wait_for(reader.readexactly(int(length)), TIMEOUT_S)
            route = self._routes.get((method, target.partition("?")[0]))
            answer = Answer(text="no such path\n", status=404)
            if route is not None:
                connection.is_answered = True
                request = Request(body=body, address=connection.address)
                answer = await self._loop.run_in_executor(self._workers, _call, route, request)
        writer.write(_written(answer, is_kept=is_kept))
        await asyncio.wait_for(writer.drain(), TIMEOUT_S)
        return is_kept and not self._stopped.is_set()


class _Connection:
    """An open connection."""

    __slots__ = ("address", "is_answered", "since_s")

    def __init__(self, address: str) -> None:
        self.address, self.is_answered, self.since_s = address, False, time.monotonic()


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, on both families where no address is named and the machine has both."""
    if ":" not in host and (host or not socket.has_ipv6):
        return _bound(socket.AF_INET, host, port)
    try:
        return _bound(socket.AF_INET6, host, port)
    except OSError as error:
        if host or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        return _bound(socket.AF_INET, host, port)  # a machine without IPv6


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _written(answer: Answer, *, is_kept: bool) -> bytes:
    """Return an answer as HTTP/1.1 writes it."""
    content = json.dumps(answer.document).encode() if answer.document is not None else answer.text.encode()
    kind = "application/json" if answer.document is not None else "text/plain; charset=utf-8"
    lines = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(content)}",
        *([] if is_kept else ["Connection: close"]),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content


def _call(route: Route, request: Request) -> Answer:
    try:
        return route(request)
    except InterfereError as error:
        return Answer(text=f"{error}\n", status=400)
    except Exception:  # a bug of one route must not end the server
        _log.exception("a request failed")
        return Answer(text="an error of the server: see its log\n", status=500)
