"""Ranks every device for one job, as per-pod schedulers ask, with the costs, rules and choice of `plan`.

Laws: of devices that differ in slowdowns only, a slower one never costs less; the planned device is ranked first
and is feasible; a seat that the scope has promised to another job is infeasible.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.errors import InvalidInputError
from interfere.policy.answer.actions import with_members
from interfere.policy.context import JobCatalogue, PlanningContext
from interfere.policy.costs.candidates import Host
from interfere.policy.costs.objectives import Objective
from interfere.policy.rules.custom import SharingRule
from interfere.policy.rules.text import render
from interfere.policy.schedule.sizes import with_present_sizes
from interfere.policy.solve.builder import decision_problem
from interfere.policy.solve.decision_problem import DecisionProblem
from interfere.policy.validate import validate_snapshot
from interfere.protocols import Predictor
from interfere.records import (
    NAN,
    ActionKind,
    Device,
    Job,
    Limits,
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
    decision = decision_problem(context, by_start_weight=False)
    ranked: dict[str, _RankedDevice] = {}
    for host in decision.hosts:
        places = _on_empty_devices(job, decision, host, context) if host.table is None else _beside(job, decision, host)
        ranked |= {entry.ranking.device_id: entry for entry in places}
    return [ranked.get(device.id) or _infeasible(device, _full_rule(job, device)) for device in devices]


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


def _infeasible(device: Device, rule: Rule) -> _RankedDevice:
    return _ranked(device, rule, slowdowns=(NAN, NAN), cost=np.inf, added_cost=np.inf)


def _ranked(
    device: Device, rule: Rule | None, *, slowdowns: Sequence[float], cost: float, added_cost: float
) -> _RankedDevice:
    """Return the ranking of a device. `rule`: the rule that forbids the start; `slowdowns`: of the job, then of the
    residents."""
    ranking = Ranking(
        device_id=device.id,
        feasible=rule is None,
        slowdown=slowdowns[0],
        worst_resident_slowdown=max(slowdowns[1:]),
        cost=cost if rule is None else np.inf,
        reason="allowed" if rule is None else render(rule),
        rule=rule,
    )
    return _RankedDevice(ranking=ranking, added_cost=added_cost if rule is None else np.inf)


def _on_empty_devices(
    job: Job, decision: DecisionProblem, host: Host, context: PlanningContext
) -> Iterator[_RankedDevice]:
    """Yield the empty devices of a class."""
    candidates, limits, rule = decision.candidates[0], context.limits, None
    cost = float(candidates.solo_cost[host.device_class][0])
    if not np.isfinite(cost):
        jobs = candidates.tables[host.device_class].jobs
        rule = jobs.start_rule(0)
        if rule is None and ActionKind.START_ALONE not in limits.allowed:
            rule = Rule(kind=RuleKind.ACTION_NOT_ALLOWED, job_id=job.id, action=ActionKind.START_ALONE)
        rule = rule or jobs.memory_rule(0)
    elif not candidates.max_new_devices:
        rule = Rule(kind=RuleKind.MAX_DEVICES, job_id=job.id, max_devices=limits.max_devices)
    value = max(decision.floor, cost) if decision.is_min_max else cost
    for device in candidates.empty_devices[host.device_class]:
        yield _ranked(device, rule, slowdowns=(1.0, NAN), cost=value, added_cost=cost)


def _beside(job: Job, decision: DecisionProblem, host: Host) -> Iterator[_RankedDevice]:
    """Yield the devices of a host class, whose residents the job would join."""
    assert host.table is not None
    first = np.zeros(1, dtype=np.int64)
    costs = host.table.evaluate(first[:, None], host.residents).at(first)
    slowdowns = [float(of_member[0]) for of_member in costs.slowdown]
    added_cost = float(np.sum([*costs.cost, costs.shared]))
    value = max(decision.floor, float(costs.largest[0])) if decision.is_min_max else added_cost
    rule = None if costs.allowed[0] else host.table.blocking_rule([0], host.residents)
    stands_for = {resident.id: k for k, resident in enumerate(host.places[0].residents)}
    for place in host.places:
        of_place = rule
        if rule is not None and rule.partner_id in stands_for:
            partner_id = place.residents[stands_for[rule.partner_id]].id
            of_place = with_members(rule, (job.id, rule.partner_id), (job.id, partner_id))
        yield _ranked(place.devices[0], of_place, slowdowns=slowdowns, cost=value, added_cost=added_cost)
