"""A job whose operators really run, one at a time, when a scheduler starts them: execution-driven simulation.

The job runs in a thread of its own that stops at every launch until the scheduler starts the kernel. Only one thread
runs at a time. Law: all times are CPU time of the job's thread, so they do not depend on the load of the machine; a
wait of the job itself (`pause`) adds to the gap and is not slept.

The device executes operators. The host of a job is what its thread does between them, and has a processor of its own,
as the host of a GPU has. Small operators are launched together: a *segment* is a run of operators between two places
where the job waits or its host takes long. The scheduler sees a segment as one kernel, known by its first operator.
"""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Self

from interfere.errors import UnfitError
from interfere.profiling.workloads import Workload
from interfere.timeline.streams import ExecutedKernel, KernelStream
from interfere.timeline.timelines import (
    MIN_KERNEL_S,
    KernelIdentity,
    LaunchKey,
    PredictionTable,
    Timeline,
    TimelineKernel,
    launch_keys,
)

# Interception costs 7 to 9 % of operators of 1 ms and triples operators of 3 µs: shorter ones are launched together.
SEGMENT_S = 0.001
GAP_S = 1e-4  # a host that takes longer between two operators leaves a gap, and ends the segment
WARM_UP_ROUNDS = 2  # the first steps allocate memory and choose algorithms
NS = 1e-9


class _JobStopped(BaseException):
    """Ends the thread of a job: no `except Exception` of the job's own code may catch it."""


