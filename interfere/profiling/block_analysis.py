"""Computes slowdowns from the traces of one block, and checks the block's quality gates: no clock and no process.

A block of the pair (A, B) is four windows: A alone, both, B alone, both (A · AB · B · AB); one of three jobs five
(A · ABC · B · C · ABC), and so on. For each side

    slowdown = (wall time / steps, beside the others) ÷ (wall time / steps, alone),

both over whole steps, the first moments of each window cut. Third processes stole what is left of the time in which one
of the jobs of a core wanted it after the CPU time of all is subtracted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interfere.profiling.quality_gates import (
    Gate,
    GateFailure,
    drift_failure,
    first_failure,
    overlap_failure,
    slowdown_failure,
    steal_failure,
)
from interfere.profiling.trace import (
    Trace,
    busy_intervals,
    covered_s,
    cpu_time_s,
    running_intervals,
    step_chunks,
    whole_steps,
)
from interfere.records import BlockSide, MeasuredBlock, StepChunk
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

EDGE_S = 0.03  # cut from the start of each window: caches refill after jobs were started or stopped
MIN_CHUNKS = 20  # wanted in the shared windows; a job with long steps cannot have them, then MIN_STEPS counts
MIN_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementWindow:
    """One window of a block, from the controller's monotonic clock."""

    running: frozenset[int]  # positions in the group of the jobs whose loops run
    start_s: float
    end_s: float

    @property
    def counted_from_s(self) -> float:
        """Start of what counts: the first moments of the window are cut."""
        return self.start_s + EDGE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAnalysis:
    """All sides of a block, the share of a core that third processes took, and the failed gate's reason."""

    sides: tuple[BlockSide, ...]
    steal_frac: float
    reason: str  # empty: the block is accepted


