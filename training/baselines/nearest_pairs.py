"""A baseline that predicts a pair by the training pairs whose two jobs have the most similar features."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from interfere.training.baselines.baseline import FittedRule, Floats, no_prediction, with_mean_fallback
from interfere.training.dataset import Dataset, PairRows

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
