"""Scalar helpers of the encoder: logarithms, means, quantiles and ratios in which an absent fact (NaN) stays absent."""

import math
from collections.abc import Sequence

MIN_DURATION_S = 1e-6  # shorter stretches are scheduler noise; the floor also keeps logarithms finite


def log_s(seconds: float) -> float:
    """Return the natural logarithm of a duration of at least `MIN_DURATION_S`; NaN stays NaN."""
    return math.log(max(seconds, MIN_DURATION_S)) if not math.isnan(seconds) else math.nan


def log1p(value: float) -> float:
    """Return log(1 + x) of a non-negative count or rate; NaN stays NaN."""
    return math.log1p(value) if not math.isnan(value) else math.nan


def mean(values: Sequence[float]) -> float:
    """Return the exactly rounded mean, independent of the order of the values; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return a quantile of ascending values by linear interpolation; NaN for no values."""
    if not ordered:
        return math.nan
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def ratio(numerator: float, denominator: float) -> float:
    """Return numerator / denominator; NaN where the denominator is 0 or either is NaN."""
    return numerator / denominator if denominator and not math.isnan(denominator) else math.nan
