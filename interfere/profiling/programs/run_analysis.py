"""Computes profiles and the sides of blocks from the marks and samples of runs: no clock and no process.

Step times come from marks, which lie at ends of steps, so they are exact means over whole steps. CPU time comes from
samples of all processes of a command, interpolated linearly. Third processes took of a pinned core what the kernel says
the core was busy, less what the commands' processes used.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.profiling.block_analysis import BlockAnalysis, MeasurementWindow, block_side
from interfere.profiling.quality_gates import (
    Gate,
    GateFailure,
    drift_failure,
    first_failure,
    overlap_failure,
    slowdown_failure,
    steal_failure,
)
from interfere.profiling.trace import Event, StepSpan, Trace, whole_steps
from interfere.progress import Mark
from interfere.records import NAN, BlockSide, JobProfile

SOURCE = "command"
MIN_STEPS = 20  # in every window: the mean of 20 steps that vary by 20 % each is known to 4.5 %
MIN_MARKS = 6  # in every window: five intervals between marks, so that output which comes in bursts is found out
SPREAD_PARTS = 5  # of a window alone, for the spread of the step time
TIME, CPU, CORE_BUSY = range(3)  # columns of RunRecording.samples


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecording:
    """What was recorded of one run of a command, as arrays."""

    name: str
    trace: Trace  # float64[e, 4]: see `interfere.profiling.trace`
    samples: NDArray[np.float64]  # float64[s, 3]: monotonic seconds, CPU seconds of all processes, core's busy seconds
    private_peak_bytes: float
    max_strayed: int  # largest number of processes at once that might run on other cores


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloAnalysis:
    """A command's profile (None: rejected), what third processes took of the core, and the failed gate's reason."""

    profile: JobProfile | None
    steal_frac: float
    reason: str  # empty: accepted


def run_recording(
    name: str, marks: Sequence[Mark], samples: Sequence[Mapping[str, Any]], start_s: float, end_s: float
) -> RunRecording:
    """Arrange marks and samples as arrays. `end_s` is when the command ended or was told to."""
    table = np.array(
        [(row["monotonic_s"], row["cpu_s"], _nan_for_none(row["core_busy_s"])) for row in samples], dtype=np.float64
    ).reshape(-1, 3)
    # A child that ends between two looks at a sample moves its time to its parent: never let the sum go back.
    table[:, CPU] = np.maximum.accumulate(table[:, CPU])
    events = [(start_s, 0.0, Event.START)]
    events += [(mark.monotonic_s, mark.steps, Event.STEP) for mark in marks if mark.monotonic_s <= end_s]
    events.append((end_s, events[-1][1], Event.STOP))
    times_s = np.array([time_s for time_s, _, _ in events])
    steps = [count for _, count, _ in events]
    kinds = [float(event) for _, _, event in events]
    return RunRecording(
        name=name,
        trace=np.column_stack([times_s, _interpolate(table, CPU, times_s), steps, kinds]),
        samples=table,
        private_peak_bytes=max((row["private_bytes"] for row in samples), default=NAN),
        max_strayed=max((row["strayed"] for row in samples), default=0),
    )


def analyse_solo(
    runs: Sequence[tuple[RunRecording, MeasurementWindow]], device_type: str, *, pinned: bool
) -> SoloAnalysis:
    """Profile of a command from its runs alone, each with the window that counts.

    CPU time and memory describe the device only where that is the core to which the command is pinned; elsewhere they
    are unknown (NaN).
    """
    # 1. The whole steps of every window, and of its parts for the spread.
    spans, part_step_times_s = [], []
    for run, window in runs:
        span = _counted_steps(run, window)
        if failure := steps_failure(run, window, span):
            return SoloAnalysis(profile=None, steal_frac=NAN, reason=failure.reason)
        assert span is not None
        spans.append(span)
        edges_s = np.linspace(window.counted_from_s, window.end_s, SPREAD_PARTS + 1)
        parts = (whole_steps(run.trace, start_s, end_s) for start_s, end_s in pairwise(edges_s))
        part_step_times_s += [part.step_time_s for part in parts if part]
    # 2. The profile over all of them.
    wall_s = sum(span.wall_s for span in spans)
    cpu_s = sum(span.cpu_s for span in spans)
    profile = JobProfile(
        workload=runs[0][0].name,
        device_type=device_type,
        source=SOURCE,
        step_time_s=wall_s / sum(span.steps for span in spans),
        step_time_sd_s=float(np.std(part_step_times_s, ddof=1)) if len(part_step_times_s) > 1 else NAN,
        busy_frac=min(1.0, cpu_s / wall_s) if pinned else NAN,
        memory_peak_bytes=max(run.private_peak_bytes for run, _ in runs) if pinned else NAN,
    )
    # 3. Whether the runs describe the core.
    steal_frac = max(core_steal_frac([run], [window]) for run, window in runs) if pinned else NAN
    failure = first_failure(pinning_failure(run) for run, _ in runs) if pinned else None
    return SoloAnalysis(profile=profile, steal_frac=steal_frac, reason=failure.reason if failure else "")


def analyse_pair(
    runs: tuple[RunRecording, RunRecording], windows: Sequence[MeasurementWindow], drift_frac: float, *, pinned: bool
) -> BlockAnalysis:
    """Slowdowns and quality of one block A · AB · B, from the recordings of its two runs."""
    first, second = runs
    first_alone, shared, second_alone = windows
    sides = (
        block_side(first.name, first.trace, [second.trace], [first_alone], [shared]),
        block_side(second.name, second.trace, [first.trace], [second_alone], [shared]),
    )
    steal_frac = core_steal_frac(runs, windows) if pinned else NAN
    side_failures = [
        failure
        for run, side, alone in zip(runs, sides, (first_alone, second_alone), strict=True)
        for failure in _side_failures(run, side, (alone, shared), pinned=pinned)
    ]
    failure = first_failure([*side_failures, steal_failure(steal_frac), drift_failure(drift_frac)])
    return BlockAnalysis(sides=sides, steal_frac=steal_frac, reason=failure.reason if failure else "")


def _side_failures(
    run: RunRecording, side: BlockSide, windows: Sequence[MeasurementWindow], *, pinned: bool
) -> Iterator[GateFailure | None]:
    """The gates of one side, in the order in which they are reported."""
    for window in windows:
        yield steps_failure(run, window, _counted_steps(run, window))
    yield overlap_failure(side)
    yield slowdown_failure(side)
    if pinned:
        yield pinning_failure(run)


def _counted_steps(run: RunRecording, window: MeasurementWindow) -> StepSpan | None:
    return whole_steps(run.trace, window.counted_from_s, window.end_s)


def steps_failure(run: RunRecording, window: MeasurementWindow, span: StepSpan | None) -> GateFailure | None:
    """Rejects a window that holds too few steps or too few marks; `span` is its whole steps."""
    steps = span.steps if span else 0
    mark_times_s = run.trace[run.trace[:, 3] == Event.STEP, 0]
    marks = int(((mark_times_s >= window.counted_from_s) & (mark_times_s <= window.end_s)).sum())
    if steps < MIN_STEPS:
        reason = f"{run.name}: {steps} whole steps in a window, {MIN_STEPS} needed; use longer windows"
        return GateFailure(gate=Gate.ENOUGH_STEPS, reason=reason)
    if marks < MIN_MARKS:
        reason = f"{run.name}: {marks} marks in a window, {MIN_MARKS} needed; does its output come in bursts?"
        return GateFailure(gate=Gate.ENOUGH_STEPS, reason=reason)
    return None


def pinning_failure(run: RunRecording) -> GateFailure | None:
    """Rejects a run whose processes left the core to which they were pinned."""
    if not run.max_strayed:
        return None
    reason = f"{run.name}: {run.max_strayed} of its processes left the core they were pinned to"
    return GateFailure(gate=Gate.PINNED, reason=reason)


def core_steal_frac(runs: Sequence[RunRecording], windows: Sequence[MeasurementWindow]) -> float:
    """Share of the windows in which the core was busy with none of the runs; NaN where the kernel does not say."""
    wall_s = stolen_s = 0.0
    for window in windows:
        edges_s = np.array([window.counted_from_s, window.end_s])
        busy_s = max((float(np.ptp(_interpolate(run.samples, CORE_BUSY, edges_s))) for run in runs), default=NAN)
        used_s = sum(float(np.ptp(_interpolate(run.samples, CPU, edges_s))) for run in runs)
        stolen_s += busy_s - used_s
        wall_s += float(np.ptp(edges_s))
    return min(1.0, max(0.0, stolen_s / wall_s)) if wall_s and not math.isnan(stolen_s) else NAN


def _nan_for_none(value: float | None) -> float:
    return NAN if value is None else value


def _interpolate(samples: NDArray[np.float64], column: int, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """A column of the samples at given times, linear in between; NaN where there are no samples."""
    return np.interp(times_s, samples[:, TIME], samples[:, column]) if len(samples) else np.full(len(times_s), NAN)
