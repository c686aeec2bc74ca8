"""The other places that one job could have got in a decision, and the cost of the best plan with each of them.

Once the group of the job is fixed, the other jobs are placed on the devices that are left, at unchanged costs. So

    value(choice)  =  cost of the job's group  +  cost of the best placement of the other jobs

(the larger of both for a min-max objective). The value is exact if the placement is; nothing is predicted anew.
Law: with unchanged predictions no choice is better than the decided one, whose value is the cost of the plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.problem import Floats, Placement, all_waiting
from interfere.policy.answer.actions import refuse, with_members
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates, Start
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.pair_rules import RuleGroup
from interfere.policy.solve.builder import decision_problem
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.solve.greedy import waiting_jobs
from interfere.policy.solve.search import all_proved, largest_cost, solve_decision
from interfere.records import NAN, Action, ActionKind, Alternative, LevelKind, Refusal
from interfere.time_budget import UNLIMITED, TimeBudget

# Cheapest partners and solo device classes for which a placement is solved: with waiting and the decided choice, at
# most ten placements.
MAX_PARTNERS, MAX_CLASSES = 5, 3
MAX_EXAMPLES = 3  # refused partners listed per rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One possible outcome for a job; without a `start` the job waits. `members`: job classes, the job's own first."""

    members: tuple[int, ...]
    start: Start | None = None
    device_id: str = ""
    partner_id: str = ""
    partner_workload: str = ""
    slowdown: float = NAN
    partner_slowdown: float = NAN
    excess: float = 0.0  # cost of the group beyond the costs of its members alone
    chosen: bool = False

    @property
    def kind(self) -> ActionKind:
        """Return the kind of action of this choice: wait, start shared or start alone."""
        if self.start is None:
            return ActionKind.WAIT
        return ActionKind.START_SHARED if self.partner_id else ActionKind.START_ALONE


def alternatives(
    context: PlanningContext, action: Action, device_class: DeviceClass | None, budget: TimeBudget = UNLIMITED
) -> tuple[tuple[Alternative, ...], int]:
    """Return the decided choice and the most promising others, best first, each with the best plan that includes it.

    `context`: the subproblem of pending jobs of one size; `device_class`: the class of the device of `action`. The
    second value is the number of choices left unsolved because the budget expired.
    """
    decision = decision_problem(context, by_start_weight=True)
    solved: list[tuple[tuple[float, ...], Alternative]] = []
    considered = choices(decision.candidates[0], action, device_class)
    for choice in considered:
        waiting, alternative = _solve(decision, choice, budget)
        if solved and not alternative.proven and budget.expired:
            break
        solved.append((waiting, alternative))
    solved.sort(key=lambda entry: (entry[0], round(entry[1].cost, 9), not entry[1].chosen))
    return tuple(alternative for _, alternative in solved), len(considered) - len(solved)


def choices(candidates: Candidates, action: Action, device_class: DeviceClass | None) -> tuple[Choice, ...]:
    """Return the choices to compare: the decided one, waiting, alone on each device class, and the cheapest partners.

    Of interchangeable partners only one is listed.
    """
    i = candidates.class_of(action.job_id)
    shared = sorted(_shared_choices(candidates, i, action, device_class), key=lambda choice: choice.excess)
    alone = list(_alone_choices(candidates, i, action, device_class))
    wait = Choice(members=(i,), chosen=action.kind in (ActionKind.WAIT, ActionKind.DEMOTE))
    chosen = [choice for choice in (*shared, *alone) if choice.chosen]
    partners = _distinct_partners([choice for choice in shared if not choice.chosen])[:MAX_PARTNERS]
    return (*chosen, wait, *[choice for choice in alone if not choice.chosen][:MAX_CLASSES], *partners)


