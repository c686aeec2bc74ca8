"""What a profiler measures before rows are made of it: a workload alone, and one block of a pair.

A block measures both jobs of a pair alone and together within a few seconds, so that slow changes of the machine touch
both sides of a slowdown alike. Its fields are those of a line in `raw/blocks.jsonl`.
"""

import math
from dataclasses import dataclass

from interfere.records.facts import JobProfile

WorkloadPair = tuple[str, str]  # names of two workloads
StepChunk = tuple[float, float, float, float, float]  # window index, start since the block's, wall s, CPU s, steps


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloMeasurement:
    """The profile of one workload, and the share of the core that third processes took meanwhile (NaN: unknown)."""

    profile: JobProfile
    steal_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSide:
    """What one job of the pair did in one block: sums over whole steps, alone and beside the other."""

    workload: str
    steps_alone: int
    wall_alone_s: float
    cpu_alone_s: float
    steps_shared: int
    wall_shared_s: float
    cpu_shared_s: float
    chunks_shared: int
    overlap_frac: float  # share of the shared time in which the other job's loop ran

    @property
    def slowdown(self) -> float:
        """Step time beside the other job over step time alone; NaN where a window held no whole step."""
        if not (self.steps_alone and self.steps_shared):
            return math.nan
        return (self.wall_shared_s / self.steps_shared) / (self.wall_alone_s / self.steps_alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairBlock:
    """One measured block of a pair. `reason` is empty for an accepted block, else the quality gate that it failed."""

    pass_index: int
    attempt: int
    started_at_s: float  # unix time
    window_s: float
    sides: tuple[BlockSide, BlockSide]
    steal_frac: float
    drift_frac: float
    reason: str
    chunks: tuple[tuple[StepChunk, ...], tuple[StepChunk, ...]]

    @property
    def key(self) -> frozenset[str]:
        """The unordered pair; one name for a self pair."""
        return frozenset(side.workload for side in self.sides)

    @property
    def accepted(self) -> bool:
        """Whether the block passed every quality gate."""
        return not self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRequest:
    """The next block to measure: which pair, in which pass, which attempt, and what was measured of it before."""

    pair: WorkloadPair  # in the order in which the two jobs are started
    pass_index: int
    attempt: int = 0  # 0, then one more for each block of this pair and pass that a gate rejected
    earlier: tuple[PairBlock, ...] = ()  # blocks of the same pair, from which a profiler may learn how long to measure
