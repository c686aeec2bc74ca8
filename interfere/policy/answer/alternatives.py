"""What else one job could have got in a decision, and what the best whole plan with each of these would have cost.

Once the job's own group is fixed, all that is left are fewer jobs on fewer devices at the same costs. So

    value(choice)  =  cost of the job's group  +  cost of the cheapest placement of the rest

(the larger of both for an objective of the worst), exact where the placement is. Nothing is predicted anew.
Law: while nothing new is known, no choice is better than what was decided, and that one costs what the plan cost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.costs.candidates import Candidates, Start
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.solve.min_max import solve_min_max
from interfere.policy.solve.min_sum import RELATIVE_TOLERANCE, Floats, solve_min_sum, waiting_penalties
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
    candidates: Candidates, action: Action, where: DeviceClass | None, budget: TimeBudget = UNLIMITED
) -> tuple[tuple[Alternative, ...], int]:
    """What was chosen (`where`: the kind of its device), and the most promising of what was not, best first; and how
    many of these were not solved for before the budget expired."""
    price = waiting_penalties(candidates)
    found: list[Alternative] = []
    asked = choices(candidates, action, where)
    for choice in asked:
        one = _solved(candidates, price, choice, budget)
        if found and not one.proven and budget.expired:
            break
        found.append(one)
    found.sort(key=lambda a: (round(a.waiting_weight, 9), round(a.cost, 9), not a.chosen))
    return tuple(found), len(asked) - len(found)


def choices(candidates: Candidates, action: Action, where: DeviceClass | None) -> tuple[Choice, ...]:
    """What was chosen; waiting; alone on each kind of device; the cheapest partners, one of those that are alike."""
    i = [job.id for job in candidates.pending].index(action.job_id)
    shared = sorted(_shared(candidates, i, action, where), key=lambda choice: choice.excess)
    alone = list(_alone(candidates, i, action, where))
    wait = Choice(members=(i,), chosen=action.kind in (ActionKind.WAIT, ActionKind.DEMOTE))
    chosen = [one for one in (*shared, *alone) if one.chosen]
    partners = _distinct(candidates, [one for one in shared if not one.chosen])[:PARTNERS]
    return (*chosen, wait, *[one for one in alone if not one.chosen][:CLASSES], *partners)


def refusals(candidates: Candidates, action: Action) -> tuple[tuple[Refusal, ...], int]:
    """What a pending job may not have: a few partners for each rule that binds (no partner: not even alone), among them
    the one it was given where that is not allowed any more; and how many (partner, kind of device) in all."""
    job_id = action.job_id
    i, total = [job.id for job in candidates.pending].index(job_id), 0
    listed: dict[str, dict[str, Refusal]] = {}
    for table in candidates.pair_tables.values():
        if reason := table.kept_out(i) or table.too_large(i):
            total += 1
            listed.setdefault("alone", {}).setdefault(reason, Refusal(job_id=job_id, partner_id="", reason=reason))
    for table in (*candidates.pair_tables.values(), *(costs for costs, _ in candidates.resident_tables.values())):
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


def _alone(candidates: Candidates, i: int, action: Action, at: DeviceClass | None) -> Iterator[Choice]:
    """Alone on one device of each class."""
    for where, k in _first_of_class(candidates, action.device_id).items():
        if candidates.max_new_devices and np.isfinite(candidates.solo_cost[where][i]):
            chosen = action.kind is ActionKind.START_ALONE and where == at
            yield Choice(
                members=(i,),
                start=Start(members=(i,), device=k),
                slowdown=1.0,
                chosen=chosen,
                device_id=action.device_id if chosen else candidates.empty_devices[k].id,
            )


def _shared(candidates: Candidates, i: int, action: Action, at: DeviceClass | None) -> Iterator[Choice]:
    """Beside every pending partner on one device of each class, and beside every resident with a free seat."""
    alone = candidates.best_solo_cost()
    alone[~np.isfinite(alone)] = 0.0
    for where, k in _first_of_class(candidates, action.device_id).items():
        table = candidates.pair_tables[where]
        for j in np.flatnonzero(np.isfinite(table.cost[i])).tolist():
            if j != i and candidates.max_new_devices:
                chosen = where == at and table.columns[j].id == action.partner_id
                device_id = action.device_id if chosen else candidates.empty_devices[k].id
                start = Start(members=(i, j), device=k)
                yield _beside(table, (i, j), start, device_id, float(alone[i] + alone[j]), chosen=chosen)
    for k, (device, (table, column)) in enumerate(zip(candidates.seats, candidates.seat_columns, strict=True)):
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


def _first_of_class(candidates: Candidates, preferred: str) -> Mapping[DeviceClass, int]:
    """One empty device of each class: the preferred one in its class."""
    first: dict[DeviceClass, int] = {}
    for k, (device, where) in enumerate(zip(candidates.empty_devices, candidates.empty_classes, strict=True)):
        if where not in first or device.id == preferred:
            first[where] = k
    return first


def _distinct(candidates: Candidates, shared: Sequence[Choice]) -> list[Choice]:
    """One of those whose partners are alike: same workload, same cost, same kind of device, both pending or running."""
    seen: dict[tuple[object, ...], Choice] = {}
    for one in shared:
        assert one.start is not None
        fresh = one.start.seat < 0
        where = (
            candidates.empty_classes[one.start.device] if fresh else candidates.seat_columns[one.start.seat][0].where
        )
        seen.setdefault((one.partner_workload, round(one.excess, 9), where, fresh), one)
    return list(seen.values())


# --- what each would cost ---------------------------------------------------------------------------------------------


def _solved(candidates: Candidates, price: Floats, choice: Choice, budget: TimeBudget) -> Alternative:
    """The best whole plan with this choice."""
    kept = [k for k in range(len(candidates.pending)) if k not in choice.members]
    rest = _without(candidates, kept, choice.start)
    cost, worst = candidates.cost_of(choice.start) if choice.start else (0.0, -np.inf)
    if candidates.is_min_max:
        answer = solve_min_max(rest, price[kept], budget)
        placement, value, bound = answer.placement, max(worst, answer.largest_cost), max(worst, answer.lower_bound)
        value, bound = (value, bound) if np.isfinite(value) else (0.0, 0.0)  # nobody starts, nobody runs
        proven = value - bound <= RELATIVE_TOLERANCE * abs(value)
    else:
        placement = solve_min_sum(rest, price[kept], budget)
        value, proven = cost + placement.cost, placement.is_optimal
    started = {kept[k] for start in placement.starts for k in start.members}
    started |= set(choice.members if choice.start else ())
    waiting = [k for k in range(len(candidates.pending)) if k not in started]
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
        waiting_weight=float(candidates.start_weight[waiting].sum()),
        chosen=choice.chosen,
        proven=proven,
    )


def _without(candidates: Candidates, kept: Sequence[int], start: Start | None) -> Candidates:
    """What is left for the pending jobs that are kept once a start took its device or seat."""
    seats = [k for k in range(len(candidates.seats)) if start is None or k != start.seat]
    empty = [k for k in range(len(candidates.empty_devices)) if start is None or k != start.device]
    classes, moved = {candidates.empty_classes[k] for k in empty}, {k: now for now, k in enumerate(seats)}

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
    for where, (costs, places) in candidates.resident_tables.items():
        columns = [c for c, k in enumerate(places) if start is None or k != start.seat]
        table, now = cut(costs, columns), [moved[places[c]] for c in columns]
        beside[where] = (table, now)
        seat_place |= {k: (table, c) for c, k in enumerate(now)}
    return replace(
        candidates,
        pending=tuple(candidates.pending[k] for k in kept),
        empty_devices=tuple(candidates.empty_devices[k] for k in empty),
        empty_classes=tuple(candidates.empty_classes[k] for k in empty),
        max_new_devices=candidates.max_new_devices - (len(candidates.empty_devices) - len(empty)),
        seats=tuple(candidates.seats[k] for k in seats),
        seat_classes=tuple(candidates.seat_classes[k] for k in seats),
        solo_cost={where: cost[kept] for where, cost in candidates.solo_cost.items() if where in classes},
        pair_tables={where: cut(costs, kept) for where, costs in candidates.pair_tables.items() if where in classes},
        resident_tables=beside,
        seat_columns=tuple(seat_place[k] for k in range(len(seats))),
        start_weight=candidates.start_weight[kept],
    )
