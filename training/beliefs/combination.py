"""Combines a belief and a model: a weighted mean of log slowdowns, with the intervals of their mixture.

The weights are inverse to mean squared errors (Bates & Granger 1969, "The combination of forecasts"). The variance of a
mixture of two with weights w and 1 - w is their mean variance plus w (1 - w) times their squared difference; the
variance of the model's prediction of a pair is taken to be that of the belief.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def belief_weight(belief_error: Floats, model_error: Floats) -> float:
    """Return the belief's weight from both errors on equal rows, float64[t] each; one half where neither errs."""
    belief, model = float((belief_error**2).mean()), float((model_error**2).mean())
    return model / (belief + model) if belief + model > 0 else 0.5


def combined_quantiles(levels: Sequence[float], believed: Floats, predicted: Floats, weight: Floats) -> Floats:
    """Return float64[q, ...]: quantiles of the mixture's log slowdown at `levels`, which must include the median 0.5.

    `believed` float64[q, ...] are the belief's quantiles; `predicted` and `weight` float64[...] are the model's median
    and the weight of the belief.
    """
    median = believed[levels.index(0.5)]
    together = weight * median + (1.0 - weight) * predicted
    between = np.sqrt(weight * (1.0 - weight)) * np.abs(median - predicted)
    deviation = np.array([NormalDist().inv_cdf(level) for level in levels]).reshape(-1, *[1] * median.ndim)
    return np.asarray(together + np.sign(deviation) * np.hypot(believed - median, deviation * between))
