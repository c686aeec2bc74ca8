"""Runs on MLflow: parameters, metrics, data, tables, figures and folders of one training.

Without an address the workspace is its own tracking server: `mlflow.db` (SQLite) and `mlartifacts/`; with one, runs,
artifacts and the registry are at that server. MLflow keeps its address in global state; it is set for the duration of a
run and put back.
"""

import logging
import math
import os
import platform
import tempfile
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interfere.errors import UnavailableError, UnfitError
from interfere.records import PairMeasurement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENT = "interfere"
ANSWER_S = 10.0  # a server that is slower than this to say it is there is taken for down
ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
LIBRARIES = ("interfere-gpu", "numpy", "lightgbm", "torch", "onnx", "onnxruntime", "onnxmltools", "mlflow", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An open MLflow run; everything goes to it by id, whichever run is active."""

    id: str
    name: str
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

    def data(self, name: str, digest: str, source: str, pairs: Sequence[PairMeasurement]) -> None:
        """A table that was learned from, by name and digest (MLflow keeps 36 characters of it)."""
        import pandas as pd

        columns = {
            field: [getattr(p, field) for p in pairs] for field in ("victim", "neighbour", "device_type", "mode")
        }
        frame = pd.DataFrame(columns | {"slowdown": [p.slowdown for p in pairs]})
        with warnings.catch_warnings(action="ignore"):  # MLflow has two kinds of local source, and takes the right one
            made = self.mlflow.data.from_pandas(frame, source=source, targets="slowdown", name=name, digest=digest[:36])
        self.mlflow.log_input(made, context="training")

    def fold(self, name: str, parameters: Mapping[str, object], metrics: Mapping[str, float]) -> None:
        """A finished nested run in one go: there are dozens a training."""
        from mlflow.entities import Metric, Param

        client = self.mlflow.MlflowClient()
        made = client.create_run(self.experiment, run_name=name, tags={"mlflow.parentRunId": self.id}).info
        client.log_batch(
            made.run_id,
            metrics=[Metric(k, float(v), made.start_time, 0) for k, v in metrics.items() if not math.isnan(v)],
            params=[Param(k, str(v)) for k, v in parameters.items()],
        )
        client.set_terminated(made.run_id)

    @contextmanager
    def child(self, name: str) -> Iterator["Run"]:
        """A nested run."""
        with self.mlflow.start_run(
            experiment_id=self.experiment, run_name=name, nested=True, parent_run_id=self.id
        ) as made:
            yield Run(id=made.info.run_id, name=name, experiment=self.experiment, mlflow=self.mlflow)


def prepare(work: Path, tracking: str | None = None) -> None:
    """Make the workspace, ask whether the server is there: before any work is lost on it.

    Raises UnfitError where the workspace cannot be written, UnavailableError where the server does not answer.
    """
    try:
        (work / "mlartifacts" if tracking is None else work).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=work):
            pass
    except OSError as error:
        raise UnfitError(
            f"the workspace cannot be written ({error.strerror})", value=work, remedy="choose another one with --work"
        ) from None
    if tracking is not None and is_server(tracking):
        _require_answer(tracking)


def is_server(tracking: str) -> bool:
    """An address over HTTP, not a database."""
    return tracking.startswith(("http://", "https://"))


def _require_answer(tracking: str) -> None:
    try:
        with urllib.request.urlopen(f"{tracking.rstrip('/')}/health", timeout=ANSWER_S):  # noqa: S310 - HTTP only: see `is_server`
            pass
    except urllib.error.HTTPError:
        pass  # somebody answers; what they allow shows when they are asked
    except OSError as error:
        raise UnavailableError(
            f"the tracking server does not answer ({getattr(error, 'reason', error)})",
            value=tracking,
            remedy="start it (mlflow server), mend --tracking or MLFLOW_TRACKING_URI, or leave both out",
        ) from None


@contextmanager
def connected(work: Path, tracking: str | None = None) -> Iterator[Any]:
    """The `mlflow` module, talking to `tracking`, else to the workspace. Raises as `prepare`."""
    prepare(work, tracking)
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    import mlflow
    import mlflow.onnx

    for noisy in ("mlflow", "alembic"):  # both set their own level when imported
        logging.getLogger(noisy).setLevel(logging.ERROR)

    environ = {name: os.environ.get(name) for name in ADDRESSES}
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    if before == environ[ADDRESSES[0]]:
        before = None  # it is read from the environment, which is put back: set here, it would outlast that
    mlflow.set_tracking_uri(tracking or database(work))
    mlflow.set_registry_uri(tracking or database(work))
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
def tracked(work: Path, name: str, tracking: str | None = None) -> Iterator[Run]:
    """An open run; marked failed when the block raises."""
    with connected(work, tracking) as mlflow:
        experiment = mlflow.get_experiment_by_name(EXPERIMENT)
        own = (work / "mlartifacts").resolve().as_uri() if tracking is None else None  # a server has its own place
        where = experiment.experiment_id if experiment else mlflow.create_experiment(EXPERIMENT, artifact_location=own)
        with mlflow.start_run(experiment_id=where, run_name=name) as made:
            yield Run(id=made.info.run_id, name=name, experiment=where, mlflow=mlflow)


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
