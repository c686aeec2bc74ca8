"""What one training logs to MLflow: a run of its own, one run inside it for each model, and the registered model.

The four headline metrics come first wherever MLflow sorts by name. Folds and the predictions of single rows are tables.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from interfere.installation import DISTRIBUTION
from interfere.reports.document import Document, Part
from interfere.reports.text_forms import markdown, markdown_table
from interfere.strict_json import json_value
from interfere.training.campaigns import CampaignRelation
from interfere.training.dataset import Dataset
from interfere.training.evaluation.candidates import Candidates, SplitScore, TableContribution
from interfere.training.evaluation.cross_validation import Evaluation
from interfere.training.evaluation.figures import (
    contributions_figure,
    error_by_job,
    mean_contributions,
    predicted_vs_measured,
    slowdown_map,
)
from interfere.training.evaluation.gate import Verdict
from interfere.training.evaluation.scores import card_tables
from interfere.training.models.completed import exported_form, settings_of
from interfere.training.models.gbdt import trees_of
from interfere.training.models.protocols import FittedModel
from interfere.training.publishing.model_card import card_head
from interfere.training.publishing.publication import Publication
from interfere.training.publishing.tracking import HEADLINE, Run, library_versions

PUBLISHED = "published"  # the model folder, in the registered model
CODE = Path(__file__).with_name("registered_model.py")
EXAMPLE_ROWS = 3
PINNED = ("numpy", "pandas", "onnxruntime", "mlflow")  # what the registered model imports besides interfere


def training_name(tables: Sequence[str], occasion: str = "") -> str:
    """Return the name of a training's run: its occasion, its tables and the present minute, UTC."""
    return f"{occasion} {', '.join(tables)} · {datetime.now(UTC):%Y-%m-%d %H:%M}".strip()


def description(publication: Publication) -> str:
    """Return the head of the model card with the headline metrics below its title, in Markdown."""
    candidates = publication.candidates
    figures = headline(metrics_of(candidates.scores, candidates.champion))
    title, _, rest = markdown(card_head(publication.card)).strip().partition("\n")
    return f"{title}\n\n{figures}\n{rest}"


def headline(metrics: Mapping[str, float]) -> str:
    """Return the headline metrics as one line of Markdown."""
    return " · ".join(f"{name} **{metrics[name]:.3f}**" for name in HEADLINE if name in metrics)


def metrics_of(scores: Sequence[SplitScore], model: str) -> dict[str, float]:
    """Return all scores of a model by "split.score", the headline metrics first."""
    found = {
        f"{split}.{score}": float(value)
        for split, name, of_split in scores
        if name == model
        for score, value in asdict(of_split).items()
    }
    return {name: found[".".join(place)] for name, place in HEADLINE.items() if ".".join(place) in found} | found


def log_registered_model(run: Run, folder: Path, dataset: Dataset) -> Any:
    """Log a published folder as the model of a run, with its code, and return MLflow's description of that model."""
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    names = ("victim", "neighbour", "device_type", "mode")
    rows, domains = dataset.take(dataset.latest_index()[:EXAMPLE_ROWS]), dataset.domains
    workload = ["", *dataset.workloads]
    example = pd.DataFrame(
        [
            (workload[i], workload[j], domains[d].device_type, str(domains[d].mode))
            for i, j, d in zip(rows.rows.victim, rows.rows.neighbour, rows.domain, strict=True)
        ],
        columns=list(names),
    )
    outputs = {"slowdown": "double", "low": "double", "high": "double", "source": "string", "reason": "string"}
    return run.mlflow.pyfunc.log_model(
        name="slowdown",
        python_model=str(CODE),
        artifacts={PUBLISHED: str(folder)},
        signature=ModelSignature(
            inputs=Schema(
                [
                    *(ColSpec("string", name) for name in names),
                    *(ColSpec("string", f"{side}_profile", required=False) for side in names[:2]),
                ]
            ),
            outputs=Schema([ColSpec(kind, name) for name, kind in outputs.items()]),
            params=ParamSchema([ParamSpec("allow_extrapolation", "boolean", False)]),
        ),
        input_example=example,
        # Given, so that MLflow does not start a process to infer them.
        pip_requirements=[f"{DISTRIBUTION}[serve]=={version(DISTRIBUTION)}", *(f"{p}=={version(p)}" for p in PINNED)],
    )


