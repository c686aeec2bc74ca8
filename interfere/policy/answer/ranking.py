"""One job against every device: what per-pod schedulers ask. The costs, rules and choice are those of `plan`.

Laws: of devices that differ in slowdowns only, a slower one never costs less; the planned device is the first, and
feasible; a place that its scope has promised to another job is not feasible.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.errors import InvalidInputError
from interfere.policy.answer.actions import with_members
from interfere.policy.answer.joining import Join, joins_by_device
from interfere.policy.context import JobCatalogue, PlanningContext
from interfere.policy.costs.candidates import Candidates, Start, find_candidates
from interfere.policy.costs.job_classes import Seat
from interfere.policy.rules.text import render
from interfere.policy.solve.hosts import has_groups
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
    """A ranking, and what it adds to the sum: the order among devices that a min-max objective cannot tell apart."""

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
) -> tuple[Ranking, ...]:
    """Every device, feasible and cheap first. Raises InvalidInputError when the devices contradict each other.

    The first is `planned`: the one promised to this job, else where `plan` would start it, were it alone in the queue.
    `promises` are those of its scope, as of the last decision there.
    """
    # 1. Validate, naming the job as the request does.
    snapshot = Snapshot(pending=(job,), devices=tuple(devices), limits=limits, objective=objective, partial=True)
    violations = validate_snapshot(snapshot)
    if violations:
        raise InvalidInputError.from_violations(
            [replace(v, field=v.field.replace("pending[0]", "job")) for v in violations]
        )
    # 2. Price every device.
    context = PlanningContext(snapshot=snapshot, predictor=predictor, catalogue=catalogue)
    ranked = _ranked_devices(job, context)
    # 3. Respect promises, then sort.
    promise_of = _standing_promises(job, devices, promises)
    ranked = [_with_promise(entry, job, promise_of.get(entry.ranking.device_id)) for entry in ranked]
    own = {device_id for device_id, promise in promise_of.items() if promise.action.job_id == job.id}
    ranked.sort(key=lambda entry: _sort_key(entry, own))
    rankings = [entry.ranking for entry in ranked]
    return tuple(replace(ranking, planned=k == 0 and ranking.feasible) for k, ranking in enumerate(rankings))


def _ranked_devices(job: Job, context: PlanningContext) -> list[_RankedDevice]:
    """Every device with what the job would cost there, in the order of the snapshot."""
    devices = context.snapshot.devices
    if job.gpus > 1:
        rule = Rule(kind=RuleKind.MULTI_DEVICE_JOB, job_id=job.id, gpus=job.gpus)
        return [_infeasible(device, rule) for device in devices]
    candidates = find_candidates(context)
    if has_groups(context.snapshot):
        joins = joins_by_device(context, candidates)
        return [
            _on_empty_device(candidates, context, device) if not device.residents else _joining(job, device, joins)
            for device in devices
        ]
    seat_of = {seat.devices[0].id: (k, seat) for k, members in enumerate(candidates.seat_classes) for seat in members}
    ranked = []
    for device in devices:
        if not device.residents:
            ranked.append(_on_empty_device(candidates, context, device))
        elif device.id in seat_of:
            ranked.append(_beside_resident(candidates, device, *seat_of[device.id]))
        else:
            ranked.append(_infeasible(device, _full_rule(job, device)))
    return ranked


def _sort_key(entry: _RankedDevice, promised_to_job: set[str]) -> tuple[bool, bool, float, float]:
    ranking = entry.ranking
    return not ranking.feasible, ranking.device_id not in promised_to_job, ranking.cost, entry.added_cost


def _standing_promises(job: Job, devices: Sequence[Device], promises: Sequence[Promise]) -> dict[str, Promise]:
    """By device: the promised start or migration that has not happened yet, the job's own before its partner's."""
    runs_on = {resident.id: device.id for device in devices for resident in device.residents}
    outstanding = [
        promise
        for promise in promises
        if promise.action.job_id not in runs_on
        or (promise.action.kind is ActionKind.MOVE and runs_on[promise.action.job_id] == promise.from_device_id)
    ]
    outstanding.sort(key=lambda promise: promise.action.job_id == job.id)  # the last one of a device is kept
    return {device_id: promise for promise in outstanding for device_id in promise.action.places}


def _with_promise(entry: _RankedDevice, job: Job, promise: Promise | None) -> _RankedDevice:
    """The ranking of a promised device: infeasible where it is another job's, with the promised slowdowns else."""
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
    """Why a device that runs several jobs or a gang takes no other."""
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


def _beside_resident(candidates: Candidates, device: Device, seat_class: int, seat: Seat) -> _RankedDevice:
    table, column = candidates.seat_columns[seat_class]
    slowdown = float(table.predictions.row_slowdown[0, column])
    resident_slowdown = float(table.predictions.column_slowdown[0, column])
    start, rule = Start(members=(0,), seat=seat_class), table.blocking_rule(0, column)
    if rule is not None:
        job_id = candidates.pending[0].id
        stands_for = (job_id, candidates.seat_classes[seat_class][0].resident.id)
        rule = with_members(rule, stands_for, (job_id, seat.resident.id))
    return _ranked(candidates, device, rule, start, slowdown=slowdown, resident_slowdown=resident_slowdown)


def _joining(job: Job, device: Device, joins: Mapping[str, Join]) -> _RankedDevice:
    """The ranking of a device whose residents the job would join."""
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
    """The ranking of a device; a rule is what forbids the start."""
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
