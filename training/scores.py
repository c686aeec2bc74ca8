"""How good predicted slowdowns are, each score defined in symbols.

s measured slowdown, ŝ predicted; y = 1/s measured speed, ŷ = 1/ŝ, both clipped to [0.05, 1.6]; sums over test rows
pooled over folds. A `context` is a set of rows that may be compared with one another (one domain, one fold where the
predictions of two folds answer different questions).
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
    mape: float  # 100 · mean |s - ŝ| / s, in %
    r2: float  # 1 - Σ (log s - log ŝ)² / Σ (log s - mean log s)²
    spearman: float  # mean over (context, victim) of rank correlation of s and ŝ over its partners; 0 for constant ŝ
    regret: float  # mean over (context, job) of 100 · (max v - v[chosen]) / max v, in %; see `regret`
    coverage: float  # share of rows inside the 90 % interval learned from the other folds


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Predictions beside measurements. All arrays have one entry per tested row."""

    measured_log: Floats
    predicted_log: Floats
    victim: Ints
    neighbour: Ints
    context: Ints


def score(answers: Answers, *, coverage: float = float("nan")) -> Scores:
    """Every score at once."""
    return Scores(
        rows=len(answers.measured_log),
        mae=mae(answers),
        mape=mape(answers),
        r2=r2(answers),
        spearman=spearman(answers),
        regret=regret(answers),
        coverage=coverage,
    )


def speed(log_slowdown: Floats) -> Floats:
    """y = 1/s, clipped as published figures are."""
    return np.clip(np.exp(-log_slowdown), MIN_SPEED, MAX_SPEED)


def mae(answers: Answers) -> float:
    """Mean |y - ŷ|."""
    return float(np.mean(np.abs(speed(answers.measured_log) - speed(answers.predicted_log))))


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


def regret(answers: Answers) -> float:
    """Mean over (context, job i) of 100 · (max_j v_ij - v_ic) / max_j v_ij with v_ij = y_ij + y_ji, in %.

    j runs over partners (at least 3) measured both ways; c is the partner with the largest ŷ_ic + ŷ_ci; where several
    share it, v_ic is their mean: what a blind choice among them gives.
    """
    values: dict[tuple[int, int], dict[int, tuple[float, float]]] = {}
    keys = list(zip(answers.context.tolist(), answers.victim.tolist(), answers.neighbour.tolist(), strict=True))
    measured = dict(zip(keys, speed(answers.measured_log).tolist(), strict=True))
    predicted = dict(zip(keys, speed(answers.predicted_log).tolist(), strict=True))
    for (context, i, j), own in measured.items():
        if (other := measured.get((context, j, i))) is not None:
            guess = predicted[context, i, j] + predicted[context, j, i]
            values.setdefault((context, i), {})[j] = (own + other, guess)
    found = []
    for partners in values.values():
        if len(partners) >= MIN_PARTNERS:
            actual, guessed = np.array(list(partners.values())).T
            chosen = float(actual[guessed == guessed.max()].mean())
            found.append(100 * (float(actual.max()) - chosen) / float(actual.max()))
    return float(np.mean(found)) if found else float("nan")


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
