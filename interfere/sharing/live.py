"""A live process that shares a device: its operators run in turns with those of the other members.

Measurement stage: each operator takes a turn of its own, and its run time (CPU time of the thread) and the gap after it
(wall time) are recorded, for `MEASURED_ROUNDS` steps after the warm-up. Sharing stage: segments of operators take
turns, and a member that ends one publishes how long the gap after it was. Steps are told by `Session.steps`; a job that
tells none stays in the measurement stage. Operators that were never measured are tried at once, one a turn.

A job is intercepted by its calls of PyTorch's functions. Only the first and the last call of a segment are looked at,
and no call between them from the first forward pass to the last. A step that calls other functions than the measured
ones, or in another order, is one segment from there on. A job of lowest priority runs in the idle class: Linux takes
the core from it, in the middle of a call, when a job of higher priority is ready. Then it begins no further segment.

Where the scheduler does not preempt, a job of lowest priority is intercepted operator by operator, so that others wait
for one of its operators at most.

Laws: the results of a job do not depend on the other members; a process that leaves or dies holds up nobody. Cost: a
turn takes 9 µs, PyTorch takes 1 to 5 µs to hand a call to Python, and 20 to 60 µs for an operator with its views.
`pytest -s -m bench tests/bench/test_sharing.py` prints what eight jobs lose to that.
"""

import atexit
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from interfere import progress
from interfere.sharing.device_turns import (
    DEFAULT_DEVICE,
    DEVICE_VARIABLE,
    LIVE_SCHEDULER,
    PRIORITY_VARIABLE,
    DeviceMember,
    device_file,
)
from interfere.sharing.executed_job import NS, WARM_UP_ROUNDS, find_segment_starts, in_segments
from interfere.sharing.operator_interception import InterceptedCalls, identity_of, intercepted_operators
from interfere.timeline.priority_scheduler import PriorityGapFillingScheduler
from interfere.timeline.timelines import (
    MIN_KERNEL_S,
    KernelIdentity,
    KernelPrediction,
    LaunchKey,
    PredictionTable,
    Timeline,
    TimelineKernel,
    launch_keys,
)

MEASURED_ROUNDS = 10  # as many as FIKIT measures (Wu 2023)
# Of a job that is intercepted by its calls. A turn costs .1 % of such a segment. A shorter gap is not worth two turns.
SEGMENT_OF_CALLS_S, GAP_OF_CALLS_S = 0.01, 2e-4
Item = TypeVar("Item")


class _Boundary(NamedTuple):
    """A call that begins or ends a segment."""

    call: Any
    prediction: KernelPrediction | None  # of the segment that it begins; None: it is inside one
    ends: bool


