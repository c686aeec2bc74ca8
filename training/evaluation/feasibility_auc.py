"""How well the feasibility model ranks pairs that fit above pairs that do not, out of fold, beside the memory sum."""

import math

import numpy as np

from interfere.training.evaluation.scores import auc
from interfere.training.evaluation.splits import folds
from interfere.training.models.feasibility import FeasibilityRows, fit_feasibility


def out_of_fold_auc(rows: FeasibilityRows, split: str, seed: int, count: int | None = None) -> tuple[float, float]:
    """(AUC of the fitted model, AUC of the memory sum alone), pooled over the folds of a split.

    NaN where every pair fits or no memory sum is known. `count` as in `folds`.
    """
    if rows.feasible.all() or not np.isfinite(rows.memory_sum).any():
        return math.nan, math.nan
    by_model, by_memory_sum, feasible = [], [], []
    for fold in folds(rows.dataset, split, seed, count):
        fitted, tests = fit_feasibility(rows.take(fold.train)), rows.take(fold.test)
        memory_sum = tests.memory_sum
        victim, neighbour = tests.dataset.rows.victim, tests.dataset.rows.neighbour
        ranking = -memory_sum if fitted is None else fitted.probability(memory_sum, victim, neighbour)
        known = np.isfinite(memory_sum)
        by_model.append(ranking[known])
        by_memory_sum.append(-memory_sum[known])
        feasible.append(tests.feasible[known])
    truth = np.concatenate(feasible)
    return auc(np.concatenate(by_model), truth), auc(np.concatenate(by_memory_sum), truth)
