"""What callers must not do to others: each attack on a real server over loopback, and tokens and certificates replaced
while calls go on."""

import json
import logging
import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.client.connections import Credentials
from interfere.config import Settings
from interfere.errors import ForbiddenError, InvalidInputError, LimitError, UnauthenticatedError, UnavailableError
from interfere.records import Device, Job, MemoryUsage, ReporterWeight, Rollback, Snapshot
from interfere.serving.calls.access import ROLE_OF_METHOD, Access
from interfere.serving.calls.listening import check_exposure, server_credentials
from interfere.serving.commands.callers import app
from interfere.serving.server import RunningServer
from interfere.store import profiles
from interfere.v1 import policy_pb2 as pb
from interfere.v1 import policy_pb2_grpc as rpc
from tests.models import DEVICE_TYPE, profile
from tests.serving.test_observations import window
from tests.waiting import PATIENCE_S, wait_until

ROLES = {
    "scheduler": ("decide", "report", "read"),
    "reporter": ("report",),
    "other": ("report",),
    "dashboard": ("predict",),
    "operator": ("operate", "read"),
}


def add(folder: Path, name: str, *options: str) -> Path:
    """Add a caller with a new token, and return the file of the token."""
    token = folder / f"{name}.token"
    arguments = ["add", name, "--file", str(folder / "callers.toml"), "--token-file", str(token), *options]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    return token


@pytest.fixture
def guarded(serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path) -> RunningServer:
    """A server with the callers of `ROLES`; `tenant` may decide and report in scope `a` alone."""
    for name, roles in ROLES.items():
        add(tmp_path, name, *(f"--role={role}" for role in roles))
    add(tmp_path, "tenant", "--role=decide", "--role=report", "--scope=a")
    return serve(replace(settings, callers=tmp_path / "callers.toml"))


def client_of(server: RunningServer, folder: Path, name: str) -> PolicyClient:
    return PolicyClient(
        server.address, timeout_s=PATIENCE_S, credentials=Credentials(token_file=folder / f"{name}.token")
    )


def snapshot(scope: str = "default") -> Snapshot:
    return Snapshot(
        scope=scope, pending=(Job(id="j", workload="gemm"),), devices=(Device(id="d", type=DEVICE_TYPE),), now_s=0.0
    )


def usage(k: int) -> MemoryUsage:
    return MemoryUsage(
        observation_id=f"m{k}",
        job_id="j",
        workload="gemm",
        device_type=DEVICE_TYPE,
        bytes=9e10,
        min_bytes=9e10,
        start_s=10.0 * k,
        end_s=10.0 * k + 9.0,
    )


def test_every_method_has_a_role() -> None:
    methods = {method.name for method in pb.DESCRIPTOR.services_by_name["PolicyService"].methods}
    assert methods == ROLE_OF_METHOD.keys()


def test_a_call_without_a_token_is_told_the_way_and_health_needs_none(guarded: RunningServer, tmp_path: Path) -> None:
    with PolicyClient(guarded.address, timeout_s=PATIENCE_S, credentials=Credentials()) as nobody:
        with pytest.raises(UnauthenticatedError, match="known callers only") as refused:
            nobody.match(snapshot())
        assert "INTERFERE_TOKEN_FILE" in refused.value.remedy
    (tmp_path / "wrong.token").write_text("guessed\n")
    with client_of(guarded, tmp_path, "wrong") as wrong, pytest.raises(UnauthenticatedError, match="unknown"):
        wrong.match(snapshot())
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(guarded.address) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    assert health.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("dashboard", lambda client: client.observe([usage(k) for k in range(18)])),  # forged memory windows
        ("dashboard", lambda client: client.match(snapshot())),
        ("dashboard", lambda client: client.explain("d", "j")),
        ("dashboard", lambda client: client.load_model()),
        ("reporter", lambda client: client.observe([Rollback(observation_id="r", to_sequence=0, reason="x")])),
        (
            "reporter",
            lambda client: client.observe(
                [ReporterWeight(observation_id="w", reporter="scheduler", weight=0.0, reason="x")]
            ),
        ),
        ("scheduler", lambda client: client.rollback_model()),
        ("scheduler", lambda client: client.remove_profiles(["p"])),
        ("tenant", lambda client: client.match(snapshot("b"))),
        ("tenant", lambda client: client.match(snapshot())),
    ],
)
def test_what_a_caller_has_no_role_for_is_refused_and_changes_nothing(
    guarded: RunningServer, tmp_path: Path, name: str, act: Callable[[PolicyClient], object]
) -> None:
    with client_of(guarded, tmp_path, name) as client, pytest.raises(ForbiddenError) as refused:
        act(client)
    assert name in str(refused.value)
    with client_of(guarded, tmp_path, "operator") as operator:
        assert operator.observation_log().entries == ()