def log_training(run: Run, candidates: Candidates, publication: Publication, verdict: Verdict) -> None:
    """Log a training: champion, comparison, folds, predictions, verdict, figures and card.

    Each model has a run inside it with its settings, scores and feature contributions. The metrics of the champion are
    logged with the registered model.
    """
    dataset = candidates.dataset
    run.describe(description(publication))
    run.log_parameters(
        {
            "tables": ", ".join(f"{table.table}@{table.sha256[:12]}" for table in publication.trained_on),
            "rows": len(dataset),
            "workloads": len(dataset.workloads),
            "champion": candidates.champion,
            "selected_by": candidates.selected_by,
            "seed": candidates.seed,
            "fingerprint": dataset.fingerprint,
        }
    )
    for name, settings in candidates.settings.items():
        with run.child_run(name) as model_run:
            model_run.log_parameters({"model": name, **asdict(settings_of(settings))})  # type: ignore[call-overload]  # all settings are dataclasses
            model_run.log_metrics(metrics_of(candidates.scores, name))
            _log_contributions(model_run, candidates.fitted[name], dataset)
    rows = [{"split": split, "model": model, **asdict(scores)} for split, model, scores in candidates.scores]
    run.log_table("comparison.json", _columns(rows))
    run.log_text("comparison.md", "\n\n".join(map(markdown_table, card_tables(candidates.scores))))
    run.log_table("folds.json", folds_table(candidates.evaluations))
    run.log_table("predictions.json", prediction_columns(dataset, candidates.champion_evaluations))
    run.log_text("card.md", publication.card_text)
    run.log_text("environment.txt", library_versions())
    run.log_text("verdict.json", json.dumps(json_value(asdict(verdict)), indent=1) + "\n")
    figures: list[Part] = [
        predicted_vs_measured(dataset, candidates.champion_evaluations),
        error_by_job(dataset, candidates.champion_evaluations),
        *(slowdown_map(dataset, k) for k in range(len(dataset.domains))),
    ]
    run.log_page("figures.html", Document(f"Figures of {candidates.champion}", tuple(figures)))
    _log_contributions(run, candidates.champion_model, dataset)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {key: [row[key] for row in rows] for key in rows[0]}


def folds_table(evaluations: Sequence[Evaluation]) -> dict[str, list[Any]]:
    """Return the error of every fold of every evaluation, by column."""
    rows = []
    for each in evaluations:
        for k, fold in enumerate(each.folds):
            row = asdict(fold) | {"hides": fold.hides or "a random part"}
            rows.append({"model": each.model, "split": each.split, "fold": k, **row})
    return _columns(rows)


def prediction_columns(dataset: Dataset, evaluations: Sequence[Evaluation]) -> dict[str, list[Any]]:
    """Return every out-of-fold prediction beside its measurement, by column; slowdowns with their 90 % interval."""
    columns: dict[str, list[Any]] = {}
    workload = np.array(["", *dataset.workloads])
    for each in evaluations:
        rows, domains = dataset.rows.take(each.index), [dataset.domains[k] for k in dataset.domain[each.index]]
        for name, values in {
            "split": [each.split] * len(each.index),
            "fold": each.fold.tolist(),
            "victim": workload[rows.victim].tolist(),
            "neighbour": workload[rows.neighbour].tolist(),
            "device_type": [domain.device_type for domain in domains],
            "mode": [str(domain.mode) for domain in domains],
            "measured": np.exp(dataset.log_slowdown[each.index]).tolist(),
            "slowdown": np.exp(each.predicted_log).tolist(),
            "low": np.exp(each.low).tolist(),
            "high": np.exp(each.high).tolist(),
        }.items():
            columns.setdefault(name, []).extend(values)
    return columns


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
        lines = [*(each.text() for each in campaigns), *(each.text() for each in contributions)]
        run.log_text("tables.md", "".join(f"- {line}\n" for line in lines))
    for k, each in enumerate(contributions):
        run.log_metrics({f"table{k}.with": each.error.challenger, f"table{k}.without": each.error.champion})


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
