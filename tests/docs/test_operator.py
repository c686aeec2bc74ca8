"""Questions of a new operator, answered with the commands that docs name, on a server that runs."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from interfere.client import PolicyClient
from interfere.config import Settings
from interfere.records import Device, Job, Limits, ObservationResult, Snapshot
from interfere.serving.server import RunningServer, start_server
from tests.models import DEVICE_TYPE, expected, publish
from tests.serving.test_observations import window
from tests.serving.test_server import scrape
from tests.waiting import PATIENCE_S

COMMANDS = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    model = publish(tmp_path / "model")
    return Settings(model=model, work=tmp_path / "work", port=0, grace_s=1.0, decision_workers=0, metrics_port=0)


@pytest.fixture
def serve() -> Iterator[Callable[[Settings], RunningServer]]:
    """Start servers, each stopped at the end."""
    running: list[RunningServer] = []

    def start(settings: Settings) -> RunningServer:
        running.append(start_server(settings))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def server(serve: Callable[[Settings], RunningServer], settings: Settings) -> RunningServer:
    return serve(settings)


@pytest.fixture
def client(server: RunningServer) -> Iterator[PolicyClient]:
    with PolicyClient(server.address, timeout_s=PATIENCE_S) as client:
        yield client


def typed(*words: str, documented: str) -> str:
    """What a command prints; docs/commands.md or the page of operations names it."""
    operations = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert f"interfere {documented}" in COMMANDS + operations
    done = subprocess.run([sys.executable, "-m", "interfere", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_why_does_my_job_wait(server: RunningServer, client: PolicyClient) -> None:
    waits = Job(id="mine", workload="gemm")
    other = Job(id="other", workload="stream")
    device = Device(id="d0", type=DEVICE_TYPE, residents=(other,))
    client.match(Snapshot(pending=(waits,), devices=(device,), now_s=5.0, limits=Limits.of(max_slowdown=1.01)))
    target = ("--target", server.address)
    state = json.loads(typed("scopes", "show", *target, "--json", documented="scopes show"))
    (job,) = state["waiting"]
    assert job["job_id"] == "mine"
    assert "slowdown cap" in job["reason"]
    page = typed("explain", state["decision_id"], "mine", *target, documented="explain")
    assert "mine" in page
    assert "slowdown cap" in page


def test_which_pair_hurts_most(server: RunningServer, client: PolicyClient) -> None:
    client.observe([window(f"a{k}", "infer", "stream", slowdown=2.5) for k in range(5)])
    client.observe([window(f"b{k}", "infer", "gemm", slowdown=1.1) for k in range(5)])
    told = typed("observe", "losses", "--work", str(server.settings.work), documented="observe losses")
    first = next(line for line in told.splitlines() if "infer" in line)
    assert "stream" in first
    assert " 2.50 " in first


def test_do_the_intervals_still_hold(server: RunningServer, client: PolicyClient) -> None:
    truth = expected("infer", "stream")
    for k in range(20):
        (answer,) = client.observe([window(f"a{k}", "infer", "stream", slowdown=truth * (1 + 0.01 * (k % 3)))])
        assert answer.result is ObservationResult.APPLIED
    text = scrape(server)
    name = "interfere_interval_observations_total"
    assert f"`{name}" in (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    counts = {
        result: float(line.rpartition(" ")[2])
        for result in ("inside", "outside")
        for line in text.splitlines()
        if line.startswith(f'{name}{{result="{result}"}}')
    }
    assert counts["inside"] / sum(counts.values()) >= 0.8
    assert sum(counts.values()) == 20


def test_yesterdays_backup_is_restored(
    serve: Callable[[Settings], RunningServer], server: RunningServer, client: PolicyClient, tmp_path: Path
) -> None:
    settings = server.settings
    version = client.model().version
    client.observe([window(f"a{k}", "infer", "stream", slowdown=2.5) for k in range(5)])
    believed = client.predict(["infer", "stream"], pairs=[(0, 1)]).prediction.median[0]
    work = ("--work", str(settings.work))
    typed("store", "backup", str(tmp_path / "saved.tar"), *work, documented="store backup saved.tar")
    client.observe([window(f"wrong{k}", "infer", "stream", slowdown=9.0) for k in range(9)])
    server.stop()
    typed("store", "restore", str(tmp_path / "saved.tar"), *work, documented="store restore saved.tar")
    with PolicyClient(serve(replace(settings, port=0)).address, timeout_s=PATIENCE_S) as again:
        assert (again.model().version, again.model().online.observations) == (version, 5)
        assert again.predict(["infer", "stream"], pairs=[(0, 1)]).prediction.median[0] == pytest.approx(believed)
