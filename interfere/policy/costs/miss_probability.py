"""Probabilities that somebody exceeds a soft cap, or that a job misses its deadline, from quantiles of the prediction.

    P(any) = 1 - Π (1 - P(s_i > cap))

as if the errors were independent. A hard cap at a risk only divides pairs into allowed and forbidden: where too few
are allowed for all jobs to start it says nothing about the rest. Medians alone say too little too: on Gavel's V100 with
30 % of the pairs hidden, plans by the model's medians held 27, 37 and 37 % of the pairs past 1.5 (three hidden sets),
by this probability 25, 26 and 25 %, where 24 % was the best possible; on P100 neither is better: 8, 14 and 17 % by
medians, 10, 15 and 15 % by probability (tests/bench/test_caps.py, "model").
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # those that intervals are stored at


def probability_of_any(probabilities: Sequence[Floats]) -> Floats:
    """float64[...]: probability that at least one of several independent events happens."""
    none = 1.0 - probabilities[0]
    for probability in probabilities[1:]:
        none = none * (1.0 - probability)
    return np.asarray(1.0 - none)


def exceedance(slowdowns: Floats, cap: float | Floats) -> Floats:
    """float64[...]: P(s > cap) from quantiles float64[levels, ...] at `LEVELS`, linear in log s between levels.

    Certain beyond the first and the last level.
    """
    log_slowdowns, log_cap = np.log(slowdowns), np.log(cap)
    below = np.where(log_slowdowns[0] <= log_cap, LEVELS[0], 0.0)
    for k in range(len(LEVELS) - 1):
        width = np.maximum(log_slowdowns[k + 1] - log_slowdowns[k], 1e-12)
        below += np.clip((log_cap - log_slowdowns[k]) / width, 0.0, 1.0) * (LEVELS[k + 1] - LEVELS[k])
    return np.asarray(np.where(log_slowdowns[-1] <= log_cap, 0.0, 1.0 - below))
