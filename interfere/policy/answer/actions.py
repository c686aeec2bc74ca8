"""The actions and refusals of a plan: the device of each job, and the rule by which it starts or waits.

Of the rules that make a job wait the binding one comes first.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from interfere.policy.answer.starts import MAX_REFUSALS, start_alone, start_shared
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.group_costs import PairCosts
from interfere.policy.costs.paging import paging_of
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.group_rules import RuleGroup
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.text import render, summary_rule
from interfere.policy.slowdowns import Domain, PairSlowdown, predicted_pairs
from interfere.policy.solve.decision_problem import DecisionProblem, StartGroup
from interfere.records import (
    NAN,
    Action,
    ActionKind,
    Job,
    Refusal,
    Rule,
    RuleKind,
)


def refuse(job_id: str, partner_id: str, rule: Rule) -> Refusal:
    """Return the refusal of a pair, with the rule that forbids the pair.

    An empty `partner_id` means that the job may not start alone.
    """
    return Refusal(job_id=job_id, partner_id=partner_id, reason=render(rule), rule=rule)


def with_members(rule: Rule, stands_for: tuple[str, str], members: tuple[str, str]) -> Rule:
    """Return a rule about two class representatives (`stands_for`) as a rule about two members of the classes."""
    first, second = stands_for
    if rule.job_id == second != first:  # the rule's job is the second representative
        members = members[::-1]
        first, second = second, first
    job_id = members[0] if rule.job_id == first else rule.job_id
    partner_id = members[1] if rule.partner_id == second else rule.partner_id
    return replace(rule, job_id=job_id, partner_id=partner_id)


def refuse_pair(table: PairCosts, i: int, j: int, job_id: str, partner_id: str) -> Refusal:
    """Return the refusal of two members of the classes of a forbidden pair of a table."""
    rule = table.rules.blocking_rule(i, j)
    assert rule is not None
    return refuse(job_id, partner_id, with_members(rule, (table.rows[i].id, table.columns[j].id), (job_id, partner_id)))


class AnswerBuilder:
    """The actions, pairs and refusals that follow from the groups of jobs that a decision starts."""

    def __init__(self, decision: DecisionProblem, groups: Sequence[StartGroup], context: PlanningContext) -> None:
        self._decision, self._candidates, self._groups, self._context = decision, decision.candidates, groups, context
        self._group_of = {job.id: group for group in groups for job in group.jobs}
        self._in_pairs = self._slowdowns_in_pairs()
        self._place_of = {
            job.id: (each, i)
            for each in decision.candidates
            for i, members in enumerate(each.job_classes)
            for job in members
        }
        self._waiting = WaitingRules(decision, groups, context)

    # --- actions ----------------------------------------------------------------------------------------------------

    def actions(self) -> tuple[Action, ...]:
        """Return the action of each pending job, with its reason, in queue order."""
        return tuple(self._action(job) for job in self._context.snapshot.pending if job.id in self._place_of)

    def _action(self, job: Job) -> Action:
        """Return the action of one pending job."""
        candidates, i = self._place_of[job.id]
        group = self._group_of.get(job.id)
        if group is None:
            return self._waiting.action(job, candidates, i)
        if len(group.members) == 1:
            cost = float(candidates.solo_cost[group.device_class][i])
            return start_alone(job, group.devices, self._context, cost=cost)
        return self._start_shared(job, group)

    def _start_shared(self, job: Job, group: StartGroup) -> Action:
        """Return the action that starts a job beside the other members of its group."""
        members, decision = group.members, self._decision
        place = next(k for k, member in enumerate(members) if member.id == job.id)
        slowdowns = decision.slowdowns_of(group.column)
        # Residents come before jobs that start too: the first partner is the resident that the job joins.
        others = sorted((k for k in range(len(members)) if k != place), key=lambda k: k < len(group.jobs))
        if len(others) > 1:
            interval, pair = decision.interval_of(group.column, place), None
        else:
            known = self._in_pairs.get((job.id, members[others[0]].id))
            interval, pair = (known.lower, known.upper) if known else (NAN, NAN), decision.pair_of(group.column)
        return start_shared(
            job,
            group.devices,
            [members[k] for k in others],
            slowdowns[place],
            [slowdowns[k] for k in others],
            cost=float(decision.total_cost.cost[group.column]),
            interval=interval,
            paging=paging_of(members, group.devices[0], self._context),
            mode=pair[0].mode(*pair[1:]) if pair is not None and pair[0].modes else "",
        )

    def _slowdowns_in_pairs(self) -> dict[tuple[str, str], PairSlowdown]:
        """Return the predicted slowdown of each pending job in a group of two, by its id and its partner's."""
        asked: dict[Domain, list[tuple[Job, Job]]] = {}
        for group in self._groups:
            if len(group.members) == 2:
                table, row, column = self._decision.pair_of(group.column)
                pairs = asked.setdefault((group.device_class.type, table.mode(row, column)), [])
                one, other = group.members
                pairs += [(one, other), (other, one)]
        return predicted_pairs(asked, self._context)

    # --- refusals -----------------------------------------------------------------------------------------

    def refusals(self) -> tuple[tuple[Refusal, ...], int]:
        """Return up to `MAX_REFUSALS` forbidden pairs, waiting jobs first, and the number of all forbidden pairs."""
        listed: dict[frozenset[str], Refusal] = {}
        total = 0
        for candidates in self._candidates:
            for table in self._decision.pair_tables(candidates):
                forbidden, jobs = ~table.allowed, candidates.counts
                pairs = int(jobs @ forbidden @ [len(each) for each in self._decision.partners(candidates, table)])
                total += pairs if table.running else (pairs - int(jobs @ np.diagonal(forbidden))) // 2
                for i, j, job_id, partner_id in self._forbidden_pairs(candidates, table):
                    if len(listed) >= MAX_REFUSALS:
                        break
                    pair = frozenset((job_id, partner_id))
                    if len(pair) == 2 and pair not in listed:
                        listed[pair] = refuse_pair(table, i, j, job_id, partner_id)
        return tuple(listed.values()), total

    def _forbidden_pairs(self, candidates: Candidates, table: PairCosts) -> Iterator[tuple[int, int, str, str]]:
        """Yield the row, the column and the ids of each forbidden pair; classes with a waiting job come first."""
        partners = self._decision.partners(candidates, table)
        starts = [all(job.id in self._group_of for job in members) for members in candidates.job_classes]
        for i in sorted(range(len(starts)), key=starts.__getitem__):
            for j in np.flatnonzero(~table.allowed[i]).tolist():
                yield from ((i, j, job.id, other.id) for job in candidates.job_classes[i] for other in partners[j])


