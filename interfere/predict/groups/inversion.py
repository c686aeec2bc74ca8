"""What the slowdown of a job beside several others says of its slowdowns beside each of them.

One window cannot tell the neighbours apart. All of its pairs are taken to be off by one factor, that with which their
composition gives the observed slowdown, and each pair answers for it by its share of the predicted excess.
Law 1: the order of the neighbours does not matter. Law 2: the composed slowdown moves toward the observed one.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.groups.composition import CopyShares, GroupComposition, composed_slowdown, pair_excess

Floats = NDArray[np.float64]
BISECTIONS = 40
MIN_EXCESS = 0.01  # that a neighbour without a predicted effect answers for: a measured pair repeats within 1 to 2 %


def excess_shares(slowdowns: Sequence[float]) -> Floats:
    """float64[m]: share of each neighbour in the predicted excess; they add up to 1."""
    excess = pair_excess(slowdowns) + MIN_EXCESS
    return np.asarray(excess / excess.sum())


def common_log_error(
    slowdowns: Sequence[float], observed: float, composition: GroupComposition, copies: CopyShares | None = None
) -> float:
    """The logarithm of the factor by which the slowdowns of all pairs are off.

    A group is never faster than its job alone: an observed slowdown below 1 says that no pair slows it down.
    """

    def composed(log_factor: float) -> float:
        return composed_slowdown([slowdown * math.exp(log_factor) for slowdown in slowdowns], composition, copies)

    target = max(observed, 1.0)
    present = composed(0.0)
    if target == present:
        return 0.0
    # A slowdown of a pair rises at most to the observed one, and falls at most to 1.
    low, high = (-math.log(max(slowdowns)), 0.0) if target < present else (0.0, math.log(target / min(slowdowns)))
    if low >= high:
        return 0.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if composed(middle) < target else (low, middle)
    return low if target > present else high
