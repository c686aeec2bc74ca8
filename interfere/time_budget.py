"""How long a search may take: the one place where a decision reads the clock.

Law: an unlimited budget never reads the clock, so a decision with one is a pure function of what it is given.
"""

import math
import time


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
        """Whether no time is left."""
        return self._deadline_s < math.inf and time.perf_counter() > self._deadline_s

    @property
    def remaining_s(self) -> float:
        """Seconds left, never below 0; infinite without a limit."""
        return math.inf if self.unlimited else max(0.0, self._deadline_s - time.perf_counter())


UNLIMITED = TimeBudget()
