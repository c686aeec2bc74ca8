"""systemd: what a server tells it, and the units that are shipped."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from interfere.client import PolicyClient
from interfere.client.connections import Credentials
from interfere.config import Settings, load_settings
from interfere.serving.commands.callers import app as callers_app
from interfere.serving.server import start_server
from interfere.store.backup import restore
from tests.serving.test_attacks import authority, certificate
from tests.serving.test_observations import window
from tests.store.postgres_server import PostgresServer, running_postgres
from tests.waiting import PATIENCE_S

DEPLOY = Path(__file__).parents[2] / "deploy"
BINARIES = Path(sys.executable).parent


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(PATIENCE_S)
        yield channel


@pytest.fixture
def start(tmp_path: Path, manager: socket.socket) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start servers that know of the manager."""
    running: list[subprocess.Popen[str]] = []

    def start_(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "interfere", "serve", "--port", "0", "--insecure", *options]
        environment = {**os.environ, "NOTIFY_SOCKET": manager.getsockname(), "INTERFERE_WORK": str(tmp_path / "work")}
        running.append(subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE))
        return running[-1]

    yield start_
    for process in running:
        process.kill()
        process.communicate()


def test_a_server_tells_when_it_serves_and_when_it_stops(
    manager: socket.socket, start: Callable[..., subprocess.Popen[str]], model_folder: Path
) -> None:
    process = start("--model", str(model_folder))
    ready, status = manager.recv(4096).decode().splitlines()
    assert ready == "READY=1"
    assert status.startswith("STATUS=serves ")
    assert "127.0.0.1:" in status
    process.send_signal(signal.SIGTERM)
    assert manager.recv(4096) == b"STOPPING=1"
    assert process.wait(PATIENCE_S) == 0


