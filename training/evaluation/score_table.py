"""Scores as tables: which columns there are, how their numbers are written, and what they mean."""

import math
from collections.abc import Sequence
from dataclasses import asdict

from interfere.reports.document import Cell, Column, Table
from interfere.reports.numbers import COUNT, fixed
from interfere.training.evaluation.scores import Scores

LEGEND = (
    "MAE ± its standard error over victims, RMSE and 90th percentile of the error of speed, MAPE of slowdown, R² of "
    "log slowdown, mean Spearman per victim, regret of the partner chosen for each job, among those that one fitted "
    "model answered and among all, coverage and mean width (in speed) of the 90 % interval over all rows and those of "
    "the worst tenth of jobs, coverage of the job that nine of ten surpass; for jobs never seen, MAE, regret and "
    "coverage of their own slowdown and of what they do to others"
)
ERROR, SHARE, PERCENT = fixed(4), fixed(3), fixed(2, "%", quantity="percent")
SCORE_COLUMNS = (  # field of `Scores`, and its column; a terminal shows the columns that fit
    ("mae", Column("MAE", ERROR)),
    ("mae_se", Column("±", ERROR, is_detail=True)),
    ("rmse", Column("RMSE", ERROR, is_detail=True)),
    ("p90", Column("P90", ERROR, is_detail=True)),
    ("mape", Column("MAPE", PERCENT)),
    ("r2", Column("R²", SHARE)),
    ("spearman", Column("Spearman", SHARE)),
    ("regret", Column("regret", PERCENT)),
    ("regret_all", Column("of all", PERCENT, is_detail=True)),
    ("coverage", Column("coverage", SHARE)),
    ("width", Column("width", SHARE, is_detail=True)),
    ("worst_coverage", Column("worst 10 %", SHARE, is_detail=True)),
    ("worst_width", Column("their width", SHARE, is_detail=True)),
    ("tenth_coverage", Column("tenth job", SHARE, is_detail=True)),
    ("mae_own", Column("own MAE", ERROR, is_detail=True)),
    ("regret_own", Column("own regret", PERCENT, is_detail=True)),
    ("coverage_own", Column("own coverage", SHARE, is_detail=True)),
    ("mae_others", Column("others' MAE", ERROR, is_detail=True)),
    ("regret_others", Column("others' regret", PERCENT, is_detail=True)),
    ("coverage_others", Column("others' coverage", SHARE, is_detail=True)),
    ("rows", Column("rows", COUNT)),
)


def score_table(title: str, headings: Sequence[str], scores: Sequence[tuple[tuple[str, ...], Scores]]) -> Table:
    """A row for each (names below the headings, scores); columns without any number are left out."""
    values = [asdict(row) for _, row in scores]
    kept = [(name, column) for name, column in SCORE_COLUMNS if not all(math.isnan(row[name]) for row in values)]
    rows: list[tuple[Cell, ...]] = [
        (*names, *(row[name] for name, _ in kept)) for (names, _), row in zip(scores, values, strict=True)
    ]
    return Table(title=title, columns=(*map(Column, headings), *(column for _, column in kept)), rows=tuple(rows))


def scores_by_model(scores: Sequence[tuple[str, str, Scores]]) -> Table:
    """The table of (split, model, scores)."""
    rows = [((split, model), row) for split, model, row in scores]
    return score_table("Scores on rows never fitted", ("split", "model"), rows)
