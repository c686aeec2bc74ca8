"""How streams share a device, one small strategy each: alone in turn, in slices, at once, in one queue.

Law: no strategy gives a kernel more than its rate alone, and a stream that is alone runs as if there were no sharing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from interfere.errors import Violation
from interfere.records.checks import check, number_violations
from interfere.timeline.replay_engine import LAUNCH_S, QUEUE_LAUNCHES, Decision, Lane

# NVIDIA documents neither. A slice of 2 ms is the default of its vGPU scheduler for up to eight guests (vGPU software
# user guide, "scheduling policies"). The switch costs nothing unless somebody measured it: pass that figure.
GPU_SLICE_S, GPU_SWITCH_S = 0.002, 0.0
ROUNDING_S = 1e-12  # a kernel fits a gap of its very length, whatever the last bits of a sum say


def only(lanes: Sequence[Lane], index: int) -> tuple[float, ...]:
    """Lane `index` runs, nobody else does; -1 is nobody."""
    return tuple(1.0 if k == index else 0.0 for k in range(len(lanes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusive:
    """One stream after the other: by priority, then in the order given. Gaps stay empty."""

    name: str = "exclusive"
    launch_ahead: int = 1

    def arbiter(self, lanes: Sequence[Lane]) -> "Exclusive":
        """It remembers nothing."""
        return self

    def decide(self, now_s: float, lanes: Sequence[Lane]) -> Decision:
        """The first stream that is not over holds the device: one that began keeps it."""
        owner = min(
            (lane for lane in lanes if lane.active),
            key=lambda lane: (lane.ended == 0 and not lane.begun, -lane.stream.priority, lane.index),
            default=None,
        )
        return Decision(only(lanes, owner.index if owner is not None and owner.ready else -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSlices:
    """Round robin between contexts that have work, as a GPU without MPS shares itself.

    A context keeps the device for `slice_s`, or until it has nothing ready; a change of context costs `switch_s`.
    Its host goes on launching while another context runs.
    """

    slice_s: float = GPU_SLICE_S
    switch_s: float = GPU_SWITCH_S
    name: str = "timeslice"
    launch_ahead: int = QUEUE_LAUNCHES

    def __post_init__(self) -> None:
        check(number_violations(self, "slice_s", low=1e-6, nan=False) + number_violations(self, "switch_s", nan=False))

    def arbiter(self, lanes: Sequence[Lane]) -> "_RoundRobin":
        """Nobody owns the device yet."""
        return _RoundRobin(self)


@dataclass(slots=True)
class _RoundRobin:
    policy: TimeSlices
    owner: int = -1
    begins_s: float = 0.0  # the switch to the owner is over
    ends_s: float = 0.0

    def decide(self, now_s: float, lanes: Sequence[Lane]) -> Decision:
        if self.owner < 0 or now_s >= self.ends_s or (now_s >= self.begins_s and not lanes[self.owner].ready):
            n = len(lanes)
            turn = next((k % n for k in range(self.owner + 1, self.owner + n + 1) if lanes[k % n].ready), -1)
            if turn < 0:
                return Decision(only(lanes, -1))
            cost_s = self.policy.switch_s if turn != self.owner and self.owner >= 0 else 0.0
            self.owner, self.begins_s = turn, now_s + cost_s
            self.ends_s = self.begins_s + self.policy.slice_s
        if now_s < self.begins_s:
            return Decision(only(lanes, -1), self.begins_s)
        return Decision(only(lanes, self.owner), self.ends_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spatial:
    """Kernels run at once, as under MPS or on streams: they divide multiprocessors, then memory bandwidth.

    A kernel that fills share f of the multiprocessors runs at min(1, 1/Σf). What the kernels would then draw from
    memory is divided max-min fairly: who draws less than an equal share is not slowed (Bertsekas, Gallager 1992, 6.5).
    """

    name: str = "spatial"
    launch_ahead: int = QUEUE_LAUNCHES

    def arbiter(self, lanes: Sequence[Lane]) -> "Spatial":
        """It remembers nothing."""
        return self

    def decide(self, now_s: float, lanes: Sequence[Lane]) -> Decision:
        """Rates of all that are ready."""
        heads = [lane.stream.timeline.kernels[lane.head] if lane.ready else None for lane in lanes]
        ready = [kernel for kernel in heads if kernel is not None]
        rates = iter(spatial_rates([one.sm_frac for one in ready], [one.bandwidth_frac for one in ready]))
        return Decision(tuple(0.0 if kernel is None else next(rates) for kernel in heads))


def spatial_rates(sm_frac: Sequence[float], bandwidth_frac: Sequence[float]) -> tuple[float, ...]:
    """Rates in (0, 1] of kernels that run at once, from what each fills and draws alone."""
    filled = min(1.0, 1.0 / total) if (total := sum(sm_frac)) > 0 else 1.0
    wants = [filled * frac for frac in bandwidth_frac]
    left, share = 1.0, [0.0] * len(wants)
    for rank, k in enumerate(sorted(range(len(wants)), key=lambda k: wants[k])):
        share[k] = min(wants[k], left / (len(wants) - rank))
        left -= share[k]
    return tuple(filled * (got / want) if want > 0 else filled for got, want in zip(share, wants, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Uncoordinated sharing of one device queue: first launched, first run, whole kernels, whoever is important.

    Hosts run up to `launch_ahead` launches ahead, and an important kernel waits behind all that others have in the
    queue: FIKIT's comparison (Wu 2023).
    """

    launch_ahead: int = QUEUE_LAUNCHES
    name: str = "queued"

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

    def arbiter(self, lanes: Sequence[Lane]) -> "Queued":
        """It remembers nothing: what runs was launched first."""
        return self

    def decide(self, now_s: float, lanes: Sequence[Lane]) -> Decision:
        """The oldest launch; ties in the order of the streams, and what has begun goes on."""
        ready = [lane for lane in lanes if lane.ready]
        first = min(ready, key=lambda lane: (not lane.begun, lane.launched_s[0], lane.index), default=None)
        return Decision(only(lanes, first.index if first is not None else -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityFilling:
    """FIKIT (Wu 2023, algorithms 1 and 2): the most important stream runs, its gaps are filled by the others.

    In a gap, the planner reads how long it will last (SG) and how long the waiting kernels take (SK). A gap under
    `epsilon_s` is left alone. Else: from the highest level that has a kernel that fits what is left of the gap, the
    longest such kernel runs. The next kernel of the important stream ends the gap at once, whatever was believed; a
    kernel that has begun runs to its end.
    """

    epsilon_s: float = 2 * LAUNCH_S  # a shorter gap is a host that launches, and a filling launch would come too late
    name: str = "priority"
    launch_ahead: int = 1

    def __post_init__(self) -> None:
        check(number_violations(self, "epsilon_s", nan=False))

    def arbiter(self, lanes: Sequence[Lane]) -> "_Filling":
        """With what the planner believes of each stream."""
        believed = [lane.stream.believed or lane.stream.timeline for lane in lanes]
        return _Filling(
            self,
            [tuple(kernel.duration_s for kernel in one.kernels) for one in believed],
            [tuple(kernel.gap_s for kernel in one.kernels) for one in believed],
        )


@dataclass(slots=True)
class _Filling:
    policy: PriorityFilling
    run_s: list[tuple[float, ...]]  # SK
    wait_s: list[tuple[float, ...]]  # SG
    runs: int = field(default=-1)

    def decide(self, now_s: float, lanes: Sequence[Lane]) -> Decision:
        if self.runs >= 0 and lanes[self.runs].ready and lanes[self.runs].begun:
            return Decision(only(lanes, self.runs))
        top = max((lane.stream.priority for lane in lanes if lane.active), default=0)
        holders = [lane for lane in lanes if lane.active and lane.stream.priority == top]
        ready = [lane for lane in holders if lane.ready]
        if ready:
            self.runs = min(ready, key=lambda lane: (lane.launched_s[0], lane.index)).index
        else:
            self.runs = self._fill(now_s, holders, lanes)
        return Decision(only(lanes, self.runs))

    def _fill(self, now_s: float, holders: Sequence[Lane], lanes: Sequence[Lane]) -> int:
        """The lane whose head fills the gap best, or -1."""
        left_s = math.inf
        for lane in holders:
            gap_s = self.wait_s[lane.index][(lane.ended - 1) % len(lane.durations_s)]
            if gap_s < self.policy.epsilon_s:
                return -1
            left_s = min(left_s, lane.last_end_s + gap_s - now_s)
        fits = [
            (lane.stream.priority, self.run_s[lane.index][lane.head], -lane.index)
            for lane in lanes
            if lane.ready and self.run_s[lane.index][lane.head] <= left_s + ROUNDING_S
        ]
        return -max(fits)[2] if fits else -1
