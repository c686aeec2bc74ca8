"""Ranks every device for one job, as per-pod schedulers ask, with the costs, rules and choice of `plan`.

Laws: of devices that differ in slowdowns only, a slower one never costs less; the planned device is ranked first
and is feasible; a seat that the scope has promised to another job is infeasible.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.errors import InvalidInputError
from interfere.policy.answer.actions import with_members
from interfere.policy.context import JobCatalogue, PlanningContext
from interfere.policy.costs.candidates import Candidates, Start, find_candidates
from interfere.policy.costs.group_tables import GroupTable
from interfere.policy.costs.job_classes import JobKeys
from interfere.policy.costs.objectives import Objective
from interfere.policy.device_class import DeviceClass
from interfere.policy.rules.custom import SharingRule
from interfere.policy.rules.memory import DeviceMemory
from interfere.policy.rules.text import render
from interfere.policy.schedule.sizes import with_present_sizes
from interfere.policy.solve.hosts import HostClass, HostPlace, host_classes
from interfere.policy.validate import validate_snapshot
from interfere.protocols import Predictor
from interfere.records import (
    NAN,
    ActionKind,
    Device,
    Job,
    Limits,
    MemoryDemand,
    ObjectiveKind,
    Promise,
    Ranking,
    Rule,
    RuleKind,
    Snapshot,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankedDevice:
    """A ranking and its added cost in a sum, which orders devices that a min-max objective ranks equally."""

    ranking: Ranking
    added_cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Join:
    """The slowdowns and costs of a pending job that joins the residents of a device."""

    slowdowns: tuple[float, ...]  # of the job, then of the residents; NaN where no prediction exists
    added_cost: float  # added to a sum objective
    cost: float  # objective value: the added cost, or the largest cost of a job (min-max)
    allowed: bool
    rule: Rule | None = None  # the rule that forbids the start; None where it is allowed


def rank(
    job: Job,
    devices: Sequence[Device],
    predictor: Predictor,
    catalogue: JobCatalogue,
    limits: Limits,
    objective: ObjectiveKind = ObjectiveKind.AUTO,
    promises: Sequence[Promise] = (),
    custom_objective: Objective | None = None,
    custom_rules: tuple[SharingRule, ...] = (),
    latency_predictor: Predictor | None = None,
) -> tuple[Ranking, ...]:
    """Return the ranking of every device, feasible and cheap devices first.

    The first device is marked `planned`: the device promised to this job, or else the device on which `plan` would
    start the job if no other job were pending. `promises`: promises of the scope after its last decision.
    `custom_objective` replaces the named one, `custom_rules` hold beside ours. Raises InvalidInputError when the
    devices contradict each other.
    """
    # 1. Validate, naming the job as the request does.
    snapshot = Snapshot(pending=(job,), devices=tuple(devices), limits=limits, objective=objective, partial=True)
    violations = validate_snapshot(snapshot, custom_objective)
    if violations:
        raise InvalidInputError.from_violations(
            [replace(v, field=v.field.replace("pending[0]", "job")) for v in violations]
        )
    # 2. Price every device; an elastic job is ranked at its first size.
    snapshot = with_present_sizes(snapshot, {})
    context = PlanningContext(
        snapshot=snapshot,
        predictor=predictor,
        catalogue=catalogue,
        custom_objective=custom_objective,
        custom_rules=custom_rules,
        latency_predictor=latency_predictor,
    )
    ranked = _ranked_devices(snapshot.pending[0], context)
    # 3. Respect promises, then sort.
    promise_of = _standing_promises(job, devices, promises)
    ranked = [_with_promise(entry, job, promise_of.get(entry.ranking.device_id)) for entry in ranked]
    own = {device_id for device_id, promise in promise_of.items() if promise.action.job_id == job.id}
    ranked.sort(key=lambda entry: _sort_key(entry, own))
    rankings = [entry.ranking for entry in ranked]
    return tuple(replace(ranking, planned=k == 0 and ranking.feasible) for k, ranking in enumerate(rankings))


def _ranked_devices(job: Job, context: PlanningContext) -> list[_RankedDevice]:
    """Return every device with the cost of the job on it, in snapshot order."""
    devices = context.snapshot.devices
    if job.gpus > 1:
        rule = Rule(kind=RuleKind.MULTI_DEVICE_JOB, job_id=job.id, gpus=job.gpus)
        return [_infeasible(device, rule) for device in devices]
    candidates = find_candidates(context)
    joins = _joins_by_device(context, candidates)
    return [
        _on_empty_device(candidates, context, device) if not device.residents else _joining(job, device, joins)
        for device in devices
    ]


def _sort_key(entry: _RankedDevice, promised_to_job: set[str]) -> tuple[bool, bool, float, float]:
    ranking = entry.ranking
    return not ranking.feasible, ranking.device_id not in promised_to_job, ranking.cost, entry.added_cost


def _standing_promises(job: Job, devices: Sequence[Device], promises: Sequence[Promise]) -> dict[str, Promise]:
    """Return the outstanding promised start or migration of each device id; a promise of the job itself goes first."""
    runs_on = {resident.id: device.id for device in devices for resident in device.residents}
    outstanding = [
        promise
        for promise in promises
        if promise.action.job_id not in runs_on
        or (promise.action.kind is ActionKind.MOVE and runs_on[promise.action.job_id] == promise.from_device_id)
    ]
    outstanding.sort(key=lambda promise: promise.action.job_id == job.id)  # the last promise of a device is kept
    return {device_id: promise for promise in outstanding for device_id in promise.action.places}


def _with_promise(entry: _RankedDevice, job: Job, promise: Promise | None) -> _RankedDevice:
    """Return the ranking of a promised device: infeasible for other jobs, else with the promised slowdowns."""
    ranking = entry.ranking
    if promise is None or not ranking.feasible:
        return entry
    action, decision_id = promise.action, promise.decision_ids[0]
    if action.job_id != job.id:
        rule = Rule(
            kind=RuleKind.PROMISED_TO_OTHER_JOB, job_id=job.id, partner_id=action.job_id, decision_id=decision_id
        )
        refused = replace(ranking, feasible=False, cost=np.inf, reason=render(rule), rule=rule)
        return replace(entry, ranking=refused)
    rule = Rule(kind=RuleKind.PROMISED, job_id=job.id, decision_id=decision_id)
    promised = replace(
        ranking,
        reason=render(rule),
        rule=rule,
        slowdown=action.slowdown,
        worst_resident_slowdown=action.partner_slowdown,
    )
    return replace(entry, ranking=promised)


def _full_rule(job: Job, device: Device) -> Rule:
    """Return the rule that a device with several jobs or a gang accepts no further job."""
    gang_gpus = next((resident.gpus for resident in device.residents if resident.gpus > 1), None)
    return Rule(kind=RuleKind.NO_FREE_SEAT, job_id=job.id, residents=len(device.residents), gpus=gang_gpus)


def _on_empty_device(candidates: Candidates, context: PlanningContext, device: Device) -> _RankedDevice:
    device_class, job_id, limits = context.device_class(device), candidates.pending[0].id, context.limits
    rule = None
    if not np.isfinite(candidates.solo_cost[device_class][0]):
        rows = candidates.pair_tables[device_class].rows
        not_allowed = Rule(kind=RuleKind.ACTION_NOT_ALLOWED, job_id=job_id, action=ActionKind.START_ALONE)
        rule = rows.start_rules[0]
        if rule is None:
            rule = rows.memory_rule(0) if ActionKind.START_ALONE in limits.allowed else not_allowed
    elif not candidates.max_new_devices:
        rule = Rule(kind=RuleKind.MAX_DEVICES, job_id=job_id, max_devices=limits.max_devices)
    start = Start(members=(0,), device_class=device_class)
    return _ranked(candidates, device, rule, start, slowdown=1.0, resident_slowdown=NAN)


def _joining(job: Job, device: Device, joins: Mapping[str, _Join]) -> _RankedDevice:
    """Return the ranking of a device whose residents the job would join."""
    join = joins.get(device.id)
    if join is None:
        return _infeasible(device, _full_rule(job, device))
    ranking = Ranking(
        device_id=device.id,
        feasible=join.rule is None,
        slowdown=join.slowdowns[0],
        worst_resident_slowdown=max(join.slowdowns[1:]),
        cost=join.cost if join.rule is None else np.inf,
        reason="allowed" if join.rule is None else render(join.rule),
        rule=join.rule,
    )
    return _RankedDevice(ranking=ranking, added_cost=join.added_cost if join.rule is None else np.inf)


def _infeasible(device: Device, rule: Rule) -> _RankedDevice:
    ranking = Ranking(
        device_id=device.id,
        feasible=False,
        slowdown=NAN,
        worst_resident_slowdown=NAN,
        cost=np.inf,
        reason=render(rule),
        rule=rule,
    )
    return _RankedDevice(ranking=ranking, added_cost=np.inf)


def _ranked(
    candidates: Candidates,
    device: Device,
    rule: Rule | None,
    start: Start,
    *,
    slowdown: float,
    resident_slowdown: float,
) -> _RankedDevice:
    """Return the ranking of a device; `rule`: the rule that forbids the start."""
    added_cost, largest_cost = candidates.cost_of(start) if rule is None else (np.inf, np.inf)
    ranking = Ranking(
        device_id=device.id,
        feasible=rule is None,
        slowdown=slowdown,
        worst_resident_slowdown=resident_slowdown,
        cost=max(candidates.resident_floor, largest_cost) if candidates.is_min_max else added_cost,
        reason="allowed" if rule is None else render(rule),
        rule=rule,
    )
    return _RankedDevice(ranking=ranking, added_cost=added_cost)


# --- beside residents ------------------------------------------------------------------------------------------------


def _joins_by_device(context: PlanningContext, candidates: Candidates) -> Mapping[str, _Join]:
    """Return by device id how the only pending job would join the residents; devices without a free seat are absent."""
    keys = JobKeys(context.snapshot, context.custom_objective, context.custom_rules)
    hosts_of: dict[DeviceClass, list[HostClass]] = {}
    for host in host_classes(context, 1, keys):
        hosts_of.setdefault(host.device_class, []).append(host)
    joins: dict[str, _Join] = {}
    for name, hosts in hosts_of.items():
        resident_of = {keys.of(job): job for host in hosts for job in host.residents}
        place_of = {key: k for k, key in enumerate(resident_of)}
        table = _group_table(context, candidates, name, tuple(resident_of.values()))
        for host in hosts:
            residents = [place_of[keys.of(job)] for job in host.residents]
            found = _costs_of_join(candidates, table, residents)
            rule = None if found.allowed else _blocking_rule(context, candidates, host, found.slowdowns)
            for place in host.places:
                joins[place.devices[0].id] = replace(found, rule=_of_place(rule, candidates, host, place))
    return joins


def _group_table(
    context: PlanningContext, candidates: Candidates, name: DeviceClass, residents: Sequence[Job]
) -> GroupTable:
    """Return the table of costs of the candidates with groups of residents on a device class."""
    return GroupTable(candidates.pending, residents, name, context, empty_pairs=candidates.pair_tables.get(name))


def _costs_of_join(candidates: Candidates, table: GroupTable, residents: Sequence[int]) -> _Join:
    """Return the slowdowns and costs of the pending job with the given residents of a table."""
    costs = table.evaluate(np.zeros((1, 1), dtype=np.int64), residents)
    largest, added = float(costs.largest[0]), float(costs.cost.sum() + costs.shared[0])
    return _Join(
        slowdowns=tuple(costs.slowdown[:, 0].tolist()),
        added_cost=added,
        cost=max(candidates.resident_floor, largest) if candidates.is_min_max else added,
        allowed=bool(costs.allowed[0]),
    )


def _of_place(rule: Rule | None, candidates: Candidates, host: HostClass, place: HostPlace) -> Rule | None:
    """Return a rule about representative residents as a rule about the residents of one device."""
    stands_for = {job.id: k for k, job in enumerate(host.residents)}
    if rule is None or rule.partner_id not in stands_for:
        return rule
    job_id, partner_id = candidates.pending[0].id, rule.partner_id
    return with_members(rule, (job_id, partner_id), (job_id, place.residents[stands_for[partner_id]].id))


def _blocking_rule(
    context: PlanningContext, candidates: Candidates, host: HostClass, slowdowns: Sequence[float]
) -> Rule:
    """Return the rule that forbids a job to join the residents: about one pair, or else about the group."""
    table = _group_table(context, candidates, host.device_class, host.residents)
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
        partner_slowdown=1.0 / sum(1.0 / other for other in slowdowns[1:]),  # joint slowdown of all residents
        min_joint_throughput=context.limits.slowdown.min_joint_throughput,
    )


def _memory_rule(job: Job, table: GroupTable, host: HostClass, context: PlanningContext) -> Rule:
    """Return the rule with the memory need of the job and of all residents together."""
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
