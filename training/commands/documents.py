"""Show scores as a document for programs and as a table for people."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from interfere.reports.document import Part, Sentence, Tone
from interfere.training.evaluation.score_table import scores_by_model
from interfere.training.evaluation.scores import Scores
from interfere.training.groups.evaluation import DomainComposition


def scores_document(scores: Sequence[tuple[str, str, Scores]]) -> dict[str, dict[str, Any]]:
    """Return the scores by split, then by model."""
    by_split: dict[str, dict[str, Any]] = {}
    for split, model, model_scores in scores:
        by_split.setdefault(split, {})[model] = asdict(model_scores)
    return by_split


def compositions_document(compositions: Sequence[DomainComposition]) -> list[dict[str, Any]]:
    """Return how groups are composed in each domain, whether that was fitted anew, and how well it does."""
    return [each.to_json() for each in compositions]


def scores_table(scores: Sequence[tuple[str, str, Scores]]) -> list[Part]:
    """Return a table with one row per split and model, and what its columns mean."""
    return [scores_by_model(scores), Sentence(SHOWN_LEGEND, tone=Tone.NOTE)]


SHOWN_LEGEND = (
    "MAE of speed, MAPE of slowdown, R² of log slowdown, mean Spearman per victim, regret of each job's best partner, "
    "coverage of the 90 % interval"
)
