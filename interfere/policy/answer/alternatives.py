"""The other places that one job could have got in a decision, and the cost of the best plan with each of them.

Once the group of the job is fixed, the other jobs are placed on the devices that are left, at unchanged costs. So

    value(choice)  =  cost of the job's group  +  cost of the best placement of the other jobs

(the larger of both for a min-max objective). The value is exact if the placement is; nothing is predicted anew.
Law: with unchanged predictions no choice is better than the decided one, whose value is the cost of the plan.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.problem import WAITS, Floats, Placement, all_waiting
from interfere.policy.answer.actions import refuse, refuse_pair
from interfere.policy.costs.candidates import Candidates, Host
from interfere.policy.costs.group_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.group_rules import RuleGroup
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.solve.search import all_proved, largest_cost, solve_decision, waiting_jobs
from interfere.records import NAN, Action, ActionKind, Alternative, Refusal
from interfere.time_budget import UNLIMITED, TimeBudget

# Cheapest partners and solo device classes for which a placement is solved: with waiting and the decided choice, at
# most ten placements.
MAX_PARTNERS, MAX_CLASSES = 5, 3
MAX_EXAMPLES = 3  # refused partners listed per rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One possible outcome for a job. `members`: job classes, the job's own first."""

    members: tuple[int, ...]
    host: int = WAITS  # index of the host on which the job starts
    device_id: str = ""
    partner_id: str = ""
    partner_workload: str = ""
    slowdown: float = NAN
    partner_slowdown: float = NAN
    cost: float = 0.0  # of the group
    largest_cost: float = -np.inf  # of a job in it
    excess: float = 0.0  # cost of the group beyond the costs of its members alone
    chosen: bool = False

    @property
    def kind(self) -> ActionKind:
        """Return the kind of action of this choice: wait, start shared or start alone."""
        if self.host == WAITS:
            return ActionKind.WAIT
        return ActionKind.START_SHARED if self.partner_id else ActionKind.START_ALONE


def alternatives(
    decision: DecisionProblem, action: Action, device_class: DeviceClass | None, budget: TimeBudget = UNLIMITED
) -> tuple[tuple[Alternative, ...], int]:
    """Return the decided choice and the most promising others, best first, each with the best plan that includes it.

    `decision`: the problem of pending jobs of one size; `device_class`: the class of the device of `action`. The second
    value is the number of choices left unsolved because the budget expired.
    """
    solved: list[tuple[tuple[float, ...], Alternative]] = []
    considered = choices(decision, action, device_class)
    for choice in considered:
        waiting, alternative = _solve(decision, choice, budget)
        if solved and not alternative.proven and budget.expired:
            break
        solved.append((waiting, alternative))
    solved.sort(key=lambda entry: (entry[0], round(entry[1].cost, 9), not entry[1].chosen))
    return tuple(alternative for _, alternative in solved), len(considered) - len(solved)


def choices(decision: DecisionProblem, action: Action, device_class: DeviceClass | None) -> tuple[Choice, ...]:
    """Return the choices to compare: the decided one, waiting, alone on each device class, and the cheapest partners.

    Of interchangeable partners only one is listed.
    """
    candidates = decision.candidates[0]
    i = candidates.class_of(action.job_id)
    alone, shared = list[Choice](), list[Choice]()
    for k, host in enumerate(decision.hosts):
        if host.table is not None:
            shared += _beside_resident(candidates, i, action, k, host)
        elif candidates.max_new_devices >= candidates.size:
            is_chosen = host.device_class == device_class
            empty = candidates.empty_devices[host.device_class]
            device_id = next((device.id for device in empty if device.id == action.device_id), empty[0].id)
            alone += _alone(candidates, i, action, k, host.device_class, device_id, is_chosen=is_chosen)
            shared += _in_pairs(candidates, i, action, k, host.device_class, device_id, is_chosen=is_chosen)
    shared.sort(key=lambda choice: choice.excess)
    wait = Choice(members=(i,), chosen=action.kind in (ActionKind.WAIT, ActionKind.DEMOTE))
    chosen = [choice for choice in (*shared, *alone) if choice.chosen]
    partners = _distinct_partners(decision, [choice for choice in shared if not choice.chosen])[:MAX_PARTNERS]
    return (*chosen, wait, *[choice for choice in alone if not choice.chosen][:MAX_CLASSES], *partners)


