"""The scale on which slowdowns of different device types are alike: log of the time that a neighbour adds.

z = log(max(slowdown - 1, 0) + OFFSET). On this scale the effects of victim and neighbour add: the added time is the
product of how much a job suffers and how much the other one takes. An additive fit of each of Gavel's three device
types has a mean error of speed of .017 (K80), .050 (P100) and .042 (V100) on it, and of .020, .069 and .054 on the log
of the slowdown itself.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OFFSET = 0.1  # of .02 to 1: between .05 and .2 the fits above change by at most .003


def to_excess_scale(slowdown: Floats) -> Floats:
    """Return slowdowns on the excess scale Z. Slowdowns below 1 count as 1."""
    return np.asarray(np.log(np.maximum(slowdown - 1.0, 0.0) + OFFSET))


def to_slowdown(z: Floats) -> Floats:
    """The slowdown of z, at least 1: a neighbour adds no negative time."""
    return np.asarray(np.maximum(1.0 + np.exp(z) - OFFSET, 1.0))


def speed_slope(z: Floats) -> Floats:
    """|d speed / d z|: how much an error of z matters for the speed 1 / slowdown."""
    return np.asarray(np.exp(z) / to_slowdown(z) ** 2)
