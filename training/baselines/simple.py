"""Four baselines without coefficients: a constant throughput, the busiest resource, nearest pairs, job classes."""

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
    with_mean_fallback,
)
from interfere.training.dataset import Dataset, PairRows, speed

UNSEEN_SPEED = 0.95  # Eva: throughput of a pair that was not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultThroughput:
    """ŷ = the measured speed of this very pair on this device type and mode, 0.95 for every pair without one.

    Eva (Chang and Venkataraman, EuroSys 2025): a table of pairwise throughputs with 0.95 where nothing is known. The
    throughput of a job beside several others is the product of the pairwise ones; beside one it is a single factor.
    """

    name: ClassVar[str] = "eva-default"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Store the last row of each pair."""
        measured = dict(zip(_keys(dataset.rows), dataset.log_slowdown.tolist(), strict=True))

        def rule(rows: PairRows) -> Floats:
            return np.array([measured.get(key, -np.log(UNSEEN_SPEED)) for key in _keys(rows)], dtype=np.float64)

        return with_mean_fallback(self.name, dataset, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePrior:
    """ŝ = max(1, demand of both jobs on the busiest resource), each demand as a share of the device's peak.

    Roofline (Williams, Waterman and Patterson, CACM 2009) for two jobs on one device: the encoder's column
    `roofline_log_slowdown`, from floating-point operations and bytes per step. Only the fallback mean is fitted.
    """

    name: ClassVar[str] = "roofline"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Fit the fallback mean."""
        column = dataset.pair_columns.index("roofline_log_slowdown")
        return with_mean_fallback(self.name, dataset, lambda rows: rows.pairs[:, column].astype(np.float64))


def _keys(rows: PairRows) -> list[tuple[int, int, int]]:
    """(victim, neighbour, domain) of each row."""
    return list(zip(rows.victim.tolist(), rows.neighbour.tolist(), rows.domain.tolist(), strict=True))


BLOCK_ROWS = 256  # rows whose distances to all training rows are in memory at once
MIN_SPREAD = 1e-9  # standard deviation below which a column counts as constant


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestPairs:
    """log ŝ = mean over the k nearest training rows of the same domain (of all domains, for an unknown one).

    k nearest neighbours (Cover and Hart, IEEE Trans. Inf. Theory 1967) over the job columns of victim and neighbour.
    Each column is centred and scaled by the training rows; a column that is constant or absent there is left out, and
    one that is absent in the predicted row counts as the training mean.
    """

    neighbours: int = 5  # k; scikit-learn's default
    name: ClassVar[str] = "knn"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Store the training rows with their standardisation."""
        width = 2 * len(dataset.job_columns)
        values = dataset.rows.pairs[:, :width].astype(np.float64)
        present = np.isfinite(values)
        count = np.maximum(present.sum(axis=0), 1)
        centre = np.where(present, values, 0).sum(axis=0) / count
        spread = np.sqrt((np.where(present, values - centre, 0) ** 2).sum(axis=0) / count)
        varying = np.flatnonzero(spread > MIN_SPREAD)
        if len(varying) == 0:
            return with_mean_fallback(self.name, dataset, no_prediction)

        def standardised(pairs: NDArray[np.float32]) -> Floats:
            scaled = (pairs[:, varying].astype(np.float64) - centre[varying]) / spread[varying]
            return np.where(np.isfinite(scaled), scaled, 0.0)

        points, domain = standardised(dataset.rows.pairs), dataset.rows.domain
        all_rows = np.arange(len(points))
        domain_rows = {int(d): np.flatnonzero(domain == d) for d in np.unique(domain)}

        def rule(rows: PairRows) -> Floats:
            queries, predicted = standardised(rows.pairs), np.empty(len(rows))
            for d in np.unique(rows.domain):
                training_rows = domain_rows.get(int(d), all_rows)
                in_domain = np.flatnonzero(rows.domain == d)
                for start in range(0, len(in_domain), BLOCK_ROWS):
                    block = in_domain[start : start + BLOCK_ROWS]
                    predicted[block] = self._mean_of_nearest(
                        queries[block], points[training_rows], dataset.log_slowdown[training_rows]
                    )
            return predicted

        return with_mean_fallback(self.name, dataset, rule)

    def _mean_of_nearest(self, queries: Floats, points: Floats, log_slowdown: Floats) -> Floats:
        distance = (queries**2).sum(axis=1)[:, None] + (points**2).sum(axis=1) - 2 * queries @ points.T
        nearest = np.argsort(distance, axis=1, kind="stable")[:, : self.neighbours]
        return np.asarray(log_slowdown[nearest].mean(axis=1))


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
            """Return int64[p]: the class of the job that the columns describe; -1 where the columns are absent."""
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
