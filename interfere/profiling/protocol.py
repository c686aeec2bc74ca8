"""From the traces of one block to slowdowns, gates and intervals: pure functions, no clock and no process.

A block of the pair (A, B) is four windows A · AB · B · AB. For each side
``slowdown = (wall / steps, beside the other) ÷ (wall / steps, alone)``, both over whole steps with the edges cut.
Gates per block: the other loop ran more than 95 % of the shared time; enough chunks; the clock drifted less than 3 %;
third processes took little: over the union of both busy stretches, wall − own CPU − partner CPU.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from interfere.profiling.trace import busy_stretches, chunks, covered, cpu_between, running_stretches, whole_steps
from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN

EDGE_S = 0.03  # cut from the start of each window: caches refill, the flip settles
MIN_OVERLAP = 0.95
MIN_CHUNKS = 20  # wanted in the shared windows; a job with long steps cannot have them, then MIN_STEPS counts
MIN_STEPS = 5
MAX_DRIFT = 0.03
MAX_STEAL = (
    0.10  # ten per cent of a stolen core moves a slowdown by about as much as a block's own noise (CV 5 %) twice
)
WARN_STEAL = 0.03
TARGET_HALF_WIDTH = 0.03  # of the mean log slowdown: stop here
RETRIES = 2
LONGER_REMEDY = "use longer blocks"

# 97.5 % quantiles of Student's t, degrees of freedom 1-30 (any statistics text, e.g. NIST handbook 1.3.6.7.2).
T_975 = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
    2.080,
    2.074,
    2.069,
    2.064,
    2.060,
    2.056,
    2.052,
    2.048,
    2.045,
    2.042,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One planned window of a block, as the controller's clock saw it."""

    phase: str  # "A", "AB" or "B"
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one job of the pair did in one block: sums over whole steps, alone and beside the other."""

    workload: str
    steps_alone: int
    wall_alone_s: float
    cpu_alone_s: float
    steps_shared: int
    wall_shared_s: float
    cpu_shared_s: float
    chunks_shared: int
    overlap_frac: float  # share of the shared time in which the other's loop ran

    @property
    def slowdown(self) -> float:
        """Step time beside the other over step time alone; NaN where a window held no whole step."""
        if not (self.steps_alone and self.steps_shared):
            return math.nan
        return (self.wall_shared_s / self.steps_shared) / (self.wall_alone_s / self.steps_alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A block read: both sides, what third processes took, and the reason of refusal (empty: passed)."""

    sides: tuple[Side, Side]
    steal_frac: float
    drift_frac: float
    reason: str


def read_side(
    name: str, own: NDArray[np.float64], other: NDArray[np.float64], alone: Sequence[Window], shared: Sequence[Window]
) -> Side:
    """What one job did in its windows alone and in the shared ones, from its own trace and the other's."""
    alone_spans = [s for w in alone if (s := whole_steps(own, w.start_s + EDGE_S, w.end_s))]
    shared_spans = [s for w in shared if (s := whole_steps(own, w.start_s + EDGE_S, w.end_s))]
    wall = sum(s.wall_s for s in shared_spans)
    ran = running_stretches(other)
    overlap = sum(covered(ran, s.start_s, s.end_s) for s in shared_spans)
    return Side(
        workload=name,
        steps_alone=sum(s.steps for s in alone_spans),
        wall_alone_s=sum(s.wall_s for s in alone_spans),
        cpu_alone_s=sum(s.cpu_s for s in alone_spans),
        steps_shared=sum(s.steps for s in shared_spans),
        wall_shared_s=wall,
        cpu_shared_s=sum(s.cpu_s for s in shared_spans),
        chunks_shared=sum(len(chunks(own, w.start_s + EDGE_S, w.end_s)) for w in shared),
        overlap_frac=overlap / wall if wall else 0.0,
    )


def stolen_frac(traces: Sequence[NDArray[np.float64]], windows: Sequence[Window]) -> float:
    """Share of the windows that third processes took: one of ours wanted the core and none of ours had it."""
    wall = stolen = 0.0
    for window in windows:
        start_s, end_s = window.start_s + EDGE_S, window.end_s
        wanted = covered(np.concatenate([busy_stretches(t) for t in traces]), start_s, end_s)
        had = sum(cpu_between(t, start_s, end_s) for t in traces)
        stolen += max(0.0, wanted - had)
        wall += end_s - start_s
    return stolen / wall if wall > 0 else 0.0


def estimate(
    names: tuple[str, str],
    traces: tuple[NDArray[np.float64], NDArray[np.float64]],
    windows: Sequence[Window],
    drift_frac: float,
) -> Estimate:
    """Read one block."""
    by_phase = {phase: [w for w in windows if w.phase == phase] for phase in ("A", "AB", "B")}
    first, second = traces
    sides = (
        read_side(names[0], first, second, by_phase["A"], by_phase["AB"]),
        read_side(names[1], second, first, by_phase["B"], by_phase["AB"]),
    )
    steal = stolen_frac(traces, windows)
    return Estimate(sides=sides, steal_frac=steal, drift_frac=drift_frac, reason=_refusal(sides, steal, drift_frac))


def _refusal(sides: tuple[Side, Side], steal_frac: float, drift_frac: float) -> str:
    for side in sides:
        fewest = min(side.steps_alone, side.steps_shared)
        if fewest < MIN_STEPS and side.chunks_shared < MIN_CHUNKS:
            return f"{side.workload}: {fewest} whole steps in a window, {MIN_STEPS} needed; {LONGER_REMEDY}"
        if side.overlap_frac <= MIN_OVERLAP:
            return f"{side.workload}: the other ran {side.overlap_frac:.0%} of the time, over {MIN_OVERLAP:.0%} needed"
        if not MIN_SLOWDOWN <= side.slowdown <= MAX_SLOWDOWN:
            return f"{side.workload}: slowdown {side.slowdown:.3g} is out of [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
    # Before the drift: a thief causes that too, and is what the user can do something about.
    if steal_frac > MAX_STEAL:
        return f"other processes took {steal_frac:.0%} of the core, at most {MAX_STEAL:.0%} allowed"
    if not abs(drift_frac) < MAX_DRIFT:
        return f"the clock drifted {drift_frac:+.1%} within the block, under {MAX_DRIFT:.0%} allowed"
    return ""


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm; NaN of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def half_width_log(values: Sequence[float]) -> float:
    """Half of the 95 % t interval of the mean logarithm; infinite below two values."""
    if len(values) < 2:
        return math.inf
    quantile = T_975[len(values) - 2] if len(values) - 1 <= len(T_975) else 1.96
    return quantile * float(np.std(np.log(values), ddof=1)) / math.sqrt(len(values))


def is_settled(blocks: Sequence[Sequence[float]]) -> bool:
    """Whether every series of per-block slowdowns has reached the target width."""
    return all(half_width_log(series) < TARGET_HALF_WIDTH for series in blocks)
