"""Records of a timeline replay: kernels in launch order, the streams that launch them, and the result of a replay.

Laws: a timeline describes one job alone completely, so its solo time is the sum of its kernels and gaps; a kernel keeps
its identity (name, grid, block) whatever is known about its times.
"""

import math
from dataclasses import dataclass

from interfere.errors import Violation
from interfere.records import NAN
from interfere.records.checks import check, number_violations, text_violations

MIN_KERNEL_S = 1e-9  # profilers count in nanoseconds
MEASURED = "as measured"
MAX_PRIORITY = 9  # FIKIT has ten priority queues (Wu 2023)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelIdentity:
    """The identity of a kernel: name, grid and block. Formats without a grid (Orion's) give `sm_used` instead."""

    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    sm_used: float = -1.0  # -1 is unknown: NaN would make equal identities differ


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineKernel:
    """One kernel launch: how long it runs alone, the gap until the next launch, and the share of the device it uses."""

    identity: KernelIdentity
    duration_s: float
    gap_s: float = 0.0  # after this kernel nothing is ready for so long, when the job runs alone
    sm_frac: float = 1.0  # share of the multiprocessors that it fills; 1 where unknown
    bandwidth_frac: float = 0.0  # share of the memory bandwidth that it draws alone

    def __post_init__(self) -> None:
        violations = number_violations(self, "duration_s", low=MIN_KERNEL_S, nan=False)
        violations += number_violations(self, "gap_s", "sm_frac", "bandwidth_frac", nan=False)
        violations += [
            Violation(field=name, what="must be a share", value=repr(getattr(self, name)), remedy="between 0 and 1")
            for name in ("sm_frac", "bandwidth_frac")
            if getattr(self, name) > 1
        ]
        check(violations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The kernels of one round of a job alone (a step, or a request), in launch order.

    `order` and `gaps` say in words where the launch order or the gaps are not as measured.
    """

    name: str
    kernels: tuple[TimelineKernel, ...]
    order: str = MEASURED
    gaps: str = MEASURED

    def __post_init__(self) -> None:
        violations = text_violations(self, "name")
        if not self.kernels:
            violations.append(
                Violation(field="kernels", what="a timeline has none", value=self.name, remedy="give at least one")
            )
        check(violations)

    @property
    def busy_s(self) -> float:
        """Sum of the durations of the kernels."""
        return math.fsum(kernel.duration_s for kernel in self.kernels)

    @property
    def solo_s(self) -> float:
        """Time of one round alone: kernels and gaps."""
        return math.fsum(kernel.duration_s + kernel.gap_s for kernel in self.kernels)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStream:
    """One job on the device: its true timeline and, where it differs, the timeline that a scheduler predicts."""

    timeline: Timeline
    priority: int = 0  # the highest goes first
    start_s: float = 0.0
    rounds: int | None = 1  # how often the timeline runs; None: as long as any other stream runs
    predicted: Timeline | None = None  # kernel times and gaps that a scheduler reads; None: the true ones
    host_waits: bool = False  # the host waits for each kernel, also where the sharing mode lets it launch ahead

    def __post_init__(self) -> None:
        violations = number_violations(self, "start_s", nan=False)
        if not 0 <= self.priority <= MAX_PRIORITY:
            violations.append(
                Violation(
                    field="priority",
                    what="out of range",
                    value=repr(self.priority),
                    remedy=f"0 to {MAX_PRIORITY}, the highest goes first",
                )
            )
        if self.rounds is not None and self.rounds < 1:
            violations.append(
                Violation(field="rounds", what="must be ≥ 1", value=repr(self.rounds), remedy="1 or more, or None")
            )
        if self.predicted is not None and len(self.predicted.kernels) != len(self.timeline.kernels):
            violations.append(
                Violation(
                    field="predicted",
                    what="must have as many kernels as the timeline",
                    value=f"{len(self.predicted.kernels)} ≠ {len(self.timeline.kernels)}",
                    remedy="predict it from the same timeline",
                )
            )
        check(violations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionSpan:
    """A stretch of time in which one kernel ran without interruption."""

    stream: int
    kernel: int  # index in the timeline
    round: int
    start_s: float
    end_s: float
    in_gap: bool  # the kernel began while no stream of higher priority had a kernel ready


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOutcome:
    """The progress and waiting times of one stream, up to its own end or the end of the replay."""

    name: str
    priority: int
    finished: bool
    elapsed_s: float  # since its start
    alone_s: float  # the time that the same progress takes alone
    kernels: int  # kernels that were completed
    executed_s: float  # work done on its kernels, in seconds of a device of its own
    waited_s: float  # a kernel was ready and did not run at all
    gap_s: float  # none of its kernels was ready
    gap_used_s: float  # the part of `gap_s` in which other streams ran
    filled: int  # its kernels that began in a gap of a stream of higher priority

    @property
    def slowdown(self) -> float:
        """The time beside the other streams divided by the time alone; NaN before any progress."""
        return self.elapsed_s / self.alone_s if self.alone_s > 0 else NAN

    @property
    def speed(self) -> float:
        """1 / slowdown; 0 before any progress."""
        return self.alone_s / self.elapsed_s if self.elapsed_s > 0 else NAN


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of one replay: outcomes in the order of the streams, and the spans that were recorded."""

    mode: str
    outcomes: tuple[StreamOutcome, ...]
    end_s: float
    idle_s: float  # no kernel ran, context switches included
    spans: tuple[ExecutionSpan, ...] = ()
