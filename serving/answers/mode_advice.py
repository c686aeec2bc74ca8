"""Advice on sharing modes from what is served: the model's predictions, and what is known of the jobs alone.

Law: an answer is made from one `ServedState`; slowdowns of groups are those that PredictSlowdowns would tell.
"""

import math
from dataclasses import replace

from interfere.devices import possible_modes
from interfere.errors import InvalidInputError, Violation
from interfere.policy.modes.advice import advise
from interfere.policy.modes.questions import JobToAdvise
from interfere.policy.modes.slices import slice_types
from interfere.records import Prediction
from interfere.records.mode_advice import ModeAdvice
from interfere.serving.predicting import predict_pairs, served_device_type
from interfere.serving.state import ServedState
from interfere.sharing_modes import SharingMode
from interfere.wire.messages import PairQuery
from interfere.wire.mode_advice.messages import ModeJob, ModeQuery


def advise_mode(state: ServedState, query: ModeQuery) -> ModeAdvice:
    """The sharing modes that a device can have, for these jobs.

    Raises InvalidInputError for a target without a step time.
    """
    device_type = served_device_type(state, query.device_type)
    jobs = tuple(_job(state, job, device_type, query) for job in query.jobs)
    _raise_targets_without_step_time(jobs)
    places = range(len(jobs))
    question = PairQuery(
        jobs=tuple(job.job for job in query.jobs),
        pairs=tuple((i, *(j for j in places if j != i)) for i in places),
        device_type=device_type,
        device_memory_bytes=query.device_memory_bytes,
        allow_extrapolation=query.allow_extrapolation,
    )

    def predict(mode: SharingMode) -> Prediction:
        return predict_pairs(state, replace(question, mode=mode)).prediction

    advice = advise(jobs, device_type, predict, risk=query.risk, modes=_modes(state, device_type))
    return replace(advice, model_version=state.version)


def _modes(state: ServedState, device_type: str) -> tuple[SharingMode, ...]:
    """The modes that the device can have by its type, and those of which the model was trained on measurements."""
    possible = possible_modes(device_type)
    return tuple(mode for mode in SharingMode if mode in possible or not state.predictor.knows(device_type, mode))


def _job(state: ServedState, job: ModeJob, device_type: str, query: ModeQuery) -> JobToAdvise:
    """What is known of one job; without a profile on the device type, its largest slice stands for the device."""
    profile, _ = state.profile_of_ref(job.job, device_type, extrapolate=query.allow_extrapolation)
    workload = profile.workload if profile else job.job.name
    slices = {size: state.profiles.of_workload(workload, name) for size, name in slice_types(device_type).items()}
    return JobToAdvise(
        workload=workload,
        profile=profile or (slices[max(slices)] if slices else None),
        slice_profiles={found.device_type: found for found in slices.values() if found},
        latency_target_s=job.latency_target_s,
    )


def _raise_targets_without_step_time(jobs: tuple[JobToAdvise, ...]) -> None:
    bad = [
        Violation(
            field=f"jobs[{k}].latency_target_s",
            what="needs the time of one step alone on the device type",
            value=f"{job.latency_target_s!r} of {job.workload!r}",
            remedy="register a profile with step_time_s (interfere profiles register), or leave the target out",
        )
        for k, job in enumerate(jobs)
        if not math.isnan(job.latency_target_s) and not job.step_time_s > 0
    ]
    if bad:
        raise InvalidInputError.from_violations(bad)
