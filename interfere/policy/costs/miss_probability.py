"""How likely a pair passes a soft cap, or a job its deadline: the predicted slowdowns, read off their quantiles.

    P(either) = 1 - (1 - P(s_ij > cap)) (1 - P(s_ji > cap))

as if the two errors were independent. A hard cap at a risk only divides pairs into allowed and forbidden: where too few
are allowed for all jobs to start it says nothing about the rest. Medians alone say too little too: on Gavel's V100 with
30 % of the pairs hidden, plans by the model's medians held 27, 37 and 37 % of the pairs past 1.5 (three hidden sets),
by this chance 25, 26 and 25 %, where 24 % was the best possible; on P100 neither is better: 8, 14 and 17 % by medians,
10, 15 and 15 % by chance (tests/bench/test_caps.py, "model").
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # those that intervals are stored at


def either_past(quantile: Callable[[float], tuple[Floats, Floats]], cap: float) -> Floats:
    """float64[r, c] from both slowdowns at a level, float64[r, c] each; NaN where these are."""
    ahead, back = zip(*(quantile(level) for level in LEVELS), strict=True)
    return 1.0 - (1.0 - _past(np.stack(ahead), cap)) * (1.0 - _past(np.stack(back), cap))


def each_misses(
    quantile: Callable[[float], tuple[Floats, Floats]], rows: Floats, columns: Floats, *, running: bool
) -> tuple[Floats, Floats]:
    """float64[r, c] each: P(row job misses its deadline beside the column job), and P(the column job does).

    `rows` and `columns`, float64[k, r, c]: the slowdowns above which they do, in k equally likely cases; NaN without a
    deadline, which nobody misses. Of columns that are `running` only what company adds.
    """
    if np.isnan(rows).all() and np.isnan(columns).all():
        return np.zeros(rows.shape[1:]), np.zeros(rows.shape[1:])
    ahead, back = (np.stack(one) for one in zip(*(quantile(level) for level in LEVELS), strict=True))
    least = np.finfo(np.float64).tiny  # any slowdown is past a deadline that is over
    of_rows = np.mean([_past(ahead, np.fmax(case, least)) for case in np.nan_to_num(rows, nan=np.inf)], axis=0)
    of_columns = np.mean([_past(back, np.fmax(case, least)) for case in np.nan_to_num(columns, nan=np.inf)], axis=0)
    return of_rows, np.maximum(0.0, of_columns - misses_alone(columns)) if running else of_columns


def misses_alone(cases: Floats) -> Floats:
    """float64[...]: the same without company, of float64[k, ...]."""
    return np.asarray(np.mean(cases < 1.0, axis=0))


def _past(slowdown: Floats, cap: float | Floats) -> Floats:
    """P(s > cap) from float64[levels, r, c], linear in log s between levels; certain beyond the first and the last."""
    logs, at = np.log(slowdown), np.log(cap)
    below = np.where(logs[0] <= at, LEVELS[0], 0.0)
    for k in range(len(LEVELS) - 1):
        width = np.maximum(logs[k + 1] - logs[k], 1e-12)
        below += np.clip((at - logs[k]) / width, 0.0, 1.0) * (LEVELS[k + 1] - LEVELS[k])
    return np.asarray(np.where(logs[-1] <= at, 0.0, 1.0 - below))
