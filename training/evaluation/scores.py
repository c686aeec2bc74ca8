"""Scores of predicted slowdowns, each defined in symbols.

s measured slowdown, ŝ predicted; y = 1/s measured speed, ŷ = 1/ŝ, both clipped to [0.05, 1.6]; sums run over test rows
pooled over folds. A `comparison_group` is a set of rows that may be ranked against one another: one domain, and one
fold where the predictions of two folds answer different questions. The `subject` of a row is the job that it tests: the
one that no training row shows, the victim where both were seen.

A job i that no training row shows has two sides: the rows (i beside j) for its known partners j are its own slowdown,
the rows (j beside i) what it does to others. Per side:

    error     mean |y - ŷ|
    regret    100 · (Σ s(c) / Σ min s - 1), in %: for each job with at least 3 partners, c is the partner with the least
              ŝ (their mean where several share it); own: who slows the job least, others: whom the job slows least
    coverage  share of rows inside their 90 % interval
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.predict.acceptance.score import speed
from interfere.reports.document import Cell, Column, Table
from interfere.reports.numbers import COUNT, fixed
from interfere.training.dataset import RowColumns

MIN_PARTNERS = 3  # a choice among two partners is right by chance half of the time

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Side(StrEnum):
    """Whether a row measures the new job's own slowdown or the slowdown of its neighbours."""

    OWN = "own"
    OTHERS = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceCosts:
    """The cost to each job of the choice of a partner: measured slowdowns, one entry per job and group."""

    job: Ints
    chosen: Floats  # float64[models, jobs]: of the partner that each model prefers
    best: Floats

    def regret(self, model: int = 0) -> float:
        """Return 100 · (Σ chosen / Σ best - 1); NaN without a job that has a choice."""
        return float(100 * (self.chosen[model].sum() / self.best.sum() - 1)) if len(self.job) else float("nan")


def choice_costs(measured_log: Floats, predicted_logs: Floats, job: Ints, group: Ints) -> ChoiceCosts:
    """Return what it costs to choose a partner within each (group, job); `predicted_logs` is float64[models, rows]."""
    order = np.lexsort((job, group))
    keys = np.stack([group[order], job[order]])
    starts = np.flatnonzero(np.r_[True, (np.diff(keys, axis=1) != 0).any(axis=0)]) if len(order) else order
    jobs, chosen, best = [], [], []
    for rows in np.split(order, starts[1:]) if len(order) else []:
        if len(rows) < MIN_PARTNERS:
            continue
        slowdown = np.exp(measured_log[rows])
        jobs.append(job[rows[0]])
        best.append(slowdown.min())
        chosen.append([slowdown[p[rows] == p[rows].min()].mean() for p in predicted_logs])
    costs = np.array(chosen, dtype=np.float64).reshape(-1, len(predicted_logs)).T
    return ChoiceCosts(job=np.array(jobs, dtype=np.int64), chosen=costs, best=np.array(best, dtype=np.float64))


