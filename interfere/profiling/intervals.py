"""Confidence intervals of a mean slowdown over blocks, and the stopping rule that is made of them.

Slowdowns are ratios, so means and intervals are taken of their logarithms.
"""

import math
from collections.abc import Sequence

import numpy as np

TARGET_HALF_WIDTH = 0.03  # of the mean log slowdown: no further block is measured below it

# 97.5 % quantiles of Student's t, degrees of freedom 1-30 (any statistics text, e.g. NIST handbook 1.3.6.7.2).
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL_975 = 1.96  # the same quantile beyond the table


def geometric_mean(values: Sequence[float]) -> float:
    """Exponential of the mean logarithm; NaN for no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def log_half_width(values: Sequence[float]) -> float:
    """Half the width of the 95 % t interval of the mean logarithm; infinite below two values."""
    if len(values) < 2:
        return math.inf
    quantile = T_975[len(values) - 2] if len(values) - 1 <= len(T_975) else NORMAL_975
    return quantile * float(np.std(np.log(values), ddof=1)) / math.sqrt(len(values))


def has_converged(slowdowns_per_side: Sequence[Sequence[float]]) -> bool:
    """Whether the interval of every side's slowdowns, one value a block, is narrower than the target."""
    return all(log_half_width(slowdowns) < TARGET_HALF_WIDTH for slowdowns in slowdowns_per_side)
