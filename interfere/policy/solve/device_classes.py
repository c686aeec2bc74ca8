"""Empty devices of several classes: which group on which class, as an integer program.

One variable for each start that may happen: a job alone on a class, two on a class, one beside a resident, or waiting;
each job once, each class and each resident as often as there are. With all starts as variables the answer is exact;
of more than `MOST_STARTS` only the cheapest few of each job are, and nothing is proved.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.policy.costs.candidates import Options, Start
from interfere.policy.device_class import DeviceClass
from interfere.time_budget import UNLIMITED, TimeBudget

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_STARTS = 4_000  # 30 jobs on two classes beside 60 residents: HiGHS takes 0.1 s
CHEAPEST = 8  # partners and seats that each job may choose from where there are more
TIME_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlacement:
    """What starts, and whether nothing cheaper can."""

    starts: tuple[Start, ...]
    bound: float  # -inf where nothing is proved
    exact: bool


def by_classes(options: Options, price: Floats, budget: TimeBudget = UNLIMITED) -> ClassPlacement | None:
    """The cheapest starts at waiting prices `price` float64[n]; None when the time did not do for any."""
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csr_array

    n, classes = len(options.pending), list(options.together)
    starts = _Starts.of(options, price)
    whole = len(starts.cost) <= MOST_STARTS
    if not whole:
        starts = starts.cheapest()
    v = len(starts.cost)
    place = np.arange(v)
    pair, fresh, beside = starts.first != starts.second, starts.where >= 0, starts.seat >= 0
    rows = [starts.first, starts.second[pair], n + starts.where[fresh]]
    rows += [n + len(classes) + starts.seat[beside], np.full(int(fresh.sum()), n + len(classes) + len(options.seats))]
    columns = [place, place[pair], place[fresh], place[beside], place[fresh]]
    at = (np.concatenate(rows), np.concatenate(columns))
    size = n + len(classes) + len(options.seats) + 1
    used = csr_array((np.ones(len(at[0])), at), shape=(size, v))
    number = Counter(options.empty_class)
    most = np.array([*[1] * n, *[number[where] for where in classes], *[1] * len(options.seats), options.take])
    least = np.concatenate([np.ones(n), np.full(size - n, -np.inf)])
    limit_s = min(TIME_LIMIT_S, budget.remaining_s)
    scale = max(1.0, float(np.abs(starts.cost).max(initial=0.0)))
    found = milp(
        starts.cost / scale,
        integrality=np.ones(v),
        constraints=[LinearConstraint(used, least, most)],
        bounds=(0, 1),
        options={"time_limit": limit_s, "mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None
    chosen = np.flatnonzero(np.rint(found.x) > 0)
    return ClassPlacement(
        starts=_on_devices(options, starts, chosen, classes),
        bound=float(found.mip_dual_bound) * scale if whole else -np.inf,
        exact=whole and found.status == 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starts:
    """v starts: int64[v] each but the cost; first == second for one job, -1 where there is no class or seat."""

    first: Ints
    second: Ints
    where: Ints
    seat: Ints
    cost: Floats

    @classmethod
    def of(cls, options: Options, price: Floats) -> "_Starts":
        n = len(options.pending)
        me, none = np.arange(n), np.full(n, -1)
        parts: list[tuple[Ints, Ints, Ints, Ints, Floats]] = [(me, me, none, none, price)]
        for k, (where, costs) in enumerate(options.together.items()):
            one, other = np.nonzero(np.triu(np.isfinite(costs.cost), 1))
            single = np.flatnonzero(np.isfinite(options.alone[where]))
            first, second = np.concatenate([one, single]), np.concatenate([other, single])
            paid = np.concatenate([costs.cost[one, other], options.alone[where][single]])
            parts.append((first, second, np.full(len(first), k), np.full(len(first), -1), paid))
        beside = options.beside_all()
        job, seat = np.nonzero(np.isfinite(beside))
        parts.append((job, job, np.full(len(job), -1), seat, beside[job, seat]))
        first, second, kind, seats, cost = (np.concatenate([part[k] for part in parts]) for k in range(5))
        return cls(first=first, second=second, where=kind, seat=seats, cost=cost)

    def cheapest(self) -> "_Starts":
        """Waiting and alone, and of the others the `CHEAPEST` of each job on each class and beside residents."""
        keep = (self.first == self.second) & (self.seat < 0)
        order = np.argsort(self.cost, kind="stable")
        groups = int(self.where.max(initial=-1)) + 2
        for jobs in (self.first, self.second):
            rest = order[~((self.first == self.second) & (self.seat < 0))[order]]
            key = jobs[rest] * groups + self.where[rest] + 1
            by_key = np.argsort(key, kind="stable")
            sorted_key = key[by_key]
            rank = np.arange(len(key)) - np.searchsorted(sorted_key, sorted_key)
            keep[rest[by_key[rank < CHEAPEST]]] = True
        return _Starts(**{name: getattr(self, name)[keep] for name in ("first", "second", "where", "seat", "cost")})


def _on_devices(options: Options, starts: _Starts, chosen: Ints, classes: list[DeviceClass]) -> tuple[Start, ...]:
    free = {where: [k for k, each in enumerate(options.empty_class) if each == where][::-1] for where in classes}
    made = []
    for v in chosen.tolist():
        i, j = int(starts.first[v]), int(starts.second[v])
        members = (i,) if i == j else (i, j)
        if starts.seat[v] >= 0:
            made.append(Start(members=members, seat=int(starts.seat[v])))
        elif starts.where[v] >= 0:
            made.append(Start(members=members, device=free[classes[starts.where[v]]].pop()))
    return tuple(made)
