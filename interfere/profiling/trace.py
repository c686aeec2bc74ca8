"""What one worker logged while it ran, and the pure readings of it: spans, CPU time, stretches, chunks.

A trace is float64[e, 4]: wall time (the system's monotonic clock, one for all processes), CPU time of the process,
steps finished, kind of the event. Law: readings use whole steps only, so no step that straddles two regimes counts.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

CHUNK_S = 0.02  # a chunk is the fewest steps that last this long: 20 of them fit in a quick block's shared windows


class Event(IntEnum):
    """Kinds of event, the last column of a trace."""

    START = 0  # the loop was let go
    STEP = 1  # a step is over
    PAUSE = 2  # the job waits, by its own choice
    RESUME = 3  # the wait is over
    STOP = 4  # the loop was held


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of whole steps of one worker."""

    start_s: float
    end_s: float
    steps: int
    cpu_s: float

    @property
    def wall_s(self) -> float:
        """Length in seconds."""
        return self.end_s - self.start_s


def whole_steps(trace: NDArray[np.float64], start_s: float, end_s: float) -> Span | None:
    """The longest run of whole steps inside the window; None when not even one fits."""
    ends = trace[(trace[:, 3] == Event.STEP) | (trace[:, 3] == Event.START)]
    inside = ends[(ends[:, 0] >= start_s) & (ends[:, 0] <= end_s)]
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    steps = round(last[2] - first[2])
    if steps < 1:
        return None
    return Span(start_s=float(first[0]), end_s=float(last[0]), steps=steps, cpu_s=float(last[1] - first[1]))


def cpu_between(trace: NDArray[np.float64], start_s: float, end_s: float) -> float:
    """CPU seconds of the worker in a window, linear between events."""
    if not len(trace):
        return 0.0
    edges = np.interp((start_s, end_s), trace[:, 0], trace[:, 1])
    return float(edges[1] - edges[0])


def _stretches(trace: NDArray[np.float64], opens: tuple[Event, ...], closes: tuple[Event, ...]) -> NDArray[np.float64]:
    """float64[k, 2]: from each opening event to the next closing one."""
    begin = trace[np.isin(trace[:, 3], opens), 0]
    end = trace[np.isin(trace[:, 3], closes), 0]
    n = min(len(begin), len(end))
    return np.column_stack([begin[:n], end[:n]])


def busy_stretches(trace: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[k, 2]: start and end of each stretch in which the job wanted the device."""
    return _stretches(trace, (Event.START, Event.RESUME), (Event.PAUSE, Event.STOP))


def running_stretches(trace: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64[k, 2]: start and end of each stretch in which the loop ran, its own pauses included."""
    return _stretches(trace, (Event.START,), (Event.STOP,))


def covered(stretches: NDArray[np.float64], start_s: float, end_s: float) -> float:
    """Seconds of the window inside the union of the stretches."""
    clipped = np.clip(stretches, start_s, end_s)
    clipped = clipped[np.argsort(clipped[:, 0])]
    total, reached = 0.0, start_s
    for begin, end in clipped:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return float(total)


def busy_and_idle(trace: NDArray[np.float64], limit: int = 200) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of consecutive busy stretches and of the idle one after each; at most `limit`.

    The idle stretch after the last busy one is unknown, so that busy one is left out; a job that never waits has one
    stretch, idle 0.
    """
    busy = busy_stretches(trace)
    if len(busy) == 1:
        return (float(busy[0, 1] - busy[0, 0]),), (0.0,)
    idle = busy[1:, 0] - busy[:-1, 1]
    lengths = (busy[:, 1] - busy[:, 0])[:-1]
    return tuple(map(float, lengths[:limit])), tuple(map(float, idle[:limit]))


def chunks(trace: NDArray[np.float64], start_s: float, end_s: float) -> NDArray[np.float64]:
    """float64[c, 4]: start, wall, CPU seconds and steps of each chunk of whole steps inside the window."""
    ends = trace[(trace[:, 3] == Event.STEP) | (trace[:, 3] == Event.START)]
    ends = ends[(ends[:, 0] >= start_s) & (ends[:, 0] <= end_s)]
    rows: list[tuple[float, float, float, float]] = []
    first = 0
    for k in range(1, len(ends)):
        if ends[k, 0] - ends[first, 0] >= CHUNK_S:
            wall, cpu, steps = ends[k, :3] - ends[first, :3]
            rows.append((float(ends[first, 0]), float(wall), float(cpu), float(steps)))
            first = k
    return np.array(rows, dtype=np.float64).reshape(-1, 4)
