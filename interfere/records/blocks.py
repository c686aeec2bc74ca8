"""What a profiler measures before rows are made of it: a workload alone, and one block of a pair or a group.

A block measures all jobs of a group alone and together within a few seconds, in slices of a fraction of a second, so
that slow changes of the machine touch both sides of a slowdown alike. Its fields are those of a line in
`raw/blocks.jsonl`.
"""

import math
from collections.abc import Iterable

from interfere.records.checks import check
from interfere.records.facts import JobProfile
from interfere.records.record import record
from interfere.sharing_modes import DEFAULT_MODE, SharingMode, set_sharing_mode

WorkloadPair = tuple[str, str]  # names of two workloads
WorkloadGroup = tuple[str, ...]  # names of two or more workloads, one as often as it takes part


@record
class SoloMeasurement:
    """The profile of one workload, and the share of the core that third processes took meanwhile (NaN: unknown)."""

    profile: JobProfile
    steal_frac: float


@record
class SideSlice:
    """The measurement of one job in one slice, over whole steps. Its wall time is the sum of its pauses, its CPU time,
    and its waiting for the core."""

    alone: bool
    start_s: float  # since the start of the block
    steps: int
    wall_s: float
    paused_s: float  # the job waited of its own accord
    cpu_s: float  # NaN where the device is no CPU core
    taken_s: float  # of the waiting, what third processes caused
    clock_before: float  # CPU seconds of a fixed piece of work on the same core before the slice; NaN: not measured
    clock_after: float
    overlap_s: float  # of the wall time, how long the loops of all other jobs ran


@record
class BlockSide:
    """The measurement of one job in one block: sums over the valid slices, alone and together with the neighbours.

    Wall times are undisturbed ones: without what third processes took, at the usual clock of the core.
    """

    workload: str
    steps_alone: int
    wall_alone_s: float
    cpu_alone_s: float
    steps_shared: int
    wall_shared_s: float
    cpu_shared_s: float
    slices_counted: int  # of `slices`; the others were disturbed
    log_error: float  # standard error of the logarithm of the slowdown
    overlap_frac: float  # share of the shared time in which the others' loops ran: of several, the least
    slices: tuple[SideSlice, ...] = ()

    @property
    def slowdown(self) -> float:
        """The step time with neighbours divided by the step time alone; NaN where no slice held a whole step."""
        if not (self.steps_alone and self.steps_shared):
            return math.nan
        return (self.wall_shared_s / self.steps_shared) / (self.wall_alone_s / self.steps_alone)

    @property
    def dropped_frac(self) -> float:
        """Share of the slices that were too disturbed to count."""
        return 1.0 - self.slices_counted / len(self.slices) if self.slices else 0.0


@record
class MeasuredBlock:
    """One measured block of a pair or a group. `reason` is set only where its slowdowns are invalid.

    In a mode that orders jobs (`priority`) the first side is the important job.
    """

    pass_index: int
    attempt: int
    started_at_s: float  # unix time
    window_s: float  # of each slice in which one job runs alone
    sides: tuple[BlockSide, ...]  # one of each job of the group
    steal_frac: float  # share of the time in which third processes had the core while a job of the group wanted it
    drift_frac: float  # slowest over fastest clock of the core, less one
    reason: str
    mode: SharingMode = DEFAULT_MODE

    def __post_init__(self) -> None:
        check(set_sharing_mode(self))

    @property
    def key(self) -> WorkloadGroup:
        """The names of the jobs in sorted order; in a mode that orders jobs, the important one first."""
        return group_key((side.workload for side in self.sides), self.mode)

    @property
    def accepted(self) -> bool:
        """Whether the slowdowns of the block have a meaning."""
        return not self.reason


def group_key(members: Iterable[str], mode: SharingMode = DEFAULT_MODE) -> WorkloadGroup:
    """Return the jobs of a group in sorted order, so that equal groups have equal keys.

    In a mode that orders jobs the given order is kept, because it says which job is important.
    """
    return tuple(members) if mode.properties.orders_jobs else tuple(sorted(members))


@record
class BlockRequest:
    """The next block to measure: its group, pass and attempt, and the earlier measurements of the group."""

    members: WorkloadGroup  # in the order in which the jobs are started
    pass_index: int
    attempt: int = 0  # 0, then one more for each block of this group and pass that was rejected
    earlier: tuple[MeasuredBlock, ...] = ()  # of the same group, from which a profiler may learn how long to measure