def test_callers_do_what_they_have_roles_for(guarded: RunningServer, tmp_path: Path) -> None:
    with client_of(guarded, tmp_path, "scheduler") as scheduler:
        assert scheduler.match(snapshot()).actions
    with client_of(guarded, tmp_path, "tenant") as tenant:
        assert tenant.match(snapshot("a")).actions
    with client_of(guarded, tmp_path, "dashboard") as dashboard:
        assert dashboard.predict(["gemm", "infer"]).prediction.median.all()
    with client_of(guarded, tmp_path, "operator") as operator:
        assert operator.model().version


def test_nobody_reports_as_another_and_one_identity_is_taken_back(guarded: RunningServer, tmp_path: Path) -> None:
    with client_of(guarded, tmp_path, "reporter") as honest, client_of(guarded, tmp_path, "other") as liar:
        honest.observe([window(f"h{k}", "infer", "stream", slowdown=1.5) for k in range(4)])
        liar.observe([replace(window(f"l{k}", "infer", "stream", slowdown=9.0), reporter="reporter") for k in range(4)])
    with client_of(guarded, tmp_path, "operator") as operator:
        names = {one.reporter for one in operator.model().online.reporters}
        assert names == {"reporter", "other"}
        operator.observe([Rollback(observation_id="r", to_sequence=0, reason="lies", reporter="other")])
        entries = operator.observation_log().entries
    assert {entry.rolled_back for entry in entries if entry.observation.observation_id.startswith("l")} == {True}
    assert {entry.rolled_back for entry in entries if entry.observation.observation_id.startswith("h")} == {False}


