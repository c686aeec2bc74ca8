"""Intervals from held-out residuals: quantiles of log s - log ŝ, one grid per split, not calibrated any further.

`pair` residuals stand for two known jobs, `job` residuals for a pair with a job never seen. They are marginal: a single
job may be covered less often than the level says.
"""

import numpy as np
from numpy.typing import NDArray

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
LOW, HIGH = 0.05, 0.95

Floats = NDArray[np.float64]


def residual_grid(residual: Floats) -> Floats:
    """float64[q], ascending: the quantile at each of `LEVELS`."""
    return np.quantile(residual, LEVELS)


def cross_coverage(residual: Floats, fold: NDArray[np.int64]) -> float:
    """Share of residuals inside the 90 % interval made from the residuals of all other folds; NaN with one fold."""
    found = []
    for k in np.unique(fold):
        rest = residual[fold != k]
        if len(rest):
            low, high = np.quantile(rest, [LOW, HIGH])
            found.append((residual[fold == k] >= low) & (residual[fold == k] <= high))
    return float(np.concatenate(found).mean()) if found else float("nan")
