"""One job against every device: what per-pod schedulers ask. The costs, rules and choice are those of `plan`.

Laws: of devices that differ in slowdowns only, a slower one never costs less; the planned device is the first, and
feasible; what a scope has promised to others is not feasible.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interfere.errors import InvalidInputError
from interfere.policy.context import JobCatalogue, PlanningContext
from interfere.policy.costs.candidates import Options, Start, survey
from interfere.policy.device_class import DeviceClass
from interfere.policy.validate import validate_snapshot
from interfere.protocols import Predictor
from interfere.records import NAN, ActionKind, Device, Job, Limits, ObjectiveKind, Promise, Ranking, Snapshot


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
    snapshot = Snapshot(pending=(job,), devices=tuple(devices), limits=limits, objective=objective, partial=True)
    violations = validate_snapshot(snapshot)
    if violations:
        raise InvalidInputError.from_violations(
            [replace(v, field=v.field.replace("pending[0]", "job")) for v in violations]
        )
    options = survey(PlanningContext(snapshot=snapshot, predictor=predictor, catalogue=catalogue))
    empty = {device.id: k for k, device in enumerate(options.empty)}
    seats = {device.id: k for k, device in enumerate(options.seats)}
    ranked = []
    for device in devices:
        if job.gpus > 1:
            why = f"it takes {job.gpus} devices at once: ask Match"
            ranked.append(_ranking(options, device, why, None, slowdown=NAN, worst=NAN))
        elif device.id in empty:
            ranked.append(_alone(options, limits, device, empty[device.id]))
        elif device.id in seats:
            ranked.append(_beside(options, device, seats[device.id]))
        else:
            gang = any(one.gpus > 1 for one in device.residents)
            why = f"no free seat: {'a gang runs there' if gang else f'{len(device.residents)} residents'}"
            ranked.append(_ranking(options, device, why, None, slowdown=NAN, worst=NAN))
    kept = _kept(job, devices, promises)
    ranked = [(_promised(one, job, kept[one.device_id]) if one.device_id in kept else one, add) for one, add in ranked]
    mine = {name for name, promise in kept.items() if promise.action.job_id == job.id}
    ranked.sort(key=lambda pair: (not pair[0].feasible, pair[0].device_id not in mine, pair[0].cost, pair[1]))
    return tuple(replace(one, planned=one.feasible and k == 0) for k, (one, _) in enumerate(ranked))


def _kept(job: Job, devices: Sequence[Device], promises: Sequence[Promise]) -> dict[str, Promise]:
    """By device: the start or move that is still to come there, the job's own before its partner's."""
    runs_on = {resident.id: device.id for device in devices for resident in device.residents}
    to_come = [
        promise
        for promise in promises
        if promise.action.job_id not in runs_on
        or (promise.action.kind is ActionKind.MOVE and runs_on[promise.action.job_id] == promise.from_device_id)
    ]
    to_come.sort(key=lambda promise: promise.action.job_id == job.id)  # the last one stays
    return {name: promise for promise in to_come for name in promise.action.places}


def _promised(ranking: Ranking, job: Job, promise: Promise) -> Ranking:
    why = f"promised to {promise.action.job_id} by decision {promise.decision_ids[0]}"
    if promise.action.job_id != job.id:
        return replace(ranking, feasible=False, cost=np.inf, reason=why) if ranking.feasible else ranking
    if not ranking.feasible:
        return ranking
    action = promise.action
    return replace(ranking, reason=why, slowdown=action.slowdown, worst_resident_slowdown=action.partner_slowdown)


def _alone(options: Options, limits: Limits, device: Device, place: int) -> tuple[Ranking, float]:
    where = DeviceClass.of(device)
    why = ""
    if not np.isfinite(options.alone[where][0]):
        shut = options.together[where].kept_out(0)
        why = shut or "start_alone is not an allowed action"
        if ActionKind.START_ALONE in limits.allowed and not shut:
            why = options.together[where].too_large(0)
    elif not options.take:
        why = f"max_devices: {limits.max_devices} empty devices may be taken"
    return _ranking(options, device, why, Start(members=(0,), device=place), slowdown=1.0, worst=NAN)


def _beside(options: Options, device: Device, seat: int) -> tuple[Ranking, float]:
    costs, column = options.seat_place[seat]
    slowdown, worst = float(costs.row_slowdown[0, column]), float(costs.column_slowdown[0, column])
    start = Start(members=(0,), seat=seat)
    return _ranking(options, device, costs.reason(0, column), start, slowdown=slowdown, worst=worst)


def _ranking(
    options: Options, device: Device, why_not: str, start: Start | None, *, slowdown: float, worst: float
) -> tuple[Ranking, float]:
    """The answer, and what it adds to the sum: the order among devices that the objective cannot tell apart."""
    added, largest = options.cost_of(start) if start is not None and not why_not else (np.inf, np.inf)
    return Ranking(
        device_id=device.id,
        feasible=not why_not,
        slowdown=slowdown,
        worst_resident_slowdown=worst,
        cost=max(options.floor, largest) if options.worst else added,
        reason=why_not or "allowed",
    ), added
