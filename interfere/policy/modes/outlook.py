"""What a set of jobs would do on one device under each sharing mode, as far as it is known.

    throughput within targets = E[Σ 1/s_i over the jobs i that keep their latency target]

The slowdowns of the jobs under one mode are taken to be high and low together (the widest interval of the sum), those
under different modes to be independent. Law: of a mode of which nothing is known no number is told.

Jobs may also get a MIG slice each, which shares neither multiprocessors nor memory with other slices:

    slowdown in a slice = step time alone in the slice ÷ step time alone on the whole device

A size between two measured sizes lies between their step times (a larger slice is never slower); beyond the measured
sizes nothing is said.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, permutations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from interfere.devices.gpus import MIG_COMPUTE_SLICES, mig_memory_eighths, mig_slice_name
from interfere.records import NAN, JobProfile, Prediction, Source
from interfere.records.mode_advice import (
    JobUnderMode,
    ModeMeasurement,
    ModeMeasurementKind,
    ModeOutlook,
    ModeSource,
)
from interfere.sharing_modes import OptionalSharingMode, SharingMode

Floats = NDArray[np.float64]
# 5-95 % range of the logarithm of one measured step time: ParvaGPU's latency against batch ÷ throughput of the same
# row, 1,747 rows, lies in [0.963, 1.031].
STEP_TIME_ERROR = 0.035
_EIGHTHS, _SLICES = 8, 7
SCENARIOS = 400  # equally likely slowdowns of a job: an expectation over them is exact to 0.3 %
_NORMAL = NormalDist()
_SCORES = np.array([_NORMAL.inv_cdf((k + 0.5) / SCENARIOS) for k in range(SCENARIOS)])
_SCORE_95 = _NORMAL.inv_cdf(0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobToAdvise:
    """A job that needs advice, with its profile and latency target."""

    workload: str
    profile: JobProfile | None  # on the whole device, or its largest slice; None where there is none
    slice_profiles: Mapping[str, JobProfile] = field(default_factory=dict)  # on slices of it, by their device type
    latency_target_s: float = NAN  # that one step may take

    @property
    def step_time_s(self) -> float:
        """Time of one step alone on the whole device; NaN where unknown."""
        return NAN if self.profile is None else self.profile.step_time_s

    @property
    def slowdown_cap(self) -> float:
        """Return the slowdown at which it just keeps its latency target; infinite without a target."""
        return np.inf if np.isnan(self.latency_target_s) else self.latency_target_s / self.step_time_s


def slowdown_scenarios(median: float, lower: float, upper: float) -> Floats:
    """float64[s] of equally likely slowdowns, ascending: log-normal on each side of the median.

    `lower` and `upper` are the 5 and 95 % quantiles.
    """
    below, above = np.log(median / lower) / _SCORE_95, np.log(upper / median) / _SCORE_95
    return np.asarray(median * np.exp(np.where(_SCORES < 0, below, above) * _SCORES))


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSlowdown:
    """The slowdown of a job in a slice of its own."""

    slice_type: str
    median: float
    lower: float
    upper: float
    measured: bool  # was the job measured in a slice of this size? Else it lies between two that were


def slice_types(gpu: str) -> dict[int, str]:
    """Return the device type of each slice size of a GPU; empty for a GPU whose slices are not known."""
    try:
        return {size: mig_slice_name(gpu, size) for size in MIG_COMPUTE_SLICES}
    except KeyError:
        return {}


def partitions(jobs: int) -> Iterator[tuple[int, ...]]:
    """Return the sizes of slices, ascending, into which a GPU can be divided so that each job gets one."""
    if jobs > _SLICES:
        return
    for sizes in combinations_with_replacement(MIG_COMPUTE_SLICES, jobs):
        if sum(sizes) <= _SLICES and sum(map(mig_memory_eighths, sizes)) <= _EIGHTHS:
            yield sizes


def even_partition(jobs: int) -> tuple[int, ...]:
    """Return the partition whose smallest slice is largest, then the next; empty where a GPU has too few slices."""
    return max(partitions(jobs), default=())


def slice_slowdown(job: JobToAdvise, gpu: str, size: int) -> SliceSlowdown | None:
    """Return the slowdown of a job in a slice; None where it is not known or the job does not fit."""
    names = slice_types(gpu)
    times = {
        each: job.slice_profiles[name].step_time_s
        for each, name in names.items()
        if name in job.slice_profiles and job.slice_profiles[name].step_time_s > 0
    }
    alone_s = job.step_time_s if job.step_time_s > 0 else NAN
    below, above = max((s for s in times if s <= size), default=0), min((s for s in times if s >= size), default=0)
    if np.isnan(alone_s) or not (below and above):
        return None
    least, most = times[above] / alone_s, times[below] / alone_s
    least, most = min(least, most), max(least, most)
    error = float(np.exp(STEP_TIME_ERROR))
    return SliceSlowdown(
        slice_type=names[size],
        median=float(np.sqrt(least * most)),
        lower=least / error,
        upper=most * error,
        measured=below == above,
    )


def best_assignment(jobs: Sequence[JobToAdvise], gpu: str) -> tuple[SliceSlowdown, ...] | None:
    """Return a slice for every job, of all partitions that with the highest throughput within the latency targets.

    None where no partition is known of every job.
    """
    table = {(k, size): slice_slowdown(job, gpu, size) for k, job in enumerate(jobs) for size in MIG_COMPUTE_SLICES}
    value = {key: _value(jobs[key[0]], found) for key, found in table.items() if found is not None}
    best: tuple[float, tuple[SliceSlowdown, ...]] | None = None
    for sizes in partitions(len(jobs)):
        for order in set(permutations(sizes)):
            if all((k, size) in value for k, size in enumerate(order)):
                total = sum(value[k, size] for k, size in enumerate(order))
                if best is None or total > best[0]:
                    chosen = tuple(found for k, size in enumerate(order) if (found := table[k, size]))
                    best = (total, chosen)
    return best[1] if best else None


def _value(job: JobToAdvise, found: SliceSlowdown) -> float:
    """Return the expected speed of a job in a slice.

    A scenario that breaks the job's latency target counts as speed 0.
    """
    slowdowns = slowdown_scenarios(found.median, found.lower, found.upper)
    return float(np.mean(np.where(slowdowns <= job.slowdown_cap, 1 / slowdowns, 0.0)))


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
    """Return what is known of one mode: from the model where it knows the mode.

    For MIG, profiles of the jobs alone in slices stand in.
    """
    prediction = predict(mode)
    if mode.properties.partitions_device and Source.ABSTAINED in prediction.source:
        return _in_slices(jobs, device_type)
    under = tuple(_predicted_job(job, prediction, k) for k, job in enumerate(jobs))
    feasibility = float(np.min(prediction.feasibility)) if len(prediction.feasibility) else NAN
    return _scenarios(mode, jobs, under, feasibility, _measurements(mode, jobs, device_type))


def _measurements(mode: SharingMode, jobs: Sequence[JobToAdvise], device_type: str) -> tuple[ModeMeasurement, ...]:
    """Return the measurements that would tell most: each job without a profile alone, or else all jobs together."""
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
    """Return the mode with its throughput; of jobs of which one is unknown nothing is said."""
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
        each if np.isnan(job.latency_target_s) else replace(each, miss_probability=float(1 - np.mean(keeps)))
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
