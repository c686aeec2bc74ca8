"""From the marks and samples of runs to a profile and to blocks: pure functions, no clock and no process.

Step times come from marks, which lie at ends of steps, so they are exact means over whole steps. CPU time comes from
samples of the whole tree, linear in between. What third processes took of a pinned core is what the kernel says the
core was busy, less what our trees used.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interfere.profiling.protocol import EDGE_S, MAX_DRIFT, MAX_STEAL, MIN_OVERLAP, Side, Window, read_side
from interfere.profiling.trace import Event, Span, whole_steps
from interfere.progress import Mark
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, NAN, JobProfile

SOURCE = "command"
MIN_STEPS = 20  # in every window: the mean of 20 steps that vary by 20 % each is known to 4.5 %
MIN_MARKS = 6  # in every window: five stretches between marks, so that output which comes in bursts is found out
SPLITS = 5  # of a window alone, for the spread of the step time


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run of a command, as arrays."""

    name: str
    trace: NDArray[np.float64]  # float64[e, 4]: see `interfere.profiling.trace`
    samples: NDArray[np.float64]  # float64[s, 3]: monotonic seconds, CPU seconds of the tree, busy seconds of the core
    private_peak_bytes: float
    strayed: int  # most processes at once that might run on other cores


def run_facts(
    name: str, marks: Sequence[Mark], samples: Sequence[Mapping[str, Any]], start_s: float, end_s: float
) -> RunFacts:
    """Arrange what was recorded. `end_s` is when the command ended or was told to."""
    table = np.array(
        [(row["monotonic_s"], row["cpu_s"], _number(row["core_busy_s"])) for row in samples], dtype=np.float64
    ).reshape(-1, 3)
    table[:, 1] = np.maximum.accumulate(table[:, 1])  # a child ended between two looks: its time moves to its parent
    steps = [(start_s, 0.0, Event.START)]
    steps += [(mark.monotonic_s, mark.steps, Event.STEP) for mark in marks if mark.monotonic_s <= end_s]
    steps.append((end_s, steps[-1][1], Event.STOP))
    times = np.array([time for time, _, _ in steps])
    return RunFacts(
        name=name,
        trace=np.column_stack(
            [times, _at(table, 1, times), [count for _, count, _ in steps], [float(kind) for _, _, kind in steps]]
        ),
        samples=table,
        private_peak_bytes=max((row["private_bytes"] for row in samples), default=NAN),
        strayed=max((row["strayed"] for row in samples), default=0),
    )


def profile(
    runs: Sequence[tuple[RunFacts, Window]], device_type: str, *, pinned: bool
) -> tuple[JobProfile | None, float, str]:
    """Profile of a command from its windows alone, the share of the core that others took, and a reason to refuse.

    CPU time and memory speak about the device only where that is a pinned core; elsewhere they stay unknown.
    """
    spans, parts = [], []
    for run, window in runs:
        span = whole_steps(run.trace, window.start_s + EDGE_S, window.end_s)
        if reason := few_steps(run, window, span):
            return None, NAN, reason
        assert span is not None
        spans.append(span)
        edges = np.linspace(window.start_s + EDGE_S, window.end_s, SPLITS + 1)
        parts += [s.wall_s / s.steps for a, b in pairwise(edges) if (s := whole_steps(run.trace, a, b))]
    wall, cpu, steps = (sum(getattr(span, field) for span in spans) for field in ("wall_s", "cpu_s", "steps"))
    found = JobProfile(
        workload=runs[0][0].name,
        device_type=device_type,
        source=SOURCE,
        step_time_s=wall / steps,
        step_time_sd_s=float(np.std(parts, ddof=1)) if len(parts) > 1 else NAN,
        busy_frac=min(1.0, cpu / wall) if pinned else NAN,
        memory_peak_bytes=max(run.private_peak_bytes for run, _ in runs) if pinned else NAN,
    )
    steal = max(stolen_frac([run], [window]) for run, window in runs) if pinned else NAN
    return found, steal, next(filter(None, (stray(run) for run, _ in runs if pinned)), "")


