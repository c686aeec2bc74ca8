"""Scores as a document for programs and as a table for people."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from training.evaluation import COLUMNS, LEGEND
from training.scores import Scores


def scores_document(scores: Sequence[tuple[str, str, Scores]]) -> dict[str, dict[str, Any]]:
    """split → model → scores."""
    found: dict[str, dict[str, Any]] = {}
    for split, model, one in scores:
        found.setdefault(split, {})[model] = asdict(one)
    return found


def scores_table(scores: Sequence[tuple[str, str, Scores]], *, title: str | None = None) -> Table:
    """One row per split and model."""
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left", caption=LEGEND,
        caption_justify="left",
    )  # fmt: skip
    for heading in ("split", "model", *(heading for _, heading, _ in COLUMNS)):
        table.add_column(heading, no_wrap=True)
    for split, model, one in scores:
        values = asdict(one)
        table.add_row(split, model, *(format(values[name], form) for name, _, form in COLUMNS))
    return table