def refusals(decision: DecisionProblem, action: Action) -> tuple[tuple[Refusal, ...], int]:
    """Return the refused partners of a pending job, a few for each rule; an empty partner: the job may not run alone.

    The partner of `action` is listed too if the pair is no longer allowed. The second value is the number of all
    refused (partner, device class) combinations.
    """
    candidates = decision.candidates[0]
    job_id, i, total = action.job_id, candidates.class_of(action.job_id), 0
    alone: dict[str, Refusal] = {}
    for name in candidates.empty_devices:
        if (rule := candidates.tables[name].jobs.solo_rule(i)) is not None:
            total += 1
            refusal = refuse(job_id, "", replace(rule, job_id=job_id))
            alone.setdefault(refusal.reason, refusal)  # one entry for all device classes with the same reason
    partners: dict[RuleGroup | None, dict[str, Refusal]] = {}
    for table in decision.pair_tables(candidates):
        refused = np.flatnonzero(~table.allowed[i]).tolist()
        jobs = decision.partners(candidates, table)
        for j, group in zip(refused, table.rules.blocking_groups(i, refused), strict=True):
            for partner_id in (job.id for job in jobs[j] if job.id != job_id):
                total += 1
                examples = partners.setdefault(group, {})
                listed = len(examples) < MAX_EXAMPLES or partner_id == action.partner_id
                if listed and partner_id not in examples:
                    examples[partner_id] = refuse_pair(table, i, j, job_id, partner_id)
    return (*alone.values(), *(refusal for examples in partners.values() for refusal in examples.values())), total


# --- what there is to choose ------------------------------------------------------------------------------------------


def _alone(
    candidates: Candidates, i: int, action: Action, k: int, name: DeviceClass, device_id: str, *, is_chosen: bool
) -> Iterator[Choice]:
    """Yield the choice of running alone on an empty device (a gang: a set of devices) of a class, if it is allowed."""
    cost = float(candidates.solo_cost[name][i])
    if np.isfinite(cost):
        chosen = is_chosen and action.kind is ActionKind.START_ALONE
        yield Choice(
            members=(i,),
            host=k,
            device_id=action.device_id if chosen else device_id,
            slowdown=1.0,
            cost=cost,
            largest_cost=cost,
            chosen=chosen,
        )


def _in_pairs(
    candidates: Candidates, i: int, action: Action, k: int, name: DeviceClass, device_id: str, *, is_chosen: bool
) -> Iterator[Choice]:
    """Yield one choice for each class of pending partners on an empty device of a class."""
    table, alone = candidates.pair_tables[name], _costs_alone(candidates)
    for j in np.flatnonzero(table.allowed[i]).tolist() if name.seats > 1 else ():
        partners = [job.id for job in candidates.job_classes[j] if job.id != action.job_id]
        if partners:
            chosen = is_chosen and action.partner_id in partners
            partner_id = action.partner_id if chosen else partners[0]
            place = action.device_id if chosen else device_id
            own = _pair_choice(table, (i, j), k, place, partner_id, chosen=chosen)
            yield replace(own, members=(i, j), excess=own.cost - float(alone[i] + alone[j]))


def _beside_resident(candidates: Candidates, i: int, action: Action, k: int, host: Host) -> Iterator[Choice]:
    """Yield the choice of joining a resident that is alone on its devices, if it is allowed."""
    table = host.resident_pairs
    if table is None or len(host.residents) != 1:
        return
    pair = i, host.residents[0]
    if table.allowed[pair]:
        decided = next((place for place in host.places if place.residents[0].id == action.partner_id), None)
        place = decided or host.places[0]
        partner_id = place.residents[0].id
        own = _pair_choice(table, pair, k, place.devices[0].id, partner_id, chosen=decided is not None)
        yield replace(own, excess=own.cost - float(_costs_alone(candidates)[i]))