def test_a_server_that_cannot_start_is_never_ready(
    manager: socket.socket, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    assert start("--model", str(tmp_path / "nowhere")).wait(PATIENCE_S) != 0
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


def test_a_manager_that_is_gone_stops_no_server(
    manager: socket.socket, start: Callable[..., subprocess.Popen[str]], model_folder: Path
) -> None:
    process = start("--model", str(model_folder))
    manager.recv(4096)
    os.unlink(manager.getsockname())
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


def test_the_units_are_valid(tmp_path: Path) -> None:
    """As systemd itself reads them, with the programs of this environment, and with each drop-in and instance."""
    if not shutil.which("systemd-analyze"):
        if "REQUIRE_ALL" in os.environ:
            pytest.fail("systemd is not installed: apt-get install systemd")
        pytest.skip("systemd is not installed: apt-get install systemd")
    units = sorted((*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")))
    assert len(units) == 6
    shipped = {unit.name: unit for unit in units} | {"interfere@.service": DEPLOY / "interfere.service"}
    for name, unit in shipped.items():
        (tmp_path / name).write_text(unit.read_text().replace("/opt/interfere/bin", str(BINARIES)))
    drop_ins = sorted(DEPLOY.glob("*.d/*.conf"))
    assert [file.name for file in drop_ins] == ["secrets.conf", "instance.conf"]
    for folder in ("interfere.service.d", "interfere@.service.d", "interfere-backup.service.d"):
        (tmp_path / folder).mkdir()
        shutil.copy(drop_ins[0], tmp_path / folder)
    shutil.copy(drop_ins[1], tmp_path / "interfere@.service.d")
    paths = [str(tmp_path / name.replace("@", "@1")) for name in shipped]
    (tmp_path / "interfere@1.service").symlink_to("interfere@.service")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if "interfere" in line or "conf:" in line]
    assert (done.returncode, told) == (0, []), done.stderr


def drop_in_settings(name: str, **specifiers: object) -> dict[str, str]:
    """The variables that a shipped drop-in sets."""
    values: dict[str, str] = {}
    for line in (DEPLOY / name).read_text().splitlines():
        key, _, value = line.partition("=")
        for specifier, replacement in specifiers.items():
            value = value.replace(f"%{specifier}", str(replacement))
        if key == "Environment":
            values |= dict(each.split("=", 1) for each in shlex.split(value))
    return values


def test_instances_share_no_port_and_no_workspace() -> None:
    first, second = (load_settings(environ=drop_in_settings("interfere@.service.d/instance.conf", i=k)) for k in (1, 2))
    assert (first.port, second.port, second.metrics_port) == (50051, 50052, 9462)
    assert first.work != second.work
    assert first.metrics_port != second.metrics_port


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


def test_secrets_come_as_credentials_and_are_shown_nowhere(
    manager: socket.socket, tmp_path: Path, model_folder: Path, postgres: PostgresServer
) -> None:
    """The drop-in's own variables, with the folder of credentials that systemd makes."""
    password = "correct-horse%2F:battery"
    address = postgres.new_guarded_database("guarded", password)
    authority(tmp_path, "site")
    certificate(tmp_path, "server", "site", "IP:127.0.0.1")
    callers, token_file = tmp_path / "callers.toml", tmp_path / "token"
    arguments = ["add", "site", "--role=report", "--file", str(callers), "--token-file", str(token_file)]
    assert CliRunner().invoke(callers_app, arguments).exit_code == 0
    given = tmp_path / "credentials"
    given.mkdir()
    (tmp_path / "database-password").write_text(password + "\n")
    (tmp_path / "server.key").rename(tmp_path / "tls.key")
    lines = (DEPLOY / "interfere.service.d" / "secrets.conf").read_text().splitlines()
    names = [line.partition("=")[2].partition(":")[0] for line in lines if line.startswith("LoadCredential")]
    assert len(names) == 3
    for name in names:
        shutil.copy(tmp_path / name, given / name)
        (given / name).chmod(0o440)  # what a rule for one user looks like
    variables = drop_in_settings("interfere.service.d/secrets.conf", d=given)
    shown = variables["INTERFERE_DATABASE"].replace("postgresql://interfere@db/interfere?", f"{address}&")
    variables |= {"INTERFERE_DATABASE": shown, "INTERFERE_TLS_CERTIFICATE": str(tmp_path / "server.pem")}
    variables |= {"INTERFERE_WORK": str(tmp_path / "work"), "CREDENTIALS_DIRECTORY": str(given)}
    environment = {**os.environ, **variables, "NOTIFY_SOCKET": manager.getsockname(), "INTERFERE_SLOW_CALL_S": "0"}
    command = [sys.executable, "-m", "interfere", "serve", "--port", "0", "--model", str(model_folder)]
    command += ["--metrics-port", "-1", "--log-format", "json"]
    process = subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        status = manager.recv(4096).decode().splitlines()[-1]
        credentials = Credentials(ca=tmp_path / "site.pem", token_file=token_file)
        with PolicyClient(status.rpartition(" ")[2], timeout_s=PATIENCE_S, credentials=credentials) as client:
            client.observe([window("a", "infer", "stream", slowdown=1.5)])
        server = psutil.Process(process.pid)
        workers = server.children(recursive=True)
        assert workers
        told = "".join(f"{each.cmdline()} {each.environ()}" for each in (server, *workers))
    finally:
        process.terminate()
        out, errors = process.communicate()
    told += out + errors
    assert "password_file" in told
    (given / "database-password").chmod(0o600)
    (given / "database-password").write_text(f"{password}-old")
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "the database is away" in refused.stderr
    (given / "database-password").unlink()
    missing = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "password file of the database cannot be read" in missing.stderr
    told += refused.stderr + missing.stderr
    key = (tmp_path / "tls.key").read_text().splitlines()[1]
    for secret in (password, key, token_file.read_text().strip()):
        assert secret not in told


def test_a_backup_runs_as_the_unit_says_and_the_newest_fourteen_are_kept(tmp_path: Path, model_folder: Path) -> None:
    """The unit's own lines, with the folders of this test."""
    work = tmp_path / "work"
    backups, config = work / "backups", tmp_path / "serve.toml"
    config.write_text(f'work = "{work}"\n')
    start_server(Settings(work=work, model=model_folder, port=0, decision_workers=0)).stop()
    backups.mkdir()
    for day in range(1, 18):
        (backups / f"interfere-202001{day:02}-000000.tar").touch()
    (backups / "another.tar").touch()
    (backups / ".interfere-20200118-000000.tar.x").mkdir()
    unit = (DEPLOY / "interfere-backup.service").read_text()
    for places in (
        ("/opt/interfere/bin", BINARIES),
        ("/etc/interfere/serve.toml", config),
        ("/var/lib/interfere", work),
    ):
        unit = unit.replace(places[0], str(places[1]))
    commands = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart")]
    assert len(commands) == 4
    for command in commands:
        done = subprocess.run(shlex.split(command.replace("%%", "%")), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    kept = sorted(each.name for each in backups.iterdir())
    assert len(kept) == 15
    assert kept[0] == "another.tar"
    assert kept[1] == "interfere-20200105-000000.tar"
    assert restore(Settings(work=tmp_path / "new"), backups / kept[-1]).files > 1
