"""What a replay runs: streams of kernels, their state while they run, and the seams to what decides and executes.

A `KernelStream` repeats a recorded timeline. An `ExecutedStream` really executes its kernels, one when the scheduler
starts it, so the duration of a kernel is known only then. Schedulers see both through `StreamState` alone: what they
may know of a kernel in advance is a `KernelPrediction`.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from interfere.errors import Violation
from interfere.records import NAN
from interfere.records.checks import check, number_violations
from interfere.timeline.timelines import KernelPrediction, Timeline

# Launches that wait on the device before the host blocks: about 1,000 per stream, as measured in
# forums.developer.nvidia.com, topic 68937. Few hosts run so far ahead, and what a queue costs others grows with its
# length: 32 launches are assumed unless a mode says otherwise.
QUEUE_LAUNCHES = 32
MAX_PRIORITY = 9  # FIKIT has ten priority queues (Wu 2023)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStream:
    """A job on the device: its true timeline, and the timeline that a scheduler predicts where that differs."""

    timeline: Timeline
    priority: int = 0  # the highest goes first
    start_s: float = 0.0
    first_gap_s: float = 0.0  # time of its host between the start and the first launch
    rounds: int | None = 1  # how often the timeline runs; None: as long as any other stream runs
    predicted: tuple[KernelPrediction, ...] = ()  # what a scheduler knows of each kernel; empty: the truth
    host_waits: bool = False  # the host waits for each kernel, also where the sharing mode lets it launch ahead

    def __post_init__(self) -> None:
        same_length = not self.predicted or len(self.predicted) == len(self.timeline.kernels)
        needs = (
            ("priority", 0 <= self.priority <= MAX_PRIORITY, f"0 to {MAX_PRIORITY}, the highest goes first"),
            ("rounds", self.rounds is None or self.rounds >= 1, "1 or more, or None"),
            ("predicted", same_length, "as many kernels as the timeline has: predict it from the same timeline"),
        )
        violations = [
            Violation(field=name, what="out of range", value=f"{getattr(self, name)!r:.80}", remedy=remedy)
            for name, is_met, remedy in needs
            if not is_met
        ]
        check(number_violations(self, "start_s", "first_gap_s", nan=False) + violations)

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.timeline.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedKernel:
    """What the execution of one kernel took."""

    run_s: float  # time of the device
    gap_s: float  # time of the host until it launches the next kernel
    is_last: bool = False  # the job launches no further kernel


class KernelSource(Protocol):
    """A job that executes its kernels in launch order. Its host waits for each kernel before it launches the next."""

    name: str

    def begin(self) -> float:
        """Run the host up to its first launch, and return the time of the host in seconds."""

    @property
    def predicted_run_s(self) -> float:
        """How long the kernel that is launched next is predicted to run."""

    @property
    def predicted_gaps_s(self) -> tuple[float, ...]:
        """Gaps that were measured after the kernel that was executed last; empty where none was."""

    def execute(self) -> ExecutedKernel:
        """Execute the next kernel, and run the host on to the launch after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedStream:
    """A job on the device whose kernels really run. Its time alone is the sum of the times that they took here."""

    source: KernelSource
    priority: int = 0
    rounds: int | None = 1  # None: the source has no end, and the replay does not wait for it

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.source.name


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


# --- the state of a replay, and what decides in it --------------------------------------------------------------------


