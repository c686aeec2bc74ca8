"""Predicted slowdowns of all starting, moving and running jobs once a plan is carried out."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from interfere.policy.context import PlanningContext
from interfere.predict.groups import composed_slowdown, composition_of, copy_shares
from interfere.records import Action, ActionKind, Device, Job, PairBatch
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


class PairSlowdown(NamedTuple):
    """The predicted slowdown of a job beside one other job; NaN where the model abstains."""

    median: float
    lower: float  # 5 % quantile
    upper: float  # 95 % quantile


Residents = Sequence[tuple[Device, Job]]
Domain = tuple[str, SharingMode]
"""(device type, sharing mode)"""


def predicted_pairs(
    pairs_on: Mapping[Domain, Sequence[tuple[Job, Job]]], context: PlanningContext
) -> dict[tuple[str, str], PairSlowdown]:
    """Return the slowdown of the first job of each pair beside the second one, by their ids; the first domain counts.

    Each pair of kinds of jobs is asked about once. Absent are pairs without a profile, and those on unknown domains.
    """
    predictor, extrapolate = context.predictor, context.limits.allow_extrapolation
    found: dict[tuple[str, str], PairSlowdown] = {}
    for (device_type, mode), pairs in pairs_on.items():
        if predictor.knows(device_type, mode) and not extrapolate:
            continue
        kinds = {(job.workload, job.profile_id): job for pair in pairs for job in pair}
        profiles = {
            kind: profile for kind, job in kinds.items() if (profile := context.profile(job, device_type)) is not None
        }
        place = {kind: k for k, kind in enumerate(profiles)}
        of_pairs = [((job.workload, job.profile_id), (other.workload, other.profile_id)) for job, other in pairs]
        asked = list(dict.fromkeys(pair for pair in of_pairs if pair[0] in place and pair[1] in place))
        if not asked:
            continue
        answer = predictor.predict_pairs(
            PairBatch(
                jobs=tuple(profiles.values()),
                victim=np.array([place[victim] for victim, _ in asked], dtype=np.int64),
                neighbour=np.array([place[neighbour] for _, neighbour in asked], dtype=np.int64),
                device_type=device_type,
                mode=mode,
                allow_extrapolation=extrapolate,
            )
        )
        columns = answer.median.tolist(), answer.lower.tolist(), answer.upper.tolist()
        of_kinds = dict(zip(asked, map(PairSlowdown._make, zip(*columns, strict=True)), strict=True))
        here = {
            (job.id, other.id): of_kinds[kinds_of_pair]
            for (job, other), kinds_of_pair in zip(pairs, of_pairs, strict=True)
            if kinds_of_pair in of_kinds
        }
        found = here | found
    return found


def resident_pairs(residents: Residents, context: PlanningContext) -> dict[tuple[str, str], float]:
    """(job id, neighbour id) -> predicted median slowdown of each resident beside each other one on its device.

    Absent where nothing is predicted.
    """
    pairs_on: dict[Domain, list[tuple[Job, Job]]] = {}
    for device, job in residents:
        if len(device.residents) > 1:
            pairs = pairs_on.setdefault((device.type, device.mode or DEFAULT_MODE), [])
            pairs += [(job, other) for other in device.residents if other.id != job.id]
    predicted = predicted_pairs(pairs_on, context)
    return {ids: pair.median for ids, pair in predicted.items() if not math.isnan(pair.median)}


def slowdowns_among_residents(residents: Residents, context: PlanningContext) -> dict[str, float]:
    """Return each resident's slowdown beside its present neighbours, composed from predictions, by job id."""
    of_pairs = resident_pairs(residents, context)
    slowdown_of: dict[str, float] = {}
    for device, job in residents:
        beside = [other for other in device.residents if (job.id, other.id) in of_pairs]
        medians = [of_pairs[job.id, other.id] for other in beside]
        if len(medians) == 1:
            slowdown_of[job.id] = medians[0]
        elif medians:
            composition = composition_of(context.predictor, device.type, device.mode or DEFAULT_MODE)
            profiles = [context.profile(each, device.type) for each in (job, *beside)]
            shares = copy_shares([list(filter(None, profiles))], context.profile_of_workload)
            slowdown_of[job.id] = composed_slowdown(medians, composition, shares)
    return slowdown_of


def all_residents(context: PlanningContext) -> list[tuple[Device, Job]]:
    """Return every running job with each device that it runs on."""
    return [(device, job) for device in context.snapshot.devices for job in device.residents]