def refusals(candidates: Candidates, action: Action) -> tuple[tuple[Refusal, ...], int]:
    """Return the refused partners of a pending job, a few for each rule; an empty partner: the job may not run alone.

    The partner of `action` is listed too if the pair is no longer allowed. The second value is the number of all
    refused (partner, device class) combinations.
    """
    job_id, i, total = action.job_id, candidates.class_of(action.job_id), 0
    alone: dict[str, Refusal] = {}
    for table in candidates.pair_tables.values():
        if (rule := table.rows.solo_rule(i)) is not None:
            total += 1
            refusal = refuse(job_id, "", replace(rule, job_id=job_id))
            alone.setdefault(refusal.reason, refusal)  # one entry for all device classes with the same reason
    partners: dict[RuleGroup | None, dict[str, Refusal]] = {}
    for table in candidates.tables():
        refused = np.flatnonzero(~np.isfinite(table.cost[i])).tolist()
        for j, group in zip(refused, table.rules.blocking_groups(i, refused), strict=True):
            for partner_id in candidates.partner_ids(table, j):
                if partner_id == job_id:
                    continue
                total += 1
                examples = partners.setdefault(group, {})
                listed = len(examples) < MAX_EXAMPLES or partner_id == action.partner_id
                if listed and partner_id not in examples and (rule := table.blocking_rule(i, j)) is not None:
                    stands_for = (table.rows.jobs[i].id, table.columns.jobs[j].id)
                    rule = with_members(rule, stands_for, (job_id, partner_id))
                    examples[partner_id] = refuse(job_id, partner_id, rule)
    return (*alone.values(), *(refusal for examples in partners.values() for refusal in examples.values())), total


# --- what there is to choose ------------------------------------------------------------------------------------------


def _alone_choices(
    candidates: Candidates, i: int, action: Action, chosen_class: DeviceClass | None
) -> Iterator[Choice]:
    """Yield the choice of running alone on a device (a gang: a set of devices) of each class."""
    for name, device_id in _first_of_class(candidates, action.device_id).items():
        if candidates.max_new_devices >= candidates.size and np.isfinite(candidates.solo_cost[name][i]):
            chosen = action.kind is ActionKind.START_ALONE and name == chosen_class
            yield Choice(
                members=(i,),
                start=Start(members=(i,), device_class=name),
                slowdown=1.0,
                chosen=chosen,
                device_id=action.device_id if chosen else device_id,
            )


def _shared_choices(
    candidates: Candidates, i: int, action: Action, chosen_class: DeviceClass | None
) -> Iterator[Choice]:
    """Yield one choice for each pending partner and device class, and for each resident with a free seat."""
    alone = candidates.best_solo_cost()
    alone[~np.isfinite(alone)] = 0.0
    for name, device_id in _first_of_class(candidates, action.device_id).items():
        table = candidates.pair_tables[name]
        for j in np.flatnonzero(np.isfinite(table.cost[i])).tolist():
            partners = [job for job in candidates.job_classes[j] if job.id != action.job_id]
            if not partners or candidates.max_new_devices < candidates.size:
                continue
            partner = next((job for job in partners if job.id == action.partner_id), None)
            chosen = name == chosen_class and partner is not None
            start = Start(members=(i, j), device_class=name)
            place = action.device_id if chosen else device_id
            partner_id = partner.id if chosen and partner else partners[0].id
            yield _pair_choice(table, (i, j), start, place, partner_id, float(alone[i] + alone[j]), chosen=chosen)
    for k, (members, (table, column)) in enumerate(zip(candidates.seat_classes, candidates.seat_columns, strict=True)):
        if np.isfinite(table.cost[i, column]):
            seat = next((seat for seat in members if seat.resident.id == action.partner_id), None)
            taken = seat or members[0]
            yield _pair_choice(
                table,
                (i, column),
                Start(members=(i,), seat=k),
                taken.devices[0].id,
                taken.resident.id,
                float(alone[i]),
                chosen=seat is not None,
            )


def _pair_choice(
    table: PairCosts,
    pair: tuple[int, int],
    start: Start,
    device_id: str,
    partner_id: str,
    alone_cost: float,
    *,
    chosen: bool,
) -> Choice:
    """Return the choice that starts one pair of a table; `alone_cost`: cost of its pending jobs when run alone."""
    return Choice(
        members=start.members,
        start=start,
        device_id=device_id,
        partner_id=partner_id,
        partner_workload=table.columns.jobs[pair[1]].workload,
        slowdown=float(table.row_slowdown[pair]),
        partner_slowdown=float(table.column_slowdown[pair]),
        excess=float(table.cost[pair]) - alone_cost,
        chosen=chosen,
    )


