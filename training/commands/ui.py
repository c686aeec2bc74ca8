"""Show the workspace's runs and models in a browser (MLflow)."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from interfere.commands.options import DEFAULT_WORK, Work
from interfere.commands.output import progress_note
from interfere.errors import NotFoundError, UnfitError
from interfere.training.commands.options import Tracking
from interfere.training.publishing.tracking import (
    DATABASE,
    artifact_root,
    database_uri,
    experiment_id,
    is_http_server,
    mlflow_connection,
    view_addresses,
)

SHUTDOWN_TIMEOUT_S = 10.0  # for uvicorn to finish open requests


def serve_ui(
    work: Path, port: int, *, tracking: str | None = None, report: Callable[[str], None] = lambda _: None
) -> int:
    """Run `mlflow ui` until it ends, and return its exit status.

    Nothing is started for a tracking server, which has its own pages. Raises NotFoundError for a workspace without
    runs and UnfitError for a port that cannot be used.
    """
    if tracking is not None and is_http_server(tracking):
        with mlflow_connection(work, tracking) as mlflow:
            pages = view_addresses(tracking, experiment_id(mlflow, work, tracking))
        report(f"{tracking} is a tracking server with its own pages: {pages[0]} (trainings), {pages[1]} (models)")
        return 0
    if tracking is None and not (work / DATABASE).is_file():
        raise NotFoundError("no run was recorded in this workspace", value=work, remedy="interfere train")
    with mlflow_connection(work, tracking) as mlflow:
        experiment = experiment_id(mlflow, work, tracking)
    with socket.socket() as probe:
        # As servers bind: a port whose last connection is still timing out counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UnfitError(
                f"the port cannot be used ({error.strerror})", value=port, remedy="choose another one with --port"
            ) from None
    command = [sys.executable, "-P", "-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", tracking or database_uri(work), "--workers", "1"]
    command += ["--default-artifact-root", artifact_root(work)]
    # Without MLflow's job runner: seven processes for features that this workspace does not use.
    environ = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    trainings, models = view_addresses(f"http://127.0.0.1:{port}", experiment)
    report(f"{tracking or work} in a browser: {trainings} (trainings), {models} (models); stop with Ctrl-C")
    return _run_until_stopped(command, environ)


def _run_until_stopped(command: list[str], environ: dict[str, str]) -> int:
    """Run the server in a session of its own, so that Ctrl-C or SIGTERM to us ends it with all of its workers."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGTERM, stop)
    server = subprocess.Popen(command, env=environ, start_new_session=True)
    try:
        return server.wait()
    except KeyboardInterrupt:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(SHUTDOWN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        return 0
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


app = typer.Typer(add_completion=False)


@app.command()
def ui(
    work: Work = DEFAULT_WORK,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 5000,
    tracking: Tracking = None,
) -> None:
    """Show the workspace's runs and models in a browser (mlflow ui)."""
    raise typer.Exit(serve_ui(work, port, tracking=tracking, report=progress_note))
