"""Replaces some out-of-fold predictions of an evaluation by those of another model, and computes the scores again."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from interfere.predict.intervals import abstention_score
from interfere.training.dataset import Dataset, speed
from interfere.training.evaluation.cross_validation import (
    Evaluation,
    FoldScore,
    cross_fold_interval,
    mae_per_device,
    scored_rows,
    selectivity,
)
from interfere.training.evaluation.scores import PredictionInterval, mae, score
from interfere.training.evaluation.splits import SPLITS_OF_UNLIKE_FOLDS

Floats = NDArray[np.float64]


def with_predictions(
    dataset: Dataset, evaluation: Evaluation, lower: Floats, median: Floats, upper: Floats
) -> Evaluation:
    """Return the evaluation with new log slowdowns and 90 % intervals, float64[t] each; NaN keeps the old ones."""
    given = np.isfinite(median)
    predicted_log = np.where(given, median, evaluation.predicted_log)
    low, high = cross_fold_interval(
        dataset,
        evaluation.index,
        predicted_log,
        evaluation.fold,
        novelty=evaluation.novelty,
        partners=evaluation.partners,
    )
    interval = PredictionInterval(
        low=np.where(given, lower, low), high=np.where(given, upper, high), subject=evaluation.subject
    )
    unlike_folds = evaluation.split in SPLITS_OF_UNLIKE_FOLDS
    rows = scored_rows(dataset, evaluation.index, predicted_log, evaluation.fold, unlike_folds=unlike_folds)
    return replace(
        evaluation,
        scores=score(rows, interval),
        predicted_log=predicted_log,
        folds=tuple(
            FoldScore(hides=fold.hides, rows=fold.rows, mae=mae(rows.take(evaluation.fold == k)))
            for k, fold in enumerate(evaluation.folds)
        ),
        per_device=mae_per_device(dataset, evaluation.index, rows),
        selectivity=selectivity(
            abstention_score(evaluation.novelty, predicted_log),
            np.abs(speed(rows.measured_log) - speed(predicted_log)),
        ),
    )
