"""Runs on MLflow: parameters, metrics, tables, figures and folders of one training, on SQLite in the workspace.

The workspace is its own tracking server: `mlflow.db` and `mlartifacts/`. MLflow keeps its address in global state; it
is set for the duration of a run and put back.
"""

import logging
import math
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interfere.errors import UnfitError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENT = "interfere"
ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
LIBRARIES = ("interfere", "numpy", "lightgbm", "torch", "onnx", "onnxruntime", "onnxmltools", "mlflow", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An open MLflow run; everything goes to it by id, whichever run is active."""

    id: str
    experiment: str
    mlflow: Any

    def parameters(self, values: Mapping[str, object]) -> None:
        """Settings, once each."""
        self.mlflow.log_params(dict(values), run_id=self.id)

    def metrics(self, values: Mapping[str, float]) -> None:
        """Numbers; NaN is left out."""
        self.mlflow.log_metrics({k: float(v) for k, v in values.items() if not math.isnan(v)}, run_id=self.id)

    def text(self, name: str, content: str) -> None:
        """A text artifact."""
        self.mlflow.log_text(content, name, run_id=self.id)

    def figure(self, name: str, figure: "Figure") -> None:
        """A PNG artifact."""
        self.mlflow.MlflowClient().log_figure(self.id, figure, name)

    def table(self, name: str, columns: Mapping[str, list[Any]]) -> None:
        """A table artifact, shown by the UI across runs."""
        self.mlflow.log_table(dict(columns), name, run_id=self.id)

    def folder(self, name: str, path: Path) -> None:
        """A folder of artifacts."""
        self.mlflow.log_artifacts(str(path), name, run_id=self.id)

    @contextmanager
    def child(self, name: str) -> Iterator["Run"]:
        """A nested run."""
        with self.mlflow.start_run(
            experiment_id=self.experiment, run_name=name, nested=True, parent_run_id=self.id
        ) as made:
            yield Run(id=made.info.run_id, experiment=self.experiment, mlflow=self.mlflow)


def prepare(work: Path) -> None:
    """Make the workspace. Raises UnfitError where it cannot be written, before any work is lost on it."""
    try:
        (work / "mlartifacts").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=work):
            pass
    except OSError as error:
        raise UnfitError(
            f"the workspace cannot be written ({error.strerror})", value=work, remedy="choose another one with --work"
        ) from None


@contextmanager
def connected(work: Path) -> Iterator[Any]:
    """The `mlflow` module, talking to the workspace. Raises UnfitError where the workspace cannot be written."""
    prepare(work)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import mlflow
    import mlflow.onnx

    for noisy in ("mlflow", "alembic"):  # both set their own level when imported
        logging.getLogger(noisy).setLevel(logging.ERROR)

    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    environ = {name: os.environ.get(name) for name in ADDRESSES}
    mlflow.set_tracking_uri(database(work))
    mlflow.set_registry_uri(database(work))
    try:
        yield mlflow
    finally:
        mlflow.set_tracking_uri(before)
        mlflow.set_registry_uri(environ[ADDRESSES[1]])
        for name, value in environ.items():  # MLflow writes both for its child processes, and keeps the second
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def tracked(work: Path, name: str) -> Iterator[Run]:
    """An open run in the workspace; marked failed when the block raises."""
    with connected(work) as mlflow:
        experiment = mlflow.get_experiment_by_name(EXPERIMENT)
        where = (
            experiment.experiment_id
            if experiment
            else mlflow.create_experiment(EXPERIMENT, artifact_location=(work / "mlartifacts").resolve().as_uri())
        )
        with mlflow.start_run(experiment_id=where, run_name=name) as made:
            yield Run(id=made.info.run_id, experiment=where, mlflow=mlflow)


def database(work: Path) -> str:
    """SQLAlchemy address of the workspace's database."""
    return f"sqlite:///{(work / 'mlflow.db').resolve()}"


def environment() -> str:
    """Interpreter, machine and library versions, one a line."""
    lines = [f"python {platform.python_version()}", f"machine {platform.machine()} {platform.system()}"]
    for name in LIBRARIES:
        try:
            lines.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} not installed")
    return "\n".join(lines) + "\n"
