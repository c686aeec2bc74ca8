"""Jobs to seats: the rectangular assignment problem, in which a job may also stay unseated at a cost."""

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.matching.records import Seating


def assign_seats(cost: NDArray[np.float64], unseated_cost: NDArray[np.float64] | None = None) -> Seating:
    """The cheapest seating of n jobs on s seats, each seat for at most one job.

    `cost` float64[n, s], +inf where a job may not take a seat. `unseated_cost` float64[n], finite: cost of getting no
    seat; None seats as many jobs as possible first and then minimises their cost.
    Raises InvalidInputError on NaN, -inf or wrong shapes.
    """
    from scipy.optimize import linear_sum_assignment

    cost = np.asarray(cost, dtype=np.float64)
    if cost.ndim != 2 or np.isnan(cost).any() or np.isneginf(cost).any():
        raise InvalidInputError(
            "cost must be float[n, s] without NaN or -inf", value=cost.shape, remedy="+inf forbids a seat"
        )
    n, seats = cost.shape
    finite = np.abs(cost[np.isfinite(cost)])
    if unseated_cost is None:
        unseated_cost = np.full(n, 1.0 + 2.0 * n * finite.max(initial=0.0))
    unseated_cost = np.asarray(unseated_cost, dtype=np.float64)
    if unseated_cost.shape != (n,) or not np.isfinite(unseated_cost).all():
        raise InvalidInputError(
            "unseated_cost must be finite float[n]", value=unseated_cost.shape, remedy="send one finite cost per job"
        )
    dummy_seats = np.full((n, n), np.inf)  # one for each job: taking it means staying unseated
    np.fill_diagonal(dummy_seats, unseated_cost)
    rows, columns = linear_sum_assignment(np.hstack([cost, dummy_seats]))
    seat = np.full(n, -1, dtype=np.int64)
    seated = columns < seats
    seat[rows[seated]] = columns[seated]
    total = float(cost[rows[seated], columns[seated]].sum() + unseated_cost[rows[~seated]].sum())
    return Seating(seat=seat, cost=total)