def rows_of_side(side: Side, victim: Ints, subject: Ints) -> NDArray[np.bool_]:
    """Return bool[t]: which tests are of one side; `subject` is the job that each row tests."""
    return np.asarray(victim == subject if side is Side.OWN else victim != subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """All scores of one model on one split. A score is NaN where the rows do not allow it."""

    rows: int
    mae: float  # mean |y - ŷ|
    mae_se: float  # its standard error over victims; see `mae_se`
    rmse: float  # sqrt(mean (y - ŷ)²)
    p90: float  # 90 % quantile of |y - ŷ|
    mape: float  # 100 · mean |s - ŝ| / s, in %
    r2: float  # 1 - Σ (log s - log ŝ)² / Σ (log s - mean log s)²
    spearman: float  # mean over (comparison group, victim) of the rank correlation of s and ŝ; 0 for constant ŝ
    regret: float  # mean over (choice group, job) of 100 · (max v - v[chosen]) / max v, in %; see `regret`
    regret_all: float  # the same over (comparison group, job): more partners, predicted by several fitted models
    coverage: float  # share of rows inside their 90 % interval
    width: float  # mean width of that interval, in speed
    worst_coverage: float  # coverage of the rows of the worst tenth of jobs; see `worst_tenth_coverage`
    worst_width: float  # mean width of those rows' intervals, in speed
    tenth_coverage: float  # 10 % quantile over jobs of their coverage: nine of ten jobs are covered better
    # By side of the job that no training row shows (`sides`); NaN where every job was seen.
    mae_own: float
    mae_others: float
    regret_own: float
    regret_others: float
    coverage_own: float
    coverage_others: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRows(RowColumns):
    """Predictions beside measurements. All arrays have one entry per tested row."""

    measured_log: Floats  # log slowdown
    predicted_log: Floats  # log slowdown
    victim: Ints
    neighbour: Ints
    comparison_group: Ints  # rows of one group may be ranked against one another
    choice_group: Ints  # rows of one group were predicted by one fitted model, and a choice among them is meaningful


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionInterval:
    """The 90 % interval of each row in log slowdown; NaN where a row has none."""

    low: Floats
    high: Floats
    subject: Ints  # int64[t]: the job that each row tests


def score(rows: ScoredRows, interval: PredictionInterval | None = None) -> Scores:
    """Return every score at once; without an interval the scores of intervals are NaN."""
    nan = float("nan")
    coverage, width, worst_coverage, worst_width, tenth_coverage = (
        (nan,) * 5 if interval is None else (*coverage_and_width(rows, interval), *worst_tenth_coverage(rows, interval))
    )
    return Scores(
        rows=len(rows.measured_log),
        mae=mae(rows),
        mae_se=mae_se(rows),
        rmse=rmse(rows),
        p90=float(np.quantile(_speed_error(rows), 0.9)),
        mape=mape(rows),
        r2=r2(rows),
        spearman=spearman(rows),
        regret=regret(rows, rows.choice_group),
        regret_all=regret(rows, rows.comparison_group),
        coverage=coverage,
        width=width,
        worst_coverage=worst_coverage,
        worst_width=worst_width,
        tenth_coverage=tenth_coverage,
        **_side_scores(rows, interval),
    )


def mae(rows: ScoredRows) -> float:
    """Return the mean of |y - ŷ|."""
    return float(_speed_error(rows).mean())


def mae_se(rows: ScoredRows) -> float:
    """Return the standard error of the MAE, in which the victims are the sample.

    sqrt(C / (C - 1) · Σ_c (Σ_{k in c} (e_k - MAE))²) / n with e = |y - ŷ|, C victims and n rows; NaN for one victim
    (Cameron and Miller 2015, "A practitioner's guide to cluster-robust inference", for a mean).
    """
    error = _speed_error(rows)
    cluster = np.unique(rows.victim, return_inverse=True)[1]
    cluster_sums = np.bincount(cluster, weights=error - error.mean())
    clusters = len(cluster_sums)
    if clusters < 2:
        return float("nan")
    return float(np.sqrt(clusters / (clusters - 1) * np.sum(cluster_sums**2)) / len(error))


def rmse(rows: ScoredRows) -> float:
    """Return sqrt(mean (y - ŷ)²)."""
    return float(np.sqrt(np.mean(_speed_error(rows) ** 2)))


def coverage_and_width(rows: ScoredRows, interval: PredictionInterval) -> tuple[float, float]:
    """Return the share of rows inside their interval, and its mean width in speed, over the rows that have one.

    NaN where no row has an interval.
    """
    inside, width, known = _interval_hits(rows, interval)
    return (float(inside[known].mean()), float(width[known].mean())) if known.any() else (float("nan"),) * 2


def worst_tenth_coverage(rows: ScoredRows, interval: PredictionInterval) -> tuple[float, float, float]:
    """Return coverage and mean width of the worst tenth of jobs, and the 10 % quantile of the jobs' coverage.

    NaN where no row has an interval. The first two are over the rows of the ceil(jobs / 10) subjects with the lowest
    coverage.
    """
    inside, width, known = _interval_hits(rows, interval)
    if not known.any():
        return (float("nan"),) * 3
    _, job = np.unique(interval.subject[known], return_inverse=True)
    job_coverage = np.bincount(job, weights=inside[known]) / np.bincount(job)
    worst_jobs = np.argsort(job_coverage, kind="stable")[: -(-len(job_coverage) // 10)]
    worst = np.isin(job, worst_jobs)
    tenth = float(np.quantile(job_coverage, 0.1))
    return float(inside[known][worst].mean()), float(width[known][worst].mean()), tenth


def auc(probability: Floats, feasible: NDArray[np.bool_]) -> float:
    """Return the probability that a feasible pair ranks above an infeasible one; NaN with only one class.

    Ties count half. Mann-Whitney's U over its maximum.
    """
    from sklearn.metrics import roc_auc_score

    return math.nan if feasible.all() or not feasible.any() else float(roc_auc_score(feasible, probability))


def mape(rows: ScoredRows) -> float:
    """Return 100 · mean |s - ŝ| / s, in %."""
    return float(100 * np.mean(np.abs(np.expm1(rows.predicted_log - rows.measured_log))))


def r2(rows: ScoredRows) -> float:
    """Return 1 - Σ (log s - log ŝ)² / Σ (log s - mean log s)²; NaN where all measurements are equal."""
    total = float(np.sum((rows.measured_log - rows.measured_log.mean()) ** 2))
    residual = float(np.sum((rows.measured_log - rows.predicted_log) ** 2))
    return 1.0 - residual / total if total > 0 else float("nan")


def spearman(rows: ScoredRows) -> float:
    """Return the mean rank correlation of s and ŝ over (comparison group, victim).

    Only victims with at least 3 partners and differing s count.
    """
    from scipy.stats import rankdata

    correlations = []
    for index in _rows_by_victim(rows):
        measured, predicted = rows.measured_log[index], rows.predicted_log[index]
        if len(index) < MIN_PARTNERS or np.ptp(measured) == 0:
            continue
        correlation = np.corrcoef(rankdata(measured), rankdata(predicted))[0, 1] if np.ptp(predicted) > 0 else 0.0
        correlations.append(float(correlation))
    return float(np.mean(correlations)) if correlations else float("nan")


def regret(rows: ScoredRows, group: Ints) -> float:
    """Return the mean over (group, job i) of 100 · (max_j v_ij - v_ic) / max_j v_ij with v_ij = y_ij + y_ji, in %.

    j runs over partners (at least 3) measured in both directions. c is the partner with the largest ŷ_ic + ŷ_ci. Where
    several partners tie, v_ic is their mean, as for a random choice among them.
    """
    # 1. Collect (measured, predicted) v_ij of each job's partners.
    keys = list(zip(group.tolist(), rows.victim.tolist(), rows.neighbour.tolist(), strict=True))
    measured = dict(zip(keys, speed(rows.measured_log).tolist(), strict=True))
    predicted = dict(zip(keys, speed(rows.predicted_log).tolist(), strict=True))
    partner_values: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
    for (g, i, j), own_speed in measured.items():
        if (partner_speed := measured.get((g, j, i))) is not None:
            predicted_value = predicted[g, i, j] + predicted[g, j, i]
            partner_values.setdefault((g, i), {})[j] = (own_speed + partner_speed, predicted_value)
    # 2. Compare the chosen partner with the best one.
    regrets = []
    for partners in partner_values.values():
        if len(partners) >= MIN_PARTNERS:
            values, predicted_values = np.array(list(partners.values())).T
            chosen = float(values[predicted_values == predicted_values.max()].mean())
            regrets.append(100 * (float(values.max()) - chosen) / float(values.max()))
    return float(np.mean(regrets)) if regrets else float("nan")


def _side_scores(rows: ScoredRows, interval: PredictionInterval | None) -> dict[str, float]:
    """Return MAE, regret and coverage of each side, by field of `Scores`; NaN where the tests have no two sides."""
    scores = {f"{name}_{side}": math.nan for name in ("mae", "regret", "coverage") for side in Side}
    if interval is None or (interval.subject == rows.victim).all():
        return scores
    for side in Side:
        tests = rows_of_side(side, rows.victim, interval.subject)
        if tests.any():
            inside, _, known = _interval_hits(rows, interval)
            costs = choice_costs(
                rows.measured_log[tests],
                rows.predicted_log[None, tests],
                interval.subject[tests],
                rows.choice_group[tests],
            )
            scores[f"mae_{side}"] = float(_speed_error(rows)[tests].mean())
            scores[f"regret_{side}"] = costs.regret()
            if (known & tests).any():
                scores[f"coverage_{side}"] = float(inside[known & tests].mean())
    return scores


def _speed_error(rows: ScoredRows) -> Floats:
    """Return the absolute error of speed, |y - ŷ|."""
    return np.abs(speed(rows.measured_log) - speed(rows.predicted_log))


def _interval_hits(
    rows: ScoredRows, interval: PredictionInterval
) -> tuple[NDArray[np.bool_], Floats, NDArray[np.bool_]]:
    """Return for each row whether it is inside its interval, the interval's width in speed, and whether it has one."""
    inside = (interval.low <= rows.measured_log) & (rows.measured_log <= interval.high)
    return inside, speed(interval.low) - speed(interval.high), np.isfinite(interval.low + interval.high)


def _rows_by_victim(rows: ScoredRows) -> list[Ints]:
    """Return the row indices of each (comparison group, victim)."""
    keys = np.stack([rows.comparison_group, rows.victim])
    _, inverse, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    return np.split(np.argsort(inverse.reshape(-1), kind="stable"), np.cumsum(counts)[:-1])


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


ALL_FIELDS = tuple(name for name, _ in SCORE_COLUMNS)
# The tables of a card: title, and the fields of `Scores`. With split and model at most seven columns each.
CARD_TABLES = (
    ("Errors", ("mae", "mae_se", "p90", "mape", "regret")),
    ("90 % intervals", ("coverage", "width", "worst_coverage", "tenth_coverage", "rows")),
    ("Jobs never seen", ("mae_own", "regret_own", "coverage_own", "mae_others", "coverage_others")),
)


def score_table(
    title: str,
    headings: Sequence[str],
    scores: Sequence[tuple[tuple[str, ...], Scores]],
    fields: Sequence[str] = ALL_FIELDS,
) -> Table:
    """Return a table with a row for each (names below the headings, scores), without columns that have no number."""
    values = [asdict(row) for _, row in scores]
    columns = dict(SCORE_COLUMNS)
    kept = [(name, columns[name]) for name in fields if not all(math.isnan(row[name]) for row in values)]
    rows: list[tuple[Cell, ...]] = [
        (*names, *(row[name] for name, _ in kept)) for (names, _), row in zip(scores, values, strict=True)
    ]
    return Table(title=title, columns=(*map(Column, headings), *(column for _, column in kept)), rows=tuple(rows))


def scores_document(scores: Sequence[tuple[str, str, Scores]]) -> dict[str, dict[str, Any]]:
    """Return the scores of (split, model, scores) by split, then by model."""
    by_split: dict[str, dict[str, Any]] = {}
    for split, model, row in scores:
        by_split.setdefault(split, {})[model] = asdict(row)
    return by_split


def scores_by_model(scores: Sequence[tuple[str, str, Scores]]) -> Table:
    """Return the table of (split, model, scores)."""
    rows = [((split, model), row) for split, model, row in scores]
    return score_table("Scores on rows never fitted", ("split", "model"), rows)


def card_tables(scores: Sequence[tuple[str, str, Scores]]) -> list[Table]:
    """Return tables of at most seven columns of (split, model, scores); rows without any number are left out."""
    tables = []
    for title, fields in CARD_TABLES:
        rows = [
            ((split, model), row)
            for split, model, row in scores
            if any(not math.isnan(getattr(row, name)) for name in fields if name != "rows")
        ]
        tables += [score_table(title, ("split", "model"), rows, fields)] if rows else []
    return tables
