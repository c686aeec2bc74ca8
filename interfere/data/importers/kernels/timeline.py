"""The profile of a job from a timeline of its kernels: kernel table with gaps, busy and idle stretches, step time.

Profilers that record when each kernel ran (the PyTorch profiler, Nsight Systems) know what those that time kernels one
by one do not: the gaps. Kernels of several streams may overlap: a stretch is busy while at least one of them runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from interfere.data.importers.kernels.kernel_table import KernelLaunch, build_kernel_table
from interfere.records import NAN, JobProfile

MAX_STRETCHES = 200  # of each kind in a record: a sample of the timeline, as the profiler of our own workloads keeps
PROFILED_STEP_NOTE = (
    "the step time is that of a run under the profiler, which slows a job down: give --step-time-s of a run without it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLaunch:
    """One launch and when it ran, in seconds of any clock."""

    start_s: float
    end_s: float
    launch: KernelLaunch


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMarks:
    """When the steps of a timeline began and ended; empty where the file marks none."""

    spans_s: tuple[tuple[float, float], ...] = ()

    @property
    def step_time_s(self) -> float:
        """The median duration of a step; NaN without marks."""
        return median(end - start for start, end in self.spans_s) if self.spans_s else NAN


def profile_of_timeline(
    launches: Sequence[TimedLaunch],
    marks: StepMarks,
    *,
    workload: str,
    device_type: str,
    source: str,
    steps: int,
    step_time_s: float,
) -> JobProfile:
    """The profile of one timeline, of which launches before the first marked step and after the last do not count.

    `steps` is the number of steps where none is marked. Without `step_time_s` the marked steps give it, else the span
    of all launches divided by `steps`.
    """
    # 1. Cut to the marked steps.
    if marks.spans_s:
        begin, end = marks.spans_s[0][0], max(stop for _, stop in marks.spans_s)
        launches = [each for each in launches if begin <= each.start_s < end]
        steps = len(marks.spans_s)
    ordered = sorted(launches, key=lambda each: each.start_s)
    # 2. Busy and idle stretches of the device.
    busy_s, idle_s = _stretches(ordered)
    total_s = sum(busy_s) + sum(idle_s)
    if math.isnan(step_time_s):
        step_time_s = marks.step_time_s if marks.spans_s else total_s / steps
    # 3. The kernel table, with the gap after each launch.
    with_gaps = [replace(each.launch, gap_s=max(0.0, after.start_s - each.end_s)) for each, after in pairwise(ordered)]
    with_gaps += [ordered[-1].launch] if ordered else []
    span_s = marks.spans_s[-1][1] - marks.spans_s[0][0] if marks.spans_s else total_s
    return JobProfile(
        workload=workload,
        device_type=device_type,
        step_time_s=step_time_s,
        source=source,
        busy_frac=min(1.0, sum(busy_s) / span_s) if span_s > 0 else NAN,
        busy_s=tuple(busy_s[:MAX_STRETCHES]),
        idle_s=tuple(idle_s[:MAX_STRETCHES]),
        kernels=build_kernel_table(with_gaps, steps=steps),
    )


def _stretches(ordered: Sequence[TimedLaunch]) -> tuple[list[float], list[float]]:
    """(busy seconds, idle seconds after each) of the union of all launches; the last one is followed by 0 s."""
    busy_s: list[float] = []
    idle_s: list[float] = []
    begin = until = ordered[0].start_s if ordered else 0.0
    for each in ordered:
        if each.start_s > until:
            busy_s.append(until - begin)
            idle_s.append(each.start_s - until)
            begin = each.start_s
        until = max(until, each.end_s)
    return ([*busy_s, until - begin], [*idle_s, 0.0]) if ordered else ([], [])
