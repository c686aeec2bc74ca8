"""How long a search may take, and whether anybody still waits for it: the one place where a decision reads the clock.

Law: an unlimited budget never reads the clock, so a decision with one is a pure function of what it is given. An
interrupted decision gives no answer at all.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_interruption: ContextVar[Callable[[], None]] = ContextVar("interruption", default=lambda: None)


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Let `check` be called often inside the block, by every search there; it raises where nobody waits any longer."""
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

    __slots__ = ("_deadline_s", "limit_s")

    def __init__(self, limit_s: float = math.inf) -> None:
        """`limit_s`: seconds from now; NaN or infinity for no limit."""
        self.limit_s = math.inf if math.isnan(limit_s) else limit_s
        self._deadline_s = time.perf_counter() + self.limit_s if self.limit_s < math.inf else math.inf

    @property
    def unlimited(self) -> bool:
        """Whether there is no limit."""
        return self._deadline_s == math.inf

    @property
    def expired(self) -> bool:
        """Whether no time is left. Raises where the search is interrupted."""
        check_interruption()
        return self._deadline_s < math.inf and time.perf_counter() > self._deadline_s

    @property
    def remaining_s(self) -> float:
        """Seconds left, never below 0; infinite without a limit."""
        return math.inf if self.unlimited else max(0.0, self._deadline_s - time.perf_counter())


UNLIMITED = TimeBudget()
