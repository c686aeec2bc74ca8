"""What a scheduler without matching would do: each job in its turn takes the cheapest seat that is left."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from interfere.policy.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """What it comes to."""

    cost: float  # sum of what starts
    worst: float  # largest cost of a job that starts or runs
    waiting: int


def greedy(options: Options) -> Greedy:
    """Each takes an empty device, else the seat that adds least, in order."""
    free = Counter(options.empty_class)
    taken, n = 0, len(options.pending)
    open_seats = options.beside_all()
    joins = np.full((n, n), np.inf)  # beside a pending job that started alone
    began: dict[int, int] = {}  # class of the device on which a job started alone
    classes = list(options.together)
    cost, worst, waiting = 0.0, options.floor, 0
    for i in range(n):
        where = next((each for each, left in free.items() if left and np.isfinite(options.alone[each][i])), None)
        if where is not None and taken < options.take:
            free[where] -= 1
            taken += 1
            own = float(options.alone[where][i])
            cost, worst = cost + own, max(worst, own)
            joins[:, i] = options.together[where].cost[:, i] - own
            began[i] = classes.index(where)
            continue
        seat, other = int(np.argmin(open_seats[i])) if open_seats.shape[1] else -1, int(np.argmin(joins[i]))
        best = float(open_seats[i, seat]) if seat >= 0 else np.inf
        if joins[i, other] < best:
            cost += float(joins[i, other])
            worst = max(worst, float(options.together[classes[began[other]]].worst[i, other]))
            joins[:, other] = np.inf
        elif np.isfinite(best):
            cost += best
            costs, column = options.seat_place[seat]
            worst = max(worst, float(costs.worst[i, column]))
            open_seats[:, seat] = np.inf
        else:
            waiting += 1
    return Greedy(cost=cost, worst=worst, waiting=waiting)
