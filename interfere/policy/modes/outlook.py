"""What a set of jobs would do on one device under each sharing mode, as far as it is known.

    throughput within targets = E[Σ 1/s_i over the jobs i that keep their latency target]

The slowdowns of the jobs under one mode are taken to be high and low together (the widest interval of the sum), those
under different modes to be independent. Law: of a mode of which nothing is known no number is told.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.policy.modes.questions import JobToAdvise, slowdown_scenarios
from interfere.policy.modes.slices import best_assignment, even_partition, slice_types
from interfere.records import NAN, Prediction, Source
from interfere.records.mode_advice import (
    JobUnderMode,
    ModeMeasurement,
    ModeMeasurementKind,
    ModeOutlook,
    ModeSource,
)
from interfere.sharing_modes import OptionalSharingMode, SharingMode

Floats = NDArray[np.float64]
EVERY_MODE: OptionalSharingMode = ""  # what a job does alone says something of each
GroupPredictor = Callable[[SharingMode], Prediction]
"""Sharing mode -> for every job its slowdown beside all others on the device, or an abstention with its reason."""
_WEAKEST_LAST = (ModeSource.MEASURED, ModeSource.DERIVED, ModeSource.PREDICTED, ModeSource.ABSTAINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeScenarios:
    """A mode and equally likely throughputs under it."""

    outlook: ModeOutlook
    throughput: Floats  # float64[s], relative
    within_targets: Floats  # float64[s], of the jobs that keep their targets
    keeps_targets: NDArray[np.bool_]  # bool[s]: is every latency target kept that is kept alone?

    @property
    def expected(self) -> float:
        """Expected throughput within targets."""
        return float(self.within_targets.mean())


def outlook_of(
    mode: SharingMode, jobs: Sequence[JobToAdvise], device_type: str, predict: GroupPredictor
) -> ModeScenarios:
    """What is known of one mode: by the model where it knows the mode, else for MIG from the jobs alone in slices."""
    prediction = predict(mode)
    if mode.properties.partitions_device and Source.ABSTAINED in prediction.source:
        return _in_slices(jobs, device_type)
    under = tuple(_predicted_job(job, prediction, k) for k, job in enumerate(jobs))
    feasibility = float(np.min(prediction.feasibility)) if len(prediction.feasibility) else NAN
    return _scenarios(mode, jobs, under, feasibility, _measurements(mode, jobs, device_type))


def _measurements(mode: SharingMode, jobs: Sequence[JobToAdvise], device_type: str) -> tuple[ModeMeasurement, ...]:
    """The jobs that were never profiled alone, which says something of every mode; else the jobs together."""
    unprofiled = dict.fromkeys(job.workload for job in jobs if job.profile is None)
    if unprofiled:
        return tuple(_alone(workload, device_type, EVERY_MODE) for workload in unprofiled)
    workloads = tuple(job.workload for job in jobs)
    together = ModeMeasurementKind.TOGETHER
    return (ModeMeasurement(kind=together, workloads=workloads, device_type=device_type, mode=mode),)


def _predicted_job(job: JobToAdvise, prediction: Prediction, k: int) -> JobUnderMode:
    source = {Source.ABSTAINED: ModeSource.ABSTAINED, Source.MEASURED: ModeSource.MEASURED}.get(
        prediction.source[k], ModeSource.PREDICTED
    )
    if source is ModeSource.ABSTAINED:
        return JobUnderMode(workload=job.workload, reason=prediction.reason[k])
    return JobUnderMode(
        workload=job.workload,
        slowdown=float(prediction.median[k]),
        lower=float(prediction.lower[k]),
        upper=float(prediction.upper[k]),
        source=source,
    )


def _in_slices(jobs: Sequence[JobToAdvise], device_type: str) -> ModeScenarios:
    """MIG with a slice for every job."""
    names = slice_types(device_type)
    sizes = even_partition(len(jobs)) if names else ()
    if not sizes:
        what = "more jobs than slices" if names else f"the MIG slices of {device_type} are not known"
        remedy = "ask for fewer jobs" if names else "known for a100 and a100-80gb; measure a mode that it has"
        nothing = tuple(JobUnderMode(workload=job.workload, reason=what) for job in jobs)
        return _scenarios(SharingMode.MIG, jobs, nothing, NAN, (), reason=f"{what}: {remedy}")
    assignment = best_assignment(jobs, device_type)
    if assignment is None:
        needed = [
            _alone(job.workload, name, mode)
            for job, size in zip(jobs, sizes, strict=True)
            for name, mode in ((device_type, EVERY_MODE), (names[size], SharingMode.MIG))
            if (job.profile is None if name == device_type else name not in job.slice_profiles)
        ]
        why = "no step time alone in slices large enough for a partition: profile it there"
        nothing = tuple(JobUnderMode(workload=job.workload, reason=why) for job in jobs)
        return _scenarios(SharingMode.MIG, jobs, nothing, NAN, tuple(dict.fromkeys(needed)))
    under = tuple(
        JobUnderMode(
            workload=job.workload,
            slowdown=found.median,
            lower=found.lower,
            upper=found.upper,
            source=ModeSource.DERIVED,
            slice_type=found.slice_type,
        )
        for job, found in zip(jobs, assignment, strict=True)
    )
    unmeasured = tuple(
        _alone(job.workload, found.slice_type, SharingMode.MIG)
        for job, found in zip(jobs, assignment, strict=True)
        if not found.measured
    )
    return _scenarios(SharingMode.MIG, jobs, under, 1.0, unmeasured)


def _alone(workload: str, device_type: str, mode: OptionalSharingMode) -> ModeMeasurement:
    return ModeMeasurement(kind=ModeMeasurementKind.ALONE, workloads=(workload,), device_type=device_type, mode=mode)


def _scenarios(
    mode: SharingMode,
    jobs: Sequence[JobToAdvise],
    under: Sequence[JobUnderMode],
    feasibility: float,
    measure: tuple[ModeMeasurement, ...],
    reason: str = "",
) -> ModeScenarios:
    """The mode with its throughput; of jobs of which one is unknown nothing is said."""
    source = max((job.source for job in under), key=_WEAKEST_LAST.index)
    if source is ModeSource.ABSTAINED:
        reason = reason or next(job.reason for job in under if job.reason)
        outlook = ModeOutlook(mode=mode, source=source, jobs=tuple(under), reason=reason, measure=measure)
        nothing = np.zeros(0)
        return ModeScenarios(outlook=outlook, throughput=nothing, within_targets=nothing, keeps_targets=nothing > 0)
    slowdowns = np.array([slowdown_scenarios(job.slowdown, job.lower, job.upper) for job in under])
    caps = np.array([job.slowdown_cap for job in jobs])[:, None]
    kept = slowdowns <= caps
    throughput, within = (1 / slowdowns).sum(axis=0), np.where(kept, 1 / slowdowns, 0.0).sum(axis=0)
    with_misses = tuple(
        _with_miss_probability(each, job, float(1 - np.mean(keeps)))
        for each, job, keeps in zip(under, jobs, kept, strict=True)
    )
    outlook = ModeOutlook(
        mode=mode,
        source=source,
        jobs=with_misses,
        throughput=sum(1 / job.slowdown for job in under),
        lower=sum(1 / job.upper for job in under),
        upper=sum(1 / job.lower for job in under),
        throughput_within_targets=float(within.mean()),
        feasibility=feasibility,
        measure=() if source is ModeSource.MEASURED else measure,
    )
    return ModeScenarios(
        outlook=outlook, throughput=throughput, within_targets=within, keeps_targets=np.all(kept | (caps < 1), axis=0)
    )


def _with_miss_probability(under: JobUnderMode, job: JobToAdvise, probability: float) -> JobUnderMode:
    if np.isnan(job.latency_target_s):
        return under
    return JobUnderMode(
        workload=under.workload,
        slowdown=under.slowdown,
        lower=under.lower,
        upper=under.upper,
        source=under.source,
        miss_probability=probability,
        slice_type=under.slice_type,
    )