class ExecutedJob:
    """A workload whose operators run when they are asked for (a `KernelSource`); a context manager that ends it.

    `rounds` is the number of steps, None for a job without end. `segment_starts` are the operators that begin a
    segment; with None each operator is a kernel. `table` holds what was measured of the segments.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        rounds: int | None,
        segment_starts: frozenset[LaunchKey] | None = None,
        table: PredictionTable | None = None,
    ) -> None:
        self.name = workload.name
        self.executed_rounds: list[list[TimelineKernel]] = []  # what ran so far
        self.first_gap_s = 0.0  # before it
        self._workload, self._rounds, self._starts = workload, rounds, segment_starts
        self._table = table or PredictionTable(())
        self._thread = threading.Thread(target=self._run, name=f"job {workload.name}", daemon=True)
        self._start, self._launch = threading.Lock(), threading.Lock()  # each is released by the other thread
        self._start.acquire()
        self._launch.acquire()
        self._stopping = False
        self._failure: BaseException | None = None
        self._executed: ExecutedKernel | None = None
        self._head = self._last = self._table.unmeasured
        # The state of the job's thread.
        self._identity = KernelIdentity(name="")
        self._operators, self._segments = Counter[KernelIdentity](), Counter[KernelIdentity]()
        self._in_segment = False
        self._round_of_segment: list[TimelineKernel] = []
        self._run_s = self._paused_s = 0.0
        self._mark_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping = True
        if self._thread.is_alive():
            self._start.release()
            self._thread.join()

    # --- the scheduler's side: KernelSource ---------------------------------------------------------------------------

    def begin(self) -> float:
        """Build the workload, warm it up, and run its host up to the first launch."""
        self._thread.start()
        self.first_gap_s = self._next().gap_s
        return self.first_gap_s

    @property
    def predicted_run_s(self) -> float:
        """How long the next segment is predicted to run."""
        return self._head.run_s

    @property
    def predicted_gaps_s(self) -> tuple[float, ...]:
        """Gaps that were measured after the segment that was executed last."""
        return self._last.gaps_s

    def execute(self) -> ExecutedKernel:
        """Execute the next segment, and run the host on to the launch after it."""
        self._last = self._head
        self._start.release()
        return self._next()

    def _next(self) -> ExecutedKernel:
        self._launch.acquire()  # until the job's thread has launched or ended
        if self._failure is not None:
            raise self._failure
        assert self._executed is not None
        return self._executed

    # --- the job's thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._run_rounds()
        except _JobStopped:
            pass
        except BaseException as error:  # raised again where the scheduler waits
            self._failure = error
            self._launch.release()

    def _run_rounds(self) -> None:
        from interfere.sharing.operator_interception import intercepted_operators

        step = self._workload.build()
        for _ in range(WARM_UP_ROUNDS):
            step(lambda _: None)
        with intercepted_operators(self._before_operator, self._after_operator):
            self._mark_ns = time.thread_time_ns()
            while not self._stopping and (self._rounds is None or len(self.executed_rounds) < self._rounds):
                self.executed_rounds.append([])
                self._operators.clear()
                self._segments.clear()
                step(self._pause)
                if not self._operators:
                    raise UnfitError(
                        "a step launches no operator, so nothing can be interleaved",
                        value=self.name,
                        remedy="a workload that runs PyTorch operators",
                    )
            if self._stopping:  # by a step that swallowed the stop
                return
            self._finish_segment(is_last=True)
        self._launch.release()

    def _pause(self, seconds: float) -> None:
        self._paused_s += seconds

    def _before_operator(self, identity: KernelIdentity) -> None:
        """Launch the operator, alone or as part of the segment that runs; return when it may run.

        Operators of a job that is being stopped, in its `finally` blocks, run at once.
        """
        if self._stopping:
            return
        key = (identity, self._operators[identity])
        self._operators[identity] += 1
        if not self._in_segment or self._paused_s or self._starts is None or key in self._starts:
            self._finish_segment()
            self._head = self._table.predict(identity, self._segments[identity])
            self._segments[identity] += 1
            self._identity, self._in_segment = identity, True
            round_of_segment = self.executed_rounds[-1]
            self._launch.release()
            self._start.acquire()
            if self._stopping:
                raise _JobStopped
            self._round_of_segment = round_of_segment
        else:
            self._run_s += (time.thread_time_ns() - self._mark_ns) * NS
        self._mark_ns = time.thread_time_ns()

    def _after_operator(self) -> None:
        now_ns = time.thread_time_ns()
        self._run_s += (now_ns - self._mark_ns) * NS
        self._mark_ns = now_ns

    def _finish_segment(self, *, is_last: bool = False) -> None:
        """Tell what the segment that ran took, and the gap after it."""
        gap_s = (time.thread_time_ns() - self._mark_ns) * NS + self._paused_s
        self._executed = ExecutedKernel(run_s=max(self._run_s, MIN_KERNEL_S), gap_s=gap_s, is_last=is_last)
        if self._in_segment:
            self._round_of_segment.append(
                TimelineKernel(identity=self._identity, duration_s=self._executed.run_s, gap_s=gap_s)
            )
        self._run_s = self._paused_s = 0.0


# --- the measurement stage --------------------------------------------------------------------------------------------


def measure_rounds(workload: Workload, rounds: int) -> tuple[Timeline, ...]:
    """Return the operators of `rounds` steps of a workload that runs alone, each with the gap after it.

    Raises UnfitError for a workload without PyTorch operators.
    """
    return _measure(workload, rounds)[1]


def _measure(workload: Workload, rounds: int) -> tuple[float, tuple[Timeline, ...]]:
    """Return how long the host takes up to its first launch, and the operators of each step."""
    from interfere.sharing.operator_interception import operators_on_one_core

    with operators_on_one_core(), ExecutedJob(workload, rounds=rounds) as job:
        first_gap_s = job.begin()
        while not job.execute().is_last:
            pass
        return first_gap_s, tuple(Timeline(name=job.name, kernels=tuple(each)) for each in job.executed_rounds)


def find_segment_starts(
    rounds: Sequence[Timeline], *, segment_s: float = SEGMENT_S, shortest_gap_s: float = GAP_S
) -> frozenset[LaunchKey]:
    """Return the operators at which a segment starts.

    A segment ends after `segment_s` of mean time, or where the job leaves a gap of `shortest_gap_s` in most of the
    rounds: a single stall of the machine makes no gap.
    """
    operators = PredictionTable(rounds, by_place=True)
    starts, run_s, ended = set[LaunchKey](), 0.0, True
    for identity, place in launch_keys(rounds[-1]):
        if ended:
            starts.add((identity, place))
            run_s = 0.0
        operator = operators.predict(identity, place)
        gap_s = median(operator.gaps_s)
        run_s += operator.run_s + gap_s
        ended = run_s - gap_s >= segment_s or gap_s >= shortest_gap_s
    return frozenset(starts)


def in_segments(operators: Timeline, starts: frozenset[LaunchKey]) -> Timeline:
    """Return a round of operators as a round of segments; the host's time inside a segment is a part of it."""
    segments: list[TimelineKernel] = []
    run_s = 0.0
    for key, operator in zip(launch_keys(operators), operators.kernels, strict=True):
        if not segments or key in starts:
            run_s = operator.duration_s
            segments.append(operator)
        else:
            run_s += segments[-1].gap_s + operator.duration_s
            segments[-1] = TimelineKernel(identity=segments[-1].identity, duration_s=run_s, gap_s=operator.gap_s)
    return Timeline(name=operators.name, kernels=tuple(segments))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """A workload after the measurement stage: the rounds that it ran alone, in segments."""

    workload: Workload
    segment_starts: frozenset[LaunchKey]
    rounds: tuple[Timeline, ...]
    first_gap_s: float  # before its first launch: of a job that waits at the begin of its steps

    @property
    def all_rounds(self) -> Timeline:
        """All measured rounds, one after the other."""
        return Timeline(
            name=self.workload.name, kernels=tuple(kernel for measured in self.rounds for kernel in measured.kernels)
        )

    def table(self, *, by_place: bool) -> PredictionTable:
        """Return what a planner knows of the segments."""
        return PredictionTable(self.rounds, by_place=by_place)

    def predicted_stream(self, priority: int, *, by_place: bool, endless: bool) -> KernelStream:
        """Return the measured rounds as a stream, with what a planner knows of them."""
        table = self.table(by_place=by_place)
        return KernelStream(
            timeline=self.all_rounds,
            predicted=tuple(prediction for measured in self.rounds for prediction in table.predict_round(measured)),
            priority=priority,
            first_gap_s=self.first_gap_s,
            rounds=None if endless else 1,
            host_waits=True,
        )


def measure_job(workload: Workload, rounds: int) -> MeasuredJob:
    """Run a workload alone for `rounds` steps, and cut its steps into segments."""
    first_gap_s, measured = _measure(workload, rounds)
    starts = find_segment_starts(measured)
    return MeasuredJob(
        workload=workload,
        segment_starts=starts,
        rounds=tuple(in_segments(operators, starts) for operators in measured),
        first_gap_s=first_gap_s,
    )
