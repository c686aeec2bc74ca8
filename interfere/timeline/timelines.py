"""Timelines: the kernels of one job alone in launch order, made from its profile, and as a scheduler predicts them.

Laws: a timeline describes one job alone completely, so its solo time is the sum of its kernels and gaps; a kernel keeps
its identity (name, grid, block) whatever is known about its times; what a profile does not say is never made up
silently, but named in `order` and `gaps` of the timeline; means over the rounds of a job predict their total time
exactly.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from interfere.errors import UnfitError, Violation
from interfere.records import JobProfile, KernelStat
from interfere.records.checks import check, number_violations, text_violations

MIN_KERNEL_S = 1e-9  # profilers count in nanoseconds
MEASURED = "as measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelIdentity:
    """The identity of a kernel: name, grid and block. Formats without a grid (Orion's) give `sm_used` instead."""

    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    sm_used: float = -1.0  # -1 is unknown: NaN would make equal identities differ


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineKernel:
    """One kernel launch: how long it runs alone, and the gap until the next launch."""

    identity: KernelIdentity
    duration_s: float
    gap_s: float = 0.0  # after this kernel nothing is ready for so long, when the job runs alone

    def __post_init__(self) -> None:
        violations = number_violations(self, "duration_s", low=MIN_KERNEL_S, nan=False)
        check(violations + number_violations(self, "gap_s", nan=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The kernels of one round of a job alone (a step, or a request), in launch order.

    `order` and `gaps` say in words where the launch order or the gaps are not as measured.
    """

    name: str
    kernels: tuple[TimelineKernel, ...]
    order: str = MEASURED
    gaps: str = MEASURED

    def __post_init__(self) -> None:
        violations = text_violations(self, "name")
        if not self.kernels:
            violations.append(
                Violation(field="kernels", what="a timeline has none", value=self.name, remedy="give at least one")
            )
        check(violations)

    @property
    def busy_s(self) -> float:
        """Sum of the durations of the kernels."""
        return math.fsum(kernel.duration_s for kernel in self.kernels)

    @property
    def solo_s(self) -> float:
        """Time of one round alone: kernels and gaps."""
        return math.fsum(kernel.duration_s + kernel.gap_s for kernel in self.kernels)


BUSY_STRETCH = KernelIdentity(name="busy")
GAPS_UNKNOWN = "unknown, taken as none"


# --- timelines of profiles --------------------------------------------------------------------------------------------


def timeline_from_profile(profile: JobProfile) -> Timeline:
    """Return the timeline of a profile, from its busy stretches on a CPU core, else from its kernel table.

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
    """Return the timeline of recorded busy and idle stretches of a CPU core; a record of several steps is cut into
    steps."""
    kernels: list[TimelineKernel] = []
    for busy_s, idle_s in zip(profile.busy_s, profile.idle_s, strict=True):
        if busy_s < MIN_KERNEL_S:
            continue
        steps = 1 if math.isnan(profile.step_time_s) else max(1, round(busy_s / profile.step_time_s))
        kernels += [TimelineKernel(identity=BUSY_STRETCH, duration_s=busy_s / steps) for _ in range(steps - 1)]
        kernels.append(TimelineKernel(identity=BUSY_STRETCH, duration_s=busy_s / steps, gap_s=idle_s))
    return Timeline(name=profile.workload, kernels=tuple(kernels))


def timeline_from_kernel_table(profile: JobProfile) -> Timeline:
    """Return the timeline of one step of a kernel table, in which every launch takes the mean time of its identity.

    A table has no launch order: launch j of an identity with c launches is placed at (j + 1/2)/c of the step, ties in
    table order, which spreads the launches of one identity evenly. Counts are rounded; an identity launched in fewer
    than half of the steps is left out. The part of the step time that the kernels do not fill is spread evenly over the
    unknown gaps.
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
            TimelineKernel(
                identity=_identity(k), duration_s=k.mean_s, gap_s=mean_gap_s if math.isnan(k.gap_s) else k.gap_s
            )
            for _, _, k in placed
        ),
        order="spread evenly by count",
        gaps=(MEASURED if not unknown_gaps else "spread over the step" if mean_gap_s else GAPS_UNKNOWN),
    )


def _identity(kernel: KernelStat) -> KernelIdentity:
    sm_used = -1.0 if math.isnan(kernel.sm_used) else kernel.sm_used
    return KernelIdentity(name=kernel.name, grid=kernel.grid, block=kernel.block, sm_used=sm_used)


# --- timelines as a scheduler predicts them ---------------------------------------------------------------------------


LaunchKey = tuple[KernelIdentity, int]  # an identity, and the number of its earlier launches in the round


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPrediction:
    """What a scheduler knows of a kernel before it runs."""

    run_s: float
    gaps_s: tuple[float, ...]  # equally likely lengths of the gap after it; empty where it was never measured


class PredictionTable:
    """Run times and gaps of the kernels of one job, from measured rounds of it alone: FIKIT's tables SK and SG.

    A kernel is known by its identity, or with `by_place` by its identity and place in the round, since steps of a model
    repeat their launches in the same order.
    """

    def __init__(self, rounds: Sequence[Timeline], *, by_place: bool = False) -> None:
        self._by_place = by_place
        samples: dict[LaunchKey, list[TimelineKernel]] = {}
        for measured in rounds:
            for (identity, place), kernel in zip(launch_keys(measured), measured.kernels, strict=True):
                samples.setdefault((identity, -1), []).append(kernel)
                if by_place:
                    samples.setdefault((identity, place), []).append(kernel)
        self._predictions = {
            key: KernelPrediction(
                run_s=fmean(kernel.duration_s for kernel in kernels), gaps_s=tuple(kernel.gap_s for kernel in kernels)
            )
            for key, kernels in samples.items()
        }
        longest_s = max((prediction.run_s for prediction in self._predictions.values()), default=math.inf)
        self.unmeasured = KernelPrediction(run_s=longest_s, gaps_s=())  # of a kernel that no round holds

    def predict(self, identity: KernelIdentity, place: int) -> KernelPrediction:
        """Return the prediction of a launch: by place where it is known, else by identity, else `unmeasured`."""
        by_identity = self._predictions.get((identity, -1), self.unmeasured)
        return self._predictions.get((identity, place), by_identity) if self._by_place else by_identity

    def predict_round(self, timeline: Timeline) -> tuple[KernelPrediction, ...]:
        """Return the predictions of all launches of a round."""
        return tuple(self.predict(identity, place) for identity, place in launch_keys(timeline))


def launch_keys(timeline: Timeline) -> list[LaunchKey]:
    """Return the identity of each launch, and the number of earlier launches of that identity in the round."""
    launches = Counter[KernelIdentity]()
    keys = []
    for kernel in timeline.kernels:
        keys.append((kernel.identity, launches[kernel.identity]))
        launches[kernel.identity] += 1
    return keys
