"""A name with the addresses of several servers: calls reach all, and those that replace them."""

import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.serving.server import RunningServer, start_server
from tests.client.name_server import NameServer
from tests.models import publish
from tests.store.postgres_server import PostgresServer, running_postgres
from tests.waiting import PATIENCE_S, free_port, wait_until


@pytest.fixture
def names() -> Iterator[NameServer]:
    server = NameServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def serve(tmp_path: Path, postgres: PostgresServer) -> Iterator[Callable[[str, int], RunningServer]]:
    """Start servers on one database, each on an address of its own of the loopback."""
    database, running = postgres.new_database(), list[RunningServer]()
    model = publish(tmp_path / "model")

    def start(host: str, port: int) -> RunningServer:
        settings = Settings(model=model, database=database, work=tmp_path / host, host=host, port=port)
        running.append(start_server(replace(settings, decision_workers=0, metrics_port=0, grace_s=1.0, insecure=True)))
        return running[-1]

    yield start
    for server in running:
        server.stop()


def calls_of(server: RunningServer) -> float:
    """The number of calls that a server has answered."""
    with urllib.request.urlopen(f"http://{server.settings.host}:{server.metrics_port}/metrics") as page:
        text = page.read().decode()
    rows = [line for line in text.splitlines() if line.startswith("grpc_server_handled_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in rows if "GetModel" in line)


def test_all_addresses_of_a_name_are_asked_and_those_that_come_later_too(
    serve: Callable[[str, int], RunningServer], names: NameServer
) -> None:
    port = free_port()
    first, second = serve("127.0.0.2", port), serve("127.0.0.3", port)
    names.addresses = ("127.0.0.2", "127.0.0.3")
    target = f"dns://127.0.0.1:{names.port}/policy.test:{port}"
    with PolicyClient(target, timeout_s=PATIENCE_S) as client:
        client.wait_ready(PATIENCE_S)

        def asked(*servers: RunningServer) -> bool:
            client.model()
            return all(calls_of(server) > 3 for server in servers)

        wait_until(lambda: asked(first, second), "calls take both in turn")
        # Both are replaced: their names go to a new address, then they stop.
        third = serve("127.0.0.4", port)
        names.addresses = ("127.0.0.4", "127.0.0.3")
        first.stop()
        wait_until(lambda: asked(third), "the new one is found")
        names.addresses = ("127.0.0.4",)
        second.stop()
        for _ in range(20):
            client.model()


def test_the_name_of_this_host_is_one_server(serve: Callable[[str, int], RunningServer]) -> None:
    server = serve("127.0.0.1", 0)
    with PolicyClient(f"dns:///localhost:{server.port}", timeout_s=PATIENCE_S) as client:
        assert client.model().version == server.model_version