_Rank = tuple[int, float, int]
"""(priority, weight, negated queue position) of a job."""
MAX_WAIT_RULES = 3  # most pair rules named in the reason of a waiting job


class WaitingRules:
    """The rules that make jobs wait; interchangeable jobs share the same rules."""

    def __init__(self, decision: DecisionProblem, groups: Sequence[StartGroup], context: PlanningContext) -> None:
        self._decision, self._groups, self._context = decision, groups, context
        self._position = {job.id: k for k, job in enumerate(context.snapshot.pending)}
        self._rules: dict[tuple[int, int], list[Rule]] = {}  # by gang size and job class
        self._groups_of_size: dict[int, list[tuple[_Rank, StartGroup]]] = {}
        self._taken: Counter[DeviceClass] = Counter()  # number of empty devices taken
        for group in groups:
            if not group.residents:
                self._taken[group.device_class] += group.size
        most = max((each.max_new_devices for each in decision.candidates), default=0)
        self._devices_left = most - sum(self._taken.values())

    def action(self, job: Job, candidates: Candidates, i: int) -> Action:
        """Return the wait action of a job, with the binding rule and a reason that names all rules."""
        prefix = f"gang of {candidates.size}: " if candidates.size > 1 else ""
        memory_rule = self._largest_device_rule(job, candidates)
        if memory_rule is not None:
            reason = f"{prefix}{render(memory_rule)} on the largest device"
            return Action(kind=ActionKind.WAIT, job_id=job.id, reason=reason, rule=memory_rule)
        key = (candidates.size, i)
        if key not in self._rules:
            self._rules[key] = self._waiting_rules(candidates, i)
        stands_for = candidates.pending[i].id
        rules = [replace(rule, job_id=job.id) if rule.job_id == stands_for else rule for rule in self._rules[key]]
        reason = prefix + "; ".join(dict.fromkeys(map(render, rules)))
        return Action(kind=ActionKind.WAIT, job_id=job.id, reason=reason, rule=rules[0])

    def _largest_device_rule(self, job: Job, candidates: Candidates) -> Rule | None:
        """Return why a job does not fit the device class with the most memory; None where the job fits any class."""
        too_small: dict[DeviceClass, Rule] = {}
        for device_class in self._device_classes(candidates):
            rule = solo_memory_rule(job.id, self._context.demand(job, device_class), device_class.memory)
            if rule is None:
                return None
            too_small[device_class] = rule
        if not too_small:
            return None
        return too_small[max(too_small, key=lambda device_class: device_class.memory.allocatable_bytes)]

    def _waiting_rules(self, candidates: Candidates, i: int) -> list[Rule]:
        """Return the rules (at least one, the binding rule first) that make a job of class i wait."""
        job, tables = candidates.pending[i], self._decision.pair_tables(candidates)
        if not candidates.empty_devices and not any(table.running for table in tables):
            gang = candidates.size > 1
            kind = RuleKind.GANG if gang else RuleKind.NO_FREE_SEAT
            return [Rule(kind=kind, job_id=job.id, gpus=candidates.size if gang else None)]
        alone = [name for name, cost in candidates.solo_cost.items() if np.isfinite(cost[i])]
        shares = any(np.delete(table.allowed[i], _itself(candidates, table, i)).any() for table in tables)
        if alone and not shares:  # the rules allow the job empty devices only
            return [*self._rules_on_pairs(candidates, i), self._no_device_rule(candidates, i, alone)]
        if alone or shares:
            return [self._no_device_rule(candidates, i, alone)]
        if job.pools and not any(device_class.pool in job.pools for device_class in self._device_classes(candidates)):
            return [Rule(kind=RuleKind.POOL, job_id=job.id, pools=job.pools)]
        start_rules = [rule for table in tables if (rule := _job_rule(table, i)) is not None]
        rules = [*start_rules, *self._rules_on_pairs(candidates, i)]
        return rules or [Rule(kind=RuleKind.NO_ALLOWED_ACTION, job_id=job.id)]

    def _device_classes(self, candidates: Candidates) -> tuple[DeviceClass, ...]:
        """Return the classes of devices on which jobs of one size could start: empty, or with a resident to join."""
        return tuple(candidates.tables)

    def _no_device_rule(self, candidates: Candidates, i: int, alone: Sequence[DeviceClass]) -> Rule:
        """Return the rule why a job gets none of the places that the other rules allow."""
        job = candidates.pending[i]
        limit = self._context.limits.max_devices
        for name in alone:
            left = len(candidates.empty_devices[name]) - self._taken[name]
            if left >= candidates.size > self._devices_left and limit is not None:
                return Rule(kind=RuleKind.MAX_DEVICES, job_id=job.id, max_devices=limit)
        rank = self._rank(candidates, i, job)
        for least_rank, group in self._ranked_groups(candidates):
            if least_rank >= rank:
                break
            if self._may_take(candidates, i, group):
                return Rule(kind=RuleKind.LOWER_COST_ELSEWHERE, job_id=job.id)
        return Rule(kind=RuleKind.PLACES_TAKEN, job_id=job.id)

    def _ranked_groups(self, candidates: Candidates) -> list[tuple[_Rank, StartGroup]]:
        """Return (smallest rank of a job, group) of the starting groups of one size, in ascending order."""
        if candidates.size not in self._groups_of_size:
            ranked = [
                (min(self._rank(candidates, *each) for each in zip(group.classes, group.jobs, strict=True)), group)
                for group in self._groups
                if group.size == candidates.size
            ]
            self._groups_of_size[candidates.size] = sorted(ranked, key=lambda entry: entry[0])
        return self._groups_of_size[candidates.size]

    def _rank(self, candidates: Candidates, k: int, job: Job) -> _Rank:
        """Return the rank of a job, larger for jobs that start first: by priority, weight, then earlier submission."""
        return job.priority, float(candidates.start_weight[k]), -self._position[job.id]

    def _may_take(self, candidates: Candidates, i: int, group: StartGroup) -> bool:
        """Return whether a job of class i could start on the devices of a group instead of the group."""
        if group.residents:
            host = self._decision.hosts[int(self._decision.problem.host[group.column])]
            table = host.resident_pairs
            return table is not None and bool(table.allowed[i, list(host.residents)].all())
        alone = candidates.solo_cost.get(group.device_class)
        return alone is not None and bool(np.isfinite(alone[i]))

    def _rules_on_pairs(self, candidates: Candidates, i: int) -> list[Rule]:
        """Return at most `MAX_WAIT_RULES` rules, those that forbid the most pairs of the job first."""
        sharing = ActionKind.START_SHARED in self._context.limits.allowed
        groups: Counter[RuleGroup] = Counter()
        for table in self._decision.pair_tables(candidates):
            if sharing and _job_rule(table, i) is not None:
                continue  # the job's own rule forbids every pair
            counts = [len(jobs) for jobs in self._decision.partners(candidates, table)]
            if not table.running:
                counts[i] -= 1  # the job itself
            columns = [j for j, count in enumerate(counts) if count]
            for j, group in zip(columns, table.rules.blocking_groups(i, columns), strict=True):
                if group is not None:
                    groups[group] += counts[j]
        job_id = candidates.pending[i].id
        return [self._summary(job_id, group, count) for group, count in groups.most_common(MAX_WAIT_RULES)]

    def _summary(self, job_id: str, group: RuleGroup, count: int) -> Rule:
        if group.kind is not RuleKind.ACTION_NOT_ALLOWED:
            return summary_rule(job_id, group, count)
        size = self._context.limits.most_shared_gpus
        return replace(summary_rule(job_id, group, count), action=ActionKind.START_SHARED, max_shared_gpus=size)


def _job_rule(table: PairCosts, i: int) -> Rule | None:
    """Return why job i may not start on the devices of a table; None if allowed or forbidden by pools only."""
    rule = table.jobs.start_rule(i)
    return rule if rule is not None and rule.kind is not RuleKind.POOL else None


def _itself(candidates: Candidates, table: PairCosts, i: int) -> list[int]:
    """Return [i] if class i has one member only, which cannot be its own partner; else []."""
    return [i] if not table.running and len(candidates.job_classes[i]) == 1 else []
