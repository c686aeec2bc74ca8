"""What a profiler measures before rows are made of it: a workload alone, and one block of a pair or a group.

A block measures all jobs of a group alone and together within a few seconds, so that slow changes of the machine touch
both sides of a slowdown alike. Its fields are those of a line in `raw/blocks.jsonl`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from interfere.records.facts import JobProfile
from interfere.sharing_modes import DEFAULT_MODE, SharingMode

WorkloadPair = tuple[str, str]  # names of two workloads
WorkloadGroup = tuple[str, ...]  # names of two or more workloads, one as often as it takes part
StepChunk = tuple[float, float, float, float, float]  # window index, start since the block's, wall s, CPU s, steps


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloMeasurement:
    """The profile of one workload, and the share of the core that third processes took meanwhile (NaN: unknown)."""

    profile: JobProfile
    steal_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSide:
    """What one job of the group did in one block: sums over whole steps, alone and beside the others."""

    workload: str
    steps_alone: int
    wall_alone_s: float
    cpu_alone_s: float
    steps_shared: int
    wall_shared_s: float
    cpu_shared_s: float
    chunks_shared: int
    overlap_frac: float  # share of the shared time in which the others' loops ran: of several, the least

    @property
    def slowdown(self) -> float:
        """Step time beside the others over step time alone; NaN where a window held no whole step."""
        if not (self.steps_alone and self.steps_shared):
            return math.nan
        return (self.wall_shared_s / self.steps_shared) / (self.wall_alone_s / self.steps_alone)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBlock:
    """One measured block of a pair or a group. `reason` is empty for an accepted block, else the gate that it failed.

    In a mode that orders jobs (`priority`) the first side is the important job.
    """

    pass_index: int
    attempt: int
    started_at_s: float  # unix time
    window_s: float  # of each window in which one job runs alone
    sides: tuple[BlockSide, ...]  # one of each job of the group
    steal_frac: float
    drift_frac: float
    reason: str
    chunks: tuple[tuple[StepChunk, ...], ...]  # of each side
    mode: SharingMode = DEFAULT_MODE

    @property
    def key(self) -> WorkloadGroup:
        """The group: its jobs in order of their names; the important one first in a mode that orders jobs."""
        return group_key((side.workload for side in self.sides), self.mode)

    @property
    def accepted(self) -> bool:
        """Whether the block passed every quality gate."""
        return not self.reason


def group_key(members: Iterable[str], mode: SharingMode = DEFAULT_MODE) -> WorkloadGroup:
    """The jobs of a group in an order that is equal for equal groups; which job is important makes a difference."""
    return tuple(members) if mode.properties.orders_jobs else tuple(sorted(members))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRequest:
    """The next block to measure: which group, in which pass, which attempt, and what was measured of it before."""

    members: WorkloadGroup  # in the order in which the jobs are started
    pass_index: int
    attempt: int = 0  # 0, then one more for each block of this group and pass that a gate rejected
    earlier: tuple[MeasuredBlock, ...] = ()  # of the same group, from which a profiler may learn how long to measure
