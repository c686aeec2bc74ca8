"""`interfere ui` starts MLflow's own pages on the workspace and leaves no process behind."""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from interfere.errors import NotFoundError, UnfitError
from interfere.training.commands.ui import serve_ui
from interfere.training.publishing.tracking import tracked_run
from tests.waiting import PATIENCE_S, free_port


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    with tracked_run(work, "ui test") as run:
        run.log_metrics({"mae": 0.5, "absent": float("nan")})
    return work


def test_a_workspace_without_runs_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="interfere train"):
        serve_ui(tmp_path, 5000)


def test_a_port_in_use_is_refused_before_anything_starts(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UnfitError, match="--port"):
        serve_ui(workspace, taken.getsockname()[1])


def test_the_pages_come_up_know_the_experiment_and_leave_no_process_behind(workspace: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "interfere", "ui", "--work", str(workspace), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as ui:
        try:
            body = wait_for(f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/get-by-name?experiment_name=interfere")
            started = psutil.Process(ui.pid).children(recursive=True)
            ui.terminate()
            assert ui.wait(PATIENCE_S) == 0
        finally:
            ui.kill()
    assert '"name": "interfere"' in body
    assert started
    _, alive = psutil.wait_procs(started, timeout=PATIENCE_S)
    assert not alive


def wait_for(url: str, *, limit_s: float = PATIENCE_S) -> str:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)
