"""Scores as a document for programs and as a table for people."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from training.evaluation.score_table import SCORE_COLUMNS
from training.evaluation.scores import Scores

SHORT_FIELDS = {"mae", "mape", "r2", "spearman", "regret", "coverage", "rows"}  # fit into 80 characters
SHORT = tuple(column for column in SCORE_COLUMNS if column[0] in SHORT_FIELDS)
LEGEND = (
    "MAE of speed, MAPE of slowdown, R² of log slowdown, mean Spearman per victim, regret of each job's best partner, "
    "coverage of the 90 % interval"
)


def scores_document(scores: Sequence[tuple[str, str, Scores]]) -> dict[str, dict[str, Any]]:
    """split → model → scores."""
    found: dict[str, dict[str, Any]] = {}
    for split, model, one in scores:
        found.setdefault(split, {})[model] = asdict(one)
    return found


def scores_table(scores: Sequence[tuple[str, str, Scores]]) -> Table:
    """One row per split and model."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption=LEGEND, caption_justify="left")
    for heading in ("split", "model", *(heading for _, heading, _ in SHORT)):
        table.add_column(heading, no_wrap=True)
    for split, model, one in scores:
        values = asdict(one)
        table.add_row(split, model, *(format(values[name], form) for name, _, form in SHORT))
    return table
