"""MLflow's own user interface on the workspace's database, or on another one."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from interfere.errors import NotFoundError, UnfitError
from training.publishing.tracking import database, is_server

PATIENCE_S = 10.0  # uvicorn finishes the requests it has


def serve_ui(
    work: Path, port: int, *, tracking: str | None = None, report: Callable[[str], None] = lambda _: None
) -> int:
    """Run `mlflow ui` until it ends; its exit status. Raises NotFoundError or UnfitError before it starts.

    A tracking server shows its runs itself: nothing is started for one.
    """
    if tracking is not None and is_server(tracking):
        report(f"{tracking} shows its runs itself: open it in a browser")
        return 0
    if tracking is None and not (work / "mlflow.db").is_file():
        raise NotFoundError("no run was recorded in this workspace", value=work, remedy="interfere train")
    with socket.socket() as probe:
        # As servers bind: a port that only waits for its last connection to time out is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UnfitError(
                f"the port cannot be used ({error.strerror})", value=port, remedy="choose another one with --port"
            ) from None
    command = [sys.executable, "-P", "-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", tracking or database(work), "--workers", "1"]
    command += ["--default-artifact-root", (work / "mlartifacts").resolve().as_uri()]
    # Without its job runner: that is seven processes for features this workspace does not use.
    environ = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    report(f"http://127.0.0.1:{port} shows {tracking or work}; stop with Ctrl-C")
    return _run_until_stopped(command, environ)


def _run_until_stopped(command: list[str], environ: dict[str, str]) -> int:
    """Run in a session of its own, so that Ctrl-C or SIGTERM to us ends the server and all of its workers."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    server = subprocess.Popen(command, env=environ, start_new_session=True)
    try:
        return server.wait()
    except KeyboardInterrupt:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
