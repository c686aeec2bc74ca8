"""Who starts where, where costs add: first the most weight is started, then at the least cost.

Pending jobs, residents with a free seat and waiting places are the vertices of one general matching: a resident alone
costs nothing, a waiting place taken costs a price above every cost, and at most as many groups start as there are
devices. With empty devices of several classes a group is costed at its best class first (that cost is the bound) and
the groups are then assigned to devices; where this falls short, an integer program takes the classes into account.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from interfere.matching.exact import match_pairs
from interfere.matching.records import Matching
from interfere.matching.seats import assign_seats
from interfere.policy.costs.candidates import Options, Start
from interfere.policy.solve.device_classes import by_classes
from interfere.records import SolveStatus
from interfere.time_budget import UNLIMITED, TimeBudget

Floats = NDArray[np.float64]
LEAST_S = 1e-3  # what a search gets that is late already: it answers by simple means
LARGE = 300  # jobs and seats from which the search for the price of a device takes longer than a second try would
CHANGES = (
    4.0  # costs that one more job may change: a job takes a place, and who had it another; else the first try fails
)
EQUAL = 1e-9  # relative: sums of the same costs in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """All that starts; who is in no start waits."""

    starts: tuple[Start, ...]
    cost: float  # Σ of what starts
    waiting: float  # Σ of the waiting prices of who waits
    bound: float  # no placement has a lower cost + waiting
    exact: bool

    @property
    def total(self) -> float:
        """What is minimised."""
        return self.cost + self.waiting


def waiting_price(options: Options) -> Floats:
    """float64[n]: so dear that no saving in costs makes a job wait; in proportion to the job's weight."""
    weight = options.weight
    if not len(weight):
        return weight
    tables = (*(cost[:, None] for cost in options.alone.values()), options.beside_all())
    tables += tuple(costs.cost for costs in options.together.values())
    # No placement costs more than Σ of the dearest choice of each job, and none less than -Σ.
    dearest = np.max([np.max(np.abs(t), axis=1, where=np.isfinite(t), initial=0.0) for t in tables], axis=0)
    return np.asarray((1.0 + 2.0 * dearest.sum()) * weight / weight.min())


def place(options: Options, price: Floats, budget: TimeBudget = UNLIMITED) -> Placement:
    """The cheapest placement, `price` float64[n] for each job that waits; once the
    budget has expired the best so far."""
    matching = _matched(options, price, budget)
    found = _placed(options, price, matching)
    if found.exact or len(options.together) < 2 or budget.expired:
        return found
    other = by_classes(options, price, budget)
    if other is None:
        return found
    better = placement_of(options, price, other.starts, bound=max(found.bound, other.bound), exact=other.exact)
    return better if better.total <= found.total else found


def placement_of(
    options: Options, price: Floats, starts: tuple[Start, ...], *, bound: float, exact: bool = False
) -> Placement:
    """What some starts come to; `bound` on cost and waiting of any."""
    waits = np.ones(len(options.pending), dtype=bool)
    for start in starts:
        waits[list(start.members)] = False
    cost, waiting = float(sum(options.cost_of(start)[0] for start in starts)), float(price[waits].sum())
    total = cost + waiting
    return Placement(
        starts=starts, cost=cost, waiting=waiting, bound=total if exact else min(bound, total), exact=exact
    )


def least_cost(options: Options) -> float:
    """No placement that starts every pending job costs less: each at its cheapest, half of a pair's cost."""
    cheapest = options.alone_best()
    for half in (options.beside_all(), options.together_best() / 2):
        cheapest = np.minimum(cheapest, half.min(axis=1, initial=np.inf))
    return float(cheapest[np.isfinite(cheapest)].sum())


