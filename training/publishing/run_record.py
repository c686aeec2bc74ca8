"""What a training leaves on MLflow: the parent run for the comparison, a child a model, and under it a child a fold."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from interfere.strict_json import json_value
from training.dataset import Dataset
from training.evaluation import plots
from training.evaluation.cross_validation import Evaluation, markdown
from training.evaluation.feature_contributions import contributions, contributions_figure, trees_of
from training.evaluation.gate import Verdict
from training.evaluation.scores import Scores
from training.models.model import FittedModel, ModelSettings
from training.publishing.model_folder import Publication
from training.publishing.tracking import Run, environment

SplitScore = tuple[str, str, Scores]  # split, model, scores


def record(
    run: Run,
    dataset: Dataset,
    evaluations: Sequence[Evaluation],
    scores: Sequence[SplitScore],
    publication: Publication,
    verdict: Verdict,
    models: Mapping[str, ModelSettings],
    final: Mapping[str, FittedModel],
    *,
    seed: int,
) -> None:
    """Parent: champion, comparison, verdict, figures, card. Children: settings, scores, contributions, folds."""
    run.parameters(
        {
            "seed": seed,
            "champion": publication.model,
            "matrix_model": publication.matrix_model,
            "rows": len(dataset),
            "workloads": len(dataset.workloads),
            "fingerprint": dataset.fingerprint,
            "tables": ", ".join(f"{t.table}@{t.sha256[:12]}" for t in publication.trained_on),
        }
    )
    for name, settings in models.items():
        mine = {f"{split}.{k}": v for split, model, one in scores if model == name for k, v in asdict(one).items()}
        with run.child(name) as child:
            child.parameters(asdict(settings))  # type: ignore[call-overload]  # all settings are dataclasses
            child.metrics(mine)
            _folds(child, [e for e in evaluations if e.model == name], seed)
            _contributions(child, final[name], dataset)
        if name == publication.model:
            run.metrics(mine)
    rows = [{"split": split, "model": model, **asdict(one)} for split, model, one in scores]
    run.table("comparison.json", {key: [row[key] for row in rows] for key in rows[0]})
    run.text("comparison.md", markdown(scores))
    run.text("card.md", publication.card)
    run.text("environment.txt", environment())
    run.text("verdict.json", json.dumps(json_value(asdict(verdict)), indent=1) + "\n")
    own = [e for e in evaluations if e.model == publication.model]
    run.figure("predicted_vs_measured.png", plots.predicted_vs_measured(dataset, own))
    run.figure("error_by_job.png", plots.error_by_job(dataset, own))
    _contributions(run, final[publication.model], dataset)
    for k, domain in enumerate(dataset.domains):
        where = re.sub(r"[^\w.-]+", "-", f"{domain.device_type}_{domain.mode}")  # a device type is free text
        run.figure(f"slowdown_{where}.png", plots.slowdown_heatmap(dataset, k))


def _folds(child: Run, evaluations: Sequence[Evaluation], seed: int) -> None:
    for one in evaluations:
        for k, fold in enumerate(one.folds):
            parameters = {"split": one.split, "fold": k, "hides": fold.hides or "a random part", "seed": seed}
            child.fold(f"{child.name} {one.split} {k}", parameters, {"mae": fold.mae, "rows": float(fold.rows)})


def _contributions(run: Run, model: FittedModel, dataset: Dataset) -> None:
    """Table and figure, where the model has trees."""
    if (trees := trees_of(model)) is None:
        return
    found = contributions(trees, dataset)
    run.table("contributions.json", {"feature": [n for n, _ in found], "mean_abs_log_slowdown": [v for _, v in found]})
    run.figure("contributions.png", contributions_figure(model.name, found))
