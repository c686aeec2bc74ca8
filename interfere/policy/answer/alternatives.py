"""What else one job could have got in a decision, and what the best whole plan with each of these would have cost.

Once the job's own group is fixed, all that is left are fewer jobs on fewer devices at the same costs. So

    value(choice)  =  cost of the job's group  +  cost of the cheapest placement of the rest

(the larger of both for an objective of the worst), exact where the placement is. Nothing is predicted anew.
Law: while nothing new is known, no choice is better than what was decided, and that one costs what the plan cost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.costs.candidates import Options, Start
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.solve.min_max import least_worst
from interfere.policy.solve.min_sum import EQUAL, Floats, place, waiting_price
from interfere.records import NAN, Action, ActionKind, Alternative, Refusal
from interfere.time_budget import UNLIMITED, TimeBudget

# Cheapest partners, and device classes to be alone on, that are solved for: with waiting and what was chosen at most
# ten placements, about a second for 1,000 jobs.
PARTNERS, CLASSES = 5, 3
REFUSALS_A_RULE = 3  # examples listed of each rule that binds


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One thing that a job could get: no start is to wait. `members` index the pending jobs, the job first."""

    members: tuple[int, ...]
    start: Start | None = None
    device_id: str = ""
    partner: str = ""
    partner_workload: str = ""
    slowdown: float = NAN
    partner_slowdown: float = NAN
    excess: float = 0.0  # what its group costs more than its members alone
    chosen: bool = False

    @property
    def kind(self) -> ActionKind:
        """What would happen to the job."""
        if self.start is None:
            return ActionKind.WAIT
        return ActionKind.START_SHARED if self.partner else ActionKind.START_ALONE


def alternatives(
    options: Options, action: Action, where: DeviceClass | None, budget: TimeBudget = UNLIMITED
) -> tuple[tuple[Alternative, ...], int]:
    """What was chosen (`where`: the kind of its device), and the most promising of what was not, best first; and how
    many of these were not solved for before the budget expired."""
    price = waiting_price(options)
    found: list[Alternative] = []
    asked = choices(options, action, where)
    for choice in asked:
        one = _solved(options, price, choice, budget)
        if found and not one.proven and budget.expired:
            break
        found.append(one)
    found.sort(key=lambda a: (round(a.waiting_weight, 9), round(a.cost, 9), not a.chosen))
    return tuple(found), len(asked) - len(found)


def choices(options: Options, action: Action, where: DeviceClass | None) -> tuple[Choice, ...]:
    """What was chosen; waiting; alone on each kind of device; the cheapest partners, one of those that are alike."""
    i = [job.id for job in options.pending].index(action.job_id)
    shared = sorted(_shared(options, i, action, where), key=lambda choice: choice.excess)
    alone = list(_alone(options, i, action, where))
    wait = Choice(members=(i,), chosen=action.kind in (ActionKind.WAIT, ActionKind.DEMOTE))
    chosen = [one for one in (*shared, *alone) if one.chosen]
    partners = _distinct(options, [one for one in shared if not one.chosen])[:PARTNERS]
    return (*chosen, wait, *[one for one in alone if not one.chosen][:CLASSES], *partners)


def refusals(options: Options, action: Action) -> tuple[tuple[Refusal, ...], int]:
    """What a pending job may not have: a few partners for each rule that binds (no partner: not even alone), among them
    the one it was given where that is not allowed any more; and how many (partner, kind of device) in all."""
    job_id = action.job_id
    i, total = [job.id for job in options.pending].index(job_id), 0
    listed: dict[str, dict[str, Refusal]] = {}
    for table in options.together.values():
        if reason := table.kept_out(i) or table.too_large(i):
            total += 1
            listed.setdefault("alone", {}).setdefault(reason, Refusal(job_id=job_id, partner_id="", reason=reason))
    for table in (*options.together.values(), *(costs for costs, _ in options.beside.values())):
        for j in np.flatnonzero(~np.isfinite(table.cost[i])).tolist():
            if table.columns[j].id == job_id:
                continue
            total += 1
            reason, partner = table.reason(i, j), table.columns[j].id
            examples = listed.setdefault(reason.partition(":")[0], {})
            if len(examples) < REFUSALS_A_RULE or partner == action.partner_id:
                examples.setdefault(partner, Refusal(job_id=job_id, partner_id=partner, reason=reason))
    return tuple(refusal for examples in listed.values() for refusal in examples.values()), total


# --- what there is to choose ------------------------------------------------------------------------------------------


def _alone(options: Options, i: int, action: Action, at: DeviceClass | None) -> Iterator[Choice]:
    """Alone on one device of each class."""
    for where, k in _first_of_class(options, action.device_id).items():
        if options.take and np.isfinite(options.alone[where][i]):
            chosen = action.kind is ActionKind.START_ALONE and where == at
            yield Choice(
                members=(i,),
                start=Start(members=(i,), device=k),
                slowdown=1.0,
                chosen=chosen,
                device_id=action.device_id if chosen else options.empty[k].id,
            )


