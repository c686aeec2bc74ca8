"""The event trace that one worker records while it runs, and what is computed from it: step times, CPU time, busy time.

A trace is float64[e, 4], one row an event: wall time (the system's monotonic clock, one for all processes), CPU time of
the process, steps finished, kind of the event. Law: step times are taken over whole steps only, so no step that runs
partly alone and partly beside another job counts.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Trace = NDArray[np.float64]  # float64[e, 4]: wall seconds, CPU seconds, steps, Event
Intervals = NDArray[np.float64]  # float64[k, 2]: start and end in seconds
# float64[r, 4]: arrival, answer and first token of each request in monotonic seconds, and its tokens, in order of
# arrival: `workload.Answered`. NaN and 0 in the last two columns where no tokens are generated.
Requests = NDArray[np.float64]


class Event(IntEnum):
    """The kinds of event in a trace: the last column of its rows."""

    START = 0  # the loop starts or continues
    STEP = 1  # a step ends
    PAUSE = 2  # the job begins to wait, of its own accord
    RESUME = 3  # the wait is over
    STOP = 4  # the loop is stopped by the controller


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """Consecutive whole steps of a worker, with their wall time and CPU time."""

    start_s: float
    end_s: float
    steps: int
    cpu_s: float

    @property
    def wall_s(self) -> float:
        """The wall time of the steps in seconds."""
        return self.end_s - self.start_s

    @property
    def step_time_s(self) -> float:
        """The mean wall time of a step."""
        return self.wall_s / self.steps


def whole_steps(trace: Trace, start_s: float, end_s: float) -> StepSpan | None:
    """Return the longest run of whole steps inside a time window; None when not even one step fits."""
    step_ends = trace[(trace[:, 3] == Event.STEP) | (trace[:, 3] == Event.START)]
    inside = step_ends[(step_ends[:, 0] >= start_s) & (step_ends[:, 0] <= end_s)]
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    steps = round(last[2] - first[2])
    if steps < 1:
        return None
    return StepSpan(start_s=float(first[0]), end_s=float(last[0]), steps=steps, cpu_s=float(last[1] - first[1]))


def cpu_time_s(trace: Trace, start_s: float, end_s: float) -> float:
    """Return the CPU seconds that the worker used in a time window, interpolated linearly between events."""
    if not len(trace):
        return 0.0
    cpu_at_edges = np.interp((start_s, end_s), trace[:, 0], trace[:, 1])
    return float(cpu_at_edges[1] - cpu_at_edges[0])


def _intervals(trace: Trace, opening: tuple[Event, ...], closing: tuple[Event, ...]) -> Intervals:
    """Return the intervals from each opening event to the next closing event."""
    starts = trace[np.isin(trace[:, 3], opening), 0]
    ends = trace[np.isin(trace[:, 3], closing), 0]
    count = min(len(starts), len(ends))
    return np.column_stack([starts[:count], ends[:count]])


def busy_intervals(trace: Trace) -> Intervals:
    """Return the intervals in which the job wanted the device: its loop ran and did not pause."""
    return _intervals(trace, (Event.START, Event.RESUME), (Event.PAUSE, Event.STOP))


def running_intervals(trace: Trace) -> Intervals:
    """Return the intervals in which the job's loop ran, its own pauses included."""
    return _intervals(trace, (Event.START,), (Event.STOP,))


def covered_s(intervals: Intervals, start_s: float, end_s: float) -> float:
    """Return the seconds of a time window that lie inside the union of the intervals."""
    clipped = np.clip(intervals, start_s, end_s)
    clipped = clipped[np.argsort(clipped[:, 0])]
    total_s, covered_until_s = 0.0, start_s
    for interval_start_s, interval_end_s in clipped:
        total_s += max(0.0, interval_end_s - max(interval_start_s, covered_until_s))
        covered_until_s = max(covered_until_s, interval_end_s)
    return float(total_s)


def first_start_s(trace: Trace, start_s: float, end_s: float) -> float:
    """Return when the loop first started within a time window; `start_s` where the loop did not start within the
    window."""
    starts = trace[(trace[:, 3] == Event.START) & (trace[:, 0] >= start_s) & (trace[:, 0] <= end_s), 0]
    return float(starts[0]) if len(starts) else start_s


def latencies_s(requests: Requests, start_s: float, end_s: float) -> NDArray[np.float64]:
    """Return float64[r]: the latency of each request that arrived within a time window, whenever it was answered."""
    arrived = _arrived(requests, start_s, end_s)
    return np.asarray(arrived[:, 1] - arrived[:, 0])


def token_times_s(requests: Requests, start_s: float, end_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the time to first token (TTFT) and the time per output token (TPOT), float64[g] and float64[h].

    They are of the requests that arrived within a time window and whose answer has tokens; TPOT, the mean time between
    the tokens of an answer, of answers with two tokens or more.
    """
    arrived = _arrived(requests, start_s, end_s)
    generated, several = arrived[arrived[:, 3] >= 1], arrived[arrived[:, 3] >= 2]
    return generated[:, 2] - generated[:, 0], (several[:, 1] - several[:, 2]) / (several[:, 3] - 1)


def _arrived(requests: Requests, start_s: float, end_s: float) -> Requests:
    return requests[(requests[:, 0] >= start_s) & (requests[:, 0] < end_s)]


def busy_and_idle_durations(trace: Trace, limit: int = 200) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the seconds of consecutive busy intervals, and of the idle time after each; at most `limit` of both.

    The idle time after the last busy interval of a run is unknown, since the loop was stopped there: that interval is
    left out. A job that never waits has one busy interval, as long as its longest run, and 0 s of idle time.
    """
    busy, running = busy_intervals(trace), running_intervals(trace)
    busy_s: list[float] = []
    idle_s: list[float] = []
    for start_s, end_s in running:
        run = busy[(busy[:, 0] >= start_s) & (busy[:, 1] <= end_s)]
        busy_s += map(float, (run[:, 1] - run[:, 0])[:-1])
        idle_s += map(float, run[1:, 0] - run[:-1, 1])
    if not busy_s:
        return (float((busy[:, 1] - busy[:, 0]).max()),), (0.0,)
    return tuple(busy_s[:limit]), tuple(idle_s[:limit])
