"""Renders scores as tables: which columns there are, how their cells are formatted, and what they mean."""

import math
from collections.abc import Sequence
from dataclasses import asdict

from interfere.training.evaluation.scores import Scores

LEGEND = (
    "MAE ± its standard error over victims, RMSE and 90th percentile of the error of speed, MAPE of slowdown, R² of "
    "log slowdown, mean Spearman per victim, regret of the partner chosen for each job, among those that one fitted "
    "model answered and among all, coverage and mean width (in speed) of the 90 % interval over all rows and those of "
    "the worst tenth of jobs, coverage of the job that nine of ten surpass; for jobs never seen, MAE, regret and "
    "coverage of their own slowdown and of what they do to others"
)
SCORE_COLUMNS = (  # field of `Scores`, heading, format
    ("mae", "MAE", ".4f"),
    ("mae_se", "±", ".4f"),
    ("rmse", "RMSE", ".4f"),
    ("p90", "P90", ".4f"),
    ("mape", "MAPE %", ".2f"),
    ("r2", "R²", ".3f"),
    ("spearman", "Spearman", ".3f"),
    ("regret", "regret %", ".2f"),
    ("regret_all", "of all %", ".2f"),
    ("coverage", "coverage", ".3f"),
    ("width", "width", ".3f"),
    ("worst_coverage", "worst 10 %", ".3f"),
    ("worst_width", "their width", ".3f"),
    ("tenth_coverage", "tenth job", ".3f"),
    ("mae_own", "own MAE", ".4f"),
    ("regret_own", "own regret %", ".2f"),
    ("coverage_own", "own coverage", ".3f"),
    ("mae_others", "others' MAE", ".4f"),
    ("regret_others", "others' regret %", ".2f"),
    ("coverage_others", "others' coverage", ".3f"),
    ("rows", "rows", "d"),
)


def markdown_table(scores: Sequence[tuple[str, str, Scores]]) -> str:
    """Markdown table of (split, model, scores)."""
    headings, cells = score_cells([row for _, _, row in scores])
    lines = [f"| split | model | {' | '.join(headings)} |", "|---|---|" + "---|" * len(headings)]
    for (split, model, _), row in zip(scores, cells, strict=True):
        lines.append(f"| {split} | {model} | {' | '.join(row)} |")
    return "\n".join(lines)


def score_cells(scores: Sequence[Scores]) -> tuple[list[str], list[list[str]]]:
    """(headings, one row of cells per score). A missing number is "-"; columns without any number are left out."""
    values = [asdict(row) for row in scores]
    columns = [column for column in SCORE_COLUMNS if not all(math.isnan(row[column[0]]) for row in values)]
    cells = [["-" if math.isnan(row[name]) else format(row[name], form) for name, _, form in columns] for row in values]
    return [heading for _, heading, _ in columns], cells
