"""One job beside the residents of each device that has a seat left: what that costs, or the rule that forbids it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.answer.actions import with_members
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.costs.job_classes import JobKeys
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.memory import DeviceMemory
from interfere.policy.solve.hosts import HostClass, HostPlace, host_classes
from interfere.records import Job, MemoryDemand, Rule, RuleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A pending job beside residents."""

    slowdowns: tuple[float, ...]  # of the job, then of the residents; NaN where nothing is predicted
    added_cost: float  # to a sum
    cost: float  # value of the objective: what is added, or the largest cost of a job
    allowed: bool
    rule: Rule | None = None  # what forbids it


def joins_by_device(context: PlanningContext, candidates: Candidates) -> Mapping[str, Join]:
    """By device: the one pending job of the context beside those that run there; absent where no seat is left."""
    keys = JobKeys(context.snapshot, context.custom_objective)
    hosts_of: dict[DeviceClass, list[HostClass]] = {}
    for host in host_classes(context, 1, keys):
        hosts_of.setdefault(host.device_class, []).append(host)
    joins: dict[str, Join] = {}
    for name, hosts in hosts_of.items():
        people = {keys.of(job): job for host in hosts for job in host.residents}
        place_of = {key: k for k, key in enumerate(people)}
        table = _table(context, candidates, name, tuple(people.values()))
        for host in hosts:
            residents = [place_of[keys.of(job)] for job in host.residents]
            found = _join(candidates, table, residents)
            rule = None if found.allowed else _blocking_rule(context, candidates, host, found.slowdowns)
            for place in host.places:
                joins[place.devices[0].id] = replace(found, rule=_of_place(rule, candidates, host, place))
    return joins


def _table(context: PlanningContext, candidates: Candidates, name: DeviceClass, residents: Sequence[Job]) -> GroupTable:
    return GroupTable(candidates.pending, residents, name, context, empty_pairs=candidates.pair_tables.get(name))


def _join(candidates: Candidates, table: GroupTable, residents: Sequence[int]) -> Join:
    costs = table.evaluate(np.zeros((1, 1), dtype=np.int64), residents)
    largest, added = float(costs.largest[0]), float(costs.cost.sum())
    return Join(
        slowdowns=tuple(costs.slowdown[:, 0].tolist()),
        added_cost=added,
        cost=max(candidates.resident_floor, largest) if candidates.is_min_max else added,
        allowed=bool(costs.allowed[0]),
    )


def _of_place(rule: Rule | None, candidates: Candidates, host: HostClass, place: HostPlace) -> Rule | None:
    """The rule about the residents that stand for a class, as one about those of a place."""
    stands_for = {job.id: k for k, job in enumerate(host.residents)}
    if rule is None or rule.partner_id not in stands_for:
        return rule
    job_id, partner_id = candidates.pending[0].id, rule.partner_id
    return with_members(rule, (job_id, partner_id), (job_id, place.residents[stands_for[partner_id]].id))


def _blocking_rule(
    context: PlanningContext, candidates: Candidates, host: HostClass, slowdowns: Sequence[float]
) -> Rule:
    """The rule that forbids a job beside the residents: of one pair, else of all together."""
    table = _table(context, candidates, host.device_class, host.residents)
    assert table.resident_pairs is not None
    rules = (table.resident_pairs.blocking_rule(0, j) for j in range(len(host.residents)))
    rule = next((rule for rule in rules if rule is not None), None)
    job = table.jobs.jobs[0]
    if rule is not None:
        return rule
    if not table.fits_all():
        return _memory_rule(job, table, host, context)
    if (cap_rule := table.cap_rule_of_all()) is not None:
        return cap_rule
    return Rule(
        kind=RuleKind.JOINT_THROUGHPUT,
        job_id=job.id,
        partner_id=host.residents[0].id,
        slowdown=slowdowns[0],
        partner_slowdown=1.0 / sum(1.0 / other for other in slowdowns[1:]),  # of all residents together
        min_joint_throughput=context.limits.slowdown.min_joint_throughput,
    )


def _memory_rule(job: Job, table: GroupTable, host: HostClass, context: PlanningContext) -> Rule:
    """The memory of the job and of all residents together."""
    memory: DeviceMemory = host.device_class.memory
    own, *others = table.jobs.demands
    together = MemoryDemand(
        needed_bytes=float(np.nansum([demand.needed_bytes for demand in others])),
        working_set_bytes=float(np.nansum([demand.working_set_bytes for demand in others])),
    )
    granted = memory.grants_memory and sum(map(memory.granules_for, table.jobs.demands)) > memory.granules
    shared = memory.oversubscription_ratio > 1
    kind = RuleKind.GRANT if granted else RuleKind.WORKING_SET if shared else RuleKind.MEMORY
    return Rule(
        kind=kind,
        job_id=job.id,
        partner_id=host.residents[0].id,
        demand=own,
        partner_demand=together,
        needed_granules=memory.granules_for(own) if granted else None,
        partner_needed_granules=sum(map(memory.granules_for, others)) if granted else None,
        capacity_granules=memory.granules if granted else None,
        granule_bytes=memory.granule_bytes if granted else math.nan,
        oversubscription_ratio=memory.oversubscription_ratio if granted else math.nan,
        capacity_bytes=memory.shared_bytes(context.limits),
        device_memory_bytes=memory.memory_bytes,
        memory_headroom=context.limits.memory.memory_headroom,
    )
