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

import pytest

from interfere.config import Settings
from interfere.serving.server import start_server
from interfere.store.backup import restore
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
    """As systemd itself reads them, with the programs of this environment."""
    if not shutil.which("systemd-analyze"):
        if "REQUIRE_ALL" in os.environ:
            pytest.fail("systemd is not installed: apt-get install systemd")
        pytest.skip("systemd is not installed: apt-get install systemd")
    units = sorted((*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")))
    assert len(units) == 5
    for unit in units:
        text = unit.read_text().replace("/opt/interfere/bin", str(BINARIES))
        (tmp_path / unit.name).write_text(text)
    paths = [str(tmp_path / unit.name) for unit in units]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if "interfere" in line]
    assert (done.returncode, told) == (0, []), done.stderr


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
    unit = (DEPLOY / "interfere-backup.service").read_text()
    for places in (
        ("/opt/interfere/bin", BINARIES),
        ("/etc/interfere/serve.toml", config),
        ("/var/lib/interfere", work),
    ):
        unit = unit.replace(places[0], str(places[1]))
    commands = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart")]
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(shlex.split(command.replace("%%", "%")), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    kept = sorted(each.name for each in backups.iterdir())
    assert len(kept) == 15
    assert kept[0] == "another.tar"
    assert kept[1] == "interfere-20200105-000000.tar"
    assert restore(Settings(work=tmp_path / "new"), backups / kept[-1]).files > 1
