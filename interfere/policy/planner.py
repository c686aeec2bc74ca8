"""One decision: every pending job starts alone, starts beside somebody, or waits, and says why.

First the most weight is started, then at the least cost of the objective. Pending jobs, residents with a free seat and
waiting places are the vertices of one general matching: a resident alone costs nothing, a waiting place taken costs a
price above every cost, and at most as many groups as there are devices. With empty devices of several classes a
group is costed at its best class first (that cost is the bound) and the groups are then assigned to devices.
"""

import numpy as np
from numpy.typing import NDArray

from interfere.errors import InvalidInputError
from interfere.matching.pairs import match_pairs
from interfere.matching.records import Matching
from interfere.matching.seats import assign_seats
from interfere.policy.costs import Resolve
from interfere.policy.decision import Decision, Group
from interfere.policy.greedy import greedy
from interfere.policy.options import Options, survey
from interfere.policy.validate import validate_snapshot
from interfere.protocols import Predictor
from interfere.records import ActionKind, Plan, Snapshot, SolveStatus


def plan(snapshot: Snapshot, predictor: Predictor, resolve: Resolve, decision_id: str) -> Plan:
    """The decision for one snapshot. Raises InvalidInputError when the snapshot contradicts itself."""
    violations = validate_snapshot(snapshot)
    if violations:
        raise InvalidInputError.from_violations(violations)
    return plan_valid(snapshot, predictor, resolve, decision_id)


def plan_valid(snapshot: Snapshot, predictor: Predictor, resolve: Resolve, decision_id: str) -> Plan:
    """The same for a snapshot, or a part of one, that does not."""
    options = survey(snapshot, predictor, resolve)
    price = _waiting_price(options)
    matching = _solve(options, price)
    groups, placed_exactly = _to_devices(options, matching)
    decided = Decision(options, groups, predictor, resolve, snapshot.limits.allow_extrapolation)
    actions = tuple(decided.action(i) for i in range(len(options.pending)))
    pairs = decided.pairings()
    cost = float(sum(pair.weight for pair in pairs))
    cost += float(sum(a.cost for a in actions if a.kind is ActionKind.START_ALONE))
    waiting_cost = float(sum(price[i] for i, action in enumerate(actions) if action.kind is ActionKind.WAIT))
    bound = cost if placed_exactly else min(cost, matching.lower_bound - waiting_cost)
    greedy_cost, greedy_waiting = greedy(options)
    refused, total = decided.refusals()
    return Plan(
        decision_id=decision_id,
        model_version=predictor.version,
        actions=actions,
        pairs=pairs,
        refused=refused,
        refused_total=total,
        cost=cost,
        greedy_cost=greedy_cost,
        greedy_waiting=greedy_waiting,
        lower_bound=bound,
        gap=(cost - bound) / max(abs(cost), 1e-12) if cost > bound else 0.0,
        status=SolveStatus.OPTIMAL if placed_exactly else SolveStatus.BOUNDED,
    )


def _waiting_price(options: Options) -> NDArray[np.float64]:
    """float64[n]: so dear that no saving in excess makes a job wait; in proportion to the job's weight."""
    costs = np.concatenate([options.alone_cost, options.together_best().ravel(), options.beside_all().ravel()])
    span = float(np.abs(costs[np.isfinite(costs)]).max(initial=0.0))
    weight = np.array([job.weight for job in options.pending])
    return (1.0 + 2.0 * len(weight) * span) * weight / weight.min(initial=np.inf) if len(weight) else weight


def _solve(options: Options, price: NDArray[np.float64]) -> Matching:
    """Matching over pending jobs 0..n-1, seats n..n+s-1, waiting places after them."""
    n, s = len(options.pending), len(options.seats)
    alone = options.alone_anywhere()
    places = max(0, n - options.take) if alone.all() else n
    size = n + s + places
    cost = np.full((size, size), np.inf)
    cost[:n, :n] = options.together_best()
    cost[:n, n : n + s] = options.beside_all()
    cost[:n, n + s :] = price[:, None]
    cost = np.minimum(cost, cost.T)
    solo = np.zeros(size)
    solo[:n] = options.alone_cost
    solo[:n][~alone] = np.inf
    return match_pairs(cost, solo, max_devices=options.take + s + places)


def _to_devices(options: Options, matching: Matching) -> tuple[list[Group], bool]:
    """Groups on devices, and whether the cost stayed at the matching's."""
    n, s = len(options.pending), len(options.seats)
    groups: list[Group] = []
    fresh: list[tuple[int, ...]] = []
    for i, j in enumerate(matching.mate[:n].tolist()):
        if n <= j < n + s:
            costs, column = options.seat_place[j - n]
            groups.append(Group(members=(i,), device=options.seats[j - n], costs=costs, place=(i, column)))
        elif j == i:
            fresh.append((i,))
        elif i < j < n:
            fresh.append((i, j))
    seat = _places(options, fresh)
    for members, k in zip(fresh, seat, strict=True):
        if k >= 0:
            device, where = options.empty[k], options.empty_class[k]
            together = options.together[where] if len(members) == 2 else None
            groups.append(Group(members=members, device=device, costs=together, place=(members[0], members[-1])))
    best = options.together_best()
    wanted = sum(float(best[members]) if len(members) == 2 else 0.0 for members in fresh)
    got = sum(
        float(options.together[options.empty_class[k]].cost[members])
        for members, k in zip(fresh, seat, strict=True)
        if k >= 0 and len(members) == 2
    )
    return groups, min(seat, default=0) >= 0 and bool(np.isclose(got, wanted, rtol=1e-9))


def _places(options: Options, fresh: list[tuple[int, ...]]) -> list[int]:
    """The empty device of each group, -1 for none; devices of one class are alike."""
    if not fresh or len(options.together) < 2:
        return list(range(len(fresh)))
    column = {
        where: np.array(
            [
                float(options.together[where].cost[members]) if len(members) == 2
                else (0.0 if options.alone[where][members[0]] else np.inf)
                for members in fresh
            ]
        )
        for where in options.together
    }  # fmt: skip
    table = np.stack([column[where] for where in options.empty_class], axis=1)
    return [int(k) for k in assign_seats(table).seat]
