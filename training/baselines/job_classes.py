"""A baseline that sorts jobs into three classes by their speed under sharing, and predicts by the two classes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.training.baselines.baseline import (
    BANDWIDTH,
    COMPUTE,
    MEMORY,
    FittedRule,
    Floats,
    Rule,
    column_values,
    fit_per_domain,
    known_columns_of_both,
    no_prediction,
)
from interfere.training.dataset import Dataset, PairRows
from interfere.training.speed import speed

# Bounds of the classes by mean speed under sharing: below the first class 2, below the second class 1, else class 0.
CLASS_2_BELOW, CLASS_1_BELOW = 0.85, 0.95
PRUNING = 1e-4  # cost-complexity parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeClassTree:
    """log ŝ = mean over the training pairs with the same class of victim and class of neighbour.

    Lucid (Hu et al., ASPLOS 2023; `simulation/analyzer/analyzer.py`): a job is labelled 2, 1 or 0 by its mean speed
    under sharing, and a pruned decision tree predicts the label from the utilisation of device and memory and from the
    memory used. Lucid packs jobs by the sum of their labels and predicts no speed; the mean of the two classes is the
    speed that its labels imply.
    """

    name: ClassVar[str] = "lucid-tree"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:
        """Fit a tree and the means per domain; two classes that never met get the mean of all rows."""
        return fit_per_domain(self.name, dataset, lambda rows: self._fit_rule(rows, seed))

    def _fit_rule(self, dataset: Dataset, seed: int) -> Rule:
        from sklearn.tree import DecisionTreeClassifier

        columns = known_columns_of_both(dataset, COMPUTE, BANDWIDTH, MEMORY)
        if columns is None:
            return no_prediction
        victim_columns, neighbour_columns = columns[::2], columns[1::2]
        inputs = column_values(dataset.rows, victim_columns)
        known = np.isfinite(inputs).all(axis=1)
        tree = DecisionTreeClassifier(ccp_alpha=PRUNING, random_state=seed)
        tree.fit(inputs[known], class_labels(dataset)[known])

        def predicted_class(rows: PairRows, columns: tuple[int, ...]) -> NDArray[np.int64]:
            """int64[p]: class of the job that the columns describe, -1 where they are absent."""
            inputs = column_values(rows, columns)
            known = np.isfinite(inputs).all(axis=1)
            classes = np.full(len(rows), -1)
            if known.any():
                classes[known] = tree.predict(inputs[known])
            return classes

        means = _class_means(
            dataset, predicted_class(dataset.rows, victim_columns), predicted_class(dataset.rows, neighbour_columns)
        )

        def rule(rows: PairRows) -> Floats:
            victim_class = predicted_class(rows, victim_columns)
            neighbour_class = predicted_class(rows, neighbour_columns)
            known = (victim_class >= 0) & (neighbour_class >= 0)
            return np.where(known, means[victim_class, neighbour_class], np.nan)

        return rule


def class_labels(dataset: Dataset) -> NDArray[np.int64]:
    """int64[p]: class of each row's victim, by its mean speed over all its rows of that domain."""
    job_and_domain = dataset.domain * (len(dataset.workloads) + 1) + dataset.rows.victim
    _, job = np.unique(job_and_domain, return_inverse=True)
    mean_speed = np.bincount(job, weights=speed(dataset.log_slowdown)) / np.bincount(job)
    return np.where(mean_speed < CLASS_2_BELOW, 2, np.where(mean_speed < CLASS_1_BELOW, 1, 0))[job]


def _class_means(dataset: Dataset, victim_class: NDArray[np.int64], neighbour_class: NDArray[np.int64]) -> Floats:
    """float64[3, 3]: mean log slowdown by class of victim and neighbour."""
    means = np.full((3, 3), np.average(dataset.log_slowdown, weights=dataset.weight))
    for i, j in np.ndindex(3, 3):
        members = (victim_class == i) & (neighbour_class == j)
        if members.any():
            means[i, j] = np.average(dataset.log_slowdown[members], weights=dataset.weight[members])
    return means
