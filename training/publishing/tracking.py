"""Tracks runs in MLflow: the connection to a workspace or a server, and what a run takes.

Without an address, runs go to the workspace: `mlflow.db` (SQLite) and `mlartifacts/`. With one, runs, artifacts and the
registry are at that server. MLflow keeps the address in global state; it is set for the duration of a connection and
restored afterwards. MLflow's database names its artifacts by absolute addresses; whenever a workspace is opened in
another place than they name, because it was moved or copied, the addresses of its own artifact folder are rewritten in
one transaction. Law: addresses outside the workspace's artifact folder are never touched.
"""

import json
import logging
import math
import os
import platform
import sqlite3
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from interfere.errors import ForbiddenError, InterfereError, UnauthenticatedError, UnavailableError
from interfere.file_writing import require_writable
from interfere.installation import DISTRIBUTION
from interfere.reports.document import Document
from interfere.reports.html_page import html_page
from interfere.training.dataset import SourceTables

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
    """Return the address of the workspace's artifact folder."""
    return (work / ARTIFACTS).resolve().as_uri()


def adopt_artifacts(work: Path, experiment: str) -> str:
    """Rewrite the artifact addresses of a workspace that was moved, and return its former address; "" where nothing
    moved.

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
    """Return the artifact folder that the database names; "" where it names none, or the folder of a server."""
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
MODEL = "interfere"  # name of the registered model
REFUSALS: Mapping[int, tuple[type[InterfereError], str, str]] = {
    401: (
        UnauthenticatedError,
        "the tracking server does not know this caller",
        "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
    ),
    403: (
        ForbiddenError,
        "the tracking server does not let this caller do that",
        f"ask its administrator for EDIT on the experiment and the registered model {EXPERIMENT}",
    ),
}
# Headline metrics: name → split and score. The names sort before those of all other metrics, and fit a column's head.
HEADLINE: Mapping[str, tuple[str, str]] = {
    "abs_err_job": ("job", "mae"),  # of speed, jobs never seen
    "abs_err_pair": ("pair", "mae"),  # of speed, pairs never seen
    "choice_loss": ("pair", "regret"),  # %, pairs never seen
    "coverage_job": ("job", "coverage"),  # of the 90 % interval, jobs never seen
}
VIEW = "interfere"  # key of the saved view of the trainings, among the tags of the experiment
LIBRARIES = ("interfere-gpu", "numpy", "lightgbm", "torch", "onnx", "onnxruntime", "onnxmltools", "mlflow", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An open MLflow run. Everything is logged to its id, whichever run is active in MLflow."""

    id: str
    name: str
    experiment: str
    mlflow: Any

    def log_parameters(self, values: Mapping[str, object]) -> None:
        """Log settings; MLflow accepts each name once."""
        self.mlflow.log_params(dict(values), run_id=self.id)

    def log_metrics(self, values: Mapping[str, float], model_id: str | None = None) -> None:
        """Log numbers, also of a logged model where its id is given. NaN is left out."""
        known = {k: float(v) for k, v in values.items() if not math.isnan(v)}
        self.mlflow.log_metrics(known, run_id=self.id, model_id=model_id)

    def describe(self, text: str) -> None:
        """Set the description of the run, in Markdown."""
        self.mlflow.MlflowClient().set_tag(self.id, "mlflow.note.content", text)

    def log_text(self, name: str, content: str) -> None:
        """Log a text artifact."""
        self.mlflow.log_text(content, name, run_id=self.id)

    def log_page(self, name: str, document: Document) -> None:
        """Log a document as an HTML artifact, which the UI shows."""
        self.log_text(name, html_page(document))

    def log_table(self, name: str, columns: Mapping[str, list[Any]]) -> None:
        """Log a table artifact, which the UI shows across runs."""
        self.mlflow.log_table(dict(columns), name, run_id=self.id)

    def log_tables(self, source: SourceTables, paths: Sequence[Path]) -> None:
        """Log each table of the training by name and digest (MLflow stores 36 characters of the digest)."""
        import pandas as pd

        fields = ("victim", "neighbour", "device_type", "mode", "slowdown")
        for table, path, digest in zip(source.tables, paths, source.digests, strict=True):
            frame = pd.DataFrame({field: [getattr(pair, field) for pair in table.ok_pairs] for field in fields})
            # MLflow warns that two source types match, and takes the right one.
            with warnings.catch_warnings(action="ignore"):
                dataset = self.mlflow.data.from_pandas(
                    frame, source=str(path), targets="slowdown", name=table.name, digest=digest[:36]
                )
            self.mlflow.log_input(dataset, context="training")

    def log_finished_child(self, name: str, parameters: Mapping[str, object], metrics: Mapping[str, float]) -> None:
        """Log a nested run in one request and finish it: a search has dozens, one per trial."""
        from mlflow.entities import Metric, Param

        client = self.mlflow.MlflowClient()
        info = client.create_run(self.experiment, run_name=name, tags={"mlflow.parentRunId": self.id}).info
        client.log_batch(
            info.run_id,
            metrics=[Metric(k, float(v), info.start_time, 0) for k, v in metrics.items() if math.isfinite(v)],
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
    require_writable(work)
    if tracking is None:
        (work / ARTIFACTS).mkdir(exist_ok=True)
    if tracking is not None and is_http_server(tracking):
        _require_reachable(tracking)


def require_access(work: Path, tracking: str | None) -> None:
    """Check that a tracking server lets this caller write runs and versions, before any work that could be lost.

    Raises what `mlflow_connection` raises.
    """
    if tracking is None:
        return
    with mlflow_connection(work, tracking) as mlflow:
        client = mlflow.MlflowClient()
        client.set_experiment_tag(experiment_id(mlflow, work, tracking), "interfere", version(DISTRIBUTION))
        if client.search_registered_models(f"name = '{MODEL}'"):
            client.set_registered_model_tag(MODEL, "interfere", version(DISTRIBUTION))


def experiment_id(mlflow: Any, work: Path, tracking: str | None) -> str:
    """Return the id of the experiment of all trainings, which is made where there is none."""
    experiment = mlflow.get_experiment_by_name(EXPERIMENT)
    tags = {"mlflow.experimentKind": "custom_model_development", f"mlflow.sharedViewState.{VIEW}": _saved_view()}
    if experiment is None:
        artifacts = artifact_root(work) if tracking is None else None  # a server stores artifacts in its own place
        return str(mlflow.create_experiment(EXPERIMENT, artifact_location=artifacts, tags=tags))
    for name in [name for name, value in tags.items() if experiment.tags.get(name) != value]:
        mlflow.MlflowClient().set_experiment_tag(experiment.experiment_id, name, tags[name])
    return str(experiment.experiment_id)


def _saved_view() -> str:
    """Return the saved view of MLflow's pages that lists trainings with their champions and headline metrics.

    MLflow 3.17 reads the fields of a view from the tag where an address names it, from `state` in its menu of views.
    """
    columns = [*(f"metrics.`{name}`" for name in HEADLINE), "params.`champion`"]
    view = {"selectedColumns": columns}
    return json.dumps({**view, "name": "Trainings", "createdAt": 0, "updatedAt": 0, "state": json.dumps(view)})


def view_addresses(base: str, experiment: str) -> tuple[str, str]:
    """Return the addresses of the pages of an MLflow server that show the trainings and the registered model."""
    root = f"{base.rstrip('/')}/#"
    view = f"workflowType=machine_learning&viewStateShareKey={VIEW}"
    return f"{root}/experiments/{experiment}/runs?{view}", f"{root}/models/{MODEL}?workflowType=machine_learning"


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
    """Yield the `mlflow` module, connected to `tracking` or else to the workspace for the duration of the block.

    Raises what `prepare_workspace` raises, UnauthenticatedError and ForbiddenError where the server refuses a request.
    """
    prepare_workspace(work, tracking)
    if tracking is None:
        adopt_artifacts(work, EXPERIMENT)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    import mlflow
    from mlflow.exceptions import MlflowException

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
    except MlflowException as error:
        refusal = REFUSALS.get(error.get_http_status_code()) if tracking is not None else None
        if refusal is None:
            raise
        raise refusal[0](refusal[1], value=tracking, remedy=refusal[2]) from None
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
        experiment = experiment_id(mlflow, work, tracking)
        source = {"mlflow.source.name": f"interfere {version(DISTRIBUTION)}"}
        with mlflow.start_run(experiment_id=experiment, run_name=name, tags=source) as active:
            yield Run(id=active.info.run_id, name=name, experiment=experiment, mlflow=mlflow)


def database_uri(work: Path) -> str:
    """Return the SQLAlchemy address of the workspace's database."""
    return f"sqlite:///{(work / DATABASE).resolve()}"


def library_versions() -> str:
    """Return the versions of the interpreter, the machine and the libraries, one per line."""
    lines = [f"python {platform.python_version()}", f"machine {platform.machine()} {platform.system()}"]
    for name in LIBRARIES:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} not installed")
    return "\n".join(lines) + "\n"
