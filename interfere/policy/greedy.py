"""What a scheduler without matching would do: each job in its turn takes the cheapest seat that is left."""

from collections import Counter

import numpy as np

from interfere.policy.options import Options


def greedy(options: Options) -> tuple[float, int]:
    """Cost and number of waiting jobs when each takes an empty device, else the seat of least excess, in order."""
    free = Counter(options.empty_class)
    taken, n = 0, len(options.pending)
    open_seats = options.beside_all()
    joins = np.full((n, n), np.inf)  # beside a pending job that started alone
    cost, waiting = 0.0, 0
    for i in range(n):
        where = next((each for each, left in free.items() if left and options.alone[each][i]), None)
        if where is not None and taken < options.take:
            free[where] -= 1
            taken += 1
            cost += float(options.alone_cost[i])
            joins[:, i] = options.together[where].cost[:, i] - options.alone_cost[i]
            continue
        seat, other = int(np.argmin(open_seats[i])) if open_seats.shape[1] else -1, int(np.argmin(joins[i]))
        best = float(open_seats[i, seat]) if seat >= 0 else np.inf
        if joins[i, other] < best:
            cost += float(joins[i, other])
            joins[:, other] = np.inf
        elif np.isfinite(best):
            cost += best
            open_seats[:, seat] = np.inf
        else:
            waiting += 1
    return cost, waiting
