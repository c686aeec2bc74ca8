"""Jobs in three classes by how they fare in company, a class told from utilisation by a decision tree."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from training.baselines.baseline import (
    BANDWIDTH,
    COMPUTE,
    MEMORY,
    FittedRule,
    Floats,
    Rule,
    both_sides,
    by_domain,
    silent,
    values,
)
from training.dataset import Dataset, Rows
from training.evaluation.scores import speed

SLOW, MIDDLE = 0.85, 0.95  # mean speed in company: below the first class 2, below the second 1, else 0
PRUNING = 1e-4  # cost-complexity


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeClassTree:
    """log ŝ = mean of the cell (class of the victim, class of the neighbour).

    Lucid (Hu et al., ASPLOS 2023; `simulation/analyzer/analyzer.py`): a job's label is 2, 1 or 0 by its
    mean speed in company, a pruned decision tree tells it from the utilisation of the device and of its memory and from
    the memory used. Lucid packs jobs by the sum of labels and predicts no speed: the cell's mean is that speed.
    """

    name: ClassVar[str] = "lucid-tree"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:
        """One tree and one table of cells a device type and mode; a cell without rows is as all rows."""
        return by_domain(self.name, dataset, lambda rows: self._grow(rows, seed))

    def _grow(self, dataset: Dataset, seed: int) -> Rule:
        from sklearn.tree import DecisionTreeClassifier

        columns = both_sides(dataset, COMPUTE, BANDWIDTH, MEMORY)
        if columns is None:
            return silent
        victims, neighbours = columns[::2], columns[1::2]
        inputs = values(dataset.rows, victims)
        known = np.isfinite(inputs).all(axis=1)
        tree = DecisionTreeClassifier(ccp_alpha=PRUNING, random_state=seed)
        tree.fit(inputs[known], labels(dataset)[known])

        def classes(rows: Rows, of: tuple[int, ...]) -> NDArray[np.int64]:
            """int64[p]: the class the tree tells, -1 where its inputs are absent."""
            seen = values(rows, of)
            there = np.isfinite(seen).all(axis=1)
            told = np.full(len(rows), -1)
            if there.any():
                told[there] = tree.predict(seen[there])
            return told

        cells = _cells(dataset, classes(dataset.rows, victims), classes(dataset.rows, neighbours))

        def rule(rows: Rows) -> Floats:
            own, other = classes(rows, victims), classes(rows, neighbours)
            return np.where((own >= 0) & (other >= 0), cells[own, other], np.nan)

        return rule


def labels(dataset: Dataset) -> NDArray[np.int64]:
    """int64[p]: class of each row's victim by its mean speed over all its rows of that domain."""
    _, job = np.unique(dataset.domain * (len(dataset.workloads) + 1) + dataset.rows.victim, return_inverse=True)
    average = np.bincount(job, weights=speed(dataset.log_slowdown)) / np.bincount(job)
    return np.where(average < SLOW, 2, np.where(average < MIDDLE, 1, 0))[job]


def _cells(dataset: Dataset, own: NDArray[np.int64], other: NDArray[np.int64]) -> Floats:
    """float64[3, 3]: mean log slowdown by class of victim and neighbour."""
    cells = np.full((3, 3), np.average(dataset.log_slowdown, weights=dataset.weight))
    for i, j in np.ndindex(3, 3):
        inside = (own == i) & (other == j)
        if inside.any():
            cells[i, j] = np.average(dataset.log_slowdown[inside], weights=dataset.weight[inside])
    return cells
