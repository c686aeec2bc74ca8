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
from interfere.policy.costs.candidates import Candidates, Start
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import RuleGroup
from interfere.policy.solve.min_max import solve_min_max
from interfere.policy.solve.min_sum import RELATIVE_TOLERANCE, Floats, solve_min_sum, waiting_penalties
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
    candidates: Candidates, action: Action, device_class: DeviceClass | None, budget: TimeBudget = UNLIMITED
) -> tuple[tuple[Alternative, ...], int]:
    """The decided choice and the most promising others, best first, each with the best plan that makes it.

    `device_class`: that of the device of the action. Also returns how many choices the budget left unsolved.
    """
    penalties = waiting_penalties(candidates)
    solved: list[Alternative] = []
    considered = choices(candidates, action, device_class)
    for choice in considered:
        alternative = _solve(candidates, penalties, choice, budget)
        if solved and not alternative.proven and budget.expired:
            break
        solved.append(alternative)
    solved.sort(key=lambda a: (round(a.waiting_weight, 9), round(a.cost, 9), not a.chosen))
    return tuple(solved), len(considered) - len(solved)


def choices(candidates: Candidates, action: Action, device_class: DeviceClass | None) -> tuple[Choice, ...]:
    """The decided choice; waiting; alone on each device class; the cheapest partners, one of those that are alike."""
    i = _index_of(candidates, action.job_id)
    shared = sorted(_shared_choices(candidates, i, action, device_class), key=lambda choice: choice.excess)
    alone = list(_alone_choices(candidates, i, action, device_class))
    wait = Choice(members=(i,), chosen=action.kind in (ActionKind.WAIT, ActionKind.DEMOTE))
    chosen = [choice for choice in (*shared, *alone) if choice.chosen]
    partners = _distinct_partners(candidates, [choice for choice in shared if not choice.chosen])[:MAX_PARTNERS]
    return (*chosen, wait, *[choice for choice in alone if not choice.chosen][:MAX_CLASSES], *partners)


def refusals(candidates: Candidates, action: Action) -> tuple[tuple[Refusal, ...], int]:
    """What a pending job may not have: a few partners for each rule that binds; no partner: not even alone.

    The partner of the action is listed too where it is not allowed any more. Also returns how many (partner, device
    class) are refused in all.
    """
    job_id, i, total = action.job_id, _index_of(candidates, action.job_id), 0
    alone: dict[str, Refusal] = {}
    for table in candidates.pair_tables.values():
        if (rule := table.rows.solo_rule(i)) is not None:
            total += 1
            refusal = refuse(job_id, "", rule)
            alone.setdefault(refusal.reason, refusal)  # once for device classes that it says the same of
    partners: dict[RuleGroup | None, dict[str, Refusal]] = {}
    for table in (*candidates.pair_tables.values(), *(table for table, _ in candidates.resident_tables.values())):
        refused = [j for j in np.flatnonzero(~np.isfinite(table.cost[i])).tolist() if table.columns.ids[j] != job_id]
        total += len(refused)
        for j, group in zip(refused, table.rules.blocking_groups(i, refused), strict=True):
            partner_id, examples = table.columns.ids[j], partners.setdefault(group, {})
            listed = len(examples) < MAX_EXAMPLES or partner_id == action.partner_id
            if listed and partner_id not in examples and (rule := table.blocking_rule(i, j)) is not None:
                examples[partner_id] = refuse(job_id, partner_id, rule)
    return (*alone.values(), *(refusal for examples in partners.values() for refusal in examples.values())), total


def _index_of(candidates: Candidates, job_id: str) -> int:
    return [job.id for job in candidates.pending].index(job_id)


# --- what there is to choose ------------------------------------------------------------------------------------------


def _alone_choices(
    candidates: Candidates, i: int, action: Action, chosen_class: DeviceClass | None
) -> Iterator[Choice]:
    """Alone on one device of each class."""
    for device_class, k in _first_of_class(candidates, action.device_id).items():
        if candidates.max_new_devices and np.isfinite(candidates.solo_cost[device_class][i]):
            chosen = action.kind is ActionKind.START_ALONE and device_class == chosen_class
            yield Choice(
                members=(i,),
                start=Start(members=(i,), device=k),
                slowdown=1.0,
                chosen=chosen,
                device_id=action.device_id if chosen else candidates.empty_devices[k].id,
            )


