"""Clients that open connections to the webhook, the marks or the metrics and send nothing, or some bytes."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from interfere.serving.http_server import Answer, HttpServer, Request
from tests.waiting import PATIENCE_S

FLOOD = 3_000
MOST_THREADS = 50


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Let requests of /slow be answered; at the end it is set in any case."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def server(release: threading.Event) -> Iterator[HttpServer]:
    def echo(request: Request) -> Answer:
        return Answer(text=request.body.decode())

    def slow(request: Request) -> Answer:
        release.wait(PATIENCE_S)
        return echo(request)

    server = HttpServer({("POST", "/echo"): echo, ("POST", "/slow"): slow}, 0, host="127.0.0.1")
    server.start()
    yield server
    server.stop()


def flood(port: int, stack: ExitStack, start: bytes) -> None:
    """Open connections from another address, each of which sends the start of a request."""
    for _ in range(FLOOD):
        connection = socket.create_connection(("127.0.0.1", port), PATIENCE_S, source_address=("127.0.0.2", 0))
        stack.enter_context(connection)
        connection.sendall(start)


def post(connection: http.client.HTTPConnection, text: str, path: str = "/echo") -> str:
    connection.request("POST", path, text)
    return connection.getresponse().read().decode()


@pytest.mark.parametrize("start", [b"", b"POST /ec", b"POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf"])
def test_thousands_of_stalled_connections_hold_few_threads(server: HttpServer, start: bytes) -> None:
    before = threading.active_count()
    polite = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    with ExitStack() as stack:
        assert post(polite, "before") == "before"
        flood(server.port, stack, start)
        assert post(polite, "meanwhile") == "meanwhile"
        new = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
        assert post(new, "new") == "new"
        assert threading.active_count() <= before + MOST_THREADS
        new.close()
    polite.close()


def test_a_request_that_is_answered_is_not_ended_for_others(server: HttpServer, release: threading.Event) -> None:
    answers = list[str]()
    polite = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    thread = threading.Thread(target=lambda: answers.append(post(polite, "late", "/slow")))
    thread.start()
    with ExitStack() as stack:
        flood(server.port, stack, b"")
        release.set()
        thread.join(PATIENCE_S)
    assert answers == ["late"]
    polite.close()
