"""One job against every device: what per-pod schedulers ask. A single-job reading of the same costs `plan` uses."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interfere.errors import InvalidInputError
from interfere.policy.costs import GIB, DeviceClass, Resolve, pair_costs, peak_bytes
from interfere.policy.objectives import WeightedExcess
from interfere.policy.validate import validate_snapshot
from interfere.protocols import Predictor
from interfere.records import NAN, ActionKind, Device, Job, Limits, Ranking, Snapshot


def rank(
    job: Job, devices: Sequence[Device], predictor: Predictor, resolve: Resolve, limits: Limits
) -> tuple[Ranking, ...]:
    """Every device, feasible and cheap first. Raises InvalidInputError when the devices contradict each other."""
    violations = validate_snapshot(Snapshot(pending=(job,), devices=tuple(devices)))
    if violations:
        raise InvalidInputError.from_violations(
            [replace(v, field=v.field.replace("pending[0]", "job")) for v in violations]
        )
    ranked = [_one(job, device, predictor, resolve, limits) for device in devices]
    return tuple(sorted(ranked, key=lambda r: (not r.feasible, r.cost)))


def _one(job: Job, device: Device, predictor: Predictor, resolve: Resolve, limits: Limits) -> Ranking:
    where = DeviceClass.of(device)
    if not device.residents:
        needed = peak_bytes(job, resolve(job, device.type))
        why = "" if ActionKind.START_ALONE in limits.allowed else "start_alone is not an allowed action"
        if 0 <= where.memory_bytes < needed:
            why = f"memory: {needed / GIB:.3g} GiB > {where.memory_bytes / GIB:.3g} GiB"
        return _ranking(device, why, slowdown=1.0, worst=NAN, cost=0.0)
    if len(device.residents) > 1:
        return _ranking(
            device, f"no free seat: {len(device.residents)} residents", slowdown=NAN, worst=NAN, cost=np.inf
        )
    costs = pair_costs([job], device.residents, where, predictor, resolve, limits, WeightedExcess(), running=True)
    return _ranking(
        device,
        costs.reason(0, 0),
        slowdown=float(costs.row_slowdown[0, 0]),
        worst=float(costs.column_slowdown[0, 0]),
        cost=float(costs.cost[0, 0]),
    )


def _ranking(device: Device, why_not: str, *, slowdown: float, worst: float, cost: float) -> Ranking:
    return Ranking(
        device_id=device.id, feasible=not why_not, slowdown=slowdown, worst_resident_slowdown=worst,
        cost=np.inf if why_not else cost, reason=why_not or "allowed",
    )  # fmt: skip
