"""Timelines from facts: launches of a profiler, kernel tables, busy and idle stretches; and gaps where none are known.

Laws: what a source does not say is never made up silently: `order` and `gaps` of a timeline name what was drawn or
spread; launches that are known one by one keep their order and times.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interfere.data.importers.kernels.kernel_table import Launch, short_name
from interfere.devices import device_type
from interfere.errors import InvalidInputError, UnfitError
from interfere.records import JobProfile, KernelStat
from interfere.timeline.records import MEASURED, SHORTEST_S, Identity, Kernel, Timeline

# Orion classes a kernel as memory-bound where it draws 60 % of the memory bandwidth or more, as Nsight Compute does
# (Strati et al. 2024): the middle of what is above, and of what is below.
MEMORY_BOUND_FRAC, OTHER_FRAC = 0.8, 0.3
STRETCH = Identity(name="busy")


def from_launches(name: str, launches: Sequence[Launch], device: str) -> Timeline:
    """Launches one by one; gaps are unknown and 0: `with_gaps` draws some. Raises InvalidInputError for none."""
    return Timeline(
        name=name,
        kernels=tuple(
            _kernel(one, short_name(one.name), one.duration_s, 0.0, device)
            for one in launches
            if one.duration_s >= SHORTEST_S
        ),
        gaps="unknown: none",
    )


def from_profile(profile: JobProfile) -> Timeline:
    """The stretches of a CPU core, else the kernel table. Raises UnfitError where the profile has neither."""
    if profile.busy_s and (profile.device_type == "cpu-core" or not profile.kernels):
        return from_stretches(profile)
    if any(kernel.mean_s >= SHORTEST_S for kernel in profile.kernels):
        return from_kernels(profile)
    raise UnfitError(
        f"the profile of {profile.workload} has neither kernels nor busy stretches",
        value=f"source {profile.source}",
        remedy="import a kernel table (`interfere data import nsight` or `orion`), or measure it with "
        "`interfere profile solo`",
    )


def from_stretches(profile: JobProfile) -> Timeline:
    """Busy and idle stretches, as recorded on a CPU core; those of several steps are cut into steps."""
    kernels: list[Kernel] = []
    for busy_s, idle_s in zip(profile.busy_s, profile.idle_s, strict=True):
        if busy_s < SHORTEST_S:
            continue
        steps = 1 if math.isnan(profile.step_time_s) else max(1, round(busy_s / profile.step_time_s))
        kernels += [Kernel(identity=STRETCH, duration_s=busy_s / steps) for _ in range(steps - 1)]
        kernels.append(Kernel(identity=STRETCH, duration_s=busy_s / steps, gap_s=idle_s))
    return Timeline(name=profile.workload, kernels=tuple(kernels))


def from_kernels(profile: JobProfile) -> Timeline:
    """One step of a kernel table, every launch at its identity's mean.

    Order: launch j of an identity with c launches stands at (j + 1/2)/c of the step, ties in table order, so launches
    of one identity are spread evenly. A count is rounded; an identity launched in fewer than half of the steps is
    left out. Gaps that the table lacks share what is left of the step time, evenly by launch.
    """
    placed: list[tuple[float, int, KernelStat]] = []
    for row, kernel in enumerate(profile.kernels):
        launches = round(kernel.count) if kernel.mean_s >= SHORTEST_S else 0
        placed += [((j + 0.5) / launches, row, kernel) for j in range(launches)]
    if not placed:
        raise UnfitError(
            f"no kernel of {profile.workload} is launched in every second step or more",
            value=f"{len(profile.kernels)} identities",
            remedy="profile more of one step, or give launches per step as counts",
        )
    placed.sort(key=lambda one: one[:2])
    unknown = sum(math.isnan(kernel.gap_s) for _, _, kernel in placed)
    known_s = math.fsum(k.mean_s + (0.0 if math.isnan(k.gap_s) else k.gap_s) for _, _, k in placed)
    step_s = 0.0 if math.isnan(profile.step_time_s) else profile.step_time_s
    spread_s = max(0.0, step_s - known_s) / unknown if unknown else 0.0
    if spread_s < SHORTEST_S:  # what rounding left of a step that is the sum of its kernels
        spread_s = 0.0
    return Timeline(
        name=profile.workload,
        kernels=tuple(
            _kernel(k, k.name, k.mean_s, spread_s if math.isnan(k.gap_s) else k.gap_s, profile.device_type)
            for _, _, k in placed
        ),
        order="spread evenly by count",
        gaps=(MEASURED if not unknown else "spread over the step" if spread_s else "unknown: none"),
    )


def with_gaps(timeline: Timeline, share: float, seed: int, *, every: int = 1) -> Timeline:
    """The same kernels with synthetic gaps that take `share` of the time alone, one after every `every` kernels.

    Drawn independently from an exponential distribution, the least committed one of a given mean on positive times
    (Jaynes 1957), and scaled so that the share is exact.
    """
    if not 0 <= share < 1:
        raise InvalidInputError("a share of gaps must be at least 0 and below 1", value=share, remedy="such as 0.3")
    if timeline.gaps == MEASURED and timeline.solo_s > timeline.busy_s:
        raise InvalidInputError(
            "gaps that were measured are not drawn over", value=timeline.name, remedy="leave the share of gaps out"
        )
    draws = np.random.default_rng(seed).exponential(size=len(timeline.kernels))
    after = min(every, len(timeline.kernels))
    draws[np.arange(1, len(draws) + 1) % after != 0] = 0.0
    scale = timeline.busy_s * share / (1 - share) / float(draws.sum())
    return replace(
        timeline,
        kernels=tuple(
            replace(kernel, gap_s=float(draw) * scale) for kernel, draw in zip(timeline.kernels, draws, strict=True)
        ),
        gaps=f"synthetic: exponential, {share:.0%} of the time alone, after every {after}. kernel, seed {seed}",
    )


def rotated(timeline: Timeline, first: int) -> Timeline:
    """The same round, begun at another kernel: a twin that starts elsewhere."""
    k = first % len(timeline.kernels)
    return replace(timeline, kernels=timeline.kernels[k:] + timeline.kernels[:k])


def _kernel(facts: Launch | KernelStat, name: str, duration_s: float, gap_s: float, device: str) -> Kernel:
    sm_used = -1.0 if math.isnan(facts.sm_used) else facts.sm_used
    return Kernel(
        identity=Identity(name=name, grid=facts.grid, block=facts.block, sm_used=sm_used),
        duration_s=duration_s,
        gap_s=gap_s,
        sm_frac=_sm_frac(facts, device),
        bandwidth_frac=_bandwidth_frac(facts, duration_s, device),
    )


def _sm_frac(facts: Launch | KernelStat, device: str) -> float:
    """Multiprocessors used, or blocks launched, over those of the device; 1 where either is unknown."""
    used = facts.sm_used if not math.isnan(facts.sm_used) else float(math.prod(facts.grid)) if facts.grid else math.nan
    share = used / device_type(device).multiprocessors
    return 1.0 if math.isnan(share) else min(1.0, share)


def _bandwidth_frac(facts: Launch | KernelStat, duration_s: float, device: str) -> float:
    """Measured throughput of memory, else bytes over time, else the class that somebody gave it."""
    measured = facts.memory_frac
    if math.isnan(measured):
        measured = facts.bytes / duration_s / device_type(device).memory_bandwidth_bytes_s
    if math.isnan(measured):
        measured = MEMORY_BOUND_FRAC if facts.compute_bound == 0.0 else OTHER_FRAC
    return min(1.0, measured)
