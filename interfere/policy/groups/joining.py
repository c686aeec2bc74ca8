"""One job beside the residents of each device that has a seat left: what that costs, or the rule that forbids it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from interfere.policy.answer.actions import with_members
from interfere.policy.context import PlanningContext
from interfere.policy.costs.candidates import Candidates
from interfere.policy.costs.job_classes import JobKeys
from interfere.policy.groups.hosts import HostClass, host_classes
from interfere.policy.groups.tables import GroupTable
from interfere.policy.rules.memory import DeviceMemory
from interfere.records import Job, MemoryDemand, Rule, RuleKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A pending job beside residents."""

    slowdown: float  # NaN where nothing is predicted
    worst_resident_slowdown: float
    added_cost: float  # to a sum
    cost: float  # value of the objective: what is added, or the largest cost of a job
    rule: Rule | None  # what forbids it


def joins_by_device(context: PlanningContext, candidates: Candidates) -> Mapping[str, Join]:
    """By device: the one pending job of the context beside those that run there; absent where no seat is left."""
    joins: dict[str, Join] = {}
    for host in host_classes(context, 1, JobKeys(context.snapshot, context.custom_objective)):
        found = _join(context, candidates, host)
        for place in host.places:
            stands_for, job_id = {job.id: k for k, job in enumerate(host.residents)}, candidates.pending[0].id
            rule = found.rule
            if rule is not None and rule.partner_id in stands_for:
                partner = place.residents[stands_for[rule.partner_id]].id
                rule = with_members(rule, (job_id, rule.partner_id), (job_id, partner))
            joins[place.devices[0].id] = replace(found, rule=rule)
    return joins


def _join(context: PlanningContext, candidates: Candidates, host: HostClass) -> Join:
    pairs = candidates.pair_tables.get(host.device_class)
    table = GroupTable(candidates.pending, host.residents, host.device_class, context, pairs)
    costs = table.evaluate(np.zeros((1, 1), dtype=np.int64), range(len(host.residents)))
    largest, added = float(costs.largest[0]), float(costs.cost.sum())
    slowdowns = costs.slowdown[:, 0]
    return Join(
        slowdown=float(slowdowns[0]),
        worst_resident_slowdown=float(slowdowns[1:].max()),
        added_cost=added,
        cost=max(candidates.resident_floor, largest) if candidates.is_min_max else added,
        rule=None if costs.allowed[0] else _blocking_rule(context, table, host, slowdowns),
    )


def _blocking_rule(context: PlanningContext, table: GroupTable, host: HostClass, slowdowns: np.ndarray) -> Rule:
    """The rule that forbids a job beside the residents: of one pair, else of all together."""
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
        slowdown=float(slowdowns[0]),
        partner_slowdown=float(1.0 / (1.0 / slowdowns[1:]).sum()),  # of all residents together
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
