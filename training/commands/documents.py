"""Show scores as a document for programs and as a table for people."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from interfere.training.evaluation.score_table import SCORE_COLUMNS
from interfere.training.evaluation.scores import Scores
from interfere.training.groups.evaluation import DomainComposition

SHOWN = {"mae", "mape", "r2", "spearman", "regret", "coverage", "rows"}  # what fits into 80 columns
SHOWN_COLUMNS = tuple(column for column in SCORE_COLUMNS if column[0] in SHOWN)
LEGEND = (
    "MAE of speed, MAPE of slowdown, R² of log slowdown, mean Spearman per victim, regret of each job's best partner, "
    "coverage of the 90 % interval"
)


def scores_document(scores: Sequence[tuple[str, str, Scores]]) -> dict[str, dict[str, Any]]:
    """Return the scores by split, then by model."""
    by_split: dict[str, dict[str, Any]] = {}
    for split, model, model_scores in scores:
        by_split.setdefault(split, {})[model] = asdict(model_scores)
    return by_split


def compositions_document(compositions: Sequence[DomainComposition]) -> list[dict[str, Any]]:
    """Return how groups are composed in each domain, whether that was fitted anew, and how well it does."""
    return [each.to_json() for each in compositions]


def scores_table(scores: Sequence[tuple[str, str, Scores]]) -> Table:
    """Return a table with one row per split and model."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption=LEGEND, caption_justify="left")
    for heading in ("split", "model", *(heading for _, heading, _ in SHOWN_COLUMNS)):
        table.add_column(heading, no_wrap=True)
    for split, model, model_scores in scores:
        values = asdict(model_scores)
        table.add_row(split, model, *(format(values[name], form) for name, _, form in SHOWN_COLUMNS))
    return table