def window_plan(size: int) -> tuple[frozenset[int], ...]:
    """Who runs in each window of a block of `size` jobs: half of them alone, all, the others alone, all.

    For a pair this is A · AB · B · AB, for three jobs A · ABC · B · C · ABC.
    """
    everyone = frozenset(range(size))
    alone = [frozenset({k}) for k in range(size)]
    return (*alone[: size // 2], everyone, *alone[size // 2 :], everyone)


def analyse_block(
    names: Sequence[str],
    traces: Sequence[Trace],
    windows: Sequence[MeasurementWindow],
    drift_frac: float,
    cores: Sequence[int] = (),
    mode: SharingMode = DEFAULT_MODE,
) -> BlockAnalysis:
    """Slowdowns and quality of one block, from its workers' traces; `cores` says where each ran, default: on one."""
    everyone = frozenset(range(len(names)))
    shared = [window for window in windows if window.running == everyone]
    sides = tuple(
        block_side(
            name,
            traces[k],
            [trace for other, trace in enumerate(traces) if other != k],
            [window for window in windows if window.running == {k}],
            shared,
        )
        for k, name in enumerate(names)
    )
    cores = cores or (0,) * len(names)
    steal_frac = max(
        core_steal_frac([trace for trace, on in zip(traces, cores, strict=True) if on == core], windows)
        for core in set(cores)
    )
    failure = _gate_failure(sides, steal_frac, drift_frac, mode)
    return BlockAnalysis(sides=sides, steal_frac=steal_frac, reason=failure.reason if failure else "")


def block_side(
    name: str,
    own_trace: Trace,
    other_traces: Sequence[Trace],
    alone_windows: Sequence[MeasurementWindow],
    shared_windows: Sequence[MeasurementWindow],
) -> BlockSide:
    """What one job did in its windows alone and in the shared ones, from its own trace and those of the others."""
    alone = [span for w in alone_windows if (span := whole_steps(own_trace, w.counted_from_s, w.end_s))]
    shared = [span for w in shared_windows if (span := whole_steps(own_trace, w.counted_from_s, w.end_s))]
    wall_shared_s = sum(span.wall_s for span in shared)
    overlap_s = min(
        sum(covered_s(running_intervals(other), span.start_s, span.end_s) for span in shared) for other in other_traces
    )
    return BlockSide(
        workload=name,
        steps_alone=sum(span.steps for span in alone),
        wall_alone_s=sum(span.wall_s for span in alone),
        cpu_alone_s=sum(span.cpu_s for span in alone),
        steps_shared=sum(span.steps for span in shared),
        wall_shared_s=wall_shared_s,
        cpu_shared_s=sum(span.cpu_s for span in shared),
        chunks_shared=sum(len(step_chunks(own_trace, w.counted_from_s, w.end_s)) for w in shared_windows),
        overlap_frac=overlap_s / wall_shared_s if wall_shared_s else 0.0,
    )


def empty_side(name: str) -> BlockSide:
    """The side of a block that was broken off before its windows."""
    return BlockSide(
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


def core_steal_frac(traces: Sequence[Trace], windows: Sequence[MeasurementWindow]) -> float:
    """Share of the windows in which one of our jobs wanted the core and none of them had it."""
    wall_s = stolen_s = 0.0
    for window in windows:
        start_s, end_s = window.counted_from_s, window.end_s
        wanted_s = covered_s(np.concatenate([busy_intervals(trace) for trace in traces]), start_s, end_s)
        used_s = sum(cpu_time_s(trace, start_s, end_s) for trace in traces)
        stolen_s += max(0.0, wanted_s - used_s)
        wall_s += end_s - start_s
    return stolen_s / wall_s if wall_s > 0 else 0.0


def block_chunks(traces: Sequence[Trace], windows: Sequence[MeasurementWindow]) -> tuple[tuple[StepChunk, ...], ...]:
    """Chunks of all sides of a block, rounded to microseconds, as the measurement log keeps them."""
    block_start_s, sides = windows[0].start_s, []
    for trace in traces:
        chunks: list[StepChunk] = []
        for k, window in enumerate(windows):
            for start_s, wall_s, cpu_s, steps in step_chunks(trace, window.start_s, window.end_s):
                chunk = (float(k), round(start_s - block_start_s, 6), round(wall_s, 6), round(cpu_s, 6), float(steps))
                chunks.append(chunk)
        sides.append(tuple(chunks))
    return tuple(sides)


def held_too_few_steps(block: MeasuredBlock) -> bool:
    """Whether a block was rejected for its number of steps: a longer one may then be accepted."""
    failure = _gate_failure(block.sides, block.steal_frac, block.drift_frac, block.mode)
    return failure is not None and failure.gate is Gate.ENOUGH_STEPS


def _gate_failure(
    sides: tuple[BlockSide, ...], steal_frac: float, drift_frac: float, mode: SharingMode
) -> GateFailure | None:
    """The first gate that fails. In mode `priority` only the important job, the first, must have made its steps.

    The other may wait through a whole window, so that not even the start of its loop is in its trace: that is the
    effect to be measured, and its own row says that it has no slowdown.
    """
    if mode.properties.orders_jobs:
        side_failures = [_steps_failure(sides[0]), slowdown_failure(sides[0])]
    else:
        side_failures = [
            failure
            for side in sides
            for failure in (_steps_failure(side), overlap_failure(side), slowdown_failure(side))
        ]
    # Steal comes before drift: a third process causes both, and the user can do something about it.
    return first_failure([*side_failures, steal_failure(steal_frac), drift_failure(drift_frac)])


def _steps_failure(side: BlockSide) -> GateFailure | None:
    steps = min(side.steps_alone, side.steps_shared)
    if steps >= MIN_STEPS or side.chunks_shared >= MIN_CHUNKS:
        return None
    reason = f"{side.workload}: {steps} whole steps in a window, {MIN_STEPS} needed; use longer blocks"
    return GateFailure(gate=Gate.ENOUGH_STEPS, reason=reason)
