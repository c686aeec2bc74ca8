"""Traces and blocks made by hand, of jobs whose steps and times are known."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from interfere.profiling.trace import Event
from interfere.records import BlockSide, MeasuredBlock, SideSlice

SIDE_SLICE = SideSlice(
    alone=True,
    start_s=0.0,
    steps=10,
    wall_s=0.1,
    paused_s=0.0,
    cpu_s=0.1,
    taken_s=0.0,
    clock_before=1e-5,
    clock_after=1e-5,
    overlap_s=0.1,
)


def steady(
    start_s: float, end_s: float, *, step_s: float, cpu_frac: float = 1.0, pause_s: float = 0.0
) -> NDArray[np.float64]:
    """A loop from start to end: each step is busy, then pauses; `cpu_frac` of its busy time is on the CPU."""
    rows = [(start_s, 0.0, 0.0, Event.START)]
    now, cpu, steps = start_s, 0.0, 0
    while now < end_s - 1e-9:
        busy = step_s - pause_s
        cpu += busy * cpu_frac
        if pause_s:
            rows += [(now + busy, cpu, steps, Event.PAUSE), (now + step_s, cpu, steps, Event.RESUME)]
        now, steps = now + step_s, steps + 1
        rows.append((now, cpu, steps, Event.STEP))
    rows.append((now, cpu, steps, Event.STOP))
    return np.array(rows, dtype=np.float64)


def joined(*traces: NDArray[np.float64]) -> NDArray[np.float64]:
    """One worker's runs, one after the other: CPU time and steps go on counting."""
    rows = [traces[0]]
    for trace in traces[1:]:
        shifted = trace.copy()
        shifted[:, 1:3] += rows[-1][-1, 1:3]
        rows.append(shifted)
    return np.concatenate(rows)


def side(workload: str, slowdown: float, *, steps: int = 100) -> BlockSide:
    """A side with steps of 10 ms alone."""
    return BlockSide(
        workload=workload,
        steps_alone=steps,
        wall_alone_s=0.01 * steps,
        cpu_alone_s=0.9,
        steps_shared=steps,
        wall_shared_s=0.01 * steps * slowdown,
        cpu_shared_s=0.9,
        slices_counted=1,
        log_error=0.01,
        overlap_frac=1.0,
        slices=(SIDE_SLICE,),
    )


def block(
    first: str,
    second: str,
    slowdowns: tuple[float, float],
    *,
    pass_index: int = 0,
    attempt: int = 0,
    reason: str = "",
    steps: int = 100,
) -> MeasuredBlock:
    """A measured block."""
    return MeasuredBlock(
        pass_index=pass_index,
        attempt=attempt,
        started_at_s=1.7e9 + pass_index,
        window_s=0.55,
        sides=(side(first, slowdowns[0], steps=steps), side(second, slowdowns[1], steps=steps)),
        steal_frac=0.01,
        drift_frac=0.001,
        reason=reason,
    )


def group_block(
    names: tuple[str, ...],
    slowdowns: tuple[float, ...],
    *,
    pass_index: int = 0,
    attempt: int = 0,
    reason: str = "",
) -> MeasuredBlock:
    """A measured block of any number of jobs."""
    sides = tuple(map(side, names, slowdowns))
    first = block(names[0], names[1], slowdowns[:2], pass_index=pass_index, attempt=attempt, reason=reason)  # type: ignore[arg-type]
    return replace(first, sides=sides)
