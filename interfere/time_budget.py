"""The time limit of a decision, and whether its caller still waits: the only module where decisions read the clock.

The budget is CPU time of the planning thread, so that a busy machine does not make plans worse. A caller's own deadline
is wall time, and ends the decision too.

Law: an unlimited budget never reads a clock, so a decision with an unlimited budget is a pure function of its inputs.
An interrupted decision gives no answer.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_interruption: ContextVar[Callable[[], None]] = ContextVar("interruption", default=lambda: None)


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Let every search inside the block call `check` often. `check` raises where the caller no longer waits for the
    answer."""
    token = _interruption.set(check)
    try:
        yield
    finally:
        _interruption.reset(token)


def check_interruption() -> None:
    """Raise what the innermost `interruptible` block raises; nothing outside of one."""
    _interruption.get()()


class TimeBudget:
    """Time that is left for a search, counted from the moment it was made."""

    __slots__ = ("_end_s", "_wall_end_s", "limit_s")

    def __init__(self, limit_s: float = math.inf, *, wall_limit_s: float = math.inf) -> None:
        """`limit_s`: CPU seconds of this thread, `wall_limit_s`: seconds on the wall; NaN or infinity for no limit."""
        self.limit_s = math.inf if math.isnan(limit_s) else limit_s
        self._end_s = time.thread_time() + self.limit_s if self.limit_s < math.inf else math.inf
        self._wall_end_s = time.monotonic() + wall_limit_s if wall_limit_s < math.inf else math.inf

    @property
    def unlimited(self) -> bool:
        """Whether there is no limit."""
        return self._end_s == math.inf and self._wall_end_s == math.inf

    @property
    def expired(self) -> bool:
        """Whether no time is left. Raises where the search is interrupted."""
        check_interruption()
        return self.remaining_s <= 0.0

    @property
    def remaining_s(self) -> float:
        """Return the seconds that are left, never below 0; infinite without a limit."""
        cpu_s = self._end_s - time.thread_time() if self._end_s < math.inf else math.inf
        wall_s = self._wall_end_s - time.monotonic() if self._wall_end_s < math.inf else math.inf
        return max(0.0, min(cpu_s, wall_s))

    def share(self, fraction: float) -> "TimeBudget":
        """Return a budget of that fraction of the time that is left."""
        if self.unlimited:
            return self
        return TimeBudget(fraction * self.remaining_s)


UNLIMITED = TimeBudget()
