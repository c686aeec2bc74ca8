"""One job against every device: what per-pod schedulers ask. The costs, rules and choice are those of `plan`.

Laws: of devices that differ in slowdowns only, a slower one never costs less; the planned device is the first, and
feasible; a place that its scope has promised to another job is not feasible.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from interfere.errors import InvalidInputError
from interfere.policy.context import JobCatalogue, PlanningContext
from interfere.policy.costs.candidates import Candidates, Start, find_candidates
from interfere.policy.device_class import DeviceClass
from interfere.policy.validate import validate_snapshot
from interfere.protocols import Predictor
from interfere.records import NAN, ActionKind, Device, Job, Limits, ObjectiveKind, Promise, Ranking, Snapshot


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
    objective: ObjectiveKind = ObjectiveKind.WEIGHTED_EXCESS,
    promises: Sequence[Promise] = (),
) -> tuple[Ranking, ...]:
    """Every device, feasible and cheap first. Raises InvalidInputError when the devices contradict each other.

    The first is `planned`, when it is feasible: the one promised to this job, else where `plan` would start it, were it
    alone in the queue. `promises` are those of its scope, as of the last decision there.
    """
    # 1. Validate, naming the job as the request does.
    snapshot = Snapshot(pending=(job,), devices=tuple(devices), limits=limits, objective=objective, partial=True)
    violations = validate_snapshot(snapshot)
    if violations:
        raise InvalidInputError.from_violations(
            [replace(v, field=v.field.replace("pending[0]", "job")) for v in violations]
        )
    # 2. Price every device.
    candidates = find_candidates(PlanningContext(snapshot=snapshot, predictor=predictor, catalogue=catalogue))
    empty_place = {device.id: k for k, device in enumerate(candidates.empty_devices)}
    seat_place = {device.id: k for k, device in enumerate(candidates.seats)}
    ranked = []
    for device in devices:
        if job.gpus > 1:
            reason = f"it takes {job.gpus} devices at once: ask Match"
            ranked.append(_infeasible(device, reason))
        elif device.id in empty_place:
            ranked.append(_on_empty_device(candidates, limits, device, empty_place[device.id]))
        elif device.id in seat_place:
            ranked.append(_beside_resident(candidates, device, seat_place[device.id]))
        else:
            has_gang = any(resident.gpus > 1 for resident in device.residents)
            residents = "a gang runs there" if has_gang else f"{len(device.residents)} residents"
            ranked.append(_infeasible(device, f"no free seat: {residents}"))
    # 3. Respect promises, then sort.
    promise_of = _standing_promises(job, devices, promises)
    ranked = [_with_promise(entry, job, promise_of.get(entry.ranking.device_id)) for entry in ranked]
    own = {device_id for device_id, promise in promise_of.items() if promise.action.job_id == job.id}
    ranked.sort(key=lambda entry: _sort_key(entry, own))
    rankings = [entry.ranking for entry in ranked]
    return tuple(replace(ranking, planned=ranking.feasible and k == 0) for k, ranking in enumerate(rankings))


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
    reason = f"promised to {promise.action.job_id} by decision {promise.decision_ids[0]}"
    if promise.action.job_id != job.id:
        return replace(entry, ranking=replace(ranking, feasible=False, cost=np.inf, reason=reason))
    action = promise.action
    promised = replace(
        ranking,
        reason=reason,
        slowdown=action.slowdown,
        worst_resident_slowdown=action.partner_slowdown,
    )
    return replace(entry, ranking=promised)


def _on_empty_device(candidates: Candidates, limits: Limits, device: Device, place: int) -> _RankedDevice:
    device_class, reason = DeviceClass.of(device), ""
    if not np.isfinite(candidates.solo_cost[device_class][0]):
        blocked = candidates.pair_tables[device_class].kept_out(0)
        reason = blocked or "start_alone is not an allowed action"
        if ActionKind.START_ALONE in limits.allowed and not blocked:
            reason = candidates.pair_tables[device_class].too_large(0)
    elif not candidates.max_new_devices:
        reason = f"max_devices: {limits.max_devices} empty devices may be taken"
    start = Start(members=(0,), device=place)
    return _ranked(candidates, device, reason, start, slowdown=1.0, resident_slowdown=NAN)


def _beside_resident(candidates: Candidates, device: Device, seat: int) -> _RankedDevice:
    table, column = candidates.seat_columns[seat]
    slowdown, resident_slowdown = float(table.row_slowdown[0, column]), float(table.column_slowdown[0, column])
    start, reason = Start(members=(0,), seat=seat), table.reason(0, column)
    return _ranked(candidates, device, reason, start, slowdown=slowdown, resident_slowdown=resident_slowdown)


def _infeasible(device: Device, reason: str) -> _RankedDevice:
    ranking = Ranking(
        device_id=device.id, feasible=False, slowdown=NAN, worst_resident_slowdown=NAN, cost=np.inf, reason=reason
    )
    return _RankedDevice(ranking=ranking, added_cost=np.inf)


def _ranked(
    candidates: Candidates, device: Device, reason: str, start: Start, *, slowdown: float, resident_slowdown: float
) -> _RankedDevice:
    """The ranking of a device; an empty reason says that the start is allowed."""
    added_cost, largest_cost = (np.inf, np.inf) if reason else candidates.cost_of(start)
    ranking = Ranking(
        device_id=device.id,
        feasible=not reason,
        slowdown=slowdown,
        worst_resident_slowdown=resident_slowdown,
        cost=max(candidates.resident_floor, largest_cost) if candidates.is_min_max else added_cost,
        reason=reason or "allowed",
    )
    return _RankedDevice(ranking=ranking, added_cost=added_cost)