def _pair_choice(
    table: PairCosts, pair: tuple[int, int], host: int, device_id: str, partner_id: str, *, chosen: bool
) -> Choice:
    """Return the choice that starts one pair of a table."""
    return Choice(
        members=pair[:1],
        host=host,
        device_id=device_id,
        partner_id=partner_id,
        partner_workload=table.columns[pair[1]].workload,
        slowdown=float(table.slowdown[0][pair]),
        partner_slowdown=float(table.slowdown[1][pair]),
        cost=float(table.total[pair]),
        largest_cost=float(table.largest[pair]),
        chosen=chosen,
    )


def _costs_alone(candidates: Candidates) -> Floats:
    """float64[k]: the cost of each class alone on its best devices; 0 where it may not run alone."""
    alone = np.minimum.reduce([np.full(len(candidates.job_classes), np.inf), *candidates.solo_cost.values()])
    return np.where(np.isfinite(alone), alone, 0.0)


def _distinct_partners(decision: DecisionProblem, shared: Sequence[Choice]) -> list[Choice]:
    """Return one choice for each set of interchangeable partners.

    Partners are interchangeable if workload, cost and device class are equal and both are pending, or both running.
    """
    distinct: dict[tuple[object, ...], Choice] = {}
    for choice in shared:
        empty = choice.host if decision.problem.is_empty[choice.host] else WAITS
        distinct.setdefault((choice.partner_workload, round(choice.excess, 9), empty), choice)
    return list(distinct.values())


# --- what each would cost ---------------------------------------------------------------------------------------------


def _solve(decision: DecisionProblem, choice: Choice, budget: TimeBudget) -> tuple[tuple[float, ...], Alternative]:
    """Return the waiting start weight of each priority, and the best plan that includes this choice.

    Alternatives are compared by the waiting weights first, then by cost.
    """
    remaining = _without(decision, choice)
    solution = solve_decision(remaining, all_waiting(remaining.problem), budget)
    found, placement = solution.decision, solution.placement
    waits = _waiting_weights(found, placement, choice)
    value = choice.cost + placement.value(found.total_cost)
    if decision.is_min_max:
        value = max(choice.largest_cost, largest_cost(found, placement))
    return tuple(np.round(waits, 9).tolist()), Alternative(
        kind=choice.kind,
        device_id=choice.device_id,
        partner_id=choice.partner_id,
        partner_workload=choice.partner_workload,
        slowdown=choice.slowdown,
        partner_slowdown=choice.partner_slowdown,
        group_cost=choice.cost,
        cost=value,
        waiting=waiting_jobs(found, placement) + (choice.host == WAITS),
        waiting_weight=float(waits.sum()),
        chosen=choice.chosen,
        proven=all_proved(solution.levels),
    )


def _waiting_weights(decision: DecisionProblem, placement: Placement, choice: Choice) -> Floats:
    """Return float64[priorities]: the start weight of waiting jobs, by priority from the highest."""
    candidates = decision.candidates[0]
    weights = np.array([placement.value(level) for level in decision.waiting_levels])
    if choice.host == WAITS:
        i = choice.members[0]
        priorities = [level.priority for level in decision.waiting_levels]
        weights[priorities.index(candidates.pending[i].priority)] += candidates.start_weight[i]
    return weights


def _without(decision: DecisionProblem, choice: Choice) -> DecisionProblem:
    """Return the problem of the other jobs, without the devices or the seat that the choice takes."""
    problem, host = decision.problem, choice.host
    demand, supply, max_devices = problem.demand.copy(), problem.supply.copy(), problem.max_devices
    for i in choice.members:
        demand[i] -= 1
    if host != WAITS:
        devices = decision.candidates[0].size if problem.is_empty[host] else 0
        supply[host] -= devices or 1
        max_devices -= devices
    return replace(decision, problem=replace(problem, demand=demand, supply=supply, max_devices=max_devices))
