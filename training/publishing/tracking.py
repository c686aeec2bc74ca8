"""Tracks runs in MLflow: parameters, metrics, datasets, tables, figures and folders of one training.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError, UnavailableError
from interfere.file_writing import require_writable
from interfere.protocols import PairEncoder
from interfere.reports.document import Document, Part
from interfere.reports.html_page import html_page
from interfere.reports.text_forms import markdown_table
from interfere.strict_json import json_value
from interfere.training.campaigns import CampaignRelation, alignment_texts
from interfere.training.dataset import Dataset, PairRows, SourceTables
from interfere.training.evaluation.candidates import Candidates, TableContribution
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.figures import (
    contributions_figure,
    error_by_job,
    mean_contributions,
    predicted_vs_measured,
    slowdown_map,
    trees_of,
)
from interfere.training.evaluation.gate import Verdict
from interfere.training.evaluation.scores import scores_by_model
from interfere.training.models.completed import exported_form, settings_of
from interfere.training.models.protocols import FittedModel
from interfere.training.publishing.publication import Publication, export_pair_graph

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

    def log_metrics(self, values: Mapping[str, float]) -> None:
        """Log numbers. NaN is left out."""
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
    require_writable(work)
    if tracking is None:
        (work / ARTIFACTS).mkdir(exist_ok=True)
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
    """Yield the `mlflow` module, connected to `tracking` or else to the workspace for the duration of the block.

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


MODEL_ARTIFACT = "model"  # name of the logged model in its run
EXAMPLE_ROWS = 2  # of the input example

Example = Mapping[str, NDArray[Any]]  # one array for each input that a pair graph may have


def input_example(model: FittedModel, dataset: Dataset) -> Example:
    """Return the first training rows, as the exported graph of the model reads them."""
    _, read_rows = exported_form(model, dataset)
    rows = read_rows.rows.take(np.arange(EXAMPLE_ROWS))
    return {field: getattr(rows, field) for field in PairRows.__dataclass_fields__}


def log_pair_graph(run: Run, graph: bytes, example: Example) -> Any:
    """Log `pair.onnx` as the MLflow model of a run, and return MLflow's description of that model."""
    import onnx
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    model = onnx.load_from_string(graph)
    inputs = {value.name: example[value.name] for value in model.graph.input}
    return run.mlflow.onnx.log_model(
        model,
        name=MODEL_ARTIFACT,
        signature=ModelSignature(
            inputs=Schema([TensorSpec(value.dtype, (-1, *value.shape[1:]), name) for name, value in inputs.items()]),
            outputs=Schema([TensorSpec(np.dtype(np.float32), (-1,), "log_slowdown")]),
        ),
        input_example=inputs,
        pip_requirements=["onnxruntime", "numpy"],  # given, so that MLflow does not start a process to infer them
        save_as_external_data=False,
    )


def log_training(
    run: Run,
    candidates: Candidates,
    publication: Publication,
    verdict: Verdict,
    encoder: PairEncoder,
    report: Callable[[str], None],
) -> None:
    """Log the results of a training to MLflow.

    The run of the training gets champion, comparison, verdict, figures and card; those of the models get settings,
    scores, feature contributions, folds, and the model itself as an MLflow model.
    """
    dataset = candidates.dataset
    run.log_parameters(
        {
            "seed": candidates.seed,
            "champion": candidates.champion,
            "selected_by": candidates.selected_by,
            "rows": len(dataset),
            "workloads": len(dataset.workloads),
            "fingerprint": dataset.fingerprint,
            "tables": ", ".join(f"{table.table}@{table.sha256[:12]}" for table in publication.trained_on),
        }
    )
    _log_models(run, candidates, publication, encoder, report)
    rows = [{"split": split, "model": model, **asdict(scores)} for split, model, scores in candidates.scores]
    run.log_table("comparison.json", {key: [row[key] for row in rows] for key in rows[0]})
    run.log_text("comparison.md", markdown_table(scores_by_model(candidates.scores)))
    run.log_text("card.md", publication.card)
    run.log_text("environment.txt", library_versions())
    run.log_text("verdict.json", json.dumps(json_value(asdict(verdict)), indent=1) + "\n")
    _log_figures(run, candidates)


