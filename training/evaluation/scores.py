"""How good predicted slowdowns are, each score defined in symbols.

s measured slowdown, ŝ predicted; y = 1/s measured speed, ŷ = 1/ŝ, both clipped to [0.05, 1.6]; sums over test rows
pooled over folds. A `context` is a set of rows that may be compared with one another (one domain, one fold where the
predictions of two folds answer different questions). The `subject` of a row is the job it asks about: the one that no
training row shows, the victim where both were seen.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_SPEED, MAX_SPEED = 0.05, 1.6
MIN_PARTNERS = 3  # ranks of two partners are a coin flip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """All scores of one model on one split. NaN where the rows do not allow one."""

    rows: int
    mae: float  # mean |y - ŷ|
    mae_se: float  # its standard error over victims; see `mae_se`
    rmse: float  # sqrt(mean (y - ŷ)²)
    p90: float  # 90 % quantile of |y - ŷ|
    mape: float  # 100 · mean |s - ŝ| / s, in %
    r2: float  # 1 - Σ (log s - log ŝ)² / Σ (log s - mean log s)²
    spearman: float  # mean over (context, victim) of rank correlation of s and ŝ over its partners; 0 for constant ŝ
    regret: float  # mean over (chooser, job) of 100 · (max v - v[chosen]) / max v, in %; see `regret`
    regret_all: float  # the same over (context, job): more partners to choose from, answered by several fitted models
    coverage: float  # share of rows inside their 90 % interval
    width: float  # mean width of that interval, in speed
    worst_coverage: float  # coverage of the rows of the worst tenth of jobs; see `worst_tenth`
    worst_width: float  # mean width of those rows' intervals, in speed
    tenth_coverage: float  # 10 % quantile over jobs of their coverage: nine of ten jobs are covered better


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Predictions beside measurements. All arrays have one entry per tested row."""

    measured_log: Floats
    predicted_log: Floats
    victim: Ints
    neighbour: Ints
    context: Ints  # rows that may be ranked together
    chooser: Ints  # rows that one fitted model answered, and may choose among


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where 90 % of the measurements should be, in log slowdown; NaN where nothing was said."""

    low: Floats
    high: Floats
    subject: Ints  # int64[t]: the job each row asks about


def score(answers: Answers, interval: Interval | None = None) -> Scores:
    """Every score at once; without an interval its five are NaN."""
    nan = float("nan")
    found = (nan,) * 5 if interval is None else (*covered(answers, interval), *worst_tenth(answers, interval))
    return Scores(
        rows=len(answers.measured_log),
        mae=mae(answers),
        mae_se=mae_se(answers),
        rmse=rmse(answers),
        p90=float(np.quantile(_apart(answers), 0.9)),
        mape=mape(answers),
        r2=r2(answers),
        spearman=spearman(answers),
        regret=regret(answers, answers.chooser),
        regret_all=regret(answers, answers.context),
        coverage=found[0],
        width=found[1],
        worst_coverage=found[2],
        worst_width=found[3],
        tenth_coverage=found[4],
    )


def speed(log_slowdown: Floats) -> Floats:
    """y = 1/s, clipped as published figures are."""
    return np.clip(np.exp(-log_slowdown), MIN_SPEED, MAX_SPEED)


def mae(answers: Answers) -> float:
    """Mean |y - ŷ|."""
    return float(np.mean(_apart(answers)))


def mae_se(answers: Answers) -> float:
    """Standard error of the MAE when the victims are the sample: sqrt(C / (C - 1) · Σ_c (Σ_{k in c} (e_k - MAE))²) / n.

    e = |y - ŷ|, C victims, n rows. NaN for one victim. (Cameron and Miller 2015, "A practitioner's guide to
    cluster-robust inference", for a mean.)
    """
    error = _apart(answers)
    inside = np.unique(answers.victim, return_inverse=True)[1]
    sums = np.bincount(inside, weights=error - error.mean())
    if len(sums) < 2:
        return float("nan")
    return float(np.sqrt(len(sums) / (len(sums) - 1) * np.sum(sums**2)) / len(error))


def rmse(answers: Answers) -> float:
    """sqrt(mean (y - ŷ)²)."""
    return float(np.sqrt(np.mean(_apart(answers) ** 2)))


def covered(answers: Answers, interval: Interval) -> tuple[float, float]:
    """(share of rows inside, mean width in speed) over the rows that have an interval; NaN where none has."""
    inside, width, known = _held(answers, interval)
    return (float(inside[known].mean()), float(width[known].mean())) if known.any() else (float("nan"),) * 2


def worst_tenth(answers: Answers, interval: Interval) -> tuple[float, float, float]:
    """`covered` of the rows of those ceil(jobs / 10) subjects whose share of rows inside is the lowest.

    And the 10 % quantile of that share over subjects.
    """
    inside, width, known = _held(answers, interval)
    if not known.any():
        return (float("nan"),) * 3
    _, job = np.unique(interval.subject[known], return_inverse=True)
    share = np.bincount(job, weights=inside[known]) / np.bincount(job)
    worst = np.argsort(share, kind="stable")[: -(-len(share) // 10)]
    rows = np.isin(job, worst)
    return float(inside[known][rows].mean()), float(width[known][rows].mean()), float(np.quantile(share, 0.1))


def auc(probability: Floats, feasible: NDArray[np.bool_]) -> float:
    """Probability that a feasible pair is given more than an infeasible one, ties count half; NaN with only one kind.

    Mann-Whitney's U over its maximum.
    """
    yes, no = int(feasible.sum()), int((~feasible).sum())
    if yes == 0 or no == 0:
        return float("nan")
    return float((_ranks(probability)[feasible].sum() - yes * (yes + 1) / 2) / (yes * no))


def mape(answers: Answers) -> float:
    """100 · mean |s - ŝ| / s, in %."""
    return float(100 * np.mean(np.abs(np.expm1(answers.predicted_log - answers.measured_log))))


def r2(answers: Answers) -> float:
    """1 - Σ (log s - log ŝ)² / Σ (log s - mean log s)²; NaN where all measurements are equal."""
    spread = float(np.sum((answers.measured_log - answers.measured_log.mean()) ** 2))
    missed = float(np.sum((answers.measured_log - answers.predicted_log) ** 2))
    return 1.0 - missed / spread if spread > 0 else float("nan")


def spearman(answers: Answers) -> float:
    """Mean over (context, victim) with at least 3 partners and differing s of the rank correlation of s and ŝ."""
    found = []
    for rows in _by(answers.context, answers.victim):
        measured, predicted = answers.measured_log[rows], answers.predicted_log[rows]
        if len(rows) < MIN_PARTNERS or np.ptp(measured) == 0:
            continue
        found.append(0.0 if np.ptp(predicted) == 0 else _correlation(_ranks(measured), _ranks(predicted)))
    return float(np.mean(found)) if found else float("nan")


def regret(answers: Answers, group: Ints) -> float:
    """Mean over (group, job i) of 100 · (max_j v_ij - v_ic) / max_j v_ij with v_ij = y_ij + y_ji, in %.

    j runs over partners (at least 3) measured both ways; c is the partner with the largest ŷ_ic + ŷ_ci; where several
    share it, v_ic is their mean: what a blind choice among them gives.
    """
    values: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
    keys = list(zip(group.tolist(), answers.victim.tolist(), answers.neighbour.tolist(), strict=True))
    measured = dict(zip(keys, speed(answers.measured_log).tolist(), strict=True))
    predicted = dict(zip(keys, speed(answers.predicted_log).tolist(), strict=True))
    for (one, i, j), own in measured.items():
        if (other := measured.get((one, j, i))) is not None:
            guess = predicted[one, i, j] + predicted[one, j, i]
            values.setdefault((one, i), {})[j] = (own + other, guess)
    found = []
    for partners in values.values():
        if len(partners) >= MIN_PARTNERS:
            actual, guessed = np.array(list(partners.values())).T
            chosen = float(actual[guessed == guessed.max()].mean())
            found.append(100 * (float(actual.max()) - chosen) / float(actual.max()))
    return float(np.mean(found)) if found else float("nan")


def _apart(answers: Answers) -> Floats:
    return np.abs(speed(answers.measured_log) - speed(answers.predicted_log))


def _held(answers: Answers, interval: Interval) -> tuple[NDArray[np.bool_], Floats, NDArray[np.bool_]]:
    """Per row: inside, width in speed, has an interval."""
    inside = (interval.low <= answers.measured_log) & (answers.measured_log <= interval.high)
    return inside, speed(interval.low) - speed(interval.high), np.isfinite(interval.low + interval.high)


def _by(context: Ints, victim: Ints) -> list[Ints]:
    keys: dict[tuple[int, int], list[int]] = {}
    for k, key in enumerate(zip(context.tolist(), victim.tolist(), strict=True)):
        keys.setdefault(key, []).append(k)
    return [np.array(rows) for rows in keys.values()]


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, ties share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], dtype=np.float64)


def _correlation(first: Floats, second: Floats) -> float:
    return float(np.corrcoef(first, second)[0, 1])