def _shared(options: Options, i: int, action: Action, at: DeviceClass | None) -> Iterator[Choice]:
    """Beside every pending partner on one device of each class, and beside every resident with a free seat."""
    alone = options.alone_best()
    alone[~np.isfinite(alone)] = 0.0
    for where, k in _first_of_class(options, action.device_id).items():
        table = options.together[where]
        for j in np.flatnonzero(np.isfinite(table.cost[i])).tolist():
            if j != i and options.take:
                chosen = where == at and table.columns[j].id == action.partner_id
                device_id = action.device_id if chosen else options.empty[k].id
                start = Start(members=(i, j), device=k)
                yield _beside(table, (i, j), start, device_id, float(alone[i] + alone[j]), chosen=chosen)
    for k, (device, (table, column)) in enumerate(zip(options.seats, options.seat_place, strict=True)):
        if np.isfinite(table.cost[i, column]):
            chosen = table.columns[column].id == action.partner_id
            start = Start(members=(i,), seat=k)
            yield _beside(table, (i, column), start, device.id, float(alone[i]), chosen=chosen)


def _beside(
    table: PairCosts, at: tuple[int, int], start: Start, device_id: str, alone: float, *, chosen: bool
) -> Choice:
    partner = table.columns[at[1]]
    return Choice(
        members=start.members,
        start=start,
        device_id=device_id,
        partner=partner.id,
        partner_workload=partner.workload,
        slowdown=float(table.row_slowdown[at]),
        partner_slowdown=float(table.column_slowdown[at]),
        excess=float(table.cost[at]) - alone,
        chosen=chosen,
    )


def _first_of_class(options: Options, preferred: str) -> Mapping[DeviceClass, int]:
    """One empty device of each class: the preferred one in its class."""
    first: dict[DeviceClass, int] = {}
    for k, (device, where) in enumerate(zip(options.empty, options.empty_class, strict=True)):
        if where not in first or device.id == preferred:
            first[where] = k
    return first


def _distinct(options: Options, shared: Sequence[Choice]) -> list[Choice]:
    """One of those whose partners are alike: same workload, same cost, same kind of device, both pending or running."""
    seen: dict[tuple[object, ...], Choice] = {}
    for one in shared:
        assert one.start is not None
        fresh = one.start.seat < 0
        where = options.empty_class[one.start.device] if fresh else options.seat_place[one.start.seat][0].where
        seen.setdefault((one.partner_workload, round(one.excess, 9), where, fresh), one)
    return list(seen.values())


# --- what each would cost ---------------------------------------------------------------------------------------------


def _solved(options: Options, price: Floats, choice: Choice, budget: TimeBudget) -> Alternative:
    """The best whole plan with this choice."""
    kept = [k for k in range(len(options.pending)) if k not in choice.members]
    rest = _without(options, kept, choice.start)
    cost, worst = options.cost_of(choice.start) if choice.start else (0.0, -np.inf)
    if options.worst:
        answer = least_worst(rest, price[kept], budget)
        placement, value, bound = answer.placement, max(worst, answer.worst), max(worst, answer.bound)
        value, bound = (value, bound) if np.isfinite(value) else (0.0, 0.0)  # nobody starts, nobody runs
        proven = value - bound <= EQUAL * abs(value)
    else:
        placement = place(rest, price[kept], budget)
        value, proven = cost + placement.cost, placement.exact
    started = {kept[k] for start in placement.starts for k in start.members}
    started |= set(choice.members if choice.start else ())
    waiting = [k for k in range(len(options.pending)) if k not in started]
    return Alternative(
        kind=choice.kind,
        device_id=choice.device_id,
        partner_id=choice.partner,
        partner_workload=choice.partner_workload,
        slowdown=choice.slowdown,
        partner_slowdown=choice.partner_slowdown,
        group_cost=cost,
        cost=value,
        waiting=len(waiting),
        waiting_weight=float(options.weight[waiting].sum()),
        chosen=choice.chosen,
        proven=proven,
    )


def _without(options: Options, kept: Sequence[int], start: Start | None) -> Options:
    """What is left for the pending jobs that are kept once a start took its device or seat."""
    seats = [k for k in range(len(options.seats)) if start is None or k != start.seat]
    empty = [k for k in range(len(options.empty)) if start is None or k != start.device]
    classes, moved = {options.empty_class[k] for k in empty}, {k: now for now, k in enumerate(seats)}

    def cut(costs: PairCosts, columns: Sequence[int]) -> PairCosts:
        at = np.ix_(kept, columns)
        return replace(
            costs,
            cost=costs.cost[at],
            worst=costs.worst[at],
            rows=tuple(costs.rows[k] for k in kept),
            columns=tuple(costs.columns[k] for k in columns),
        )

    beside: dict[DeviceClass, tuple[PairCosts, list[int]]] = {}
    seat_place: dict[int, tuple[PairCosts, int]] = {}
    for where, (costs, places) in options.beside.items():
        columns = [c for c, k in enumerate(places) if start is None or k != start.seat]
        table, now = cut(costs, columns), [moved[places[c]] for c in columns]
        beside[where] = (table, now)
        seat_place |= {k: (table, c) for c, k in enumerate(now)}
    return replace(
        options,
        pending=tuple(options.pending[k] for k in kept),
        empty=tuple(options.empty[k] for k in empty),
        empty_class=tuple(options.empty_class[k] for k in empty),
        take=options.take - (len(options.empty) - len(empty)),
        seats=tuple(options.seats[k] for k in seats),
        seat_class=tuple(options.seat_class[k] for k in seats),
        alone={where: cost[kept] for where, cost in options.alone.items() if where in classes},
        together={where: cut(costs, kept) for where, costs in options.together.items() if where in classes},
        beside=beside,
        seat_place=tuple(seat_place[k] for k in range(len(seats))),
        weight=options.weight[kept],
    )