@dataclass(slots=True)
class StreamState:
    """The state of one stream during a replay, which kernel schedulers read and never change.

    The head of a stream is its oldest kernel that is launched and not complete.
    """

    index: int
    stream: KernelStream | ExecutedStream
    durations_s: list[float]  # of a recorded round, or of all kernels that were executed so far
    gaps_s: list[float]  # after each of these kernels
    launch_ahead: int
    intercept_s: float = 0.0  # time of the host that the sharing mode adds to each launch
    start_s: float = 0.0
    first_gap_s: float = 0.0  # before the first launch; no scheduler knows its length
    started: bool = False
    launched_s: deque[float] = field(default_factory=deque)  # launch times of kernels that are not complete
    next_launch_s: float = math.inf
    solo_end_s: float = 0.0  # when a device of its own would be through with all launches and their gaps
    host_ready_s: float = 0.0  # when its host can launch the next kernel, if it may launch ahead
    launched: int = 0  # kernels launched so far, over all rounds
    completed: int = 0  # kernels complete so far, over all rounds
    head_remaining_s: float = 0.0
    head_started: bool = False
    head_in_gap: bool = False  # the head started while no stream of higher priority had a kernel ready
    last_completion_s: float = -math.inf
    finish_s: float = math.inf  # the end of its last kernel and of the gap after it
    finished: bool = False
    exhausted: bool = False  # an executed stream has no kernel after those in `durations_s`
    span_start_s: float = math.nan  # of the span that runs now
    executed_s: float = 0.0
    waited_s: float = 0.0
    gap_s: float = 0.0
    gap_used_s: float = 0.0
    filled: int = 0

    @property
    def ready(self) -> bool:
        """Whether a kernel waits or runs."""
        return bool(self.launched_s)

    @property
    def active(self) -> bool:
        """Whether the stream has started and is not finished."""
        return self.started and not self.finished

    @property
    def head(self) -> int:
        """Index of the head in `durations_s`; for an executed stream it exists once the head has started."""
        return self.completed if isinstance(self.stream, ExecutedStream) else self.completed % len(self.durations_s)

    @property
    def total_kernels(self) -> float:
        """Number of kernels over all rounds; infinite for an endless stream, and as long as it is unknown."""
        if isinstance(self.stream, ExecutedStream):
            return len(self.durations_s) if self.exhausted else math.inf
        return math.inf if self.stream.rounds is None else self.stream.rounds * len(self.durations_s)

    @property
    def predicted_run_s(self) -> float:
        """How long the head is predicted to run (FIKIT's SK)."""
        if isinstance(self.stream, ExecutedStream):
            return self.stream.source.predicted_run_s
        return self.stream.predicted[self.head].run_s if self.stream.predicted else self.durations_s[self.head]

    @property
    def predicted_gaps_s(self) -> tuple[float, ...]:
        """Equally likely lengths of the gap after the kernel that was completed last (FIKIT's SG is their mean).

        Interception lengthens every gap by its own time.
        """
        if isinstance(self.stream, ExecutedStream):
            gaps_s = self.stream.source.predicted_gaps_s
        elif not self.completed:
            gaps_s = ()
        else:
            last = (self.completed - 1) % len(self.durations_s)
            gaps_s = self.stream.predicted[last].gaps_s if self.stream.predicted else (self.gaps_s[last],)
        return tuple(gap_s + self.intercept_s for gap_s in gaps_s) if self.intercept_s else gaps_s

    @property
    def progress_s(self) -> float:
        """The time that the stream has spent on its kernels and in its gaps."""
        return self.executed_s + self.gap_s

    def start_head(self) -> None:
        """Start the head; the head of an executed stream is executed now, which tells its duration."""
        self.head_started = True
        if isinstance(self.stream, ExecutedStream):
            executed = self.stream.source.execute()
            self.durations_s.append(executed.run_s)
            self.gaps_s.append(executed.gap_s)
            self.head_remaining_s, self.exhausted = executed.run_s, executed.is_last


NOBODY = -1


@dataclass(frozen=True, slots=True)
class Turn:
    """The index of the stream that runs until the next event, or until `until_s`; `NOBODY`: none runs."""

    running: int
    until_s: float = math.inf


class Arbiter(Protocol):
    """Decides which stream runs during one replay."""

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> Turn:
        """Return the stream that runs from now on. The replay calls this at every event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelScheduler:
    """A discipline by which streams share a device."""

    name: str  # in tables and on the command line
    launch_ahead: int = 1  # launches of one stream that may wait on the device; 1: the host waits for each kernel
    overhead_frac: float = 0.0  # time of the host that intercepting launches adds, as a share of a stream's time alone

    def arbiter(self, streams: Sequence[StreamState]) -> Arbiter:
        """Return a new arbiter, for one replay of these streams."""
        raise NotImplementedError