def log_contributions(
    run: Run, contributions: Sequence[TableContribution], campaigns: Sequence[CampaignRelation]
) -> None:
    """Log which tables help and which harm, and the result for older campaigns; nothing for a single table."""
    rows = [
        {"table": each.table, "effect": each.effect, "rows": each.rows, "tests": each.tests, **asdict(each.error)}
        for each in contributions
    ]
    if rows:
        run.log_text("tables.json", json.dumps(json_value(rows), indent=1) + "\n")
        lines = [*alignment_texts(campaigns), *(each.text() for each in contributions)]
        run.log_text("tables.md", "".join(f"- {line}\n" for line in lines))
    for k, each in enumerate(contributions):
        run.log_metrics({f"table{k}.with": each.error.challenger, f"table{k}.without": each.error.champion})


def _log_models(
    run: Run,
    candidates: Candidates,
    publication: Publication,
    encoder: PairEncoder,
    report: Callable[[str], None],
) -> None:
    """Log one run per model. The metrics of the champion are also logged to the run of the training."""
    for name, settings in candidates.settings.items():
        metrics = {
            f"{split}.{score}": value
            for split, model, scores in candidates.scores
            if model == name
            for score, value in asdict(scores).items()
        }
        with run.child_run(name) as model_run:
            model_run.log_parameters(asdict(settings_of(settings)))  # type: ignore[call-overload]  # all settings are dataclasses
            model_run.log_metrics(metrics)
            _log_folds(model_run, [e for e in candidates.evaluations if e.model == name], candidates.seed)
            _log_contributions(model_run, candidates.fitted[name], candidates.dataset)
            graph = publication.pair_graph if name == candidates.champion else None
            _log_graph(model_run, candidates, graph, encoder, report)
        if name == candidates.champion:
            run.log_metrics(metrics)


def _log_graph(
    run: Run, candidates: Candidates, graph: bytes | None, encoder: PairEncoder, report: Callable[[str], None]
) -> None:
    """Log the MLflow model of the model that the run is named after. An unpublished model is exported and checked here.

    Where its export differs from the model, the run gets no MLflow model, and the publication continues.
    """
    model, dataset = candidates.fitted[run.name], candidates.dataset
    try:
        graph = graph or export_pair_graph(model, dataset, encoder, seed=candidates.seed).content
    except ModelError as error:
        report(f"warning: {run.name} is not logged as a model: {error.what}, {error.value}")
        return
    log_pair_graph(run, graph, input_example(model, dataset))


def _log_figures(run: Run, candidates: Candidates) -> None:
    dataset, evaluations = candidates.dataset, candidates.champion_evaluations
    figures: list[Part] = [predicted_vs_measured(dataset, evaluations), error_by_job(dataset, evaluations)]
    figures += [slowdown_map(dataset, k) for k in range(len(dataset.domains))]
    run.log_page("figures.html", Document(f"Figures of {candidates.champion}", tuple(figures)))
    _log_contributions(run, candidates.champion_model, dataset)


def _log_folds(model_run: Run, evaluations: Sequence[Evaluation], seed: int) -> None:
    for evaluation in evaluations:
        for k, fold in enumerate(evaluation.folds):
            parameters = {
                "split": evaluation.split,
                "fold": k,
                "hides": fold.hides or "a random part",
                "seed": seed,
            }
            metrics = {"mae": fold.mae, "rows": float(fold.rows)}
            model_run.log_finished_child(f"{model_run.name} {evaluation.split} {k}", parameters, metrics)


def _log_contributions(run: Run, model: FittedModel, dataset: Dataset) -> None:
    """Log a table and a figure of the feature contributions of a model with trees."""
    if (trees := trees_of(model)) is None:
        return
    _, read_rows = exported_form(model, dataset)
    contributions = mean_contributions(trees, read_rows)
    columns: dict[str, list[Any]] = {
        "feature": [feature for feature, _ in contributions],
        "mean_abs_log_slowdown": [size for _, size in contributions],
    }
    run.log_table("contributions.json", columns)
    figure = contributions_figure(model.name, contributions)
    run.log_page("contributions.html", Document(figure.title, (figure,)))
