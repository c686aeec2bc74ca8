"""The webhook over real TLS: it gates pods that opted in, refuses none, and renews its certificates."""

import base64
import datetime as dt
import http.client
import json
import socket
import ssl
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.serving.adapters.kubernetes.needs import need_kmock

need_kmock()

from cryptography import x509

from interfere.errors import ConflictError, NotFoundError, UnfitError
from interfere.serving import http_server
from interfere.serving.adapters.kubernetes import names
from interfere.serving.adapters.kubernetes.api_server.calls import ClusterApi
from interfere.serving.adapters.kubernetes.marks import SpoolSender
from interfere.serving.adapters.kubernetes.webhook import (
    CertificateKeeper,
    Certificates,
    MountedCertificates,
    mutation,
    renew,
    review,
)
from interfere.serving.http_server import Answer, HttpServer, Request
from tests.serving.adapters.kubernetes.control_plane.admission import patched
from tests.serving.adapters.kubernetes.control_plane.api_server import SECRET, WEBHOOK, ApiServer
from tests.serving.adapters.kubernetes.facts import pod, settings

NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
HOSTS = ["interfere-webhook.interfere.svc"]


@pytest.mark.parametrize("source", ["dra", "hami", "node"])
def test_a_pod_with_a_workload_is_gated_once(source: str) -> None:
    row = patched(
        pod("p", source=source, gated=False), mutation(pod("p", source=source, gated=False), "u-1", settings())
    )
    assert row["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert mutation(row, "u-2", settings()) == []


@pytest.mark.parametrize(
    "row",
    [
        pod("p", gated=False, notes={names.OPT_OUT: "true"}),
        pod("p", gated=False, nodeName="n0"),
        pod("p", gated=False, schedulerName="volcano"),
        {"metadata": {}, "spec": {"containers": [{"name": "c"}]}},
        {"metadata": {}},
        {},
    ],
)
def test_other_pods_are_left_as_they_are(row: dict[str, Any]) -> None:
    assert mutation(row, "u", settings()) == []


def with_template(**notes: str) -> dict[str, Any]:
    """A pod as a Job makes it: without a name yet, with a claim of a template in its second container."""
    row = pod("", gated=False, notes=notes)
    row["metadata"] |= {"generateName": "job-"}
    del row["metadata"]["name"]
    row["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    row["spec"]["containers"] = [{"name": "side"}, {"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]
    return row


def test_the_claim_of_a_template_becomes_a_late_one() -> None:
    row = with_template()
    changed = patched(row, mutation(row, "0A1b-2c3d", settings()))
    assert changed["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimName": "interfere-0a1b2c3d"}]
    assert changed["metadata"]["annotations"][names.TEMPLATE] == "one-gpu"
    assert changed["spec"]["containers"] == row["spec"]["containers"], "the wiring is the user's"
    assert changed["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert mutation(changed, "u-2", settings()) == []
    labelled = with_template()
    labelled["metadata"] |= {"labels": labelled["metadata"].pop("annotations")}
    changed = patched(labelled, mutation(labelled, "u-3", settings()))
    assert changed["metadata"]["annotations"] == {names.TEMPLATE: "one-gpu"}


def test_templates_that_cannot_be_decided_stay() -> None:
    several = with_template()
    several["spec"]["resourceClaims"] *= 2
    grouped = with_template()
    grouped["spec"]["schedulerName"] = "volcano"
    for row in (several, grouped, with_template(**{names.OPT_OUT: "true"})):
        assert mutation(row, "u", settings()) == []


def post(port: int, ca: bytes, body: bytes) -> tuple[int, Any]:
    context = ssl.create_default_context(cadata=ca.decode())
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
    connection._create_connection = lambda address, *rest: __import__("socket").create_connection(
        ("127.0.0.1", port), 60
    )
    connection.host = HOSTS[0]  # the name that the API server verifies
    connection.request("POST", "/mutate", body=body)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.status == 200 else text.decode()


@pytest.fixture
def keeper(api_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> CertificateKeeper:
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    common = {"clientConfig": {}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    webhooks = [common | {"name": "a.interfere.dev"}, common | {"name": "b.interfere.dev"}]
    api_server.add(WEBHOOK, {"metadata": {"name": "interfere"}, "webhooks": webhooks})
    return CertificateKeeper(ClusterApi(10.0, 100.0, 100), "interfere", "interfere-webhook", "interfere")


def bundle(api: ApiServer) -> bytes:
    """What the API server trusts: the same for every webhook."""
    (row,) = api.rows(WEBHOOK)
    (text,) = {each["clientConfig"]["caBundle"] for each in row["webhooks"]}
    return base64.b64decode(text)


def test_a_review_over_tls_and_a_renewed_certificate(api_server: ApiServer, keeper: CertificateKeeper) -> None:
    first = keeper.refresh(dt.datetime.now(dt.UTC))
    server = HttpServer({("POST", "/mutate"): lambda r: review(r, settings())}, 0, host="127.0.0.1", tls=keeper.context)
    server.start()
    try:
        request = {"uid": "u-1", "operation": "CREATE", "object": pod("p", gated=False)}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
        status, document = post(server.port, bundle(api_server), body)
        assert (status, document["response"]["uid"], document["response"]["allowed"]) == (200, "u-1", True)
        patch = json.loads(base64.b64decode(document["response"]["patch"]))
        assert patch == [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": names.GATE}]}]
        assert post(server.port, bundle(api_server), b"{}")[0] == 400
        # 70 days later the leaf is renewed, and the same CA vouches for it without a restart.
        second = keeper.refresh(dt.datetime.now(dt.UTC) + dt.timedelta(days=70))
        assert second.certificate != first.certificate
        assert second.ca_certificates == first.ca_certificates
        assert keeper.refresh(dt.datetime.now(dt.UTC) + dt.timedelta(days=71)) == second
    finally:
        server.stop()


def test_replicas_share_the_certificates_of_one_secret(api_server: ApiServer, keeper: CertificateKeeper) -> None:
    other = CertificateKeeper(ClusterApi(10.0, 100.0, 100), "interfere", "interfere-webhook", "interfere")
    assert keeper.refresh(NOW) == other.refresh(NOW)
    (row,) = api_server.rows(SECRET)
    assert base64.b64decode(row["data"]["tls.crt"]) == keeper.refresh(NOW).certificate
    # Whoever writes what another has written meanwhile is refused.
    with pytest.raises(ConflictError):
        keeper._store({"metadata": {"resourceVersion": "1"}}, keeper.refresh(NOW))


def test_a_new_ca_is_trusted_beside_the_old_one() -> None:
    first = renew(None, HOSTS, NOW)
    later = renew(first, HOSTS, NOW + dt.timedelta(days=3000))
    old, new = (x509.load_pem_x509_certificates(each.ca_certificates) for each in (first, later))
    assert new[1:] == old
    leaf = x509.load_pem_x509_certificate(later.certificate)
    leaf.verify_directly_issued_by(new[0])
    assert leaf.not_valid_after_utc > NOW + dt.timedelta(days=3080)


def test_a_new_ca_is_trusted_before_it_is_used(api_server: ApiServer, keeper: CertificateKeeper) -> None:
    first = keeper.refresh(NOW)
    used_when_written: list[Certificates | None] = []

    def look(request: Any) -> None:
        if request.method.value == "PUT":
            used_when_written.append(keeper._used)

    api_server.kmock.fault = look
    later = keeper.refresh(NOW + dt.timedelta(days=3000))
    assert used_when_written == [first]
    assert keeper._used == later
    assert bundle(api_server) == later.ca_certificates


def test_a_configuration_that_comes_later_keeps_nobody_from_listening(
    api_server: ApiServer, keeper: CertificateKeeper
) -> None:
    """As where the API server gets the configuration after the Deployment."""
    (row,) = api_server.rows(WEBHOOK)
    api_server.delete(WEBHOOK, None, "interfere")
    with pytest.raises(NotFoundError):
        keeper.refresh(NOW)
    assert keeper.ready
    api_server.add(WEBHOOK, row)
    assert keeper.refresh(NOW).ca_certificates == bundle(api_server)


def test_a_certificate_for_an_address_beside_the_service() -> None:
    """As where the configuration names a url: the webhook runs outside the cluster."""
    leaf = x509.load_pem_x509_certificate(renew(None, [*HOSTS, "127.0.0.1", "::1"], NOW).certificate)
    alternatives = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each) for each in alternatives.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    known = renew(None, [*HOSTS, "127.0.0.1"], NOW)
    assert renew(known, [*HOSTS, "127.0.0.1"], NOW) == known


def test_a_damaged_secret_is_made_anew(api_server: ApiServer, keeper: CertificateKeeper) -> None:
    broken = base64.b64encode(b"junk").decode()
    metadata = {"name": "interfere-webhook", "namespace": "interfere"}
    api_server.add(
        SECRET, {"metadata": metadata, "data": dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"), broken)}
    )
    made = keeper.refresh(NOW)
    assert isinstance(made, Certificates)
    assert bundle(api_server) == made.ca_certificates


def test_an_idle_connection_outlives_that_of_the_api_server_and_a_silent_one_does_not(
    keeper: CertificateKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server keeps connections, sends a review once, and leaves the pod ungated where that fails."""
    assert http_server.IDLE_S > 90.0, "net/http closes its idle connections after 90 s"
    monkeypatch.setattr(http_server, "TIMEOUT_S", 0.3)
    authority = keeper.refresh(dt.datetime.now(dt.UTC)).ca_certificates.decode()
    server = HttpServer({("POST", "/mutate"): lambda r: review(r, settings())}, 0, tls=keeper.context)
    server.start()
    body = json.dumps({"request": {"uid": "u", "operation": "CREATE", "object": pod("p", gated=False)}}).encode()
    try:
        with (
            socket.create_connection(("127.0.0.1", server.port), 5) as silent,
            socket.create_connection(("127.0.0.1", server.port), 5) as raw,
            ssl.create_default_context(cadata=authority).wrap_socket(raw, server_hostname=HOSTS[0]) as secured,
        ):
            connection = http.client.HTTPConnection(HOSTS[0])
            connection.sock = secured
            for _ in range(2):
                connection.request("POST", "/mutate?timeout=2s", body)
                assert connection.getresponse().read()
                time.sleep(0.6)
            assert silent.recv(1) == b"", "a connection without a handshake is closed"
    finally:
        server.stop()


def test_three_thousand_silent_connections_cost_few_threads_and_no_review(keeper: CertificateKeeper) -> None:
    authority = keeper.refresh(dt.datetime.now(dt.UTC)).ca_certificates
    server = HttpServer({("POST", "/mutate"): lambda r: review(r, settings())}, 0, host="127.0.0.1", tls=keeper.context)
    before = threading.active_count()
    server.start()
    body = json.dumps({"request": {"uid": "u", "operation": "CREATE", "object": pod("p", gated=False)}}).encode()
    try:
        with ExitStack() as stack:
            for _ in range(3_000):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60))
            assert post(server.port, authority, body)[0] == 200
            assert threading.active_count() <= before + 50
    finally:
        server.stop()


def test_mounted_certificates_are_read_again_and_marks_travel_over_tls(tmp_path: Path) -> None:
    """As cert-manager renews them; a sidecar that knows the CA sends its marks, one that knows another does not."""
    mounted, spool, received = tmp_path / "tls", tmp_path / "steps.jsonl", list[bytes]()
    with pytest.raises(UnfitError, match="no certificate"):
        MountedCertificates(mounted)
    mounted.mkdir()

    def write(certificates: Certificates) -> None:
        (mounted / "tls.crt").write_bytes(certificates.certificate)
        (mounted / "tls.key").write_bytes(certificates.key)

    now = dt.datetime.now(dt.UTC)
    first, other = renew(None, ["marks"], now), renew(None, ["marks"], now)
    write(first)
    keeper = MountedCertificates(mounted)

    def receive(request: Request) -> Answer:
        received.append(request.body)
        return Answer(text="ok")

    server = HttpServer({("POST", "/marks"): receive}, 0, host="127.0.0.1", tls=keeper.context)
    server.start()

    def sender(authority: Certificates) -> SpoolSender:
        tls = ssl.create_default_context(cadata=authority.ca_certificates.decode())
        return SpoolSender(spool, lambda: [("127.0.0.1", server.port)], host="marks", tls=tls)

    try:
        spool.write_text("{}\n")
        assert sender(first).send()
        assert not sender(other).send()
        write(other)
        keeper.refresh()
        assert sender(other).send()
        (mounted / "tls.crt").write_bytes(b"half")
        with pytest.raises(UnfitError):
            keeper.refresh()
        assert sender(other).send(), "the previous one stays in use"
    finally:
        server.stop()
    assert received == [b"{}\n"] * 3
