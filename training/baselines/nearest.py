"""Pairs whose two jobs look alike fare alike."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from training.baselines.baseline import FittedRule, Floats, guarded, silent
from training.dataset import Dataset, Rows

BLOCK = 256  # rows whose distances to all others are held at once


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestPairs:
    """log ŝ = mean over the k nearest training rows of the same domain (of all, for a domain never seen).

    Cover and Hart (IEEE Trans. Inf. Theory 1967), over the job columns of victim and neighbour: each column centred and
    scaled by the training rows; those that are constant or absent there are left out, and one absent in the row counts
    as the training mean.
    """

    neighbours: int = 5  # scikit-learn's default
    name: ClassVar[str] = "knn"

    def fit(self, dataset: Dataset, seed: int) -> FittedRule:  # noqa: ARG002 - nothing here is random
        """Remember the rows."""
        width = 2 * len(dataset.job_names)
        trained = dataset.rows.pairs[:, :width].astype(np.float64)
        present = np.isfinite(trained)
        count = np.maximum(present.sum(axis=0), 1)
        middle = np.where(present, trained, 0).sum(axis=0) / count
        spread = np.sqrt((np.where(present, trained - middle, 0) ** 2).sum(axis=0) / count)
        useful = np.flatnonzero(spread > 1e-9)
        if len(useful) == 0:
            return guarded(self.name, dataset, silent)

        def scaled(pairs: NDArray[np.float32]) -> Floats:
            raw = (pairs[:, useful].astype(np.float64) - middle[useful]) / spread[useful]
            return np.where(np.isfinite(raw), raw, 0.0)

        points, domain = scaled(dataset.rows.pairs), dataset.rows.domain
        everywhere = np.arange(len(points))
        inside = {int(d): np.flatnonzero(domain == d) for d in np.unique(domain)}

        def rule(rows: Rows) -> Floats:
            asked, found = scaled(rows.pairs), np.empty(len(rows))
            for d in np.unique(rows.domain):
                known = inside.get(int(d), everywhere)
                here = np.flatnonzero(rows.domain == d)
                for start in range(0, len(here), BLOCK):
                    part = here[start : start + BLOCK]
                    found[part] = self._mean(asked[part], points[known], dataset.log_slowdown[known])
            return found

        return guarded(self.name, dataset, rule)

    def _mean(self, asked: Floats, points: Floats, log_slowdown: Floats) -> Floats:
        apart = (asked**2).sum(axis=1)[:, None] + (points**2).sum(axis=1) - 2 * asked @ points.T
        nearest = np.argsort(apart, axis=1, kind="stable")[:, : self.neighbours]
        return np.asarray(log_slowdown[nearest].mean(axis=1))