def _matched(options: Options, price: Floats, budget: TimeBudget) -> Matching:
    """Pending jobs 0..n-1, seats n..n+s-1, and waiting places after them: mates, and cost with waiting prices."""
    n, s = len(options.pending), len(options.seats)
    if n and n + s > LARGE:
        found = _with_fewest_waiting(options, price, budget)
        if found is not None:
            return found
    fits = all(np.isfinite(cost).all() for cost in options.alone.values())  # then every device serves somebody
    return _solved(options, price, max(0, n - options.take) if fits else n, budget)


def _with_fewest_waiting(options: Options, price: Floats, budget: TimeBudget) -> Matching | None:
    """The same where two a device and one a seat can be had, and the lightest wait; None where that is not so.

    Less weight than that of the lightest cannot wait, so a price just above the costs will do. Prices above all sums
    of costs make the search for the price of a device up to a hundred times slower.
    """
    n, s = len(options.pending), len(options.seats)
    weight = price / price.min()
    places = max(0, n - s - 2 * options.take)
    tables = (*(cost[:, None] for cost in options.alone.values()), options.beside_all(), options.together_best())
    span = max(float(np.max(np.abs(t), where=np.isfinite(t), initial=0.0)) for t in tables)
    low = (1.0 + CHANGES * span) * weight
    found = _solved(options, low, places, budget)
    if found.status is SolveStatus.INFEASIBLE:
        return None
    waits = np.asarray(found.mate[:n]) >= n + s
    if weight[waits].sum() > np.sort(weight)[:places].sum() * (1 + EQUAL):
        return None
    dearer = float((price - low)[waits].sum())
    return replace(found, cost=found.cost + dearer, lower_bound=found.lower_bound + dearer)


def _solved(options: Options, price: Floats, places: int, budget: TimeBudget) -> Matching:
    """The matching with so many waiting places; INFEASIBLE where more would have to wait."""
    n, s = len(options.pending), len(options.seats)
    size = n + s + places
    cost = np.full((size, size), np.inf)
    cost[:n, :n] = options.together_best()
    cost[:n, n : n + s] = options.beside_all()
    cost[:n, n + s :] = price[:, None]
    cost[n:, :n] = cost[:n, n:].T
    solo = np.zeros(size)
    solo[:n] = options.alone_best()
    left_s = None if budget.unlimited else max(LEAST_S, budget.remaining_s)
    return match_pairs(cost, solo, max_devices=options.take + s + places, time_limit_s=left_s)


def _placed(options: Options, price: Floats, matching: Matching) -> Placement:
    """Groups of the matching on devices; exact where each got the class that the matching counted on."""
    n, s = len(options.pending), len(options.seats)
    starts: list[Start] = []
    fresh: list[tuple[int, ...]] = []
    for i, j in enumerate(matching.mate[:n].tolist()):
        if n <= j < n + s:
            starts.append(Start(members=(i,), seat=j - n))
        elif j == i:
            fresh.append((i,))
        elif i < j < n:
            fresh.append((i, j))
    devices = _devices(options, price, fresh)
    starts += [Start(members=members, device=k) for members, k in zip(fresh, devices, strict=True) if k >= 0]
    found = placement_of(options, price, tuple(starts), bound=matching.lower_bound)
    if found.total - found.bound > EQUAL * max(abs(found.total), matching.cost):
        return found
    return placement_of(options, price, found.starts, bound=found.total, exact=True)


def _devices(options: Options, price: Floats, fresh: list[tuple[int, ...]]) -> list[int]:
    """The empty device of each group, -1 for none; devices of one class are alike."""
    if not fresh or len(options.together) < 2:
        return list(range(len(fresh)))
    column = {
        where: np.array(
            [
                options.together[where].cost[members] if len(members) == 2 else options.alone[where][members[0]]
                for members in fresh
            ],
            dtype=np.float64,
        )
        for where in options.together
    }
    table = np.stack([column[where] for where in options.empty_class], axis=1)
    hold = np.array([price[list(members)].sum() for members in fresh])
    return [int(k) for k in assign_seats(table, hold).seat]
