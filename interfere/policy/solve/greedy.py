"""What a scheduler without matching would do: each job in its turn takes the cheapest seat that is left."""

from dataclasses import dataclass

import numpy as np

from interfere.policy.costs.candidates import Options, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """What it comes to."""

    starts: tuple[Start, ...]
    cost: float  # sum of what starts
    worst: float  # largest cost of a job that starts or runs
    waiting: int


def greedy(options: Options) -> Greedy:
    """Each takes an empty device, else the seat that adds least, in order."""
    free: dict[object, list[int]] = {}
    for k, where in reversed(list(enumerate(options.empty_class))):
        free.setdefault(where, []).append(k)
    n = len(options.pending)
    open_seats = options.beside_all()
    joins = np.full((n, n), np.inf)  # beside a pending job that started alone
    starts: dict[int, Start] = {}  # by its first member
    taken, waiting = 0, 0
    for i in range(n):
        fits = (where for where in options.together if free[where] and np.isfinite(options.alone[where][i]))
        here = next(fits, None) if taken < options.take else None
        if here is not None:
            taken += 1
            starts[i] = Start(members=(i,), device=free[here].pop())
            joins[:, i] = options.together[here].cost[:, i] - options.alone[here][i]
            continue
        seat, other = int(np.argmin(open_seats[i])) if open_seats.shape[1] else -1, int(np.argmin(joins[i]))
        best = float(open_seats[i, seat]) if seat >= 0 else np.inf
        if joins[i, other] < best:
            starts[other] = Start(members=(other, i), device=starts[other].device)
            joins[:, other] = np.inf
        elif np.isfinite(best):
            starts[i] = Start(members=(i,), seat=seat)
            open_seats[:, seat] = np.inf
        else:
            waiting += 1
    found = tuple(starts.values())
    costs = [options.cost_of(start) for start in found]
    return Greedy(
        starts=found,
        cost=float(sum(cost for cost, _ in costs)),
        waiting=waiting,
        worst=max([options.floor, *(worst for _, worst in costs)]),
    )
