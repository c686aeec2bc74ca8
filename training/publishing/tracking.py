"""Tracks runs in MLflow: parameters, metrics, datasets, tables, figures and folders of one training.

Without an address, runs go to the workspace: `mlflow.db` (SQLite) and `mlartifacts/`. With one, runs, artifacts and the
registry are at that server. MLflow keeps the address in global state; it is set for the duration of a connection and
restored afterwards. MLflow's database names its artifacts by absolute addresses; whenever a workspace is opened in
another place than they name, because it was moved or copied, the addresses of its own artifact folder are rewritten in
one transaction. Law: addresses outside the workspace's artifact folder are never touched.
"""

import logging
import math
import os
import platform
import sqlite3
import tempfile
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from interfere.errors import UnavailableError, UnfitError
from interfere.records import PairMeasurement
from interfere.reports.document import Document
from interfere.reports.html_page import html_page

DATABASE, ARTIFACTS = "mlflow.db", "mlartifacts"
# Columns that hold the address of an artifact; what a release of MLflow does not have is skipped.
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)
_LOCK_TIMEOUT_S = 10.0  # another process writes to the database


def artifact_root(work: Path) -> str:
    """The address of the workspace's artifact folder."""
    return (work / ARTIFACTS).resolve().as_uri()


def adopt_artifacts(work: Path, experiment: str) -> str:
    """Rewrite addresses that still name the place from which the workspace came; that place, "" where nothing moved.

    Raises UnavailableError where the database cannot be written.
    """
    path, root = work / DATABASE, artifact_root(work)
    if not path.is_file() or not any((work / ARTIFACTS).glob("*")):
        return ""  # without its artifacts the database says best where they are
    try:
        connection = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S)
        try:
            before = _recorded_root(connection, experiment)
            if before in ("", root):
                return ""
            with connection:  # one transaction
                for table, column in COLUMNS:
                    if column in _columns(connection, table):
                        _rewrite(connection, table, column, before, root)
            return before
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise UnavailableError(
            f"the workspace was moved, and its database cannot be brought along ({error})",
            value=path,
            remedy="let other commands in this workspace end, make it writable, then retry",
        ) from None


def _recorded_root(connection: sqlite3.Connection, experiment: str) -> str:
    """The artifact folder that the database names; "" where there is none yet, or where it is a server's."""
    if "artifact_location" not in _columns(connection, "experiments"):
        return ""
    row = connection.execute("SELECT artifact_location FROM experiments WHERE name = ?", (experiment,)).fetchone()
    location = str(row[0]) if row and row[0] else ""
    return location if location.startswith("file:") and location.endswith(f"/{ARTIFACTS}") else ""


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _rewrite(connection: sqlite3.Connection, table: str, column: str, before: str, root: str) -> None:
    connection.execute(
        f"UPDATE {table} SET {column} = ? || substr({column}, ?) "  # noqa: S608 - our own table and column names
        f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
        (root, len(before) + 1, before, len(before) + 1, f"{before}/"),
    )


