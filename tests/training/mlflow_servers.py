"""MLflow's own servers, started for tests."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import PATIENCE_S, free_port


@contextmanager
def tracking_server(root: Path, *options: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Address of an `mlflow server` with a database and artifacts in a folder."""
    store = [
        "--backend-store-uri",
        f"sqlite:///{root / 'server.db'}",
        "--artifacts-destination",
        str(root / "artifacts"),
    ]
    with mlflow_process(root, ["server", "--workers", "1", *store, *options], "health", environ) as address:
        yield address


@contextmanager
def model_server(root: Path, model: str, tracking: str) -> Iterator[str]:
    """Address of `mlflow models serve` with a model of a registry."""
    with mlflow_process(
        root, ["models", "serve", "-m", model, "--env-manager", "local"], "ping", {"MLFLOW_TRACKING_URI": tracking}
    ) as address:
        yield address


@contextmanager
def mlflow_process(root: Path, arguments: Sequence[str], health: str, environ: Mapping[str, str]) -> Iterator[str]:
    port, scripts = free_port(), Path(sys.executable).parent
    environ = {
        **os.environ,
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        **environ,
    }
    command = [str(scripts / "mlflow"), *arguments, "--host", "127.0.0.1", "--port", str(port)]
    with (root / "log").open("w") as log:
        started = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + PATIENCE_S
            while not answers(f"{address}/{health}"):
                assert started.poll() is None, (root / "log").read_text()
                assert time.monotonic() < deadline, (root / "log").read_text()
                time.sleep(0.3)
            yield address
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=10):
            return True
    except OSError:
        return False