class Session:
    """The membership of this process in a device; a context manager. Operators of this thread alone take turns."""

    def __init__(
        self,
        priority: str | int,
        device: str | Path = DEFAULT_DEVICE,
        scheduler: PriorityGapFillingScheduler = LIVE_SCHEDULER,
        *,
        measured_rounds: int = MEASURED_ROUNDS,
    ) -> None:
        path = device if isinstance(device, Path) else device_file(device)
        self.member = DeviceMember(path, priority, scheduler)
        self._measured_rounds = measured_rounds
        self._context = ExitStack()
        self._process = os.getpid()  # a child by fork is no member: it runs as if there were no session
        self._holds_turn = False
        self._rounds: list[list[TimelineKernel]] = []
        self._round: list[TimelineKernel] = []
        self._operators, self._segments = Counter[KernelIdentity](), Counter[KernelIdentity]()
        self._key: LaunchKey = (KernelIdentity(name=""), 0)  # of the operator that runs or ran last
        self._starts, self._inner = frozenset[LaunchKey](), frozenset[LaunchKey]()
        self._table = PredictionTable(())
        self._prediction = self._table.unmeasured
        self._cpu_mark_ns = self._end_ns = 0
        # Of a member that is intercepted by calls.
        by_calls = self.member.priority or scheduler.preempts
        self._calls = InterceptedCalls(self._before_call, self._after_call) if by_calls else None
        self._call: Any = None  # that runs or ran last
        self._round_calls: list[Any] = []
        self._boundaries: dict[int, _Boundary] = {}  # by place in the step
        self._strays = self._ends_segment = False

    def __enter__(self) -> Self:
        self._context.enter_context(self.member)
        if not self.member.priority and self.member.scheduler.preempts:
            self._context.enter_context(_in_idle_class())
        operators = intercepted_operators(self._before_operator, self._after_operator)
        self._context.enter_context(operators if self._calls is None else self._calls)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._context.__exit__(kind, error, traceback)

    @property
    def is_measured(self) -> bool:
        """Whether the measurement stage is over."""
        return bool(self._starts)

    def steps(self, items: Iterable[Item]) -> Iterator[Item]:
        """Return the items, and take each for the start of a step."""
        for item in items:
            yield item
            self.end_step()

    def end_step(self) -> None:
        """Tell that a step has ended."""
        if not self.is_measured and self._round:
            self._rounds.append(self._round)
            self._round = []
            if len(self._rounds) == WARM_UP_ROUNDS + self._measured_rounds:
                self._end_measurement()
        self._operators.clear()
        self._segments.clear()
        if self._calls is not None:
            if self._holds_turn:  # the step took another way than the measured ones
                self._end_turn()
            self._calls.begin_step()
            self._strays, self._round_calls = False, []

    def _end_measurement(self) -> None:
        # The gap after this step is not over: it is taken to be as the one before this step.
        self._rounds[-1][-1] = replace(self._rounds[-1][-1], gap_s=self._rounds[-2][-1].gap_s)
        rounds = [Timeline(name="this job", kernels=tuple(each)) for each in self._rounds[WARM_UP_ROUNDS:]]
        by_calls = (
            {"segment_s": SEGMENT_OF_CALLS_S, "shortest_gap_s": GAP_OF_CALLS_S} if self._calls is not None else {}
        )
        starts = find_segment_starts(rounds, **by_calls)
        keys = launch_keys(rounds[-1])
        following = [*keys[1:], keys[0]]
        self._inner = frozenset(key for key, next_key in zip(keys, following, strict=True) if next_key not in starts)
        self._table = PredictionTable([in_segments(measured, starts) for measured in rounds], by_place=True)
        self._starts, self._rounds = starts, []
        if self._calls is not None:
            self._find_boundaries(keys)
            begins = {place for place, boundary in self._boundaries.items() if boundary.prediction is not None}
            self._calls.expect(self._round_calls, begins, self._boundaries.keys() - begins)

    def _find_boundaries(self, keys: Sequence[LaunchKey]) -> None:
        """Take in which calls of a step begin and end its segments. `keys`: those of the calls of the last round."""
        segments = Counter[KernelIdentity]()
        for place, (key, call) in enumerate(zip(keys, self._round_calls, strict=True)):
            prediction, ends = None, key not in self._inner
            if key in self._starts:
                prediction = self._table.predict(key[0], segments[key[0]])
                segments[key[0]] += 1
            if prediction is not None or ends:
                self._boundaries[place] = _Boundary(call, prediction, ends)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _before_call(self, call: Any, args: Any) -> None:
        """Return when the call may run: of each call in the measurement stage, then of those that are not expected."""
        if os.getpid() != self._process or self._calls is None:
            return
        self._call = call
        if not self.is_measured:
            self._before_operator(identity_of(call, args))
            return
        boundary = None if self._strays else self._boundaries.get(self._calls.place - 1)
        if boundary is None or boundary.call != call:
            self._strays, self._ends_segment = True, False
            self._calls.stray()
            if not self._holds_turn:
                self._take_turn(self._table.unmeasured)
            return
        if boundary.prediction is not None:
            self._take_turn(boundary.prediction)
        self._ends_segment = boundary.ends

    def _after_call(self) -> None:
        if os.getpid() != self._process:
            return
        if not self.is_measured:
            self._after_operator()
            self._round_calls.append(self._call)
        elif self._ends_segment:
            self._end_turn()

    # --- operators ----------------------------------------------------------------------------------------------------

    def _before_operator(self, identity: KernelIdentity) -> None:
        """Return when the operator may run."""
        if os.getpid() != self._process:
            return
        arrived_ns = time.monotonic_ns()
        if not self.is_measured and (last_round := self._round or (self._rounds and self._rounds[-1])):
            last_round[-1] = replace(last_round[-1], gap_s=(arrived_ns - self._end_ns) * NS)
        self._key = (identity, self._operators[identity])
        self._operators[identity] += 1
        if self._holds_turn and self._key in self._starts:
            self._end_turn()
        if not self._holds_turn:
            prediction = self._table.predict(identity, self._segments[identity])
            self._segments[identity] += 1
            self._take_turn(prediction)
        if not self.is_measured:
            self._cpu_mark_ns = time.thread_time_ns()  # asking costs as much as a small operator

    def _after_operator(self) -> None:
        if os.getpid() != self._process:
            return
        if not self.is_measured:
            run_s = (time.thread_time_ns() - self._cpu_mark_ns) * NS
            self._round.append(TimelineKernel(identity=self._key[0], duration_s=max(run_s, MIN_KERNEL_S), gap_s=0.0))
            self._end_ns = time.monotonic_ns()
        if self._key not in self._inner:  # the end of a segment, or an operator that was not measured
            self._end_turn()

    def _take_turn(self, prediction: KernelPrediction) -> None:
        self._prediction = prediction
        self.member.take_turn(0.0 if prediction is self._table.unmeasured else prediction.run_s)
        self._holds_turn = True

    def _end_turn(self) -> None:
        self.member.end_turn(self._prediction.gaps_s)
        self._holds_turn = False


@contextmanager
def _in_idle_class() -> Iterator[None]:
    """Let the threads of this process run in the idle class of sched(7): a thread of another class that is ready takes
    the core from them at once.

    Who may not raise a priority stays there.
    """
    before = dict[int, tuple[int, os.sched_param]]()
    own = os.sched_getscheduler(0), os.sched_getparam(0)
    for thread in _own_threads():
        with suppress(ProcessLookupError):  # it has ended
            before[thread] = os.sched_getscheduler(thread), os.sched_getparam(thread)
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
    yield
    for thread in _own_threads():
        with suppress(OSError):
            os.sched_setscheduler(thread, *before.get(thread, own))


def _own_threads() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]


joined: list[Session] = []  # by the environment; one at most


def join_from_environment() -> None:
    """Join the device that the environment names, until this process ends; steps are those of `interfere.progress`."""
    if PRIORITY_VARIABLE in os.environ and not joined:
        session = Session(os.environ[PRIORITY_VARIABLE], os.environ.get(DEVICE_VARIABLE, DEFAULT_DEVICE))
        joined.append(session.__enter__())
        atexit.register(session.__exit__, None, None, None)
        progress.listen(session.end_step)
