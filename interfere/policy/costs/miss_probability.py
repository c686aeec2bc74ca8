"""Probabilities that a pair exceeds a soft cap, or that a job misses its deadline, from quantiles of the prediction.

    P(either) = 1 - (1 - P(s_ij > cap)) (1 - P(s_ji > cap))

as if the two errors were independent. A hard cap at a risk only divides pairs into allowed and forbidden: where too few
are allowed for all jobs to start it says nothing about the rest. Medians alone say too little too: on Gavel's V100 with
30 % of the pairs hidden, plans by the model's medians held 27, 37 and 37 % of the pairs past 1.5 (three hidden sets),
by this probability 25, 26 and 25 %, where 24 % was the best possible; on P100 neither is better: 8, 14 and 17 % by
medians, 10, 15 and 15 % by probability (tests/bench/test_caps.py, "model").
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SlowdownQuantile = Callable[[float], tuple[Floats, Floats]]
"""Level -> that quantile of both slowdowns of every pair, float64[r, c] each: row beside column, column beside row."""

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # those that intervals are stored at


def soft_cap_probabilities(quantile: SlowdownQuantile, cap: float) -> Floats:
    """float64[r, c]: probability that either job of a pair exceeds the cap; NaN where the slowdowns are."""
    row_slowdowns, column_slowdowns = zip(*(quantile(level) for level in LEVELS), strict=True)
    row_exceeds = _exceedance(np.stack(row_slowdowns), cap)
    column_exceeds = _exceedance(np.stack(column_slowdowns), cap)
    return 1.0 - (1.0 - row_exceeds) * (1.0 - column_exceeds)


def deadline_miss_probabilities(
    quantile: SlowdownQuantile, row_limits: Floats, column_limits: Floats, *, running: bool
) -> tuple[Floats, Floats]:
    """float64[r, c] each: probability that the row job misses its deadline beside the column job, and the reverse.

    `row_limits` and `column_limits`, float64[k, r, c]: the slowdowns above which they do, in k equally likely cases of
    what remains; NaN without a deadline, which is never missed. Of columns that are `running` only what the neighbour
    adds.
    """
    if np.isnan(row_limits).all() and np.isnan(column_limits).all():
        return np.zeros(row_limits.shape[1:]), np.zeros(row_limits.shape[1:])
    row_slowdowns, column_slowdowns = (np.stack(side) for side in zip(*(quantile(x) for x in LEVELS), strict=True))
    row_misses = _mean_exceedance(row_slowdowns, row_limits)
    column_misses = _mean_exceedance(column_slowdowns, column_limits)
    if running:
        column_misses = np.maximum(0.0, column_misses - solo_miss_probabilities(column_limits))
    return row_misses, column_misses


def solo_miss_probabilities(limits: Floats) -> Floats:
    """float64[...]: probability of a miss without a neighbour, from slowdown limits float64[k, ...]."""
    return np.asarray(np.mean(limits < 1.0, axis=0))


def _mean_exceedance(slowdowns: Floats, limits: Floats) -> Floats:
    """float64[r, c]: P(s > limit), averaged over k equally likely limits float64[k, r, c]; NaN is never exceeded."""
    smallest = np.finfo(np.float64).tiny  # any slowdown exceeds a limit of a deadline that has passed
    cases = [_exceedance(slowdowns, np.fmax(case, smallest)) for case in np.nan_to_num(limits, nan=np.inf)]
    return np.asarray(np.mean(cases, axis=0))


def _exceedance(slowdowns: Floats, cap: float | Floats) -> Floats:
    """P(s > cap) from float64[levels, r, c], linear in log s between levels; certain beyond the first and the last."""
    log_slowdowns, log_cap = np.log(slowdowns), np.log(cap)
    below = np.where(log_slowdowns[0] <= log_cap, LEVELS[0], 0.0)
    for k in range(len(LEVELS) - 1):
        width = np.maximum(log_slowdowns[k + 1] - log_slowdowns[k], 1e-12)
        below += np.clip((log_cap - log_slowdowns[k]) / width, 0.0, 1.0) * (LEVELS[k + 1] - LEVELS[k])
    return np.asarray(np.where(log_slowdowns[-1] <= log_cap, 0.0, 1.0 - below))
