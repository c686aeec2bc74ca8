"""Selects the model that training publishes, by its out-of-fold error on unseen pairs, jobs and families.

The champion has the lowest mean of its MAE on `pair`, `job` and `family`, each out of fold, with a preference for the
ensemble. Pairs that the caller holds out take no part.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from interfere.errors import UnfitError
from interfere.training.dataset import Dataset
from interfere.training.evaluation.cross_validation import Evaluation, Report, evaluate_models
from interfere.training.models.catalogue import MODELS
from interfere.training.models.ensemble import EnsembleModel
from interfere.training.models.protocols import ModelSettings

ENSEMBLE_PREFERENCE = 0.05  # relative; about the standard error of the MAE over jobs on both public tables
INNER_FOLDS = 2  # of nested selection, which needs only the order of the models, not exact figures
FAMILY_GROUPS = 3  # of families that training hides in turn: a group for each would double the time of a training
# Splits that training evaluates every model on, with their number of folds; None is that of `evaluate`.
TRAINING_SPLITS: Mapping[str, int | None] = {"pair": None, "job": None, "family": FAMILY_GROUPS}


def select_champion(evaluations: Sequence[Evaluation]) -> str:
    """Name of the model with the lowest MAE, averaged over the splits; of equal models the simpler one.

    A model that is not in the catalogue comes after those that are.

    The ensemble is selected unless another model is better by more than `ENSEMBLE_PREFERENCE`: it is the one whose
    weights adapt to jobs unlike those seen, which these splits hardly test, and smaller differences among six models
    are noise.
    """
    evaluated = dict.fromkeys(evaluation.model for evaluation in evaluations)
    names = sorted(evaluated, key=lambda name: list(MODELS).index(name) if name in MODELS else len(MODELS))
    errors = {name: float(np.mean([e.scores.mae for e in evaluations if e.model == name])) for name in names}
    best = min(names, key=lambda name: errors[name])
    preferred = EnsembleModel.name
    return preferred if errors.get(preferred, math.inf) <= (1 + ENSEMBLE_PREFERENCE) * errors[best] else best


def evaluate_for_training(
    dataset: Dataset, models: Sequence[ModelSettings], seed: int, report: Report = lambda _: None
) -> tuple[Evaluation, ...]:
    """Every model on `TRAINING_SPLITS`, in the order split, model; without `family` where the rows do not allow it."""
    evaluations: list[Evaluation] = []
    for split, count in TRAINING_SPLITS.items():
        try:
            evaluations += evaluate_models(dataset, models, splits=(split,), seed=seed, count=count, report=report)
        except UnfitError:
            if split != "family":
                raise
    return tuple(evaluations)


def select_on_training_rows(dataset: Dataset, models: Sequence[ModelSettings], seed: int) -> str:
    """Name of the model that training on these rows would publish; `dataset` must hold training rows only.

    Nested selection: on `INNER_FOLDS` folds of those of `TRAINING_SPLITS` that the rows allow, so that no test row is
    seen. The simplest model where the rows allow neither.
    """
    evaluations: list[Evaluation] = []
    for split in TRAINING_SPLITS if len(models) > 1 else ():
        try:
            evaluations += evaluate_models(dataset, models, splits=(split,), seed=seed, count=INNER_FOLDS)
        except UnfitError:
            continue
    return select_champion(evaluations) if evaluations else models[0].name
