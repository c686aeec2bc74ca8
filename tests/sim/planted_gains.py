"""Synthetic months of days with a planted gain: does the interval of the mean cover it?"""

import numpy as np

from interfere.sim.uncertainty import RELATIVE_CHANGE, DaySums, mean_over_days

PLANTED = -0.1
DAYS = 30
CORRELATION = 0.3  # of a day's gain with the day before: the queue of one waits into the next
DEVIATION = 0.08


def month(seed: int, days: int = DAYS) -> DaySums:
    """Completion times of some sixty jobs a day with heavy tails, over the same without the gain."""
    rng = np.random.default_rng(seed)
    reference = np.array([rng.lognormal(8.0, 1.5, 1 + rng.poisson(60)).sum() for _ in range(days)])
    deviation = np.zeros(days)
    for day in range(days):
        deviation[day] = (CORRELATION * deviation[day - 1] if day else 0.0) + rng.normal(0, DEVIATION)
    return DaySums(numerator=reference * (1 + PLANTED + deviation), denominator=reference)


def covered(months: int) -> float:
    """Share of months whose interval covers the planted gain."""
    inside = 0
    for seed in range(months):
        interval = mean_over_days([month(seed)], RELATIVE_CHANGE, subtract=1.0).interval
        inside += interval.low <= PLANTED <= interval.high
    return inside / months
