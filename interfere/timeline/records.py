"""What runs on a device, in order: kernels with the gap after each, the streams that bring them, and what came of it.

Laws: a timeline is the whole truth of one job alone, so its solo time is the sum of its kernels and gaps; a kernel
keeps its identity (name, grid, block) whatever is known about its times.
"""

import math
from dataclasses import dataclass

from interfere.errors import Violation
from interfere.records import NAN
from interfere.records.checks import check, number_violations, text_violations

SHORTEST_S = 1e-9  # profilers count in nanoseconds
MEASURED = "as measured"
HIGHEST_LEVEL = 9  # FIKIT keeps ten queues (Wu 2023)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells kernels apart; `sm_used` where a format names that instead of a grid (Orion's does), else NaN."""

    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    sm_used: float = -1.0  # -1 is unknown: NaN would make equal identities differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One launch: how long it runs alone, how long the device then waits for the next one, what it fills."""

    identity: Identity
    duration_s: float
    gap_s: float = 0.0
    sm_frac: float = 1.0  # share of the multiprocessors it fills; 1 where unknown: then it leaves no room
    bandwidth_frac: float = 0.0  # share of the memory bandwidth it draws alone

    def __post_init__(self) -> None:
        bad = number_violations(self, "duration_s", low=SHORTEST_S, nan=False)
        bad += number_violations(self, "gap_s", "sm_frac", "bandwidth_frac", nan=False)
        bad += [
            Violation(field=name, what="must be a share", value=repr(getattr(self, name)), remedy="between 0 and 1")
            for name in ("sm_frac", "bandwidth_frac")
            if getattr(self, name) > 1
        ]
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The kernels of one job alone, in launch order. `order` and `gaps` say where either is not as measured."""

    name: str
    kernels: tuple[Kernel, ...]
    order: str = MEASURED
    gaps: str = MEASURED

    def __post_init__(self) -> None:
        bad = text_violations(self, "name")
        if not self.kernels:
            bad.append(
                Violation(field="kernels", what="a timeline has none", value=self.name, remedy="give one at least")
            )
        check(bad)

    @property
    def busy_s(self) -> float:
        """Sum of the kernels."""
        return math.fsum(kernel.duration_s for kernel in self.kernels)

    @property
    def solo_s(self) -> float:
        """Time of one round alone: kernels and gaps."""
        return math.fsum(kernel.duration_s + kernel.gap_s for kernel in self.kernels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One job on the device: its true timeline, and what a planner believes about it where that differs."""

    timeline: Timeline
    priority: int = 0  # higher goes first
    start_s: float = 0.0
    rounds: int | None = 1  # how often the timeline runs; None: as long as anybody else does
    believed: Timeline | None = None  # SK and SG that a planner reads; default: the truth
    host_waits: bool = False  # for each kernel, also where the policy lets hosts run ahead

    def __post_init__(self) -> None:
        bad = number_violations(self, "start_s", nan=False)
        if not 0 <= self.priority <= HIGHEST_LEVEL:
            bad.append(
                Violation(
                    field="priority",
                    what="unknown level",
                    value=repr(self.priority),
                    remedy=f"0 to {HIGHEST_LEVEL}, the highest goes first",
                )
            )
        if self.rounds is not None and self.rounds < 1:
            bad.append(Violation(field="rounds", what="must be ≥ 1", value=repr(self.rounds), remedy="1, or None"))
        if self.believed is not None and len(self.believed.kernels) != len(self.timeline.kernels):
            bad.append(
                Violation(
                    field="believed",
                    what="must have the kernels of the timeline",
                    value=f"{len(self.believed.kernels)} ≠ {len(self.timeline.kernels)}",
                    remedy="predict it from the same timeline",
                )
            )
        check(bad)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One stretch in which a kernel ran without a break."""

    stream: int
    kernel: int  # index in the timeline
    round: int
    start_s: float
    end_s: float
    in_gap: bool  # while a stream of higher priority had none ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one stream, up to its end or the end of the replay."""

    name: str
    priority: int
    finished: bool
    elapsed_s: float  # since its start
    alone_s: float  # what the same progress takes alone
    kernels: int  # that ended
    worked_s: float  # of its kernels, in seconds of a device of its own
    waited_s: float  # a kernel was ready and did not run at all
    gap_s: float  # none of its kernels was ready
    gap_used_s: float  # thereof: others ran
    filled: int  # of its kernels, that began in the gap of a stream of higher priority

    @property
    def slowdown(self) -> float:
        """Time beside the others ÷ time alone; NaN before any progress."""
        return self.elapsed_s / self.alone_s if self.alone_s > 0 else NAN

    @property
    def speed(self) -> float:
        """1/slowdown; 0 before any progress."""
        return self.alone_s / self.elapsed_s if self.elapsed_s > 0 else NAN


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One replay: outcomes in the order of the streams, and the spans that were asked for."""

    policy: str
    outcomes: tuple[Outcome, ...]
    end_s: float
    idle_s: float  # nobody ran, switches included
    spans: tuple[Span, ...] = ()
