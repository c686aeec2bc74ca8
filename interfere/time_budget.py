"""The budget of a decision, and whether its caller still waits: the only module where decisions read the clock.

Work units are the budget: searches count what they do (columns, iterations, hosts visited), and end when the units are
spent. Time is the safety stop of a machine on which the units take too long: CPU time of the planning thread, so that a
busy machine does not make plans worse. A caller's own deadline is wall time, and ends the decision too.

Law: an unlimited budget never reads a clock, so a decision with an unlimited budget is a pure function of its inputs;
so is a decision whose units ran out. `was_cut` says which decisions the clock has cut. An interrupted decision gives no
answer.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LEAST_WALL_S = 0.05  # of a budget, before which its contention is not known
# Work of a second of CPU time, and the share of a time limit that becomes work units; the rest is for what counts none
# (predictions, columns, the answer), and for slower machines.
UNITS_PER_S, SHARE_OF_UNITS = 3_000_000, 0.9

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
    """Work units and time that are left for a search; time is counted from the moment the budget was made."""

    __slots__ = ("_began_s", "_end_s", "_wall_end_s", "_whole", "limit_s", "max_units", "units", "was_cut")

    def __init__(
        self, limit_s: float = math.inf, *, wall_limit_s: float = math.inf, max_units: float = math.inf
    ) -> None:
        """`limit_s`: CPU seconds of this thread, `wall_limit_s`: seconds on the wall; NaN or infinity for no limit."""
        self.limit_s = math.inf if math.isnan(limit_s) else limit_s
        self.max_units, self.units = max_units, 0.0  # work units: how many at most, and how many are spent
        self._end_s = time.thread_time() + self.limit_s if self.limit_s < math.inf else math.inf
        self._wall_end_s = time.monotonic() + wall_limit_s if wall_limit_s < math.inf else math.inf
        # Seconds of CPU and on the wall when it was made; no clock is read without a limit.
        self._began_s = (time.thread_time(), time.monotonic()) if self._end_s < math.inf else (0.0, 0.0)
        self._whole: TimeBudget | None = None  # of which this one is a share
        self.was_cut = False  # whether a search has ended early for lack of time, in a share of it too

    @classmethod
    def of_search(cls, limit_s: float) -> "TimeBudget":
        """Return a budget of the work units that take most of some CPU seconds, and of these seconds."""
        return cls(limit_s, max_units=math.inf if math.isnan(limit_s) else limit_s * UNITS_PER_S * SHARE_OF_UNITS)

    @property
    def unlimited(self) -> bool:
        """Whether there is no limit."""
        return self._end_s == math.inf and self._wall_end_s == math.inf and self.max_units == math.inf

    @property
    def expired(self) -> bool:
        """Whether nothing is left; the search that asks then ends early. Raises where the search is interrupted."""
        check_interruption()
        if self.units >= self.max_units:
            return True
        if self.remaining_s > 0.0:
            return False
        self.cut()
        return True

    def spend(self, units: float) -> None:
        """Count work units, in the budgets too of which this one is a share."""
        budget: TimeBudget | None = self
        while budget is not None:
            budget.units += units
            budget = budget._whole

    @property
    def remaining_units(self) -> float:
        """Return the work units that are left, never below 0; infinite without a limit."""
        return max(0.0, self.max_units - self.units)

    def cut(self) -> None:
        """Remember that a search ends early for lack of time."""
        budget: TimeBudget | None = self
        while budget is not None:
            budget.was_cut = True
            budget = budget._whole

    @property
    def remaining_s(self) -> float:
        """Return the seconds that are left, never below 0; infinite without a limit."""
        cpu_s = self._end_s - time.thread_time() if self._end_s < math.inf else math.inf
        wall_s = self._wall_end_s - time.monotonic() if self._wall_end_s < math.inf else math.inf
        return max(0.0, min(cpu_s, wall_s))

    @property
    def remaining_wall_s(self) -> float:
        """Return the seconds on the wall that what is left takes, if the thread goes on to get as much of a processor.

        For a solver that limits its time on the wall alone: on a busy machine it would stop long before its CPU time.
        """
        cpu_s, wall_s = time.thread_time() - self._began_s[0], time.monotonic() - self._began_s[1]
        contention = max(1.0, (wall_s + LEAST_WALL_S) / (cpu_s + LEAST_WALL_S))
        left_s = max(0.0, self._end_s - time.thread_time()) * contention
        return max(0.0, min(left_s, self._wall_end_s - time.monotonic()))

    def share(self, fraction: float) -> "TimeBudget":
        """Return a budget of that fraction of the units and of the time that are left."""
        if self.unlimited:
            return self
        part = TimeBudget(fraction * self.remaining_s, max_units=fraction * self.remaining_units)
        part._whole, part._began_s = self, self._began_s
        return part


UNLIMITED = TimeBudget()
