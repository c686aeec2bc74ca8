"""Decisions of a scope go to one server of several while it lives, and to the next one while it does not."""

import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from interfere.client import PolicyClient, connections
from interfere.client.connections import ChannelOption, ScopeRouting, listed_addresses, rendezvous
from interfere.errors import UnavailableError
from interfere.records import Device, Job, Snapshot
from tests.models import DEVICE_TYPE, publish
from tests.soak.processes import Served, serving
from tests.store.postgres_server import running_postgres
from tests.waiting import PATIENCE_S, wait_until

ADDRESSES = tuple(f"10.0.0.{k}:50051" for k in range(1, 6))
HANG_S = 8.0  # after which a server is taken for one that hangs
SCOPES = [f"partition-{k}" for k in range(500)]


def test_all_agree_on_the_server_of_a_scope_and_only_scopes_of_a_lost_one_move() -> None:
    order = {scope: rendezvous(scope, ADDRESSES) for scope in SCOPES}
    assert all(rendezvous(scope, ADDRESSES[::-1]) == order[scope] for scope in SCOPES)
    counts = Counter(ranked[0] for ranked in order.values())
    assert set(counts) == set(ADDRESSES)
    assert max(counts.values()) < 1.5 * min(counts.values())
    lost = ADDRESSES[2]
    left = tuple(each for each in ADDRESSES if each != lost)
    for scope, ranked in order.items():
        assert rendezvous(scope, left)[0] == ranked[1 if ranked[0] == lost else 0]
    moved = Counter(order[scope][1] for scope in SCOPES if order[scope][0] == lost)
    assert set(moved) == set(left)  # to all others, not to one


@pytest.mark.parametrize(
    ("target", "addresses"),
    [
        ("ipv4:10.0.0.1:50051,10.0.0.2:50051", ("10.0.0.1:50051", "10.0.0.2:50051")),
        ("ipv6:[::1]:50051,[::2]:50051", ("[::1]:50051", "[::2]:50051")),
        ("127.0.0.1:50051", ()),
        ("unix:/run/interfere.sock", ()),
        ("dns://10.0.0.9/policy.site:50051", ()),
    ],
)
def test_addresses_of_targets(target: str, addresses: tuple[str, ...]) -> None:
    assert listed_addresses(target) == addresses
    routing = ScopeRouting(target, lambda *_: pytest.fail("no call was made"))
    assert len(addresses) > 1 or routing.choose("s") is None


def test_a_name_is_looked_up_beside_the_calls_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, opened = ["10.0.0.1", "10.0.0.2", "::1"], list[tuple[str, object]]()

    def resolve(name: str, port: str, **_: object) -> list[tuple[object, ...]]:
        assert (name, port) == ("policy.site", "50051")
        return [(0, 0, 0, "", (host, int(port))) for host in hosts]

    def open_channel(address: str, options: Sequence[ChannelOption]) -> grpc.Channel:
        opened.append((address, dict(options)["grpc.ssl_target_name_override"]))
        return grpc.insecure_channel(address)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(connections, "RESOLUTION_MS", 10)
    routing = ScopeRouting("dns:///policy.site:50051", open_channel)
    assert routing.choose("s") is None  # calls do not wait for the look-up
    wait_until(lambda: routing.choose("s") is not None, "the name is resolved")
    for scope in SCOPES:
        routing.choose(scope)
    assert set(opened) == {(f"{host}:50051", "policy.site") for host in ("10.0.0.1", "10.0.0.2", "[::1]")}
    hosts[:] = hosts[:1]
    wait_until(lambda: routing.choose("s") is None, "one server is left")
    routing.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Served]]:
    folder = tmp_path_factory.mktemp("servers")
    model = publish(folder / "model")
    with ExitStack() as stack:
        database = stack.enter_context(running_postgres()).new_database()
        yield [stack.enter_context(serving(model, database, Path(folder / f"work{k}"))) for k in range(3)]


def decide(client: PolicyClient, scope: str, number: int) -> None:
    queue = (Job(id="job", workload="infer"),)
    client.match(
        Snapshot(scope=scope, snapshot_id=f"{number}", pending=queue, devices=(Device(id="d", type=DEVICE_TYPE),))
    )


def chosen(client: PolicyClient, scope: str) -> str:
    """Return the address of the server that decides for a scope now."""
    found = client._calls._routing.choose(scope)
    return found[0] if found else ""


def test_a_scope_has_one_server_while_it_answers_and_gets_it_back(servers: list[Served]) -> None:
    target = "ipv4:" + ",".join(each.address for each in servers)
    with PolicyClient(target, timeout_s=PATIENCE_S) as client, PolicyClient(target, timeout_s=HANG_S) as impatient:
        client.wait_ready(PATIENCE_S)
        assert {chosen(client, scope) for scope in SCOPES} == {each.address for each in servers}
        home, next_one = rendezvous("s", [each.address for each in servers])[:2]
        decide(client, "s", 0)
        assert chosen(client, "s") == home
        # 1. It hangs: one call is lost, the next ones go to the next server.
        process = next(each.process for each in servers if each.address == home)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            with pytest.raises(UnavailableError, match="no answer in time"):
                decide(impatient, "s", 1)
            for k in range(2, 5):
                decide(impatient, "s", k)
                assert chosen(impatient, "s") == next_one
        finally:
            os.kill(process.pid, signal.SIGCONT)
        # 2. It answers again, and decides again.
        wait_until(lambda: chosen(impatient, "s") == home, "it is back")
        decide(impatient, "s", 5)
        # 3. It is killed: no call is lost.
        process.kill()
        process.wait()
        for k in range(6, 12):
            decide(client, "s", k)
        assert chosen(client, "s") == next_one
