"""The quality gates of a measured block: what must hold for its slowdowns to count, and the reason when it does not.

Workloads of ours and programs of others share these gates; how many steps a window must hold each decides by itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from interfere.records import MAX_SLOWDOWN, MIN_SLOWDOWN, BlockSide

MIN_OVERLAP = 0.95
MAX_DRIFT = 0.03
# Ten per cent of a stolen core moves a slowdown by about twice as much as a block's own noise (CV 5 %).
MAX_STEAL = 0.10
WARN_STEAL = 0.03  # worth a warning, no reason to reject
MAX_RETRIES = 2  # of a measurement that a gate rejected


class Gate(StrEnum):
    """What a block must satisfy."""

    ENOUGH_STEPS = "enough steps"
    OVERLAP = "overlap"  # the neighbour's loop ran nearly all of the shared time
    SLOWDOWN_RANGE = "slowdown range"
    PINNED = "pinned"  # every process stayed on the measured core
    STEAL = "steal"  # third processes took little of the core
    CLOCK_DRIFT = "clock drift"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFailure:
    """The gate that a measurement failed, and the reason as people read it."""

    gate: Gate
    reason: str


def first_failure(failures: Iterable[GateFailure | None]) -> GateFailure | None:
    """The first gate that failed, in the order of the checks; None when all passed."""
    return next((failure for failure in failures if failure is not None), None)


def overlap_failure(side: BlockSide) -> GateFailure | None:
    """Rejects a side whose neighbour did not run long enough beside it."""
    if side.overlap_frac > MIN_OVERLAP:
        return None
    reason = f"{side.workload}: the other ran {side.overlap_frac:.0%} of the time, over {MIN_OVERLAP:.0%} needed"
    return GateFailure(gate=Gate.OVERLAP, reason=reason)


def slowdown_failure(side: BlockSide) -> GateFailure | None:
    """Rejects a slowdown that no table may hold."""
    if MIN_SLOWDOWN <= side.slowdown <= MAX_SLOWDOWN:
        return None
    reason = f"{side.workload}: slowdown {side.slowdown:.3g} is out of [{MIN_SLOWDOWN}, {MAX_SLOWDOWN:g}]"
    return GateFailure(gate=Gate.SLOWDOWN_RANGE, reason=reason)


def steal_failure(steal_frac: float) -> GateFailure | None:
    """Rejects a block during which third processes took too much of the core; NaN (unknown) passes."""
    if not steal_frac > MAX_STEAL:
        return None
    reason = f"other processes took {steal_frac:.0%} of the core, at most {MAX_STEAL:.0%} allowed"
    return GateFailure(gate=Gate.STEAL, reason=reason)


def drift_failure(drift_frac: float) -> GateFailure | None:
    """Rejects a block over which the clock of the core changed; NaN (not probed) passes."""
    if not abs(drift_frac) >= MAX_DRIFT:
        return None
    reason = f"the clock drifted {drift_frac:+.1%} within the block, under {MAX_DRIFT:.0%} allowed"
    return GateFailure(gate=Gate.CLOCK_DRIFT, reason=reason)
