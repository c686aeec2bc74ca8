"""Identity by default on one host: whoever may read the token file of a role has the role, and nobody else is asked."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.client.connections import Credentials
from interfere.client.local_tokens import ROLES, LocalToken, server_name
from interfere.config import Settings
from interfere.errors import ForbiddenError, InterfereError, UnauthenticatedError, UnfitError
from interfere.serving.calls.access import Role
from interfere.serving.calls.tokens import LocalTokens
from interfere.serving.server import RunningServer, start_server
from tests.serving.test_attacks import snapshot
from tests.waiting import PATIENCE_S

COMMAND = (sys.executable, "-m", "interfere")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which servers and clients of a test look for tokens."""
    monkeypatch.setenv("INTERFERE_RUNTIME", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest.fixture
def local(runtime: Path, settings: Settings) -> Iterator[RunningServer]:
    """A server as the command line starts it."""
    server = start_server(settings, LocalTokens())
    yield server
    server.stop()


@contextmanager
def command_line(model: Path, folder: Path, *options: str) -> Iterator[str]:
    """`interfere serve` in a process of its own; its address."""
    arguments = ["serve", "--json", "--port", "0", "--model", str(model), "--work", str(folder / "work"), *options]
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        assert line, process.communicate()[1]
        yield json.loads(line)["address"]
    finally:
        process.terminate()
        process.communicate()


def match(address: str, runtime: Path) -> "subprocess.CompletedProcess[str]":
    """`interfere match --example` in a process of its own."""
    return subprocess.run(
        [*COMMAND, "match", "--example", "--target", address],
        env={**os.environ, "INTERFERE_RUNTIME": str(runtime)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_user_who_started_the_server_needs_no_flag_and_others_get_one_error(
    model_folder: Path, tmp_path: Path, runtime: Path
) -> None:
    with command_line(model_folder, tmp_path) as address:
        folder = runtime / server_name(address)
        assert sorted(path.name for path in folder.iterdir()) == sorted(f"{role}.token" for role in ROLES)
        done = match(address, runtime)
        assert done.returncode == 0, done.stderr
        refused = match(address, tmp_path / "elsewhere")
        assert refused.returncode == 1
        assert refused.stderr.count("error:") == 1
        for text in (str(folder), "interfere-ROLE", "--insecure"):
            assert text in "".join(refused.stderr.split()), refused.stderr
    assert not folder.exists()


def test_insecure_answers_every_process_of_the_host(model_folder: Path, tmp_path: Path, runtime: Path) -> None:
    with command_line(model_folder, tmp_path, "--insecure") as address:
        assert not runtime.exists()
        assert match(address, runtime).returncode == 0


def test_only_the_owner_reads_the_tokens_where_the_host_has_no_groups_of_roles(
    local: RunningServer, runtime: Path
) -> None:
    folder = runtime / str(local.port)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_group_of_a_role_may_read_its_token_alone(
    settings: Settings, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = os.getgid()
    found = {"interfere-decide": group}
    monkeypatch.setattr("interfere.serving.calls.tokens._group", found.get)
    server = start_server(settings, LocalTokens())
    folder = runtime / str(server.port)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o711, "members get through to their file, and cannot list"
    modes = {path.stem: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == dict.fromkeys(ROLES, 0o600) | {"decide": 0o640}
    assert (folder / "decide.token").stat().st_gid == group
    with (
        PolicyClient(server.address, timeout_s=PATIENCE_S, credentials=Credentials(token_file=_empty(runtime))) as one,
        pytest.raises(UnauthenticatedError, match="decide: group interfere-decide") as refused,
    ):
        one.model()
    assert "join the group of a role (interfere-decide)" in refused.value.remedy
    server.stop()


def _empty(folder: Path) -> Path:
    (folder / "empty").write_text("")
    return folder / "empty"


CALLS: dict[Role, Callable[[PolicyClient], object]] = {
    Role.PREDICT: lambda client: client.predict(["gemm", "infer"]),
    Role.READ: lambda client: client.list_profiles(),
    Role.REPORT: lambda client: client.observe([]),
    Role.DECIDE: lambda client: client.match(snapshot()),
    Role.OPERATE: lambda client: client.remove_profiles(["none"]),
}


@pytest.mark.parametrize("role", ROLES)
def test_a_client_takes_the_strongest_role_that_it_may_read(local: RunningServer, runtime: Path, role: str) -> None:
    for stronger in ROLES[: ROLES.index(role)]:
        (runtime / str(local.port) / f"{stronger}.token").unlink()
    allowed = set(ROLES[ROLES.index(role) :])
    with PolicyClient(local.address, timeout_s=PATIENCE_S) as client:
        for needed, call in CALLS.items():
            if needed in allowed:
                call(client)
            else:
                with pytest.raises(ForbiddenError, match=f"local/{role} lacks the role {needed}"):
                    call(client)


def test_the_roles_of_token_files_are_the_roles_of_the_server() -> None:
    assert tuple(reversed(ROLES)) == tuple(Role)


def test_tokens_are_new_at_each_start_and_a_client_that_stays_sends_the_new_one(
    runtime: Path, settings: Settings, tmp_path: Path
) -> None:
    first = start_server(settings, LocalTokens())
    token = LocalToken(first.address)
    with PolicyClient(first.address, timeout_s=PATIENCE_S) as client:
        assert client.model().version
        old = token.read()
        first.stop()
        assert token.read() == ""
        again = Settings(model=settings.model, work=tmp_path / "w", port=first.port, grace_s=1.0, decision_workers=0)
        second = start_server(again, LocalTokens())
        client.wait_ready(PATIENCE_S)
        assert client.model().version
    assert token.read() not in ("", old)
    (tmp_path / "old").write_text(old)
    with (
        PolicyClient(first.address, credentials=Credentials(token_file=tmp_path / "old")) as stale,
        pytest.raises(UnauthenticatedError),
    ):
        stale.model()
    second.stop()


def test_a_server_removes_its_own_files_only(runtime: Path) -> None:
    old, new = LocalTokens(), LocalTokens()
    old.write("127.0.0.1:50051")
    new.write("127.0.0.1:50051")
    old.remove()
    assert LocalToken("localhost:50051").read()
    new.remove()
    assert not LocalToken("localhost:50051").read()


@pytest.mark.parametrize("host", ["unix:{}/a.sock", "localhost", "127.0.0.1"])
def test_each_way_to_the_loopback_has_its_tokens(
    host: str, runtime: Path, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("s")
    given = Settings(model=settings.model, work=folder, host=host.format(folder), port=0, decision_workers=0)
    server = start_server(given, LocalTokens())
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        assert client.match(snapshot()).actions
    server.stop()


@pytest.mark.parametrize("target", ["10.0.0.1:50051", "policy.example:50051", "dns:///x:1", "localhost:x", ""])
def test_no_token_of_this_host_is_sent_to_another(target: str, runtime: Path) -> None:
    LocalTokens().write("127.0.0.1:50051")
    assert LocalToken(target).read() == ""


def test_links_pipes_and_places_of_others_are_no_tokens(runtime: Path, tmp_path: Path) -> None:
    folder = runtime / "50051"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("a secret of this user")
    (folder / "operate.token").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "decide.token")
    (folder / "report.token").mkdir()
    assert LocalToken("localhost:50051").read() == ""
    tokens = LocalTokens()
    (folder / "report.token").rmdir()
    tokens.write("localhost:50051")
    assert (tmp_path / "secret").read_text() == "a secret of this user"
    assert LocalToken("localhost:50051").read()


def test_the_folder_that_a_user_names_keeps_its_mode(runtime: Path) -> None:
    runtime.mkdir(mode=0o700)
    LocalTokens().write("localhost:50051")
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_no_token_is_written_into_the_folder_of_another(runtime: Path) -> None:
    (runtime / "50051").mkdir(parents=True)
    os.chown(runtime / "50051", 65534, 65534)
    with pytest.raises(UnfitError, match="somebody else"):
        LocalTokens().write("localhost:50051")
    assert list((runtime / "50051").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_somebody_else_made_in_the_shared_place_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INTERFERE_RUNTIME", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("interfere.client.local_tokens.SYSTEM_FOLDER", tmp_path / "none" / "none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "none").write_text("no folder")
    squatted = tmp_path / f"interfere-{os.geteuid()}" / "50051"
    squatted.mkdir(parents=True)
    (squatted / "operate.token").write_text("chosen by somebody else")
    os.chown(squatted.parent, 65534, 65534)
    assert LocalToken("localhost:50051").read() == ""
    if not Path(f"/run/user/{os.geteuid()}").is_dir():
        with pytest.raises(UnfitError, match="somebody else"):
            LocalTokens().write("localhost:50051")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_of_the_host_is_refused(local: RunningServer) -> None:
    # The program becomes another user once everything is imported: others cannot read every checkout.
    program = (
        "import os, sys, grpc; from interfere.client import PolicyClient; from interfere.errors import InterfereError\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: PolicyClient(sys.argv[1]).list_profiles()\n"
        "except InterfereError as error: print(error)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, local.address], capture_output=True, text=True, check=False, env=os.environ
    )
    assert "known callers only, and the call names none" in ran.stdout, ran.stderr
    assert f"/{local.port}/ROLE.token" in ran.stdout


def test_no_token_appears_in_a_log_or_an_error(
    runtime: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    server = start_server(settings, LocalTokens())
    tokens = [path.read_text().strip() for path in (runtime / str(server.port)).iterdir()]
    errors = []
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        client.match(snapshot())
        for call in (lambda: client.explain("none", "j1"), lambda: client.get_profile("none")):
            try:
                call()
            except InterfereError as error:
                errors.append(str(error))
    wrong = runtime / "wrong"
    wrong.write_text("a-wrong-token-of-somebody")
    with PolicyClient(server.address, credentials=Credentials(token_file=wrong)) as client:
        with pytest.raises(UnauthenticatedError) as refused:
            client.model()
        errors.append(str(refused.value))
    server.stop()
    assert len(errors) == 3
    for text in (*errors, *(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)):
        assert not any(token in text for token in (*tokens, "a-wrong-token-of-somebody")), text
