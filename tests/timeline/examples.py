"""Small timelines: drawn ones for laws, written ones for examples."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from interfere.data.importers.kernels.kernel_files import KernelLaunch, bounded_name
from interfere.records import JobProfile, KernelStat
from interfere.timeline.kernel_schedulers import (
    EevdfScheduler,
    ExclusiveScheduler,
    PriorityGapFillingScheduler,
    SingleQueueScheduler,
    TimeSliceScheduler,
)
from interfere.timeline.replay_engine import replay
from interfere.timeline.streams import KernelScheduler, KernelStream
from interfere.timeline.timelines import (
    KernelIdentity,
    KernelPrediction,
    PredictionTable,
    Timeline,
    TimelineKernel,
    timeline_from_profile,
)

US = 1e-6
LAW = settings(max_examples=20, deadline=None)  # of each mode
MODES: tuple[KernelScheduler, ...] = (
    ExclusiveScheduler(),
    TimeSliceScheduler(slice_s=50 * US),
    TimeSliceScheduler(slice_s=30 * US, launch_ahead=1),
    EevdfScheduler(slice_s=40 * US),
    SingleQueueScheduler(launch_ahead=4),
    PriorityGapFillingScheduler(epsilon_s=5 * US),
)


def kernel(duration_us: float, gap_us: float = 0.0, name: str = "k") -> TimelineKernel:
    return TimelineKernel(identity=KernelIdentity(name=name), duration_s=duration_us * US, gap_s=gap_us * US)


def line(name: str, *kernels: tuple[float, float]) -> Timeline:
    """Durations and gaps in microseconds."""
    return Timeline(name=name, kernels=tuple(kernel(*one) for one in kernels))


def predictions(*kernels: tuple[float, float]) -> tuple[KernelPrediction, ...]:
    """Run times and gaps in microseconds."""
    return tuple(KernelPrediction(run_s=run_us * US, gaps_s=(gap_us * US,)) for run_us, gap_us in kernels)


# Whole tenths of microseconds: many kernels end and begin at the same instant, which is where an engine may stumble.
_DURATIONS = st.integers(1, 2_000).map(lambda n: n / 10)
_GAPS = st.one_of(st.just(0.0), st.integers(1, 3_000).map(lambda n: n / 10))


def timelines(name: str = "job", most: int = 8) -> st.SearchStrategy[Timeline]:
    one = st.builds(kernel, _DURATIONS, _GAPS)
    return st.lists(one, min_size=1, max_size=most).map(lambda ks: Timeline(name=name, kernels=tuple(ks)))


def timeline_from_launches(name: str, launches: Sequence[KernelLaunch], device_type: str) -> Timeline:
    """Single launches in their own order, without gaps, which a profiler does not report."""
    kernels = [
        replace(timeline_from_profile(_one_launch(name, launch, device_type)).kernels[0], gap_s=0.0)
        for launch in launches
    ]
    return Timeline(name=name, kernels=tuple(kernels), gaps="unknown, taken as none")


def _one_launch(name: str, launch: KernelLaunch, device_type: str) -> JobProfile:
    kernel = KernelStat(
        name=bounded_name(launch.name),
        mean_s=launch.duration_s,
        count=1.0,
        grid=launch.grid,
        block=launch.block,
        sm_used=launch.sm_used,
        compute_bound=launch.compute_bound,
    )
    return JobProfile(workload=name, device_type=device_type, step_time_s=1.0, kernels=(kernel,))


def run_time_error(job: Timeline) -> float:
    """How far the means of a job's own launches by identity are from each: Σ |mean - launch| over the sum of all."""
    pairs = zip(PredictionTable([job]).predict_round(job), job.kernels, strict=True)
    return math.fsum(abs(a.run_s - b.duration_s) for a, b in pairs) / job.busy_s


def replayed_slowdowns(
    profiles: Sequence[JobProfile], mode: KernelScheduler, *, until_s: float = 2.0
) -> NDArray[np.float64]:
    """float64[n, n]: the slowdown of job i beside job j; all jobs are endless, and hosts wait for each kernel.

    A copy of a job starts in the middle of its round: equal timelines in step would never overlap.
    """
    timelines = [timeline_from_profile(profile) for profile in profiles]
    slowdowns = np.ones((len(timelines), len(timelines)))
    for i, victim in enumerate(timelines):
        for j, neighbour in enumerate(timelines[i:], start=i):
            half = len(neighbour.kernels) // 2
            turned = replace(neighbour, kernels=neighbour.kernels[half:] + neighbour.kernels[:half])
            pair = (victim, turned if i == j else neighbour)
            streams = [KernelStream(timeline=timeline, rounds=None, host_waits=True) for timeline in pair]
            first, second = replay(streams, mode, until_s=until_s).outcomes
            slowdowns[i, j], slowdowns[j, i] = first.slowdown, second.slowdown
            if i == j:
                slowdowns[i, i] = math.sqrt(first.slowdown * second.slowdown)
    return slowdowns
