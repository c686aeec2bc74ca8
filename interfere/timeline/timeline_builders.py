"""Builds timelines from profiler launches, kernel tables, or busy and idle stretches, and draws synthetic gaps.

Laws: what a source does not say is never made up silently, but named in `order` and `gaps` of the timeline; launches
that are known one by one keep their order and times.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interfere.data.importers.kernels.kernel_files import KernelLaunch, bounded_name
from interfere.devices import find_device_type
from interfere.errors import InvalidInputError, UnfitError
from interfere.records import JobProfile, KernelStat
from interfere.timeline.records import MEASURED, MIN_KERNEL_S, KernelIdentity, Timeline, TimelineKernel

# Orion calls a kernel memory-bound where it draws 60 % of the memory bandwidth or more, as Nsight Compute does (Strati
# et al. 2024): the middles of the ranges above and below that.
MEMORY_BOUND_FRAC, OTHER_FRAC = 0.8, 0.3
BUSY_STRETCH = KernelIdentity(name="busy")
GAPS_UNKNOWN = "unknown, taken as none"


def timeline_from_launches(name: str, launches: Sequence[KernelLaunch], device_type: str) -> Timeline:
    """The timeline of individual launches, without gaps: a profiler does not report them (`with_synthetic_gaps` does).

    Raises InvalidInputError where there are no launches.
    """
    return Timeline(
        name=name,
        kernels=tuple(
            _timeline_kernel(launch, bounded_name(launch.name), launch.duration_s, 0.0, device_type)
            for launch in launches
            if launch.duration_s >= MIN_KERNEL_S
        ),
        gaps=GAPS_UNKNOWN,
    )


def timeline_from_profile(profile: JobProfile) -> Timeline:
    """The timeline of a profile, from its busy stretches on a CPU core, else from its kernel table.

    Raises UnfitError where the profile has neither.
    """
    if profile.busy_s and (profile.device_type == "cpu-core" or not profile.kernels):
        return timeline_from_stretches(profile)
    if any(kernel.mean_s >= MIN_KERNEL_S for kernel in profile.kernels):
        return timeline_from_kernel_table(profile)
    raise UnfitError(
        f"the profile of {profile.workload} has neither kernels nor busy stretches",
        value=f"source {profile.source}",
        remedy="import a kernel table (`interfere data import nsight` or `orion`), or measure it with "
        "`interfere profile solo`",
    )


def timeline_from_stretches(profile: JobProfile) -> Timeline:
    """The timeline of busy and idle stretches, as recorded on a CPU core; one of several steps is cut into steps."""
    kernels: list[TimelineKernel] = []
    for busy_s, idle_s in zip(profile.busy_s, profile.idle_s, strict=True):
        if busy_s < MIN_KERNEL_S:
            continue
        steps = 1 if math.isnan(profile.step_time_s) else max(1, round(busy_s / profile.step_time_s))
        kernels += [TimelineKernel(identity=BUSY_STRETCH, duration_s=busy_s / steps) for _ in range(steps - 1)]
        kernels.append(TimelineKernel(identity=BUSY_STRETCH, duration_s=busy_s / steps, gap_s=idle_s))
    return Timeline(name=profile.workload, kernels=tuple(kernels))


def timeline_from_kernel_table(profile: JobProfile) -> Timeline:
    """The timeline of one step of a kernel table, in which every launch takes the mean time of its identity.

    A table has no launch order: launch j of an identity with c launches is placed at (j + 1/2)/c of the step, ties in
    table order, which spreads the launches of one identity evenly. Counts are rounded; an identity launched in fewer
    than half of the steps is left out. What the kernels leave of the step time is spread evenly over the gaps that the
    table lacks.
    """
    placed: list[tuple[float, int, KernelStat]] = []
    for row, kernel in enumerate(profile.kernels):
        launches = round(kernel.count) if kernel.mean_s >= MIN_KERNEL_S else 0
        placed += [((j + 0.5) / launches, row, kernel) for j in range(launches)]
    if not placed:
        raise UnfitError(
            f"no kernel of {profile.workload} is launched in at least every second step",
            value=f"{len(profile.kernels)} identities",
            remedy="profile one step more fully, or give launches per step as counts",
        )
    placed.sort(key=lambda entry: entry[:2])
    unknown_gaps = sum(math.isnan(kernel.gap_s) for _, _, kernel in placed)
    known_s = math.fsum(k.mean_s + (0.0 if math.isnan(k.gap_s) else k.gap_s) for _, _, k in placed)
    step_s = 0.0 if math.isnan(profile.step_time_s) else profile.step_time_s
    mean_gap_s = max(0.0, step_s - known_s) / unknown_gaps if unknown_gaps else 0.0
    if mean_gap_s < MIN_KERNEL_S:  # a rounding error, where the step time is the sum of its kernels
        mean_gap_s = 0.0
    return Timeline(
        name=profile.workload,
        kernels=tuple(
            _timeline_kernel(k, k.name, k.mean_s, mean_gap_s if math.isnan(k.gap_s) else k.gap_s, profile.device_type)
            for _, _, k in placed
        ),
        order="spread evenly by count",
        gaps=(MEASURED if not unknown_gaps else "spread over the step" if mean_gap_s else GAPS_UNKNOWN),
    )


def with_synthetic_gaps(timeline: Timeline, gap_frac: float, seed: int, *, every: int = 1) -> Timeline:
    """Return the same kernels with synthetic gaps: one gap after every `every` kernels, `gap_frac` of the solo time in
    total.

    The gaps are drawn independently from an exponential distribution, which has maximum entropy among those of a given
    mean on positive times (Jaynes 1957), and scaled so that their share is exact.
    """
    if not 0 <= gap_frac < 1:
        raise InvalidInputError("a share of gaps must be at least 0 and below 1", value=gap_frac, remedy="such as 0.3")
    if timeline.gaps == MEASURED and timeline.solo_s > timeline.busy_s:
        raise InvalidInputError(
            "the gaps of this timeline are measured, so none can be drawn",
            value=timeline.name,
            remedy="leave the share of gaps out",
        )
    draws = np.random.default_rng(seed).exponential(size=len(timeline.kernels))
    period = min(every, len(timeline.kernels))
    draws[np.arange(1, len(draws) + 1) % period != 0] = 0.0
    scale = timeline.busy_s * gap_frac / (1 - gap_frac) / float(draws.sum())
    place = "kernel" if period == 1 else f"{period} kernels"
    return replace(
        timeline,
        kernels=tuple(
            replace(kernel, gap_s=float(draw) * scale) for kernel, draw in zip(timeline.kernels, draws, strict=True)
        ),
        gaps=f"synthetic: exponential, {gap_frac:.0%} of the time alone, one after every {place}, seed {seed}",
    )


def rotate_timeline(timeline: Timeline, first: int) -> Timeline:
    """The same round, beginning at the kernel with index `first`."""
    k = first % len(timeline.kernels)
    return replace(timeline, kernels=timeline.kernels[k:] + timeline.kernels[:k])


def _timeline_kernel(
    facts: KernelLaunch | KernelStat, name: str, duration_s: float, gap_s: float, device_type: str
) -> TimelineKernel:
    sm_used = -1.0 if math.isnan(facts.sm_used) else facts.sm_used
    return TimelineKernel(
        identity=KernelIdentity(name=name, grid=facts.grid, block=facts.block, sm_used=sm_used),
        duration_s=duration_s,
        gap_s=gap_s,
        sm_frac=_sm_frac(facts, device_type),
        bandwidth_frac=_bandwidth_frac(facts, duration_s, device_type),
    )


def _sm_frac(facts: KernelLaunch | KernelStat, device_type: str) -> float:
    """Multiprocessors used, or blocks launched, over the multiprocessors of the device; 1 where either is unknown."""
    used = facts.sm_used if not math.isnan(facts.sm_used) else float(math.prod(facts.grid)) if facts.grid else math.nan
    sm_frac = used / find_device_type(device_type).multiprocessors
    return 1.0 if math.isnan(sm_frac) else min(1.0, sm_frac)


def _bandwidth_frac(facts: KernelLaunch | KernelStat, duration_s: float, device_type: str) -> float:
    """Measured memory throughput, else bytes over time, else a typical value of the kernel's class."""
    bandwidth_frac = facts.memory_frac
    if math.isnan(bandwidth_frac):
        bandwidth_frac = facts.bytes / duration_s / find_device_type(device_type).memory_bandwidth_bytes_s
    if math.isnan(bandwidth_frac):
        bandwidth_frac = MEMORY_BOUND_FRAC if facts.compute_bound == 0.0 else OTHER_FRAC
    return min(1.0, bandwidth_frac)
