"""Logs a training to MLflow: one run for the training, below it one run per model, and below those one per fold.

Exported pair graphs are logged as MLflow models, with signature and input example; `mlflow.pyfunc.load_model` and
`mlflow.onnx.load_model` both load them. They read rows with completed facts, as the server's graphs do.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.errors import ModelError
from interfere.protocols import PairEncoder
from interfere.reports.document import Document, Part
from interfere.reports.markdown import markdown_table
from interfere.strict_json import json_value
from interfere.training.campaigns import CampaignRelation, alignment_texts
from interfere.training.dataset import Dataset, PairRows
from interfere.training.evaluation.candidates import Candidates
from interfere.training.evaluation.contributions import (
    TableContribution,
    contributions_figure,
    mean_contributions,
    trees_of,
)
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.figures import error_by_job, predicted_vs_measured, slowdown_map
from interfere.training.evaluation.gating.gate import Verdict
from interfere.training.evaluation.score_table import scores_by_model
from interfere.training.models.completed import exported_form, settings_of
from interfere.training.models.protocols import FittedModel
from interfere.training.publishing.publication import Publication, export_pair_graph
from interfere.training.publishing.tracking import Run, library_versions

MODEL_ARTIFACT = "model"  # name of the logged model in its run
EXAMPLE_ROWS = 2  # of the input example

Example = Mapping[str, NDArray[Any]]  # one array for each input that a pair graph may have


def input_example(model: FittedModel, dataset: Dataset) -> Example:
    """The first training rows, as the exported graph of the model reads them."""
    _, read_rows = exported_form(model, dataset)
    rows = read_rows.rows.take(np.arange(EXAMPLE_ROWS))
    return {field: getattr(rows, field) for field in PairRows.__dataclass_fields__}


def log_pair_graph(run: Run, graph: bytes, example: Example) -> Any:
    """Log `pair.onnx` as the MLflow model of a run; returns MLflow's description of it."""
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
    _log_parameters(run, candidates, publication)
    _log_models(run, candidates, publication, encoder, report)
    _log_comparison(run, candidates)
    run.log_text("card.md", publication.card)
    run.log_text("environment.txt", library_versions())
    run.log_text("verdict.json", json.dumps(json_value(asdict(verdict)), indent=1) + "\n")
    _log_figures(run, candidates)


def log_tables(run: Run, contributions: Sequence[TableContribution], campaigns: Sequence[CampaignRelation]) -> None:
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


def _log_parameters(run: Run, candidates: Candidates, publication: Publication) -> None:
    dataset = candidates.dataset
    run.log_parameters(
        {
            "seed": candidates.seed,
            "champion": publication.model,
            "selected_by": publication.selected_by,
            "rows": len(dataset),
            "workloads": len(dataset.workloads),
            "fingerprint": dataset.fingerprint,
            "tables": ", ".join(f"{table.table}@{table.sha256[:12]}" for table in publication.trained_on),
        }
    )


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
            graph = publication.pair_graph if name == publication.model else None
            _log_graph(model_run, candidates, graph, encoder, report)
        if name == candidates.champion:
            run.log_metrics(metrics)


def _log_graph(
    run: Run, candidates: Candidates, graph: bytes | None, encoder: PairEncoder, report: Callable[[str], None]
) -> None:
    """Log the model that a run is named after. An unpublished model is exported and checked here.

    Where its export differs from the model, the run gets no model, and the publication continues.
    """
    model, dataset = candidates.fitted[run.name], candidates.dataset
    try:
        graph = graph or export_pair_graph(model, dataset, encoder, seed=candidates.seed).content
    except ModelError as error:
        report(f"warning: {run.name} is not logged as a model: {error.what}, {error.value}")
        return
    log_pair_graph(run, graph, input_example(model, dataset))


def _log_comparison(run: Run, candidates: Candidates) -> None:
    rows = [{"split": split, "model": model, **asdict(scores)} for split, model, scores in candidates.scores]
    run.log_table("comparison.json", {key: [row[key] for row in rows] for key in rows[0]})
    run.log_text("comparison.md", markdown_table(scores_by_model(candidates.scores)))


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
    """Table and figure of the feature contributions of a model with trees."""
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
