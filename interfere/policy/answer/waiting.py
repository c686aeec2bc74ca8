"""Why pending jobs wait: the rules that hold each of them back, the one that binds told first."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.pair_costs import PairCosts
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.memory import solo_memory_rule
from interfere.policy.rules.pair_rules import RuleGroup
from interfere.policy.rules.text import render, summary_rule
from interfere.policy.solve.decision_problem import DecisionProblem, Host
from interfere.policy.solve.starts import StartGroup
from interfere.records import Action, ActionKind, Job, Rule, RuleKind

_Rank = tuple[int, float, int]
"""(priority, weight, minus the place in the queue) of a job."""
MAX_WAIT_RULES = 3  # rules on pairs that the reason of a waiting job names


class WaitingRules:
    """The rules that hold back the jobs that no group starts; interchangeable jobs share them."""

    def __init__(self, decision: DecisionProblem, groups: Sequence[StartGroup], context: PlanningContext) -> None:
        self._decision, self._groups, self._context = decision, groups, context
        self._position = {job.id: k for k, job in enumerate(context.snapshot.pending)}
        self._rules: dict[tuple[int, int], list[Rule]] = {}  # by size and class
        self._groups_of_size: dict[int, list[tuple[_Rank, StartGroup]]] = {}
        self._taken: Counter[DeviceClass] = Counter()  # empty devices
        for group in groups:
            if not group.residents:
                self._taken[group.device_class] += group.size
        most = max((each.max_new_devices for each in decision.candidates), default=0)
        self._devices_left = most - sum(self._taken.values())

    def action(self, job: Job, candidates: Candidates, i: int) -> Action:
        """Wait; the action's rule is the first of those that hold the job back, its reason names them all."""
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
        """Why a job does not fit the device class of the most memory; None where it fits any class."""
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
        """Why a job of class i, which fits some device, waits: at least one rule, the one that binds first."""
        job, tables = candidates.pending[i], self._tables(candidates)
        if not candidates.empty_devices and not any(not table.rules.symmetric for table in tables):
            gang = candidates.size > 1
            kind = RuleKind.GANG if gang else RuleKind.NO_FREE_SEAT
            return [Rule(kind=kind, job_id=job.id, gpus=candidates.size if gang else None)]
        alone = [name for name, cost in candidates.solo_cost.items() if np.isfinite(cost[i])]
        shares = any(np.isfinite(np.delete(table.cost[i], _itself(candidates, table, i))).any() for table in tables)
        if alone and not shares:  # rules leave it only empty devices
            return [*self._rules_on_pairs(candidates, i), self._no_device_rule(candidates, i, alone)]
        if alone or shares:
            return [self._no_device_rule(candidates, i, alone)]
        if job.pools and not any(device_class.pool in job.pools for device_class in self._device_classes(candidates)):
            return [Rule(kind=RuleKind.POOL, job_id=job.id, pools=job.pools)]
        start_rules = [rule for table in tables if (rule := _job_rule(table, i)) is not None]
        rules = [*start_rules, *self._rules_on_pairs(candidates, i)]
        return rules or [Rule(kind=RuleKind.NO_ALLOWED_ACTION, job_id=job.id)]

    def _tables(self, candidates: Candidates) -> list[PairCosts]:
        """The tables of pairs that jobs of one size may form: on empty devices of several seats, beside residents."""
        empty = [table for name, table in candidates.pair_tables.items() if name.seats > 1]
        beside = {id(table): table for host in self._hosts(candidates) if (table := _resident_pairs(host)) is not None}
        return [*empty, *beside.values()]

    def _device_classes(self, candidates: Candidates) -> tuple[DeviceClass, ...]:
        """The classes of empty devices and of those beside whose residents jobs of one size could start."""
        seats = [members[0].device_class for members in candidates.seat_classes]
        beside = [host.device_class for host in self._hosts(candidates)]
        return tuple(dict.fromkeys((*candidates.empty_devices, *seats, *beside)))

    def _hosts(self, candidates: Candidates) -> list[Host]:
        """The classes of places beside residents that jobs of one size may join."""
        return [host for host in self._decision.hosts if host.places and host.places.size == candidates.size]

    def _no_device_rule(self, candidates: Candidates, i: int, alone: Sequence[DeviceClass]) -> Rule:
        """Why a job gets none of the places that rules leave it."""
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
        """The starts of jobs of one size with the least rank of a job in each, the smallest first."""
        if candidates.size not in self._groups_of_size:
            ranked = [
                (min(self._rank(candidates, *each) for each in zip(group.classes, group.jobs, strict=True)), group)
                for group in self._groups
                if group.size == candidates.size
            ]
            self._groups_of_size[candidates.size] = sorted(ranked, key=lambda entry: entry[0])
        return self._groups_of_size[candidates.size]

    def _rank(self, candidates: Candidates, k: int, job: Job) -> _Rank:
        """Larger for jobs that start first: priority, weight, and of equals those submitted before."""
        return job.priority, float(candidates.start_weight[k]), -self._position[job.id]

    def _may_take(self, candidates: Candidates, i: int, group: StartGroup) -> bool:
        """May a job of class i start where a group does, in its place?"""
        if group.residents:
            host = self._decision.hosts[int(self._decision.problem.host[group.column])]
            table = _resident_pairs(host)
            return table is not None and bool(np.isfinite(table.cost[i, list(host.residents)]).all())
        alone = candidates.solo_cost.get(group.device_class)
        return alone is not None and bool(np.isfinite(alone[i]))

    def _rules_on_pairs(self, candidates: Candidates, i: int) -> list[Rule]:
        """The rules that forbid most of the job's pairs."""
        sharing = ActionKind.START_SHARED in self._context.limits.allowed
        groups: Counter[RuleGroup] = Counter()
        for table in self._tables(candidates):
            if sharing and _job_rule(table, i) is not None:
                continue  # that rule says it for every pair
            partners = self._partners(candidates, table, i)
            for (_, count), group in zip(
                partners, table.rules.blocking_groups(i, [j for j, _ in partners]), strict=True
            ):
                if group is not None:
                    groups[group] += count
        job_id = candidates.pending[i].id
        return [self._summary(job_id, group, count) for group, count in groups.most_common(MAX_WAIT_RULES)]

    def _partners(self, candidates: Candidates, table: PairCosts, i: int) -> list[tuple[int, int]]:
        """The columns of a table that stand for partners of a job of class i, and how many jobs each stands for."""
        if table.rules.symmetric:
            counts = [len(members) - (j == i) for j, members in enumerate(candidates.job_classes)]
            return [(j, count) for j, count in enumerate(counts) if count]
        hosts = [host for host in self._hosts(candidates) if _resident_pairs(host) is table]
        places: Counter[int] = Counter()
        for host in hosts:
            assert host.places is not None
            for resident in host.residents:
                places[resident] += len(host.places.places)
        return sorted(places.items())

    def _summary(self, job_id: str, group: RuleGroup, count: int) -> Rule:
        if group.kind is not RuleKind.ACTION_NOT_ALLOWED:
            return summary_rule(job_id, group, count)
        size = self._context.limits.most_shared_gpus
        return replace(summary_rule(job_id, group, count), action=ActionKind.START_SHARED, max_shared_gpus=size)


def _job_rule(table: PairCosts, i: int) -> Rule | None:
    """Why job i may not start on the devices of a table, pools aside: of several pools most do not take it."""
    rule = table.rows.start_rules[i]
    return rule if rule is not None and rule.kind is not RuleKind.POOL else None


def _itself(candidates: Candidates, table: PairCosts, i: int) -> list[int]:
    """The column of class i in a table of pending jobs where it has one member: nobody pairs with itself."""
    return [i] if table.rules.symmetric and len(candidates.job_classes[i]) == 1 else []


def _resident_pairs(host: Host) -> PairCosts | None:
    """The table of pending jobs beside the residents of a host; None for empty devices."""
    return None if host.table is None else host.table.resident_pairs