def _shared_choices(
    candidates: Candidates, i: int, action: Action, chosen_class: DeviceClass | None
) -> Iterator[Choice]:
    """Beside every pending partner on one device of each class, and beside every resident with a free seat."""
    alone = candidates.best_solo_cost()
    alone[~np.isfinite(alone)] = 0.0
    for device_class, k in _first_of_class(candidates, action.device_id).items():
        table = candidates.pair_tables[device_class]
        for j in np.flatnonzero(np.isfinite(table.cost[i])).tolist():
            if j != i and candidates.max_new_devices:
                chosen = device_class == chosen_class and table.columns.jobs[j].id == action.partner_id
                device_id = action.device_id if chosen else candidates.empty_devices[k].id
                start = Start(members=(i, j), device=k)
                yield _pair_choice(table, (i, j), start, device_id, float(alone[i] + alone[j]), chosen=chosen)
    for k, (device, (table, column)) in enumerate(zip(candidates.seats, candidates.seat_columns, strict=True)):
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


def _first_of_class(candidates: Candidates, preferred_id: str) -> Mapping[DeviceClass, int]:
    """One empty device of each class: the preferred one in its class."""
    first: dict[DeviceClass, int] = {}
    for k, (device, device_class) in enumerate(zip(candidates.empty_devices, candidates.empty_classes, strict=True)):
        if device_class not in first or device.id == preferred_id:
            first[device_class] = k
    return first


def _distinct_partners(candidates: Candidates, shared: Sequence[Choice]) -> list[Choice]:
    """One of those whose partners are alike: same workload, cost and device class, all pending or all running."""
    distinct: dict[tuple[object, ...], Choice] = {}
    for choice in shared:
        assert choice.start is not None
        pending = choice.start.seat < 0
        device_class = (
            candidates.empty_classes[choice.start.device] if pending else candidates.seat_classes[choice.start.seat]
        )
        distinct.setdefault((choice.partner_workload, round(choice.excess, 9), device_class, pending), choice)
    return list(distinct.values())


# --- what each would cost ---------------------------------------------------------------------------------------------


def _solve(candidates: Candidates, penalties: Floats, choice: Choice, budget: TimeBudget) -> Alternative:
    """The best whole plan with this choice."""
    kept = [k for k in range(len(candidates.pending)) if k not in choice.members]
    remaining = _without(candidates, kept, choice.start)
    cost, max_job_cost = candidates.cost_of(choice.start) if choice.start else (0.0, -np.inf)
    if candidates.is_min_max:
        answer = solve_min_max(remaining, penalties[kept], budget)
        placement = answer.placement
        value, bound = max(max_job_cost, answer.largest_cost), max(max_job_cost, answer.lower_bound)
        value, bound = (value, bound) if np.isfinite(value) else (0.0, 0.0)  # no job starts or runs
        proven = value - bound <= RELATIVE_TOLERANCE * abs(value)
    else:
        placement = solve_min_sum(remaining, penalties[kept], budget)
        value, proven = cost + placement.cost, placement.is_optimal
    started = {kept[k] for start in placement.starts for k in start.members}
    started |= set(choice.members if choice.start else ())
    waiting = [k for k in range(len(candidates.pending)) if k not in started]
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
        waiting_weight=float(candidates.start_weight[waiting].sum()),
        chosen=choice.chosen,
        proven=proven,
    )


def _without(candidates: Candidates, kept: Sequence[int], start: Start | None) -> Candidates:
    """The candidates of the pending jobs that are kept once a start took its device or seat."""
    seats = [k for k in range(len(candidates.seats)) if start is None or k != start.seat]
    empty = [k for k in range(len(candidates.empty_devices)) if start is None or k != start.device]
    classes, new_seat = {candidates.empty_classes[k] for k in empty}, {k: new for new, k in enumerate(seats)}
    resident_tables: dict[DeviceClass, tuple[PairCosts, list[int]]] = {}
    seat_columns: dict[int, tuple[PairCosts, int]] = {}
    for device_class, (table, places) in candidates.resident_tables.items():
        columns = [c for c, k in enumerate(places) if start is None or k != start.seat]
        kept_table, kept_seats = table.subset(kept, columns), [new_seat[places[c]] for c in columns]
        resident_tables[device_class] = (kept_table, kept_seats)
        seat_columns |= {k: (kept_table, c) for c, k in enumerate(kept_seats)}
    return replace(
        candidates,
        pending=tuple(candidates.pending[k] for k in kept),
        empty_devices=tuple(candidates.empty_devices[k] for k in empty),
        empty_classes=tuple(candidates.empty_classes[k] for k in empty),
        max_new_devices=candidates.max_new_devices - (len(candidates.empty_devices) - len(empty)),
        seats=tuple(candidates.seats[k] for k in seats),
        seat_classes=tuple(candidates.seat_classes[k] for k in seats),
        solo_cost={name: cost[kept] for name, cost in candidates.solo_cost.items() if name in classes},
        pair_tables={
            name: table.subset(kept, kept) for name, table in candidates.pair_tables.items() if name in classes
        },
        resident_tables=resident_tables,
        seat_columns=tuple(seat_columns[k] for k in range(len(seats))),
        start_weight=candidates.start_weight[kept],
    )
