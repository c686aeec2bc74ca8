"""What else one job could have got in a decision, and what the best whole plan with each of these would have cost.

Once the job's own group is fixed, fewer jobs on fewer devices are left to place at the same costs. So

    value(choice)  =  cost of the job's group  +  cost of the cheapest placement of the others

(the larger of both for a min-max objective), exact where the placement is. Nothing is predicted anew.
Law: while nothing new is known, no choice is better than what was decided, and that one costs what the plan cost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.answer.actions import refuse
from interfere.policy.costs.candidates import Options, Start
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import RuleGroup
from interfere.policy.solve.min_max import least_worst
from interfere.policy.solve.min_sum import EQUAL, Floats, place, waiting_price
from interfere.records import NAN, Action, ActionKind, Alternative, Refusal
from interfere.time_budget import UNLIMITED, TimeBudget

# Cheapest partners, and device classes to run alone on, that are solved for: with waiting and the decided choice at
# most ten placements, about a second for 1,000 jobs.
MAX_PARTNERS, MAX_CLASSES = 5, 3
MAX_EXAMPLES = 3  # refused partners listed for each rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One thing that a job could get; without a start it waits. `members` index the pending jobs, the job first."""

    members: tuple[int, ...]
    start: Start | None = None
    device_id: str = ""
    partner_id: str = ""
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
        return ActionKind.START_SHARED if self.partner_id else ActionKind.START_ALONE


def alternatives(
    options: Options, action: Action, device_class: DeviceClass | None, budget: TimeBudget = UNLIMITED
) -> tuple[tuple[Alternative, ...], int]:
    """The decided choice and the most promising others, best first, each with the best plan that makes it.

    `device_class`: that of the device of the action. Also returns how many choices the budget left unsolved.
    """
    price = waiting_price(options)
    solved: list[Alternative] = []
    candidates = choices(options, action, device_class)
    for choice in candidates:
        alternative = _solve(options, price, choice, budget)
        if solved and not alternative.proven and budget.expired:
            break
        solved.append(alternative)
    solved.sort(key=lambda a: (round(a.waiting_weight, 9), round(a.cost, 9), not a.chosen))
    return tuple(solved), len(candidates) - len(solved)


def choices(options: Options, action: Action, device_class: DeviceClass | None) -> tuple[Choice, ...]:
    """The decided choice; waiting; alone on each device class; the cheapest partners, one of those that are alike."""
    i = _index_of(options, action.job_id)
    shared = sorted(_shared_choices(options, i, action, device_class), key=lambda choice: choice.excess)
    alone = list(_alone_choices(options, i, action, device_class))
    wait = Choice(members=(i,), chosen=action.kind in (ActionKind.WAIT, ActionKind.DEMOTE))
    chosen = [choice for choice in (*shared, *alone) if choice.chosen]
    partners = _distinct_partners(options, [choice for choice in shared if not choice.chosen])[:MAX_PARTNERS]
    return (*chosen, wait, *[choice for choice in alone if not choice.chosen][:MAX_CLASSES], *partners)


def refusals(options: Options, action: Action) -> tuple[tuple[Refusal, ...], int]:
    """What a pending job may not have: a few partners for each rule that binds; no partner: not even alone.

    The partner of the action is listed too where it is not allowed any more. Also returns how many (partner, device
    class) are refused in all.
    """
    job_id, i, total = action.job_id, _index_of(options, action.job_id), 0
    alone: dict[str, Refusal] = {}
    for table in options.together.values():
        if (rule := table.rows.solo_rule(i)) is not None:
            total += 1
            refusal = refuse(job_id, "", rule)
            alone.setdefault(refusal.reason, refusal)  # once for device classes that it says the same of
    partners: dict[RuleGroup | None, dict[str, Refusal]] = {}
    for table in (*options.together.values(), *(table for table, _ in options.beside.values())):
        refused = [j for j in np.flatnonzero(~np.isfinite(table.cost[i])).tolist() if table.columns.ids[j] != job_id]
        total += len(refused)
        for j, group in zip(refused, table.rules.blocking_groups(i, refused), strict=True):
            partner_id, examples = table.columns.ids[j], partners.setdefault(group, {})
            listed = len(examples) < MAX_EXAMPLES or partner_id == action.partner_id
            if listed and partner_id not in examples and (rule := table.blocking_rule(i, j)) is not None:
                examples[partner_id] = refuse(job_id, partner_id, rule)
    return (*alone.values(), *(refusal for examples in partners.values() for refusal in examples.values())), total


def _index_of(options: Options, job_id: str) -> int:
    return [job.id for job in options.pending].index(job_id)


# --- what there is to choose ------------------------------------------------------------------------------------------


def _alone_choices(options: Options, i: int, action: Action, chosen_class: DeviceClass | None) -> Iterator[Choice]:
    """Alone on one device of each class."""
    for device_class, k in _first_of_class(options, action.device_id).items():
        if options.take and np.isfinite(options.alone[device_class][i]):
            chosen = action.kind is ActionKind.START_ALONE and device_class == chosen_class
            yield Choice(
                members=(i,),
                start=Start(members=(i,), device=k),
                slowdown=1.0,
                chosen=chosen,
                device_id=action.device_id if chosen else options.empty[k].id,
            )


