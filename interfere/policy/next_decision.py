"""When a scheduler does best to ask again: at the first event that the plan foresees, or after a time slice.

Events: the predicted end of a job that runs or starts, now + remaining · slowdown; the first promise to expire; the
last moment at which a waiting job may start for its deadline, alone on the fastest type; a device opens or closes.
A slowdown that nothing predicts counts as 1: the job ends no earlier. Pure: the clock is the snapshot's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.policy.rules.runtime import remaining_quantile_s
from interfere.records import Action, ActionKind, Device, Job, JobProfile, PairBatch, Promise, Snapshot
from interfere.records.windows import spans

GONE = (ActionKind.MOVE, ActionKind.PREEMPT, ActionKind.END)  # after these a resident is not where it was
Slowdowns = Mapping[str, float]
"""Job -> predicted slowdown in its company."""


def resolve_at_s(
    snapshot: Snapshot, actions: Sequence[Action], promises: Sequence[Promise], slowdowns: Slowdowns
) -> float:
    """On the caller's clock; NaN where nothing is foreseen. `promises`: those after the plan."""
    events = [*ends_s(snapshot, actions, slowdowns), *(p.action.promised_by_s for p in promises)]
    events.append(snapshot.now_s + snapshot.limits.timing.slice_s)
    started = {action.job_id for action in actions if action.places}
    waiting = [job for job in snapshot.pending if job.id not in started]
    later = [job.deadline_s - remaining_quantile_s(job, snapshot.limits.slowdown.risk) for job in waiting]
    later += [at_s for device in snapshot.devices for span in spans(device.windows) for at_s in span]
    events += [at_s for at_s in later if math.isfinite(at_s) and at_s > snapshot.now_s]
    return float(np.fmin.reduce(events, initial=math.nan))


def ends_s(snapshot: Snapshot, actions: Sequence[Action], slowdowns: Slowdowns) -> list[float]:
    """Predicted end of every job that runs or starts and says how long it would run alone."""
    starting = {action.job_id for action in actions if action.places}
    stopped = {action.job_id for action in actions if action.kind in (ActionKind.PREEMPT, ActionKind.END)}
    jobs = [job for device in snapshot.devices for job in device.residents if job.id not in stopped]
    jobs += [job for job in snapshot.pending if job.id in starting]
    return [
        snapshot.now_s + job.remaining_s * float(np.fmax(slowdowns.get(job.id, math.nan), 1.0))
        for job in jobs
        if not math.isnan(job.remaining_s)
    ]


def slowdowns_of(context: PlanningContext, actions: Sequence[Action]) -> Slowdowns:
    """Of every job that runs or starts, as the plan leaves it; nothing of a job that nothing predicts."""
    snapshot = context.snapshot
    found = {action.job_id: action.slowdown for action in actions if action.kind is not ActionKind.WAIT}
    found |= {action.partner_id: action.partner_slowdown for action in actions if action.partner_id}
    moved = {action.job_id for action in actions if action.kind in GONE}
    together = [
        (replace(device, residents=tuple(one for one in device.residents if one.id not in moved)), job)
        for device in snapshot.devices
        for job in device.residents
        if job.id not in found and (ActionKind.KEEP in snapshot.limits.allowed or not math.isnan(job.remaining_s))
    ]
    found |= {job.id: 1.0 for device, job in together if all(one.id == job.id for one in device.residents)}
    return found | _among_residents(together, context)


def _among_residents(jobs: Sequence[tuple[Device, Job]], context: PlanningContext) -> dict[str, float]:
    """Slowdown of residents beside residents: the product over their company, as for any group nobody measured."""
    predictor, extrapolate = context.predictor, context.limits.allow_extrapolation
    asked: dict[tuple[str, str], list[tuple[str, JobProfile, JobProfile]]] = {}
    seen = set()  # a gang meets its partner on each of its devices, and is slowed once
    for device, job in jobs:
        own = context.profile(job, device.type)
        for other in device.residents:
            beside = (
                context.profile(other, device.type) if other.id != job.id and (job.id, other.id) not in seen else None
            )
            seen.add((job.id, other.id))
            if own is not None and beside is not None:
                asked.setdefault((device.type, device.mode), []).append((job.id, own, beside))
    found: dict[str, float] = {}
    for (kind, mode), pairs in asked.items():
        if predictor.knows(kind, mode) and not extrapolate:
            continue
        profiles = list({id(one): one for _, *both in pairs for one in both}.values())
        place = {id(one): k for k, one in enumerate(profiles)}
        said = predictor.predict_pairs(
            PairBatch(
                jobs=tuple(profiles),
                victim=np.array([place[id(own)] for _, own, _ in pairs], dtype=np.int64),
                neighbour=np.array([place[id(other)] for _, _, other in pairs], dtype=np.int64),
                device_type=kind,
                mode=mode,
                allow_extrapolation=extrapolate,
            )
        )
        for (name, _, _), median in zip(pairs, said.median.tolist(), strict=True):
            found[name] = found.get(name, 1.0) * median
    return found
