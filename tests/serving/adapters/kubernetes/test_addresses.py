"""IPv4 and IPv6: what listens, who sends marks, and where the API server is."""

import datetime as dt
import http.client
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from kubernetes.config import incluster_config

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.serving import http_server
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.objects.reading import read_pod
from interfere.serving.http_server import Answer, HttpServer, Request, plain_address
from interfere.serving.server import start_server
from tests.serving.adapters.kubernetes.conftest import SHIPPED
from tests.serving.adapters.kubernetes.control_plane.api_server import ApiServer
from tests.serving.adapters.kubernetes.facts import pod, settings

LOOPBACKS = ("127.0.0.1", "::1")


def ask(host: str, port: int, path: str = "/address") -> str:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def echo(request: Request) -> Answer:
    return Answer(text=request.address)


def test_webhook_and_controller_listen_on_both_families() -> None:
    server = HttpServer({("GET", "/address"): echo}, 0)
    server.start()
    try:
        assert [ask(host, server.port) for host in LOOPBACKS] == list(LOOPBACKS)
    finally:
        server.stop()


def test_a_machine_without_ipv6_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = http_server._bound

    def without_ipv6(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
        if family is socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return bound(family, host, port)

    monkeypatch.setattr(http_server, "_bound", without_ipv6)
    server = HttpServer({("GET", "/address"): echo}, 0)
    server.start()
    try:
        assert ask("127.0.0.1", server.port) == "127.0.0.1"
    finally:
        server.stop()


def test_a_port_that_is_taken_is_still_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        HttpServer({}, taken.getsockname()[1])


@pytest.mark.parametrize(
    ("text", "plain"),
    [("::ffff:10.0.0.7", "10.0.0.7"), ("FD00::0:1", "fd00::1"), ("fe80::1%eth0", "fe80::1"), ("10.0.0.7", "10.0.0.7")],
)
def test_an_address_has_one_form(text: str, plain: str) -> None:
    assert plain_address(text) == plain


def test_a_pod_of_two_families_speaks_by_either_address() -> None:
    row = pod("p")
    row["status"] = {"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "FD00::7"}]}
    assert read_pod(row, settings()).ips == ("10.0.0.7", "fd00::7")
    row["spec"]["hostNetwork"] = True
    assert read_pod(row, settings()).ips == ()


def test_the_policy_server_answers_on_both_families_where_the_chart_tells_it_to(tmp_path: Path) -> None:
    running = start_server(
        Settings(model=SHIPPED, work=tmp_path, host="::", port=0, metrics_port=0, grace_s=1.0, insecure=True)
    )
    try:
        assert running.address == f"[::]:{running.port}"
        for host in ("127.0.0.1", "[::1]"):
            with PolicyClient(f"{host}:{running.port}") as client:
                assert client.model().version
        assert all("interfere_" in ask(host, running.metrics_port or 0, "/metrics") for host in LOOPBACKS)
    finally:
        running.stop()


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod's service account, and the address of the API server as the kubelet writes it on an IPv6 cluster."""
    (tmp_path / "token").write_text("first")
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return tmp_path


def test_an_api_server_with_an_ipv6_address_is_called_in_brackets(service_account: Path) -> None:
    from interfere.serving.adapters.kubernetes.api_server.calls import _configuration

    assert service_account.is_dir()
    assert _configuration().host == "https://[fd00::1]:443"


def test_a_token_that_the_kubelet_renewed_is_sent_without_a_restart(
    service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bound tokens live for an hour, and the file changes: the official client reads it again every minute."""
    from interfere.serving.adapters.kubernetes.api_server.calls import _configuration

    class Clock(dt.datetime):
        later = dt.timedelta()

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return dt.datetime.now(tz) + cls.later

    monkeypatch.setattr(incluster_config, "datetime", SimpleNamespace(datetime=Clock, timedelta=dt.timedelta))
    configuration = _configuration()
    assert configuration.auth_settings()["BearerToken"]["value"] == "bearer first"
    (service_account / "token").write_text("second")
    Clock.later = dt.timedelta(minutes=2)
    assert configuration.auth_settings()["BearerToken"]["value"] == "bearer second"


def test_every_call_carries_the_token(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    sent: list[str] = []
    api_server.kmock.fault = lambda request: sent.append(request.headers.get("Authorization", ""))
    ClusterApi(10.0, 100.0, 100).list("/api/v1/pods")
    assert sent == ["Bearer none"]
