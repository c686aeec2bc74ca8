"""GPU sharing modes, one class each: exclusive, time slices, spatial, single queue, and priority with gap filling.

Linux's scheduling of processes on a CPU core is in `interfere.timeline.eevdf`. Law: no mode runs a kernel faster than
it runs alone, and a stream without neighbours runs as if there were no sharing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from interfere.errors import Violation
from interfere.records.checks import check, number_violations
from interfere.timeline.replay_engine import LAUNCH_S, QUEUE_LAUNCHES, RateAllocation, StreamState

# NVIDIA documents neither for a plain GPU. 2 ms is the default slice of its vGPU scheduler for up to eight guests (vGPU
# software user guide, "scheduling policies"). A context switch costs nothing unless a measured cost is passed.
GPU_SLICE_S, GPU_SWITCH_S = 0.002, 0.0
FIKIT_OVERHEAD_FRAC = 0.05  # the most that FIKIT's paper measured for its interception of launches
ROUNDING_S = 1e-12  # a kernel fits into a gap of exactly its length, whatever the last bits of a sum say


def run_only(streams: Sequence[StreamState], index: int) -> tuple[float, ...]:
    """Rates with which only the stream at `index` runs; with -1 none runs."""
    return tuple(1.0 if k == index else 0.0 for k in range(len(streams)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveScheduler:
    """One stream after the other, by priority and then in the order given. Gaps stay empty."""

    name: str = "exclusive"
    launch_ahead: int = 1
    overhead_frac: float = 0.0

    def arbiter(self, streams: Sequence[StreamState]) -> "ExclusiveScheduler":
        """The mode itself: it keeps no state."""
        return self

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> RateAllocation:
        """The device belongs to the stream that has begun, else to the first by priority."""
        owner = min(
            (state for state in streams if state.active),
            key=lambda state: (state.completed == 0 and not state.head_started, -state.stream.priority, state.index),
            default=None,
        )
        return RateAllocation(run_only(streams, owner.index if owner is not None and owner.ready else -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSliceScheduler:
    """Round robin between contexts that have work, as on a GPU without MPS.

    A context keeps the device for `slice_s`, or until it has nothing ready; a context switch costs `switch_s`. Its host
    goes on launching while another context runs.
    """

    slice_s: float = GPU_SLICE_S
    switch_s: float = GPU_SWITCH_S
    name: str = "timeslice"
    launch_ahead: int = QUEUE_LAUNCHES
    overhead_frac: float = 0.0

    def __post_init__(self) -> None:
        check(number_violations(self, "slice_s", low=1e-6, nan=False) + number_violations(self, "switch_s", nan=False))

    def arbiter(self, streams: Sequence[StreamState]) -> "_RoundRobinArbiter":
        """A round robin in which no context has the device yet."""
        return _RoundRobinArbiter(self)


@dataclass(slots=True)
class _RoundRobinArbiter:
    mode: TimeSliceScheduler
    owner: int = -1
    slice_start_s: float = 0.0  # the end of the switch to the owner
    slice_end_s: float = 0.0

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> RateAllocation:
        owner_is_done = now_s >= self.slice_start_s and not streams[self.owner].ready
        if self.owner < 0 or now_s >= self.slice_end_s or owner_is_done:
            n = len(streams)
            next_owner = next((k % n for k in range(self.owner + 1, self.owner + n + 1) if streams[k % n].ready), -1)
            if next_owner < 0:
                return RateAllocation(run_only(streams, -1))
            switch_s = self.mode.switch_s if next_owner != self.owner and self.owner >= 0 else 0.0
            self.owner, self.slice_start_s = next_owner, now_s + switch_s
            self.slice_end_s = self.slice_start_s + self.mode.slice_s
        if now_s < self.slice_start_s:
            return RateAllocation(run_only(streams, -1), self.slice_start_s)
        return RateAllocation(run_only(streams, self.owner), self.slice_end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpatialScheduler:
    """Kernels run at the same time, as under MPS or on CUDA streams: they divide multiprocessors, then bandwidth.

    A kernel that fills share f of the multiprocessors runs at min(1, 1/Σf). The memory bandwidth that the kernels would
    then draw is divided max-min fairly: one that draws less than an equal share is not slowed (Bertsekas, Gallager
    1992, 6.5).
    """

    name: str = "spatial"
    launch_ahead: int = QUEUE_LAUNCHES
    overhead_frac: float = 0.0

    def arbiter(self, streams: Sequence[StreamState]) -> "SpatialScheduler":
        """The mode itself: it keeps no state."""
        return self

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> RateAllocation:
        """The rates of all streams that are ready."""
        heads = [state.stream.timeline.kernels[state.head] if state.ready else None for state in streams]
        running = [kernel for kernel in heads if kernel is not None]
        rates = iter(
            spatial_rates([kernel.sm_frac for kernel in running], [kernel.bandwidth_frac for kernel in running])
        )
        return RateAllocation(tuple(0.0 if kernel is None else next(rates) for kernel in heads))


def spatial_rates(sm_frac: Sequence[float], bandwidth_frac: Sequence[float]) -> tuple[float, ...]:
    """Rates in (0, 1] of kernels that run at the same time, from the shares that each uses alone."""
    compute_rate = min(1.0, 1.0 / total) if (total := sum(sm_frac)) > 0 else 1.0
    demands = [compute_rate * frac for frac in bandwidth_frac]
    free_bandwidth, shares = 1.0, [0.0] * len(demands)
    for rank, k in enumerate(sorted(range(len(demands)), key=lambda k: demands[k])):
        shares[k] = min(demands[k], free_bandwidth / (len(demands) - rank))
        free_bandwidth -= shares[k]
    return tuple(
        compute_rate * (share / demand) if demand > 0 else compute_rate
        for share, demand in zip(shares, demands, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleQueueScheduler:
    """Uncoordinated sharing of one device queue: kernels run whole, in the order of their launch, at any priority.

    Hosts launch up to `launch_ahead` kernels ahead, so a kernel of high priority waits behind all that other streams
    have in the queue: the baseline that FIKIT compares with (Wu 2023).
    """

    launch_ahead: int = QUEUE_LAUNCHES
    name: str = "queued"
    overhead_frac: float = 0.0

    def __post_init__(self) -> None:
        if self.launch_ahead < 1:
            check(
                [
                    Violation(
                        field="launch_ahead",
                        what="must be ≥ 1",
                        value=repr(self.launch_ahead),
                        remedy="1 waits for every kernel",
                    )
                ]
            )

    def arbiter(self, streams: Sequence[StreamState]) -> "SingleQueueScheduler":
        """The mode itself: it keeps no state."""
        return self

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> RateAllocation:
        """The kernel that has started goes on, else the oldest launch runs; ties go in the order of the streams."""
        ready = [state for state in streams if state.ready]
        oldest = min(ready, key=lambda state: (not state.head_started, state.launched_s[0], state.index), default=None)
        return RateAllocation(run_only(streams, oldest.index if oldest is not None else -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityGapFillingScheduler:
    """FIKIT (Wu 2023, algorithms 1 and 2): the stream of highest priority runs, and the others fill its gaps.

    In a gap, the scheduler reads how long it predicts the gap (SG) and each waiting kernel (SK) to take. A gap shorter
    than `epsilon_s` stays empty. Otherwise the longest kernel that fits into what remains of the gap runs, taken from
    the highest priority level that has one. The next kernel of the stream of highest priority ends the gap at once,
    whatever was predicted, but a kernel that has started runs to its end. Every launch is intercepted, which may cost
    `overhead_frac` of each job's time alone.
    """

    epsilon_s: float = 2 * LAUNCH_S  # in a shorter gap the host is just launching; a filling launch would come too late
    name: str = "priority"
    launch_ahead: int = 1
    overhead_frac: float = 0.0

    def __post_init__(self) -> None:
        check(number_violations(self, "epsilon_s", "overhead_frac", nan=False))

    def arbiter(self, streams: Sequence[StreamState]) -> "_GapFillingArbiter":
        """A scheduler that reads the predicted timelines of the streams; what interception adds to a gap it measured
        with the gap."""
        predicted = [(state.stream.predicted or state.stream.timeline).kernels for state in streams]
        return _GapFillingArbiter(
            self,
            [tuple(kernel.duration_s for kernel in kernels) for kernels in predicted],
            [
                tuple(kernel.gap_s + state.intercept_s for kernel in kernels)
                for state, kernels in zip(streams, predicted, strict=True)
            ],
        )


@dataclass(slots=True)
class _GapFillingArbiter:
    mode: PriorityGapFillingScheduler
    predicted_run_s: list[tuple[float, ...]]  # SK
    predicted_gap_s: list[tuple[float, ...]]  # SG
    running: int = field(default=-1)

    def decide(self, now_s: float, streams: Sequence[StreamState]) -> RateAllocation:
        if self.running >= 0 and streams[self.running].ready and streams[self.running].head_started:
            return RateAllocation(run_only(streams, self.running))
        highest = max((state.stream.priority for state in streams if state.active), default=0)
        top_streams = [state for state in streams if state.active and state.stream.priority == highest]
        ready = [state for state in top_streams if state.ready]
        if ready:
            self.running = min(ready, key=lambda state: (state.launched_s[0], state.index)).index
        else:
            self.running = self._best_filler(now_s, top_streams, streams)
        return RateAllocation(run_only(streams, self.running))

    def _best_filler(self, now_s: float, top_streams: Sequence[StreamState], streams: Sequence[StreamState]) -> int:
        """Index of the stream whose head fills the gap best, or -1."""
        remaining_gap_s = math.inf
        for state in top_streams:
            gap_s = self.predicted_gap_s[state.index][(state.completed - 1) % len(state.durations_s)]
            if gap_s < self.mode.epsilon_s:
                return -1
            remaining_gap_s = min(remaining_gap_s, state.last_completion_s + gap_s - now_s)
        fitting = [
            (state.stream.priority, self.predicted_run_s[state.index][state.head], -state.index)
            for state in streams
            if state.ready and self.predicted_run_s[state.index][state.head] <= remaining_gap_s + ROUNDING_S
        ]
        return -max(fitting)[2] if fitting else -1