def _first_of_class(candidates: Candidates, preferred_id: str) -> Mapping[DeviceClass, str]:
    """Return one empty device id for each class; the preferred device represents its own class."""
    return {
        name: next((device.id for device in devices if device.id == preferred_id), devices[0].id)
        for name, devices in candidates.empty_devices.items()
    }


def _distinct_partners(shared: Sequence[Choice]) -> list[Choice]:
    """Return one choice for each set of interchangeable partners.

    Partners are interchangeable if workload, cost and device class are equal and both are pending or both running.
    """
    distinct: dict[tuple[object, ...], Choice] = {}
    for choice in shared:
        assert choice.start is not None
        kind = (choice.start.seat < 0, choice.start.device_class)
        distinct.setdefault((choice.partner_workload, round(choice.excess, 9), *kind), choice)
    return list(distinct.values())


# --- what each would cost ---------------------------------------------------------------------------------------------


def _solve(decision: DecisionProblem, choice: Choice, budget: TimeBudget) -> tuple[tuple[float, ...], Alternative]:
    """Return the waiting start weight of each priority, and the best plan that includes this choice.

    Alternatives are compared by the waiting weights first, then by cost.
    """
    candidates = decision.candidates[0]
    remaining = _without(decision, choice)
    solution = solve_decision(remaining, all_waiting(remaining.problem), budget)
    found, placement = solution.decision, solution.placement
    waits = _waiting_weights(found, placement, choice)
    before = tuple(np.round(waits, 9).tolist())
    cost, max_job_cost = candidates.cost_of(choice.start) if choice.start else (0.0, -np.inf)
    value = cost + placement.value(found.total_cost)
    if decision.is_min_max:
        value = max(max_job_cost, largest_cost(found, placement))
    return before, Alternative(
        kind=choice.kind,
        device_id=choice.device_id,
        partner_id=choice.partner_id,
        partner_workload=choice.partner_workload,
        slowdown=choice.slowdown,
        partner_slowdown=choice.partner_slowdown,
        group_cost=cost,
        cost=value,
        waiting=waiting_jobs(found, placement) + (choice.start is None),
        waiting_weight=float(waits.sum()),
        chosen=choice.chosen,
        proven=all_proved(solution.levels),
    )


def _waiting_weights(decision: DecisionProblem, placement: Placement, choice: Choice) -> Floats:
    """Return float64[priorities]: the start weight of waiting jobs, by priority from the highest."""
    candidates = decision.candidates[0]
    weights = np.array([placement.value(level) for level in decision.waiting_levels])
    if choice.start is None:
        i = choice.members[0]
        priorities = [priority for kind, priority in decision.waiting if kind is LevelKind.WAITING_WEIGHT]
        weights[priorities.index(candidates.pending[i].priority)] += candidates.start_weight[i]
    return weights


def _without(decision: DecisionProblem, choice: Choice) -> DecisionProblem:
    """Return the problem of the other jobs, without the devices or the seat that the choice takes."""
    problem, start = decision.problem, choice.start
    demand, supply, max_devices = problem.demand.copy(), problem.supply.copy(), problem.max_devices
    for i in choice.members:
        demand[i] -= 1
    if start is not None:
        host, size = _host_of(decision, start), decision.candidates[0].size
        supply[host] -= size if problem.is_empty[host] else 1
        max_devices -= size if problem.is_empty[host] else 0
    return replace(decision, problem=replace(problem, demand=demand, supply=supply, max_devices=max_devices))


def _host_of(decision: DecisionProblem, start: Start) -> int:
    """Return the index of the host that a start uses: empty devices, or seats beside a class of residents."""
    if start.device_class is not None:
        empty = (k for k, host in enumerate(decision.hosts) if host.places is None)
        return next(k for k in empty if decision.hosts[k].device_class == start.device_class)
    resident_id = decision.candidates[0].seat_classes[start.seat][0].resident.id
    beside = ((k, host.places) for k, host in enumerate(decision.hosts) if host.places is not None)
    return next(k for k, places in beside if [job.id for job in places.residents] == [resident_id])
