"""The scheduler loops of examples/scheduler_loop, each run against a real server, and where no server answers."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.client.local_tokens import LocalToken
from interfere.records import ObservationResult
from interfere.serving.server import RunningServer
from tests.waiting import free_port

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "scheduler_loop"
PROTO = "interfere/v1/policy.proto"
PROGRAMS = ("loop.py", "async_loop.py", "loop.js", "loop.go")
GO_PATH = Path("/usr/share/gocode")  # of Debian's golang-*-dev packages
MAX_CODE_LINES = 126
SHARED = {("1", job, "start_shared") for job in ("j1", "j2", "j3", "j5")} | {("1", "j4", "wait")}
WITH_SERVER = SHARED | {("2", "j4", "wait"), ("3", "j4", "start_alone")}  # jobs end after every second round
STARTED_WITHOUT_SERVER = {(r, f"j{k}", "start_alone") for k, r in enumerate("11335", start=1)}


@pytest.fixture(scope="module", params=PROGRAMS)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs a program, which is built first where it has to be."""
    program, folder = FOLDER / request.param, tmp_path_factory.mktemp(request.param)
    if program.suffix == ".py":
        return [sys.executable, str(program)]
    return node_command(program, folder) if program.suffix == ".js" else go_command(program, folder)


def node_command(program: Path, folder: Path) -> list[str]:
    if not (shutil.which("node") and shutil.which("npm")):
        reason = "needs node and npm: install nodejs"
        pytest.fail(reason) if os.environ.get("REQUIRE_ALL") else pytest.skip(reason)
    for name in ("package.json", "package-lock.json", program.name):
        shutil.copy(FOLDER / name, folder)
    subprocess.run(["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, check=True)
    return ["node", str(folder / program.name)]


def go_command(program: Path, folder: Path) -> list[str]:
    """Go as Debian packages it, without modules."""
    packages = (GO_PATH / "src" / "google.golang.org" / name for name in ("grpc", "protobuf"))
    if not all(shutil.which(tool) for tool in ("go", "protoc-gen-go-grpc")) or not all(p.is_dir() for p in packages):
        reason = "needs Go and its gRPC: the packages that examples/scheduler_loop/README.md names"
        pytest.fail(reason) if os.environ.get("REQUIRE_ALL") else pytest.skip(reason)
    source = folder / "src"
    source.mkdir()
    outputs = (f"--go_out={source}", f"--go-grpc_out={source}")
    subprocess.run(["protoc", f"--proto_path={ROOT / 'serving' / 'proto'}", *outputs, PROTO], check=True)
    variables = {"GO111MODULE": "off", "GOPATH": f"{folder}:{GO_PATH}"}
    for arguments in (("vet", str(program)), ("build", "-o", str(folder / "loop"), str(program))):
        subprocess.run(["go", *arguments], check=True, cwd=folder, env={**os.environ, **variables})
    return [str(folder / "loop")]


def run(command: list[str], address: str, **variables: str) -> str:
    variables = {"INTERFERE_PROTO": str(ROOT / "serving" / "proto" / PROTO), **variables}
    done = subprocess.run(
        [*command, address],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def actions(output: str) -> set[tuple[str, str, str]]:
    """(round, job, kind of its action), in the words of the records."""
    rows = re.findall(r"^(\d+) (j\d) (?:ACTION_KIND_)?(\w+)", output, re.MULTILINE)
    return {(number, job, kind.lower()) for number, job, kind in rows}


@pytest.mark.timeout(600)  # the first build of Go compiles gRPC
def test_the_loop_matches_starts_explains_and_observes(server: RunningServer, command: list[str]) -> None:
    with PolicyClient(server.address) as client:
        before = client.observation_log(limit=1).entries
        output = run(command, server.address, INTERFERE_TOKEN=LocalToken(server.address).read())
        assert actions(output) == WITH_SERVER
        assert (
            len(re.findall(r"^  j\d else: (?:ACTION_KIND_)?(?:start|wait)", output, re.MULTILINE | re.IGNORECASE)) == 6
        )
        assert "no explanation" not in output
        entries = [e for e in client.observation_log(limit=20).entries if e not in before][:9]
        assert {entry.result for entry in entries} <= {ObservationResult.PENDING_SOLO, ObservationResult.APPLIED}
        observed = {entry.observation.observation_id.split("-", 2)[2] for entry in entries}
        assert observed == {f"{number}-{job}" for number in "12" for job in ("j1", "j2", "j3", "j5")} | {"3-j4"}


@pytest.mark.timeout(600)
def test_without_a_server_every_job_starts_alone_and_no_window_is_lost(command: list[str]) -> None:
    output = run(command, f"127.0.0.1:{free_port()}")
    started = {action for action in actions(output) if action[2] != "wait"}
    assert started == STARTED_WITHOUT_SERVER
    assert re.findall(r"kept (\d) windows", output) == ["2", "4", "6", "8", "9"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_short(name: str) -> None:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) and not line.strip().startswith(("#", "//")) for line in lines) <= MAX_CODE_LINES
    assert max(map(len, lines)) <= 120