def test_tokens_are_replaced_under_calls_without_a_failure_and_the_old_one_ends(
    guarded: RunningServer, tmp_path: Path
) -> None:
    old = tmp_path / "old.token"
    shutil.copy(tmp_path / "dashboard.token", old)
    over, faults, answered = threading.Event(), list[str](), [0]

    def ask() -> None:
        with client_of(guarded, tmp_path, "dashboard") as client:
            while not over.is_set():
                try:
                    client.predict(["gemm", "infer"])
                    answered[0] += 1
                except Exception as error:
                    faults.append(repr(error))

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: answered[0] > 2, "calls with the old token")
    fresh = tmp_path / "fresh"
    arguments = ["add", "dashboard", "--file", str(tmp_path / "callers.toml"), "--token-file", str(fresh)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    fresh.replace(tmp_path / "dashboard.token")  # the client reads it with its next call
    before = answered[0]
    wait_until(lambda: answered[0] > before + 2, "calls with the new token")
    arguments = ["remove", "dashboard", "--old-tokens", "--file", str(tmp_path / "callers.toml")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    before = answered[0]
    wait_until(lambda: answered[0] > before + 2, "calls after the old token ended")
    over.set()
    thread.join()
    assert faults == []
    with client_of(guarded, tmp_path, "old") as replayed, pytest.raises(UnauthenticatedError):
        replayed.predict(["gemm", "infer"])


def test_every_change_is_in_the_audit_log_and_no_secret_in_any(
    guarded: RunningServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), client_of(guarded, tmp_path, "scheduler") as scheduler:
        scheduler.match(snapshot())
        with pytest.raises(ForbiddenError):
            scheduler.observe([Rollback(observation_id="r", to_sequence=0, reason="x")])
    lines = [record.getMessage() for record in caplog.records if record.name == "interfere.audit"]
    assert [line.startswith("caller scheduler, method") for line in lines] == [True, True]
    assert "Match" in lines[0]
    assert "code OK" in lines[0]
    assert "code PERMISSION_DENIED" in lines[1]
    token = (tmp_path / "scheduler.token").read_text().strip()
    assert all(token not in json.dumps(record.__dict__, default=str) for record in caplog.records)


def test_one_caller_cannot_take_the_places_of_all_profiles(
    guarded: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MAX_PROFILES", 20)
    monkeypatch.setattr(profiles, "MAX_PROFILES_OF_CALLER", 10)
    for name in ("first", "second", "third"):
        add(tmp_path, name, "--role=report")

    def register(client: PolicyClient, prefix: str, count: int) -> None:
        client.register_profiles([profile(f"{prefix}-{k}") for k in range(count)])

    with client_of(guarded, tmp_path, "first") as first, client_of(guarded, tmp_path, "second") as second:
        register(first, "mine", 10)
        with pytest.raises(LimitError, match="too many profiles of one caller: 11"):
            register(first, "more", 1)
        register(first, "mine", 10)  # the same again
        register(second, "theirs", 10)
        with client_of(guarded, tmp_path, "third") as third, pytest.raises(LimitError, match="too many profiles: 21"):
            register(third, "other", 1)


def test_certificates_and_their_authority_are_replaced_under_calls_without_a_failure(
    serve: Callable[..., RunningServer], mutual_tls: Settings, tmp_path: Path
) -> None:
    """Each call on a connection of its own, while files are replaced one by one, a key before its certificate."""
    server = serve(mutual_tls)
    over, failed, answered = threading.Event(), list[BaseException](), list[str]()
    (tmp_path / "trusted.pem").write_bytes((tmp_path / "site.pem").read_bytes())  # what clients believe
    name = ["slurm"]

    def call() -> None:
        while not over.is_set():
            files = replace(credentials(tmp_path, name[0]), ca=tmp_path / "trusted.pem")
            try:
                with PolicyClient(server.address, timeout_s=PATIENCE_S, credentials=files) as client:
                    assert client.match(snapshot()).actions
                    answered.append(name[0])
            except BaseException as error:
                failed.append(error)

    def goes_on(calls: int = 5) -> None:
        before = len(answered)
        wait_until(lambda: failed or len(answered) > before + calls, "calls are answered")

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            goes_on()
            certificate(tmp_path, "next", "site", "IP:127.0.0.1")
            (tmp_path / "next.key").replace(tmp_path / "server.key")
            goes_on()  # the new key does not fit the certificate yet
            (tmp_path / "next.pem").replace(tmp_path / "server.pem")
        # A new authority: first both are believed, then everybody gets a new certificate, then the old one ends.
        authority(tmp_path, "new")
        both = (tmp_path / "site.pem").read_bytes() + (tmp_path / "new.pem").read_bytes()
        for file in ("trusted.pem", "both.pem"):
            (tmp_path / "scratch").write_bytes(both)
            (tmp_path / "scratch").replace(tmp_path / file)
        shutil.copy(tmp_path / "site.pem", tmp_path / "old-site.pem")
        (tmp_path / "both.pem").replace(tmp_path / "site.pem")
        goes_on()
        certificate(tmp_path, "renewed", "new", "URI:spiffe://site/slurm")
        name[0] = "renewed"
        goes_on()
        shutil.copy(tmp_path / "new.pem", tmp_path / "scratch")
        (tmp_path / "scratch").replace(tmp_path / "site.pem")
        goes_on()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failed == []
    files = replace(credentials(tmp_path, "slurm"), ca=tmp_path / "trusted.pem")
    with PolicyClient(server.address, timeout_s=2.0, credentials=files) as old, pytest.raises(UnavailableError):
        old.match(snapshot())
    print(f"{len(answered)} calls on connections of their own")


def test_a_broken_file_is_refused_at_the_start_and_ignored_later(guarded: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "callers.toml"
    good = file.read_text()
    for broken in ("not toml [", '[callers.x]\nroles = ["king"]\nsha256 = []\n', '[callers.x]\nroles = ["read"]\n'):
        file.write_text(broken)
        with pytest.raises(InvalidInputError, match="callers"):
            Access(file)
        with client_of(guarded, tmp_path, "dashboard") as client:
            assert client.predict(["gemm", "infer"]).prediction.median.all()
    file.write_text(good)


@pytest.mark.parametrize("given", [{}, {"callers": Path("c")}, {"tls_certificate": Path("c"), "tls_key": Path("k")}])
def test_beyond_this_machine_a_server_wants_callers_and_tls(given: dict[str, Path]) -> None:
    with pytest.raises(InvalidInputError, match="known callers and TLS"):
        check_exposure(Settings(host="0.0.0.0", **given))
    check_exposure(Settings(host="0.0.0.0", insecure=True, **given))
    check_exposure(Settings(host="127.0.0.1", **given))


# --- certificates -----------------------------------------------------------------------------------------------------


def authority(folder: Path, name: str) -> None:
    """A certificate authority: NAME.pem and NAME.key."""
    openssl(folder, "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2")(
        "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"
    )


def certificate(folder: Path, name: str, signed_by: str, alternative: str, *, days: int = 2) -> None:
    """A certificate with one alternative name: NAME.pem and NAME.key."""
    (folder / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
    openssl(folder, "req", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")(
        "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"
    )
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{signed_by}.pem", "-CAkey", f"{signed_by}.key")(
        "-days", str(days), "-extfile", f"{name}.ext", "-out", f"{name}.pem", "-CAcreateserial"
    )


def openssl(folder: Path, *arguments: str) -> Callable[..., None]:
    def run(*more: str) -> None:
        subprocess.run(["openssl", *arguments, *more], cwd=folder, check=True, capture_output=True)

    return run


def test_certificates_name_callers_and_foreign_ones_are_refused(
    serve: Callable[..., RunningServer], settings: Settings, tmp_path: Path
) -> None:
    for name in ("site", "foreign"):
        authority(tmp_path, name)
    certificate(tmp_path, "server", "site", "IP:127.0.0.1")
    certificate(tmp_path, "slurm", "site", "URI:spiffe://site/slurm")
    certificate(tmp_path, "stranger", "site", "URI:spiffe://site/stranger")
    certificate(tmp_path, "forged", "foreign", "URI:spiffe://site/slurm")
    arguments = ["add", "slurm", "--role=decide", "--certificate=spiffe://site/slurm"]
    assert CliRunner().invoke(app, [*arguments, "--file", str(tmp_path / "callers.toml")]).exit_code == 0
    server = serve(
        replace(
            settings,
            callers=tmp_path / "callers.toml",
            tls_certificate=tmp_path / "server.pem",
            tls_key=tmp_path / "server.key",
            tls_client_ca=tmp_path / "site.pem",
        )
    )

    def client(name: str, timeout_s: float = PATIENCE_S) -> PolicyClient:
        files = Credentials(
            ca=tmp_path / "site.pem", certificate=tmp_path / f"{name}.pem", key=tmp_path / f"{name}.key"
        )
        return PolicyClient(server.address, timeout_s=timeout_s, credentials=files)

    with client("slurm") as slurm:
        assert slurm.match(snapshot()).actions
        # A new certificate of the server is taken for new connections; those that exist go on.
        certificate(tmp_path, "server", "site", "IP:127.0.0.1")
        with client("slurm") as again:
            assert again.match(snapshot()).actions
        assert slurm.match(snapshot()).actions
    with client("stranger") as stranger, pytest.raises(UnauthenticatedError):
        stranger.match(snapshot())
    with client("forged", timeout_s=2.0) as forged, pytest.raises(UnavailableError):
        forged.match(snapshot())
    with (
        PolicyClient(server.address, timeout_s=2.0, credentials=Credentials()) as clear,
        pytest.raises(UnavailableError),
    ):
        clear.match(snapshot())
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError):
        rpc.PolicyServiceStub(channel).GetModel(pb.GetModelRequest(), timeout=2.0)


EXPIRED = -1  # days that a certificate is valid for


@pytest.fixture
def mutual_tls(settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a server that asks for certificates, with a caller `slurm` that has a valid and an expired one."""
    authority(tmp_path, "site")
    certificate(tmp_path, "server", "site", "IP:127.0.0.1")
    certificate(tmp_path, "slurm", "site", "URI:spiffe://site/slurm")
    certificate(tmp_path, "old", "site", "URI:spiffe://site/slurm", days=EXPIRED)
    arguments = ["add", "slurm", "--role=decide", "--certificate=spiffe://site/slurm"]
    assert CliRunner().invoke(app, [*arguments, "--file", str(tmp_path / "callers.toml")]).exit_code == 0
    return replace(
        settings,
        callers=tmp_path / "callers.toml",
        tls_certificate=tmp_path / "server.pem",
        tls_key=tmp_path / "server.key",
        tls_client_ca=tmp_path / "site.pem",
    )


def credentials(folder: Path, name: str) -> Credentials:
    return Credentials(ca=folder / "site.pem", certificate=folder / f"{name}.pem", key=folder / f"{name}.key")


def test_an_expired_certificate_of_a_client_is_refused_by_the_server_and_named_by_the_client(
    serve: Callable[..., RunningServer], mutual_tls: Settings, tmp_path: Path
) -> None:
    server = serve(mutual_tls)
    pems = ((tmp_path / name).read_bytes() for name in ("site.pem", "old.key", "old.pem"))
    with grpc.secure_channel(server.address, grpc.ssl_channel_credentials(*pems)) as bare:
        with pytest.raises(grpc.RpcError) as refused:
            rpc.PolicyServiceStub(bare).GetModel(pb.GetModelRequest(), timeout=PATIENCE_S)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(InvalidInputError, match=r"client's certificate has expired: .*old\.pem, valid until 20"):
        PolicyClient(server.address, credentials=credentials(tmp_path, "old"))
    certificate(tmp_path, "short", "site", "URI:spiffe://site/slurm")
    with PolicyClient(server.address, timeout_s=PATIENCE_S, credentials=credentials(tmp_path, "short")) as client:
        certificate(tmp_path, "short", "site", "URI:spiffe://site/slurm", days=EXPIRED)
        server.stop()
        with pytest.raises(UnavailableError, match="client's certificate has expired"):
            client.match(snapshot())


def test_an_expired_certificate_of_a_server_is_not_served_and_not_believed(
    serve: Callable[..., RunningServer], mutual_tls: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(mutual_tls)
    certificate(tmp_path, "server", "site", "IP:127.0.0.1", days=EXPIRED)  # a renewal that went wrong
    for _ in range(2):
        with PolicyClient(server.address, timeout_s=PATIENCE_S, credentials=credentials(tmp_path, "slurm")) as client:
            assert client.match(snapshot()).actions, "the present certificate is kept"
    lines = [record.getMessage() for record in caplog.records if "certificate" in record.getMessage()]
    assert len(lines) == 1
    assert "the server's certificate has expired" in lines[0]
    with pytest.raises(InvalidInputError, match="server's certificate has expired"):
        server_credentials(mutual_tls)
    # A server of an earlier release, which presents it all the same.
    other = grpc.server(ThreadPoolExecutor(1))
    pair = (tmp_path / "server.key").read_bytes(), (tmp_path / "server.pem").read_bytes()
    port = other.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    other.start()
    files = Credentials(ca=tmp_path / "site.pem")
    with (
        PolicyClient(f"127.0.0.1:{port}", timeout_s=PATIENCE_S, credentials=files) as client,
        pytest.raises(UnavailableError, match="server's certificate is refused: certificate has expired"),
    ):
        client.match(snapshot())
    other.stop(None).wait()
