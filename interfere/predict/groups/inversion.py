"""Infers the slowdowns of a job's pairs from its observed slowdown beside several neighbours.

One window cannot tell the neighbours apart. So all pairs are assumed to be wrong by one common factor, with which their
composition equals the observed slowdown; the error is attributed to each pair by its share of the predicted excess.
Law 1: the order of the neighbours does not matter. Law 2: the composed slowdown moves toward the observed slowdown.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interfere.predict.groups.composition import CopyShares, GroupComposition, composed_slowdown, pair_excess

Floats = NDArray[np.float64]
BISECTIONS = 40
MIN_EXCESS = 0.01  # least excess of a neighbour without a predicted effect: a measured pair repeats within 1 to 2 %


def excess_shares(slowdowns: Sequence[float]) -> Floats:
    """Return float64[m]: the share of each neighbour in the predicted excess; the shares add up to 1."""
    excess = pair_excess(slowdowns) + MIN_EXCESS
    return np.asarray(excess / excess.sum())


def common_log_error(
    slowdowns: Sequence[float], observed: float, composition: GroupComposition, copies: CopyShares | None = None
) -> float:
    """Return the logarithm of the common factor observed ÷ predicted of the slowdowns of all pairs.

    A job in a group is never faster than alone: an observed slowdown below 1 means that no neighbour slows it down.
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
