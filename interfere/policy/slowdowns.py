"""Predicted slowdowns of all starting, moving and running jobs once a plan is carried out."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.predict.groups import GroupComposition, composed_slowdown, composition_of, copy_shares
from interfere.records import Action, ActionKind, Device, Job, JobProfile, PairBatch
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

DEPARTURES = (ActionKind.MOVE, ActionKind.PREEMPT, ActionKind.END)  # actions after which a resident has left its device
SlowdownOfJob = Mapping[str, float]
"""Predicted slowdown of each job beside its co-located jobs, by job id; a job without a prediction is absent."""


def predicted_slowdowns(context: PlanningContext, actions: Sequence[Action]) -> SlowdownOfJob:
    """Return the slowdowns of all running and starting jobs after the actions are carried out.

    A resident without an action is predicted only where a `keep` action or a predicted end time needs its slowdown.
    """
    limits = context.limits
    slowdown_of = {action.job_id: action.slowdown for action in actions if action.kind is not ActionKind.WAIT}
    for action in actions:
        slowdown_of |= action.slowdown_of_partners
    departed = {action.job_id for action in actions if action.kind in DEPARTURES}
    staying = [
        (_without_residents(device, departed), job)
        for device in context.snapshot.devices
        for job in device.residents
        if job.id not in slowdown_of and (ActionKind.KEEP in limits.allowed or not math.isnan(job.remaining_s))
    ]
    slowdown_of |= {job.id: 1.0 for device, job in staying if all(other.id == job.id for other in device.residents)}
    return slowdown_of | slowdowns_among_residents(staying, context)


def _without_residents(device: Device, departed: Collection[str]) -> Device:
    if not any(job.id in departed for job in device.residents):
        return device
    return replace(device, residents=tuple(job for job in device.residents if job.id not in departed))


def slowdowns_among_residents(residents: Sequence[tuple[Device, Job]], context: PlanningContext) -> dict[str, float]:
    """Return each resident's slowdown beside its present neighbours, composed from predictions, by job id."""
    predictor, extrapolate = context.predictor, context.limits.allow_extrapolation
    beside: dict[str, list[float]] = {}
    group_of: dict[str, list[JobProfile]] = {}
    composition_for: dict[str, GroupComposition] = {}
    for (device_type, mode), pairs in _resident_pairs(residents, context).items():
        if predictor.knows(device_type, mode) and not extrapolate:
            continue
        profiles = list({id(profile): profile for _, *pair in pairs for profile in pair}.values())
        index_of = {id(profile): index for index, profile in enumerate(profiles)}
        of_pairs = [(index_of[id(victim)], index_of[id(neighbour)]) for _, victim, neighbour in pairs]
        asked = list(dict.fromkeys(of_pairs))  # each pair of profiles once, however many jobs have them
        prediction = predictor.predict_pairs(
            PairBatch(
                jobs=tuple(profiles),
                victim=np.array([victim for victim, _ in asked], dtype=np.int64),
                neighbour=np.array([neighbour for _, neighbour in asked], dtype=np.int64),
                device_type=device_type,
                mode=mode,
                allow_extrapolation=extrapolate,
            )
        )
        composition = composition_of(predictor, device_type, mode)
        median_of = dict(zip(asked, prediction.median.tolist(), strict=True))
        for (job_id, victim, neighbour), pair in zip(pairs, of_pairs, strict=True):
            median = median_of[pair]
            beside.setdefault(job_id, []).append(median)
            group_of.setdefault(job_id, [victim]).append(neighbour)
            composition_for.setdefault(job_id, composition)
    return {
        job_id: medians[0]
        if len(medians) == 1
        else composed_slowdown(
            medians, composition_for[job_id], copy_shares([group_of[job_id]], context.profile_of_workload)
        )
        for job_id, medians in beside.items()
    }


def _resident_pairs(
    residents: Sequence[tuple[Device, Job]], context: PlanningContext
) -> dict[tuple[str, SharingMode], list[tuple[str, JobProfile, JobProfile]]]:
    """Return the co-located, profiled pairs as (victim id, victim, neighbour), by device type and sharing mode.

    A gang that meets the same partner on several devices counts as one pair.
    """
    pairs: dict[tuple[str, SharingMode], list[tuple[str, JobProfile, JobProfile]]] = {}
    seen_pairs = set()
    for device, job in residents:
        victim = context.profile(job, device.type)
        for other in device.residents:
            is_new = other.id != job.id and (job.id, other.id) not in seen_pairs
            neighbour = context.profile(other, device.type) if is_new else None
            seen_pairs.add((job.id, other.id))
            if victim is not None and neighbour is not None:
                pairs.setdefault((device.type, device.mode or DEFAULT_MODE), []).append((job.id, victim, neighbour))
    return pairs
