"""A discrete-event engine that replays kernel timelines on one device under any sharing mode.

An event is the end of a kernel, a launch, or an instant that the sharing mode asked for. Between two events one stream
runs, or none. Laws: the kernels of a stream run in launch order, one at a time; a kernel is complete when it has run
for its duration; nothing is random and no clock is read, so equal input gives equal output.

A stream launches its next kernel when the last one is complete and its gap has passed: the gap is time of the host.
Where a sharing mode lets hosts launch ahead, up to `launch_ahead` launches wait on the device. A host that left no gap
when the job ran alone was faster than the device: it launches every `LAUNCH_S`. One that left a gap was slower: it
launches at the times at which it did alone. A host always waits for the last kernel of a round, since a round is a
request, or a step whose loss is read. A mode that intercepts launches adds time of the host to each of them.
"""

import math
from collections.abc import Sequence

from interfere.errors import InvalidInputError
from interfere.timeline.priority_scheduler import LAUNCH_S
from interfere.timeline.streams import (
    NOBODY,
    ExecutedStream,
    ExecutionSpan,
    KernelScheduler,
    KernelStream,
    ReplayResult,
    StreamOutcome,
    StreamState,
    Turn,
)

COMPLETION_TOLERANCE_S = 1e-13  # a ten-thousandth of a profiler's nanosecond: a kernel with less to do is complete


def replay(
    streams: Sequence[KernelStream | ExecutedStream],
    mode: KernelScheduler,
    *,
    until_s: float = math.inf,
    record_spans_until_s: float = 0.0,
) -> ReplayResult:
    """Replay all streams together until each bounded one has finished, or until `until_s`.

    Spans that begin before `record_spans_until_s` are recorded. Raises InvalidInputError where there is no stream, or
    the replay would never end.
    """
    if not streams:
        raise InvalidInputError("nothing to replay", value="no streams", remedy="give at least one")
    if until_s == math.inf and all(stream.rounds is None for stream in streams):
        raise InvalidInputError(
            "a replay of endless streams has no end",
            value="rounds of all are None",
            remedy="give until_s, or a stream with rounds",
        )
    engine = _ReplayEngine(streams, mode, until_s, record_spans_until_s)
    engine.run()
    return engine.result()


