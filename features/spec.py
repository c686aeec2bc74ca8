"""What a feature column is, and the fingerprint that ties a model to its encoder.

A column's name carries its unit or scale (`log_` natural logarithm, `_frac` share in [0, 1], `_s` seconds). The
fingerprint hashes the version and all column names in order: change the meaning of a column and you raise `VERSION`.
"""

import hashlib
import math
from collections.abc import Sequence

VERSION = 2
FLOOR_S = 1e-6  # below a microsecond a stretch is scheduler noise; keeps logarithms finite


def fingerprint(names: Sequence[str]) -> str:
    """16 hex digits over version and ordered names."""
    return hashlib.sha256("\n".join([f"interfere-features-{VERSION}", *names]).encode()).hexdigest()[:16]


def log_s(seconds: float) -> float:
    """log of a duration, floored at a microsecond; NaN stays NaN."""
    return math.log(max(seconds, FLOOR_S)) if not math.isnan(seconds) else math.nan


def log1p(value: float) -> float:
    """log(1 + x) of a non-negative count or rate; NaN stays NaN."""
    return math.log1p(value) if not math.isnan(value) else math.nan


def mean(values: Sequence[float]) -> float:
    """Exactly rounded mean (order of the values does not matter); NaN when there are none."""
    return math.fsum(values) / len(values) if values else math.nan


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear-interpolated quantile of sorted values; NaN when there are none."""
    if not ordered:
        return math.nan
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def ratio(top: float, bottom: float) -> float:
    """top / bottom; NaN where the bottom is 0 or either is absent."""
    return top / bottom if bottom and not math.isnan(bottom) else math.nan
