"""One engine for every sharing mode: it moves time from event to event and lets a policy say who runs how fast.

An event is a kernel that ends, a launch, or an instant that the policy named. Between two events rates are constant.
Laws: kernels of a stream run in launch order, one at a time; a kernel is over when its rates, summed over time, reach
its duration; nothing is random and no clock is read, so equal input gives equal output.

A stream launches its next kernel when the last one is over and its gap has passed: the gap is the host's. Where a
policy lets hosts run ahead, up to `launch_ahead` launches wait on the device. Where the device alone had no gap, its
host was faster: it launches every `LAUNCH_S`. Where it had one, the host was the slower: it launches when it did alone.
And a host waits for the last kernel of a round: a round is a request, or a step whose loss is read.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from interfere.errors import InvalidInputError
from interfere.timeline.records import Outcome, Replay, Span, Stream

# From one launch to the next, and how many wait before the host is held: 4 to 5 µs, and about 1,000 a stream, as
# somebody measured (forums.developer.nvidia.com, topic 68937).
LAUNCH_S, QUEUE_LAUNCHES = 5e-6, 1_000
DONE_S = 1e-13  # rest of a kernel that counts as none: a ten-thousandth of a profiler's nanosecond


@dataclass(slots=True)
class Lane:
    """One stream while it is replayed. Policies read it and never write it."""

    index: int
    stream: Stream
    durations_s: tuple[float, ...]
    gaps_s: tuple[float, ...]
    launch_ahead: int
    launched_s: deque[float] = field(default_factory=deque)  # launches that are not over: the first one is the head
    next_launch_s: float = math.inf
    alone_s: float = 0.0  # when the device would be through with all launches and their gaps, were it alone
    host_s: float = 0.0  # when its host is ready to launch the next one, if it may run ahead
    launches: int = 0  # so far, over all rounds
    ended: int = 0
    left_s: float = 0.0  # of the head
    begun: bool = False  # the head
    in_gap: bool = False  # the head began while a stream of higher priority had none ready
    last_end_s: float = -math.inf
    finished_s: float = math.inf  # its last kernel and the gap after it
    over: bool = False
    span_s: float = math.nan  # start of the stretch that runs now
    worked_s: float = 0.0
    waited_s: float = 0.0
    gap_s: float = 0.0
    gap_used_s: float = 0.0
    filled: int = 0

    @property
    def ready(self) -> bool:
        """A kernel waits or runs."""
        return bool(self.launched_s)

    @property
    def active(self) -> bool:
        """It has started and is not over."""
        return self.launches > 0 and not self.over

    @property
    def head(self) -> int:
        """Index, in the timeline, of the kernel that waits or runs."""
        return self.ended % len(self.durations_s)

    @property
    def total(self) -> float:
        """Kernels over all rounds."""
        rounds = self.stream.rounds
        return math.inf if rounds is None else rounds * len(self.durations_s)


@dataclass(frozen=True, slots=True)
class Decision:
    """Rates in [0, 1], one a lane, 0 where none is ready; ask again at `until_s` at the latest."""

    rates: tuple[float, ...]
    until_s: float = math.inf


class Arbiter(Protocol):
    """One policy during one replay."""

    def decide(self, now_s: float, lanes: Sequence[Lane]) -> Decision:
        """Asked at every event."""


class SharingPolicy(Protocol):
    """One way to share a device."""

    @property
    def name(self) -> str:
        """What tables call it."""

    @property
    def launch_ahead(self) -> int:
        """Launches of one stream that may wait on the device; 1: the host waits for each."""

    def arbiter(self, lanes: Sequence[Lane]) -> Arbiter:
        """Ready to decide one replay."""


def replay(
    streams: Sequence[Stream], policy: SharingPolicy, *, until_s: float = math.inf, keep_s: float = 0.0
) -> Replay:
    """All streams together until each that ends has ended, or `until_s`. Spans that begin before `keep_s` are kept.

    Raises InvalidInputError where the replay would never end.
    """
    if not streams:
        raise InvalidInputError("nothing to replay", value="no streams", remedy="give one at least")
    if until_s == math.inf and all(one.rounds is None for one in streams):
        raise InvalidInputError(
            "a replay of endless streams has no end", value="rounds of all are None", remedy="give until_s, or rounds"
        )
    run = _Run(streams, policy, until_s, keep_s)
    run.go()
    return run.result()


class _Run:
    def __init__(self, streams: Sequence[Stream], policy: SharingPolicy, until_s: float, keep_s: float) -> None:
        self.policy, self.until_s, self.keep_s = policy, until_s, keep_s
        self.lanes = tuple(
            Lane(
                index=index,
                stream=one,
                durations_s=tuple(kernel.duration_s for kernel in one.timeline.kernels),
                gaps_s=tuple(kernel.gap_s for kernel in one.timeline.kernels),
                launch_ahead=1 if one.host_waits else policy.launch_ahead,
                next_launch_s=one.start_s,
            )
            for index, one in enumerate(streams)
        )
        self.arbiter = policy.arbiter(self.lanes)
        self.now_s = 0.0
        self.idle_s = 0.0
        self.spans: list[Span] = []

    def go(self) -> None:
        lanes = self.lanes
        while True:
            for lane in lanes:
                lane.over = lane.finished_s <= self.now_s
                while lane.next_launch_s <= self.now_s:
                    self._launch(lane)
            if self.now_s >= self.until_s or self._over():
                break
            decision = self.arbiter.decide(self.now_s, lanes)
            self._mark(decision.rates)
            ends_s = [self.until_s, decision.until_s]
            for lane, rate in zip(lanes, decision.rates, strict=True):
                ends_s.append(lane.next_launch_s)
                if rate > 0:
                    ends_s.append(self.now_s + lane.left_s / rate)
                if not lane.over:
                    ends_s.append(lane.finished_s)
            end_s = min(ends_s)
            assert end_s < math.inf, f"{self.policy.name} leaves ready kernels for ever"
            self._advance(max(end_s, self.now_s), decision.rates)

    def _over(self) -> bool:
        bounded = [lane.over for lane in self.lanes if lane.stream.rounds is not None]
        return bool(bounded) and all(bounded)

    def _launch(self, lane: Lane) -> None:
        """The launch is due; plan the next one."""
        if not lane.launched_s:
            lane.left_s, lane.begun = lane.durations_s[lane.head], False
        kernel = lane.launches % len(lane.durations_s)
        lane.launched_s.append(lane.next_launch_s)
        lane.launches += 1
        gap_s, launched_s = lane.gaps_s[kernel], lane.next_launch_s
        lane.alone_s = max(lane.alone_s, launched_s) + lane.durations_s[kernel] + gap_s
        lane.host_s = lane.alone_s if gap_s else launched_s + min(LAUNCH_S, lane.durations_s[kernel])
        last = kernel == len(lane.durations_s) - 1
        lane.next_launch_s = math.inf if last or len(lane.launched_s) >= lane.launch_ahead else lane.host_s

    def _mark(self, rates: Sequence[float]) -> None:
        """Close and open stretches; count what begins in the gap of somebody more important."""
        for lane, rate in zip(self.lanes, rates, strict=True):
            if not rate:
                self._close(lane)
            elif not lane.begun:
                lane.begun, lane.in_gap = True, self._in_gap(lane)
                lane.filled += lane.in_gap
            if rate and math.isnan(lane.span_s):
                lane.span_s = self.now_s

    def _in_gap(self, lane: Lane) -> bool:
        """The most important streams have nothing ready, and this is none of them."""
        top = max(one.stream.priority for one in self.lanes if one.active)
        return lane.stream.priority < top and not any(
            one.ready for one in self.lanes if one.active and one.stream.priority == top
        )

    def _close(self, lane: Lane) -> None:
        if lane.span_s < self.keep_s and self.now_s > lane.span_s:
            self.spans.append(
                Span(
                    stream=lane.index,
                    kernel=lane.head,
                    round=lane.ended // len(lane.durations_s),
                    start_s=lane.span_s,
                    end_s=self.now_s,
                    in_gap=lane.in_gap,
                )
            )
        lane.span_s = math.nan

    def _advance(self, end_s: float, rates: Sequence[float]) -> None:
        step_s, busy = end_s - self.now_s, any(rates)
        self.now_s = end_s
        self.idle_s += 0.0 if busy else step_s
        for lane, rate in zip(self.lanes, rates, strict=True):
            if lane.ready:
                lane.worked_s += rate * step_s
                lane.waited_s += 0.0 if rate else step_s
                lane.left_s -= rate * step_s
                # What is left may be too little to move a clock that shows hours: then it is over too.
                if rate and (lane.left_s <= DONE_S or end_s + lane.left_s / rate <= end_s):
                    self._end(lane)
            elif lane.active:
                lane.gap_s += step_s
                lane.gap_used_s += step_s if busy else 0.0

    def _end(self, lane: Lane) -> None:
        """The head is over."""
        self._close(lane)
        kernel = lane.head
        lane.worked_s += lane.left_s
        lane.launched_s.popleft()
        lane.ended += 1
        lane.last_end_s = self.now_s
        after_s = self.now_s + lane.gaps_s[kernel]
        if lane.launched_s:
            lane.left_s, lane.begun = lane.durations_s[lane.head], False
        if lane.ended == lane.total:
            lane.finished_s = after_s
        elif lane.launches < lane.total and lane.next_launch_s == math.inf:
            # A host that waited for this kernel lets the gap pass; one that was too far ahead has had it already.
            waited = lane.launch_ahead == 1 or kernel == len(lane.durations_s) - 1
            if waited or lane.launches % len(lane.durations_s):
                lane.next_launch_s = after_s if waited else max(self.now_s, lane.host_s)

    def result(self) -> Replay:
        for lane in self.lanes:
            self._close(lane)
        return Replay(
            policy=self.policy.name,
            outcomes=tuple(self._outcome(lane) for lane in self.lanes),
            end_s=self.now_s,
            idle_s=self.idle_s,
            spans=tuple(sorted(self.spans, key=lambda span: (span.start_s, span.stream))),
        )

    def _outcome(self, lane: Lane) -> Outcome:
        one, finished = lane.stream, lane.over
        rounds, rest = divmod(lane.ended, len(lane.durations_s))
        alone_s = rounds * one.timeline.solo_s + math.fsum(lane.durations_s[:rest]) + math.fsum(lane.gaps_s[:rest])
        if lane.ready:
            alone_s += lane.durations_s[lane.head] - lane.left_s
        elif not finished and lane.ended and lane.launch_ahead == 1:
            # The part of a gap that has not passed is no progress yet.
            gap_s = lane.gaps_s[(lane.ended - 1) % len(lane.gaps_s)]
            alone_s -= max(0.0, lane.last_end_s + gap_s - self.now_s)
        return Outcome(
            name=one.timeline.name,
            priority=one.priority,
            finished=finished,
            elapsed_s=max(0.0, (lane.finished_s if finished else self.now_s) - one.start_s),
            alone_s=alone_s,
            kernels=lane.ended,
            worked_s=lane.worked_s,
            waited_s=lane.waited_s,
            gap_s=lane.gap_s,
            gap_used_s=lane.gap_used_s,
            filled=lane.filled,
        )