def few_steps(run: RunFacts, window: Window, span: Span | None) -> str:
    """Why a window holds too little; empty when it does not."""
    steps = span.steps if span else 0
    times = run.trace[run.trace[:, 3] == Event.STEP, 0]
    marks = int(((times >= window.start_s + EDGE_S) & (times <= window.end_s)).sum())
    if steps < MIN_STEPS:
        return f"{run.name}: {steps} whole steps in a window, {MIN_STEPS} needed; use longer windows"
    if marks < MIN_MARKS:
        return f"{run.name}: {marks} marks in a window, {MIN_MARKS} needed; does its output come in bursts?"
    return ""


def stray(run: RunFacts) -> str:
    """Why a run does not speak about one core; empty when it does."""
    return f"{run.name}: {run.strayed} of its processes left the core they were pinned to" if run.strayed else ""


def stolen_frac(runs: Sequence[RunFacts], windows: Sequence[Window]) -> float:
    """Share of the windows in which the core was busy with neither of the runs; NaN where the kernel does not say."""
    wall = stolen = 0.0
    for window in windows:
        edges = np.array([window.start_s + EDGE_S, window.end_s])
        busy = max((float(np.ptp(_at(run.samples, 2, edges))) for run in runs), default=NAN)
        used = sum(float(np.ptp(_at(run.samples, 1, edges))) for run in runs)
        stolen += busy - used
        wall += float(np.ptp(edges))
    return min(1.0, max(0.0, stolen / wall)) if wall and not math.isnan(stolen) else NAN


def read_pair(
    runs: tuple[RunFacts, RunFacts], windows: Sequence[Window], drift_frac: float, *, pinned: bool
) -> tuple[tuple[Side, Side], float, str]:
    """Both sides of a block A · AB · B, the share of the core that others took, and a reason to refuse; empty: none."""
    first, second = runs
    alone_a, shared, alone_b = windows
    sides = (
        read_side(first.name, first.trace, second.trace, [alone_a], [shared]),
        read_side(second.name, second.trace, first.trace, [alone_b], [shared]),
    )
    steal = stolen_frac(runs, windows) if pinned else NAN
    reasons = [
        reason
        for run, side, alone in zip(runs, sides, (alone_a, alone_b), strict=True)
        for reason in _side_reasons(run, side, (alone, shared), pinned=pinned)
    ]
    if steal > MAX_STEAL:
        reasons.append(f"other processes took {steal:.0%} of the core, at most {MAX_STEAL:.0%} allowed")
    if abs(drift_frac) >= MAX_DRIFT:
        reasons.append(f"the clock drifted {drift_frac:+.1%} within the block, under {MAX_DRIFT:.0%} allowed")
    return sides, steal, next(filter(None, reasons), "")


def _side_reasons(run: RunFacts, side: Side, windows: Sequence[Window], *, pinned: bool) -> Iterator[str]:
    """Everything that one side may be refused for; empty texts where it is well."""
    for window in windows:
        yield few_steps(run, window, whole_steps(run.trace, window.start_s + EDGE_S, window.end_s))
    if side.overlap_frac <= MIN_OVERLAP:
        yield f"{side.workload}: the other ran {side.overlap_frac:.0%} of the time, over {MIN_OVERLAP:.0%} needed"
    if not MIN_SLOWDOWN <= side.slowdown <= MAX_SLOWDOWN:
        yield f"{side.workload}: slowdown {side.slowdown:.3g} is out of [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
    if pinned:
        yield stray(run)


def nothing(name: str) -> Side:
    """A side of a block that never came to its windows."""
    return Side(
        workload=name,
        steps_alone=0,
        wall_alone_s=0.0,
        cpu_alone_s=0.0,
        steps_shared=0,
        wall_shared_s=0.0,
        cpu_shared_s=0.0,
        chunks_shared=0,
        overlap_frac=0.0,
    )


def _number(value: float | None) -> float:
    return NAN if value is None else value


def _at(table: NDArray[np.float64], column: int, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """A column of the samples at given times, linear in between; NaN where there are none."""
    return np.interp(times, table[:, 0], table[:, column]) if len(table) else np.full(len(times), NAN)
