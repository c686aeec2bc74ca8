"""What a scheduler without matching would do: each job in its turn takes the cheapest seat that is left."""

import numpy as np

from interfere.policy.costs import DeviceClass
from interfere.policy.options import Options


def greedy(options: Options) -> tuple[float, int]:
    """Cost and number of waiting jobs when each takes an empty device, else the seat of least excess, in order."""
    free = [DeviceClass.of(d) for d in options.empty]
    taken = 0
    open_seats = options.beside_all()
    lonely: list[tuple[int, DeviceClass]] = []  # pending jobs that started alone: others may join
    cost, waiting = 0.0, 0
    for i in range(len(options.pending)):
        empty = next((k for k, where in enumerate(free) if options.alone[where][i]), None)
        if empty is not None and taken < options.take:
            lonely.append((i, free.pop(empty)))
            taken += 1
            continue
        seat = int(np.argmin(open_seats[i])) if open_seats.shape[1] else -1
        best = float(open_seats[i, seat]) if seat >= 0 else np.inf
        joins = [float(options.together[where].cost[i, other]) for other, where in lonely]
        if joins and min(joins) < best:
            cost += min(joins)
            lonely.pop(int(np.argmin(joins)))
        elif np.isfinite(best):
            cost += best
            open_seats[:, seat] = np.inf
        else:
            waiting += 1
    return cost, waiting
