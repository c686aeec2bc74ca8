"""Jobs to seats: the rectangular assignment problem, where a job may also be held back at a price."""

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.matching.records import Seating


def assign_seats(cost: NDArray[np.float64], hold: NDArray[np.float64] | None = None) -> Seating:
    """Cheapest seat for each of n jobs among s seats; `inf` forbids a seat, `hold[i]` is the cost of no seat.

    `cost` float64[n, s]; `hold` float64[n] or None (as many jobs as possible are seated, then at least cost).
    Raises InvalidInputError on NaN or wrong shapes.
    """
    from scipy.optimize import linear_sum_assignment

    cost = np.asarray(cost, dtype=np.float64)
    if cost.ndim != 2 or np.isnan(cost).any() or np.isneginf(cost).any():
        raise InvalidInputError(
            "cost must be float[n, s] without NaN or -inf", value=cost.shape, remedy="+inf forbids a seat"
        )
    n, seats = cost.shape
    finite = np.abs(cost[np.isfinite(cost)])
    if hold is None:
        hold = np.full(n, 1.0 + 2.0 * n * finite.max(initial=0.0))
    hold = np.asarray(hold, dtype=np.float64)
    if hold.shape != (n,) or not np.isfinite(hold).all():
        raise InvalidInputError("hold must be finite float[n]", value=hold.shape, remedy="one price per job")
    back = np.full((n, n), np.inf)  # every job has a place of its own to be held back in
    np.fill_diagonal(back, hold)
    rows, columns = linear_sum_assignment(np.hstack([cost, back]))
    seat = np.full(n, -1, dtype=np.int64)
    taken = columns < seats
    seat[rows[taken]] = columns[taken]
    total = float(cost[rows[taken], columns[taken]].sum() + hold[rows[~taken]].sum())
    return Seating(seat=seat, cost=total)