class _ReplayEngine:
    def __init__(
        self,
        streams: Sequence[KernelStream | ExecutedStream],
        mode: KernelScheduler,
        until_s: float,
        record_spans_until_s: float,
    ) -> None:
        self.mode, self.until_s, self.record_spans_until_s = mode, until_s, record_spans_until_s
        self.states = tuple(_initial_state(index, stream, mode) for index, stream in enumerate(streams))
        self.arbiter = mode.arbiter(self.states)
        self.now_s = 0.0
        self.idle_s = 0.0
        self.spans: list[ExecutionSpan] = []

    def run(self) -> None:
        """Process events in order of time until the replay ends."""
        while True:
            # 1. Note which streams have started and finished, and launch what is due.
            for state in self.states:
                state.started = state.started or state.start_s <= self.now_s
                state.finished = state.finish_s <= self.now_s
                while state.next_launch_s <= self.now_s:
                    self._launch(state)
            if self.now_s >= self.until_s or self._all_finished():
                break
            # 2. Let the sharing mode decide which stream runs.
            turn = self.arbiter.decide(self.now_s, self.states)
            self._start_and_stop(turn.running)
            # 3. Advance to the next event.
            event_s = self._next_event_s(turn)
            assert event_s < math.inf, f"{self.mode.name} leaves ready kernels waiting for ever"
            self._advance(max(event_s, self.now_s), turn.running)

    def _all_finished(self) -> bool:
        bounded = [state.finished for state in self.states if state.stream.rounds is not None]
        return bool(bounded) and all(bounded)

    def _next_event_s(self, turn: Turn) -> float:
        times_s = [self.until_s, turn.until_s]
        for state in self.states:
            times_s.append(state.next_launch_s)
            if not state.started:
                times_s.append(state.start_s)
            if state.index == turn.running:
                times_s.append(self.now_s + state.head_remaining_s)
            if not state.finished:
                times_s.append(state.finish_s)
        return min(times_s)

    def _launch(self, state: StreamState) -> None:
        """Launch the kernel that is due, and plan the next launch."""
        if isinstance(state.stream, ExecutedStream):
            state.launched_s.append(state.next_launch_s)
            state.launched, state.head_started, state.next_launch_s = state.launched + 1, False, math.inf
            return
        if not state.launched_s:
            state.head_remaining_s, state.head_started = state.durations_s[state.head], False
        kernel = state.launched % len(state.durations_s)
        state.launched_s.append(state.next_launch_s)
        state.launched += 1
        gap_s, launch_s = state.gaps_s[kernel], state.next_launch_s
        state.solo_end_s = max(state.solo_end_s, launch_s) + state.durations_s[kernel] + gap_s
        ahead_s = min(LAUNCH_S, state.durations_s[kernel])
        state.host_ready_s = (state.solo_end_s if gap_s else launch_s + ahead_s) + state.intercept_s
        last_of_round = kernel == len(state.durations_s) - 1
        queue_full = len(state.launched_s) >= state.launch_ahead
        state.next_launch_s = math.inf if last_of_round or queue_full else state.host_ready_s

    def _start_and_stop(self, running: int) -> None:
        """Begin and end spans, and count the kernels that start in a gap of a stream of higher priority."""
        for state in self.states:
            if state.index != running:
                self._end_span(state)
                continue
            if not state.head_started:
                state.head_in_gap = self._fills_gap(state)
                state.filled += state.head_in_gap
                state.start_head()
            if math.isnan(state.span_start_s):
                state.span_start_s = self.now_s

    def _fills_gap(self, state: StreamState) -> bool:
        """Return whether the stream runs while all active streams of the highest priority are in a gap.

        The stream itself must have a lower priority.
        """
        highest = max(other.stream.priority for other in self.states if other.active)
        return state.stream.priority < highest and not any(
            other.ready for other in self.states if other.active and other.stream.priority == highest
        )

    def _end_span(self, state: StreamState) -> None:
        if state.span_start_s < self.record_spans_until_s and self.now_s > state.span_start_s:
            self.spans.append(
                ExecutionSpan(
                    stream=state.index,
                    kernel=state.head,
                    round=0 if isinstance(state.stream, ExecutedStream) else state.completed // len(state.durations_s),
                    start_s=state.span_start_s,
                    end_s=self.now_s,
                    in_gap=state.head_in_gap,
                )
            )
        state.span_start_s = math.nan

    def _advance(self, event_s: float, running: int) -> None:
        """Move the clock to the event, account for the time until then, and complete the kernel that ends there."""
        passed_s, busy = event_s - self.now_s, running != NOBODY
        self.now_s = event_s
        self.idle_s += 0.0 if busy else passed_s
        for state in self.states:
            if state.index == running:
                state.executed_s += passed_s
                state.head_remaining_s -= passed_s
                # The remaining time may be too small to move a clock that shows hours: then the kernel is complete too.
                if state.head_remaining_s <= COMPLETION_TOLERANCE_S or event_s + state.head_remaining_s <= event_s:
                    self._complete_head(state)
            elif state.ready:
                state.waited_s += passed_s
            elif state.active:
                state.gap_s += passed_s
                state.gap_used_s += passed_s if busy else 0.0

    def _complete_head(self, state: StreamState) -> None:
        self._end_span(state)
        kernel = state.head
        state.executed_s += state.head_remaining_s
        state.launched_s.popleft()
        state.completed += 1
        state.last_completion_s = self.now_s
        gap_end_s = self.now_s + state.gaps_s[kernel] + state.intercept_s
        if state.launched_s:
            state.head_remaining_s, state.head_started = state.durations_s[state.head], False
        if state.completed == state.total_kernels:
            state.finish_s = gap_end_s
        elif state.launched < state.total_kernels and state.next_launch_s == math.inf:
            # A host that waited for this kernel spends the gap now. One that was blocked by a full queue has spent its
            # gap already.
            host_waited = state.launch_ahead == 1 or kernel == len(state.durations_s) - 1
            if host_waited or state.launched % len(state.durations_s):
                state.next_launch_s = gap_end_s if host_waited else max(self.now_s, state.host_ready_s)

    def result(self) -> ReplayResult:
        """Return the outcome of each stream so far."""
        for state in self.states:
            self._end_span(state)
        return ReplayResult(
            mode=self.mode.name,
            outcomes=tuple(self._outcome(state) for state in self.states),
            end_s=self.now_s,
            idle_s=self.idle_s,
            spans=tuple(sorted(self.spans, key=lambda span: (span.start_s, span.stream))),
        )

    def _outcome(self, state: StreamState) -> StreamOutcome:
        stream, finished = state.stream, state.finished
        if isinstance(stream, ExecutedStream):
            round_s, kernels = 0.0, state.completed
        else:
            rounds, kernels = divmod(state.completed, len(state.durations_s))
            round_s = rounds * stream.timeline.solo_s
        alone_s = round_s + math.fsum(state.durations_s[:kernels]) + math.fsum(state.gaps_s[:kernels])
        if state.ready and state.head_started:
            alone_s += state.durations_s[state.head] - state.head_remaining_s
        elif not state.ready and not finished and state.completed and state.launch_ahead == 1:
            # The part of a gap that has not passed is no progress yet.
            gap_s = state.gaps_s[(state.completed - 1) % len(state.gaps_s)]
            alone_s -= max(0.0, state.last_completion_s + gap_s - self.now_s)
        if state.started:
            alone_s += min(state.first_gap_s, self.now_s - state.start_s)
        return StreamOutcome(
            name=stream.name,
            priority=stream.priority,
            finished=finished,
            elapsed_s=max(0.0, (state.finish_s if finished else self.now_s) - state.start_s),
            alone_s=alone_s,
            kernels=state.completed,
            executed_s=state.executed_s,
            waited_s=state.waited_s,
            gap_s=state.gap_s,
            gap_used_s=state.gap_used_s,
            filled=state.filled,
        )


def _initial_state(index: int, stream: KernelStream | ExecutedStream, mode: KernelScheduler) -> StreamState:
    """Return a stream before its first launch. The host of an executed stream runs up to that launch."""
    if isinstance(stream, ExecutedStream):
        first_gap_s = stream.source.begin()
        return StreamState(
            index=index,
            stream=stream,
            durations_s=[],
            gaps_s=[],
            launch_ahead=1,
            first_gap_s=first_gap_s,
            next_launch_s=first_gap_s,
        )
    return StreamState(
        index=index,
        stream=stream,
        durations_s=[kernel.duration_s for kernel in stream.timeline.kernels],
        gaps_s=[kernel.gap_s for kernel in stream.timeline.kernels],
        launch_ahead=1 if stream.host_waits else mode.launch_ahead,
        intercept_s=mode.overhead_frac * stream.timeline.solo_s / len(stream.timeline.kernels),
        start_s=stream.start_s,
        first_gap_s=stream.first_gap_s,
        next_launch_s=stream.start_s + stream.first_gap_s,
    )