EXPERIMENT = "interfere"
SERVER_TIMEOUT_S = 10.0  # a server whose health check takes longer counts as down
ADDRESS_VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
LIBRARIES = ("interfere-gpu", "numpy", "lightgbm", "torch", "onnx", "onnxruntime", "onnxmltools", "mlflow", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An open MLflow run; everything is logged to its id, whichever run is active in MLflow."""

    id: str
    name: str
    experiment: str
    mlflow: Any

    def log_parameters(self, values: Mapping[str, object]) -> None:
        """Log settings; MLflow accepts each name once."""
        self.mlflow.log_params(dict(values), run_id=self.id)

    def log_metrics(self, values: Mapping[str, float]) -> None:
        """Log numbers; NaN is left out."""
        self.mlflow.log_metrics({k: float(v) for k, v in values.items() if not math.isnan(v)}, run_id=self.id)

    def log_text(self, name: str, content: str) -> None:
        """Log a text artifact."""
        self.mlflow.log_text(content, name, run_id=self.id)

    def log_page(self, name: str, document: Document) -> None:
        """Log a document as an HTML artifact, which the UI shows."""
        self.log_text(name, html_page(document))

    def log_table(self, name: str, columns: Mapping[str, list[Any]]) -> None:
        """Log a table artifact, which the UI shows across runs."""
        self.mlflow.log_table(dict(columns), name, run_id=self.id)

    def log_folder(self, name: str, path: Path) -> None:
        """Log a folder of artifacts."""
        self.mlflow.log_artifacts(str(path), name, run_id=self.id)

    def log_dataset(self, name: str, digest: str, source: str, pairs: Sequence[PairMeasurement]) -> None:
        """Log a table that was trained on, by name and digest (MLflow stores 36 characters of it)."""
        import pandas as pd

        columns = {
            field: [getattr(p, field) for p in pairs] for field in ("victim", "neighbour", "device_type", "mode")
        }
        frame = pd.DataFrame(columns | {"slowdown": [p.slowdown for p in pairs]})
        # MLflow warns that two source types match, and takes the right one.
        with warnings.catch_warnings(action="ignore"):
            dataset = self.mlflow.data.from_pandas(
                frame, source=source, targets="slowdown", name=name, digest=digest[:36]
            )
        self.mlflow.log_input(dataset, context="training")

    def log_finished_child(self, name: str, parameters: Mapping[str, object], metrics: Mapping[str, float]) -> None:
        """Log a nested run in one request and finish it: a training has dozens, one per fold."""
        from mlflow.entities import Metric, Param

        client = self.mlflow.MlflowClient()
        info = client.create_run(self.experiment, run_name=name, tags={"mlflow.parentRunId": self.id}).info
        client.log_batch(
            info.run_id,
            metrics=[Metric(k, float(v), info.start_time, 0) for k, v in metrics.items() if not math.isnan(v)],
            params=[Param(k, str(v)) for k, v in parameters.items()],
        )
        client.set_terminated(info.run_id)

    @contextmanager
    def child_run(self, name: str) -> Iterator["Run"]:
        """Open a nested run for the duration of the block."""
        with self.mlflow.start_run(
            experiment_id=self.experiment, run_name=name, nested=True, parent_run_id=self.id
        ) as active:
            yield Run(id=active.info.run_id, name=name, experiment=self.experiment, mlflow=self.mlflow)


def prepare_workspace(work: Path, tracking: str | None = None) -> None:
    """Make the workspace and check that a tracking server answers, before any work is done that could be lost.

    Raises UnfitError where the workspace cannot be written, UnavailableError where the server does not answer.
    """
    try:
        (work / ARTIFACTS if tracking is None else work).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=work):
            pass
    except OSError as error:
        raise UnfitError(
            f"the workspace cannot be written ({error.strerror})", value=work, remedy="choose another one with --work"
        ) from None
    if tracking is not None and is_http_server(tracking):
        _require_reachable(tracking)


def is_http_server(tracking: str) -> bool:
    """Return whether the address is a server's address rather than a database's."""
    return tracking.startswith(("http://", "https://"))


def _require_reachable(tracking: str) -> None:
    try:
        with urllib.request.urlopen(f"{tracking.rstrip('/')}/health", timeout=SERVER_TIMEOUT_S):  # noqa: S310 - HTTP only: see `is_http_server`
            pass
    except urllib.error.HTTPError:
        pass  # the server answers; whether it grants access shows at the first request
    except OSError as error:
        raise UnavailableError(
            f"the tracking server does not answer ({getattr(error, 'reason', error)})",
            value=tracking,
            remedy="start it (mlflow server), correct --tracking or MLFLOW_TRACKING_URI, or leave both out",
        ) from None


@contextmanager
def mlflow_connection(work: Path, tracking: str | None = None) -> Iterator[Any]:
    """The `mlflow` module connected to `tracking`, else to the workspace, for the duration of the block.

    Raises what `prepare_workspace` raises.
    """
    prepare_workspace(work, tracking)
    if tracking is None:
        adopt_artifacts(work, EXPERIMENT)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import mlflow
    import mlflow.onnx

    for logger in ("mlflow", "alembic"):  # both set their own level when imported
        logging.getLogger(logger).setLevel(logging.ERROR)

    environ = {name: os.environ.get(name) for name in ADDRESS_VARIABLES}
    previous_uri = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    if previous_uri == environ[ADDRESS_VARIABLES[0]]:
        previous_uri = None  # MLflow read it from the environment, which is restored: set here, it would outlast that
    mlflow.set_tracking_uri(tracking or database_uri(work))
    mlflow.set_registry_uri(tracking or database_uri(work))
    try:
        yield mlflow
    finally:
        mlflow.set_tracking_uri(previous_uri)
        mlflow.set_registry_uri(environ[ADDRESS_VARIABLES[1]])
        for name, value in environ.items():  # MLflow writes both for its child processes, and leaves the second
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def tracked_run(work: Path, name: str, tracking: str | None = None) -> Iterator[Run]:
    """Open a run for the duration of the block; it is marked failed where the block raises."""
    with mlflow_connection(work, tracking) as mlflow:
        experiment = mlflow.get_experiment_by_name(EXPERIMENT)
        if experiment:
            experiment_id = experiment.experiment_id
        else:  # a server stores artifacts in its own place
            artifacts = artifact_root(work) if tracking is None else None
            experiment_id = mlflow.create_experiment(EXPERIMENT, artifact_location=artifacts)
        with mlflow.start_run(experiment_id=experiment_id, run_name=name) as active:
            yield Run(id=active.info.run_id, name=name, experiment=experiment_id, mlflow=mlflow)


def database_uri(work: Path) -> str:
    """SQLAlchemy address of the workspace's database."""
    return f"sqlite:///{(work / DATABASE).resolve()}"


def library_versions() -> str:
    """Versions of the interpreter, the machine and the libraries, one per line."""
    lines = [f"python {platform.python_version()}", f"machine {platform.machine()} {platform.system()}"]
    for name in LIBRARIES:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} not installed")
    return "\n".join(lines) + "\n"