def _shared_choices(options: Options, i: int, action: Action, chosen_class: DeviceClass | None) -> Iterator[Choice]:
    """Beside every pending partner on one device of each class, and beside every resident with a free seat."""
    alone = options.alone_best()
    alone[~np.isfinite(alone)] = 0.0
    for device_class, k in _first_of_class(options, action.device_id).items():
        table = options.together[device_class]
        for j in np.flatnonzero(np.isfinite(table.cost[i])).tolist():
            if j != i and options.take:
                chosen = device_class == chosen_class and table.columns.jobs[j].id == action.partner_id
                device_id = action.device_id if chosen else options.empty[k].id
                start = Start(members=(i, j), device=k)
                yield _pair_choice(table, (i, j), start, device_id, float(alone[i] + alone[j]), chosen=chosen)
    for k, (device, (table, column)) in enumerate(zip(options.seats, options.seat_place, strict=True)):
        if np.isfinite(table.cost[i, column]):
            chosen = table.columns.jobs[column].id == action.partner_id
            start = Start(members=(i,), seat=k)
            yield _pair_choice(table, (i, column), start, device.id, float(alone[i]), chosen=chosen)


def _pair_choice(
    table: PairCosts, pair: tuple[int, int], start: Start, device_id: str, alone_cost: float, *, chosen: bool
) -> Choice:
    """The choice of one pair of a table; `alone_cost`: what its pending jobs cost alone."""
    partner = table.columns.jobs[pair[1]]
    return Choice(
        members=start.members,
        start=start,
        device_id=device_id,
        partner_id=partner.id,
        partner_workload=partner.workload,
        slowdown=float(table.predictions.row_slowdown[pair]),
        partner_slowdown=float(table.predictions.column_slowdown[pair]),
        excess=float(table.cost[pair]) - alone_cost,
        chosen=chosen,
    )


def _first_of_class(options: Options, preferred_id: str) -> Mapping[DeviceClass, int]:
    """One empty device of each class: the preferred one in its class."""
    first: dict[DeviceClass, int] = {}
    for k, (device, device_class) in enumerate(zip(options.empty, options.empty_class, strict=True)):
        if device_class not in first or device.id == preferred_id:
            first[device_class] = k
    return first


def _distinct_partners(options: Options, shared: Sequence[Choice]) -> list[Choice]:
    """One of those whose partners are alike: same workload, cost and device class, all pending or all running."""
    distinct: dict[tuple[object, ...], Choice] = {}
    for choice in shared:
        assert choice.start is not None
        pending = choice.start.seat < 0
        device_class = (
            options.empty_class[choice.start.device] if pending else options.seat_class[choice.start.seat]
        )
        distinct.setdefault((choice.partner_workload, round(choice.excess, 9), device_class, pending), choice)
    return list(distinct.values())


# --- what each would cost ---------------------------------------------------------------------------------------------


def _solve(options: Options, price: Floats, choice: Choice, budget: TimeBudget) -> Alternative:
    """The best whole plan with this choice."""
    kept = [k for k in range(len(options.pending)) if k not in choice.members]
    remaining = _without(options, kept, choice.start)
    cost, max_job_cost = options.cost_of(choice.start) if choice.start else (0.0, -np.inf)
    if options.worst:
        answer = least_worst(remaining, price[kept], budget)
        placement = answer.placement
        value, bound = max(max_job_cost, answer.worst), max(max_job_cost, answer.bound)
        value, bound = (value, bound) if np.isfinite(value) else (0.0, 0.0)  # no job starts or runs
        proven = value - bound <= EQUAL * abs(value)
    else:
        placement = place(remaining, price[kept], budget)
        value, proven = cost + placement.cost, placement.exact
    started = {kept[k] for start in placement.starts for k in start.members}
    started |= set(choice.members if choice.start else ())
    waiting = [k for k in range(len(options.pending)) if k not in started]
    return Alternative(
        kind=choice.kind,
        device_id=choice.device_id,
        partner_id=choice.partner_id,
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
    """The options of the pending jobs that are kept once a start took its device or seat."""
    seats = [k for k in range(len(options.seats)) if start is None or k != start.seat]
    empty = [k for k in range(len(options.empty)) if start is None or k != start.device]
    classes, new_seat = {options.empty_class[k] for k in empty}, {k: new for new, k in enumerate(seats)}
    beside: dict[DeviceClass, tuple[PairCosts, list[int]]] = {}
    seat_place: dict[int, tuple[PairCosts, int]] = {}
    for device_class, (table, places) in options.beside.items():
        columns = [c for c, k in enumerate(places) if start is None or k != start.seat]
        kept_table, kept_seats = table.subset(kept, columns), [new_seat[places[c]] for c in columns]
        beside[device_class] = (kept_table, kept_seats)
        seat_place |= {k: (kept_table, c) for c, k in enumerate(kept_seats)}
    return replace(
        options,
        pending=tuple(options.pending[k] for k in kept),
        empty=tuple(options.empty[k] for k in empty),
        empty_class=tuple(options.empty_class[k] for k in empty),
        take=options.take - (len(options.empty) - len(empty)),
        seats=tuple(options.seats[k] for k in seats),
        seat_class=tuple(options.seat_class[k] for k in seats),
        alone={name: cost[kept] for name, cost in options.alone.items() if name in classes},
        together={name: table.subset(kept, kept) for name, table in options.together.items() if name in classes},
        beside=beside,
        seat_place=tuple(seat_place[k] for k in range(len(seats))),
        weight=options.weight[kept],
    )
