"""From a placement in groups to actions: which jobs start, on which devices, beside whom, and why others wait."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.matching.group_master.problem import NOBODY, WAITS, GroupPlacement
from interfere.policy.answer.start_alone import gang_device_ids, start_alone
from interfere.policy.answer.waiting import WaitingRules
from interfere.policy.context import PlanningContext
from interfere.policy.device_class import DeviceClass
from interfere.policy.groups.hosts import HostPlace
from interfere.policy.groups.problem import GroupDecision
from interfere.policy.rules.text import render
from interfere.policy.solve.gangs import device_sets
from interfere.policy.solve.groups import StartGroup
from interfere.records import NAN, Action, ActionKind, Device, Job, Pairing, Rule, RuleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGroup:
    """Pending jobs that start together on the same devices, beside those that run there."""

    column: int
    jobs: tuple[Job, ...]
    classes: tuple[int, ...]  # of each job, among those of its size
    block: int
    devices: tuple[Device, ...]
    residents: tuple[Job, ...] = ()

    @property
    def everybody(self) -> tuple[Job, ...]:
        """All jobs that will share the devices."""
        return (*self.jobs, *self.residents)


def placed_groups(decision: GroupDecision, placement: GroupPlacement, queue: Sequence[Job]) -> list[PlacedGroup]:
    """The starts of a placement as jobs on devices; of interchangeable jobs those first in the queue start."""
    position = {job.id: k for k, job in enumerate(queue)}
    free: dict[DeviceClass, list[Device]] = {}
    for host in decision.hosts:
        if host.places is None:
            empty = [list(each.empty_devices.get(host.device_class, ())) for each in decision.candidates]
            free[host.device_class] = max(empty, key=len)
    places = {k: deque(host.places.places) for k, host in enumerate(decision.hosts) if host.places is not None}
    groups: list[PlacedGroup] = []
    for block in sorted(range(len(decision.candidates)), key=lambda b: -decision.candidates[b].size):
        groups += _groups_of_block(decision, placement, block, free, places, position)
    return groups


def _groups_of_block(
    decision: GroupDecision,
    placement: GroupPlacement,
    block: int,
    free: dict[DeviceClass, list[Device]],
    places: Mapping[int, "deque[HostPlace]"],
    position: Mapping[str, int],
) -> list[PlacedGroup]:
    problem, candidates = decision.problem, decision.candidates[block]
    first, waiting = decision.first_class[block], [deque(members) for members in candidates.job_classes]
    at = (decision.block(placement.column) == block) & (problem.host[placement.column] != WAITS)
    starts = [
        (tuple(job - first for job in problem.members[column].tolist() if job != NOBODY), column, count)
        for column, count in zip(placement.column[at].tolist(), placement.count[at].tolist(), strict=True)
    ]
    # 1. Members of each class start in the order of the queue, alone before beside others.
    starts.sort(key=lambda start: (len(start[0]), bool(not problem.is_empty[problem.host[start[1]]]), start[0]))
    jobs_of = [
        (column, tuple(waiting[i].popleft() for i in classes), classes)
        for classes, column, count in starts
        for _ in range(count)
    ]
    jobs_of.sort(key=lambda start: min(position[job.id] for job in start[1]))
    # 2. Devices and seats, in the order of the first job of each group.
    needed: dict[DeviceClass, int] = {}
    for column, _, _ in jobs_of:
        host = int(problem.host[column])
        if problem.is_empty[host]:
            name = decision.hosts[host].device_class
            needed[name] = needed.get(name, 0) + 1
    sets = {name: deque(device_sets(free[name], candidates.size, count)) for name, count in needed.items()}
    for name, taken in sets.items():
        ids = {device.id for devices in taken for device in devices}
        free[name] = [device for device in free[name] if device.id not in ids]
    groups = []
    for column, jobs, classes in jobs_of:
        host = int(problem.host[column])
        if problem.is_empty[host]:
            place = HostPlace(devices=sets[decision.hosts[host].device_class].popleft(), residents=())
        else:
            place = places[host].popleft()
        groups.append(
            PlacedGroup(
                column=column, jobs=jobs, classes=classes, block=block, devices=place.devices, residents=place.residents
            )
        )
    return groups


class GroupAnswer:
    """The actions and pairs of placed groups."""

    def __init__(self, decision: GroupDecision, groups: Sequence[PlacedGroup], context: PlanningContext) -> None:
        self._decision, self._groups, self._context = decision, groups, context
        self._group_of = {job.id: group for group in groups for job in group.jobs}
        self._place_of = {
            job.id: (each, i)
            for each in decision.candidates
            for i, members in enumerate(each.job_classes)
            for job in members
        }
        self.starts = tuple(map(self._start_group, groups))
        self._waiting = WaitingRules(decision.candidates, self.starts, context)
        self._slowdowns = {group.column: self._member_slowdowns(group) for group in groups}

    def actions(self) -> tuple[Action, ...]:
        """What happens to each pending job, and why, in the order of the queue."""
        return tuple(self._action(job) for job in self._context.snapshot.pending)

    def pairings(self) -> tuple[Pairing, ...]:
        """The groups of two."""
        return tuple(
            Pairing(
                job_id=group.jobs[0].id,
                partner_id=group.everybody[1].id,
                device_id=group.devices[0].id,
                weight=float(self._decision.total_cost.cost[group.column]),
            )
            for group in self._groups
            if len(group.everybody) == 2
        )

    def _start_group(self, group: PlacedGroup) -> StartGroup:
        """The group as the rules of waiting jobs see it."""
        size = self._decision.candidates[group.block].size
        device_class = self._context.device_class(group.devices[0])
        resident = group.residents[0] if group.residents else None
        return StartGroup(
            jobs=group.jobs,
            classes=group.classes,
            size=size,
            devices=group.devices,
            device_class=device_class,
            resident=resident,
        )

    def _member_slowdowns(self, group: PlacedGroup) -> tuple[float, ...]:
        if len(group.everybody) == 1:
            return (1.0,)
        host = self._decision.hosts[int(self._decision.problem.host[group.column])]
        costs = self._decision.table_of(group.column).evaluate(np.array([group.classes]), host.residents)
        return tuple(costs.slowdown[:, 0].tolist())

    def _action(self, job: Job) -> Action:
        candidates, i = self._place_of[job.id]
        group = self._group_of.get(job.id)
        if group is None:
            return self._wait(job)
        if len(group.everybody) == 1:
            return start_alone(job, group.devices, float(candidates.solo_cost[self.class_of(group)][i]), self._context)
        return self._start_shared(job, group)

    def class_of(self, group: PlacedGroup) -> DeviceClass:
        """The class of the group's devices."""
        return self._context.device_class(group.devices[0])

    def _wait(self, job: Job) -> Action:
        candidates, i = self._place_of[job.id]
        beside = [host for host in self._decision.hosts if host.places and host.places.size == candidates.size]
        if candidates.empty_devices or candidates.seat_classes or not beside:
            return self._waiting.action(job, candidates, i)
        pairs = [host.table.resident_pairs for host in beside if host.table is not None]
        rules = [table.blocking_rule(i, j) for table in pairs if table for j in range(table.cost.shape[1])]
        rule = next((rule for rule in rules if rule), None) if all(rules) else None
        rule = replace(rule or Rule(kind=RuleKind.PLACES_TAKEN), job_id=job.id)
        return Action(kind=ActionKind.WAIT, job_id=job.id, reason=render(rule), rule=rule)

    def _start_shared(self, job: Job, group: PlacedGroup) -> Action:
        everybody, slowdowns = group.everybody, self._slowdowns[group.column]
        place = next(k for k, member in enumerate(everybody) if member.id == job.id)
        # Residents before the others that start: they are who the job joins.
        others = sorted((k for k in range(len(everybody)) if k != place), key=lambda k: k < len(group.jobs))
        partner = everybody[others[0]]
        table = self._decision.table_of(group.column)
        host = self._decision.hosts[int(self._decision.problem.host[group.column])]
        lower, upper = table.interval(group.classes, host.residents, place)
        rule = Rule(
            kind=RuleKind.LEAST_COST,
            job_id=job.id,
            partner_id=partner.id,
            partner_workload=partner.workload,
            slowdown=slowdowns[place],
            partner_slowdown=slowdowns[others[0]],
        )
        several = len(others) > 1
        return Action(
            kind=ActionKind.START_SHARED,
            job_id=job.id,
            device_id=group.devices[0].id,
            device_ids=gang_device_ids(group.devices),
            partner_id=partner.id,
            slowdown=slowdowns[place],
            slowdown_lower=lower,
            slowdown_upper=upper,
            partner_slowdown=slowdowns[others[0]],
            partner_ids=tuple(everybody[k].id for k in others) if several else (),
            partner_slowdowns=tuple(slowdowns[k] for k in others) if several else (),
            cost=float(self._decision.total_cost.cost[group.column]),
            promised_by_s=NAN,
            reason=render(rule),
            rule=rule,
        )
